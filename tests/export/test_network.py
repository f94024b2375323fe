"""The network as a function of tensors gives what the model gives, for every kind of model and scene."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.errors import AtomsError, QueryError
from atomizer_io.export import scene_inputs
from atomizer_io.export.network import Network
from atomizer_io.models.atomizer.config import SiteField
from scenes import SMALL, points, queries, raster


def small(preset: str = "atomizer_io_tiny", **changes) -> aio.AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model(preset, **(SMALL | changes)).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def optical_and_radar() -> aio.AtomSet:
    radar = raster(2, SENTINEL1, ("VV", "VH"), size=(5, 4), gsd=20.0, day=None, holes=0.3)
    return raster(1, holes=0.2) + radar


def series() -> aio.AtomSet:
    atoms = raster(1, day="2020-12-20", holes=0.1) + raster(
        2, SENTINEL1, ("VV",), size=(4, 4), gsd=20.0, day="2021-01-05"
    )
    return atoms + raster(3, names=("B04",), day="2021-02-01")


def mixed() -> aio.AtomSet:
    return points(1) + raster(2, names=("B02", "B03", "B04", "B08"), size=(12, 12), gsd=5.0)


def direct(model: aio.AtomizerIO, atoms: aio.AtomSet, positions: Tensor | None, **keywords) -> Tensor:
    with torch.no_grad():
        return model([atoms], **keywords) if positions is None else model([atoms], [positions], **keywords)[0]


def exported(model: aio.AtomizerIO, atoms: aio.AtomSet, positions: Tensor | None, **keywords) -> Tensor:
    return Network(model)(**scene_inputs(model, atoms, positions, **keywords))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"task": "regression", "num_outputs": 1, "target_mean": 120.0, "target_std": 60.0},
        {"task": "classification"},
        {"dates": False},
        {"task": "scene_regression", "num_outputs": 1, "target_std": 5.0},
        {"temporal": True},
        {"temporal": True, "temporal_residual": True},
        {"temporal": True, "temporal_depth": 1},
        {"temporal": True, "task": "classification", "rope": False},
        {"observation_conditioning": False},
        {"observation_mlp": True},
        {"observation_mlp": True, "observation_expansion": 2.0},
        {"rope": False, "global_latents": 0},
        {"offset_encoding": False},
        {"layout": "sites", "offset_encoding": False, "task": "classification"},
        {"channels": SENTINEL2.pick("B02", "B03")},
        {"max_points": 20},
        {"max_points": 20, "temporal": True},
        {"preset": "atomizer_io_3d", "neighbors": 3, "cross_heads": 2},
    ],
    ids=lambda changes: ", ".join(map(str, changes)) or "segmentation",
)
@pytest.mark.parametrize("scene", [optical_and_radar, series, mixed], ids=lambda scene: scene.__name__)
def test_outputs_are_those_of_the_model(changes, scene) -> None:
    model, atoms = small(**changes), scene()
    positions = queries(3) if model.task_spec.dense else None
    torch.testing.assert_close(exported(model, atoms, positions), direct(model, atoms, positions), rtol=1e-5, atol=1e-5)


def test_models_without_learned_channels_or_site_fields() -> None:
    model, atoms = small(learned_channels=(), site_fields=()), raster(1, holes=0.2)
    assert "site_field" not in scene_inputs(model, atoms, queries(3))
    torch.testing.assert_close(exported(model, atoms, queries(3)), direct(model, atoms, queries(3)), rtol=0, atol=1e-5)


def test_points_that_were_not_drawn_are_seen_at_queries() -> None:
    model, atoms = small(max_points=20), points(1) + points(2)
    where, sites = atoms.acquisitions[0].positions, {0: torch.arange(150)}
    inputs = scene_inputs(model, atoms, where, sites=sites)
    assert (inputs["seen"][:, 0] >= 0).all() and int((inputs["kind"] >= 0).sum()) < 150 + 20 + 1
    want = direct(model, atoms, where, sites=[sites])
    torch.testing.assert_close(Network(model)(**inputs), want, rtol=0, atol=1e-5)


def test_keywords_of_decode() -> None:
    model, atoms = small(), points(1, count=60)
    sites = {0: torch.arange(30) % 7 - 1}
    got = exported(model, atoms, queries(3), sites=sites, neighbors=2)
    torch.testing.assert_close(got, direct(model, atoms, queries(3), sites=[sites], neighbors=2), rtol=0, atol=1e-5)


def test_half_precision_is_read_as_float32() -> None:
    model = small(task="classification").to(torch.bfloat16)
    network = Network(model)
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    assert model.tokenizer.learned.dtype == torch.bfloat16  # the model itself stays


def test_mistakes_are_named() -> None:
    model = small()
    with pytest.raises(QueryError, match="predicts at positions"):
        scene_inputs(model, raster(1))
    with pytest.raises(QueryError, match="whole scenes"):
        scene_inputs(small(task="classification"), raster(1), queries(3))
    with pytest.raises(AtomsError, match="no valid atom"):
        scene_inputs(
            model, aio.AtomSet.from_raster(torch.full((1, 2, 2), torch.nan), SENTINEL2.pick("B02")), queries(3)
        )
    with pytest.raises(AtomsError, match="does not know site field 'echo_after'"):
        scene_inputs(small(site_fields=(SiteField("echo_before"),)), points(1), queries(3))
    bare = [replace(channel, mean=None, std=None) for channel in SENTINEL2.pick("B02")]
    with pytest.raises(AtomsError, match="no mean and std"):
        scene_inputs(model, aio.AtomSet.from_raster(torch.full((1, 4, 4), 900.0), bare, 10.0), queries(3))
