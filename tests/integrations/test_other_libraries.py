"""Atomizer-IO inside TorchGeo-bench and TerraTorch.

Neither is in the environment of the tests (Python ≥ 3.12; 1.4 GB and torchvision), so where they are missing, what they
call is recorded here from torchgeo-bench 0.4 and terratorch 1.2.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import atomizer_io as aio
from atomizer_io.errors import ConfigError
from atomizer_io.integrations.rasters import RasterFeatures

BANDS = [
    SimpleNamespace(sensor="drone", name="green", wavelength_um=0.56, mean=600.0, std=150.0, gsd_m=0.5),
    SimpleNamespace(sensor="drone", name="nir", wavelength_um=0.84, mean=2000.0, std=500.0, gsd_m=0.5),
]
IMAGES = torch.randn(2, 2, 18, 13, generator=torch.Generator().manual_seed(0)) * 300 + 1000


class BenchModel(torch.nn.Module):
    """What torchgeo-bench has a model inherit from."""

    def __init__(self, bands: list[Any], normalization: str = "bandspec_zscore", **_: object) -> None:
        super().__init__()
        assert bands and normalization == "identity"

    def forward(self, images: torch.Tensor, bboxes: torch.Tensor | None = None) -> torch.Tensor:
        return self._forward_patch_features(images, bboxes)


class Registry(dict[str, Any]):
    """What terratorch registers backbones in."""

    def register(self, constructor: Any) -> Any:
        self[constructor.__name__] = constructor
        return constructor


def recorded(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:count]), ModuleType(".".join(parts[:count])))
        vars(sys.modules[name]).update(names)


def test_torchgeo_bench_gets_embeddings_of_bands_that_no_model_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, "torchgeo_bench.models.interface", BenchModel=BenchModel)
    bench = importlib.import_module("atomizer_io.integrations.torchgeo_bench").AtomizerBench(BANDS)
    embedded = bench(IMAGES)
    assert embedded.shape == (2, 96) and not embedded.requires_grad
    clouded = IMAGES.clone()
    clouded[0, :, :9] = torch.nan  # absent, not zero: the other image does not change
    again = bench(clouded)
    assert again.isfinite().all() and torch.equal(again[1], embedded[1]) and not torch.equal(again[0], embedded[0])


def test_terratorch_gets_a_backbone_that_learns(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    registry = Registry()
    recorded(monkeypatch, "terratorch.registry", TERRATORCH_BACKBONE_REGISTRY=registry)
    importlib.import_module("atomizer_io.integrations.terratorch")
    channels = aio.sensors.SENTINEL2.pick("B03", "B08")
    aio.create_model("atomizer_io_tiny", channels=channels).save_pretrained(tmp_path)
    names = {"model_bands": ["B03", "B08"], "sensor": "sentinel2", "checkpoint": str(tmp_path), "strides": (2, 8)}
    backbone = registry["atomizer_io"](**names, pretrained=True)
    features = backbone(IMAGES)
    assert backbone.out_channels == [96, 96] and [tuple(f.shape) for f in features] == [(2, 96, 9, 7), (2, 96, 3, 2)]
    features[1].sum().backward()
    assert backbone.features.network.decoder.q_init.grad.abs().sum() > 0


def test_images_that_do_not_fit_are_named() -> None:
    channels = [aio.Channel.of(band) for band in BANDS]
    with pytest.raises(ConfigError, match=r"images have shape \(2, 2, 18, 13\); expected \(B, 1, H, W\)"):
        RasterFeatures(channels[:1], "atomizer_io_tiny").pooled(IMAGES)
    with pytest.raises(ConfigError, match="the pixel size of these images is not known: pass gsd_m="):
        RasterFeatures([aio.Channel("x", "a", 0.5)], "atomizer_io_tiny")
    with pytest.raises(ConfigError, match="unet_small is no Atomizer-IO"):
        RasterFeatures(channels, "unet_small")
