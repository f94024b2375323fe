"""Small scenes and a small model that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.models import seal
from atomizer_io.training.bands import observed

SMALL = {
    "width": 24,
    "global_latents": 3,
    "depth": 2,
    "cross_heads": 3,
    "cross_head_dim": 8,
    "self_heads": 2,
    "self_head_dim": 12,
    "atoms_per_latent": 40,
    "rope_scale_m": 60.0,
    "num_outputs": 3,
    "observation_mlp": False,  # as the paper writes it
    "decoder_expansion": 1.0,
}


def raster(seed: int, sensor=SENTINEL2, names=("B02", "B03", "B08"), size=(9, 7), gsd=10.0, day=100, holes=0.0, **more):
    generator = torch.Generator().manual_seed(seed)
    channels = sensor.pick(*names)
    noise = torch.randn(len(names), *size, generator=generator, dtype=torch.float64)
    values = noise * torch.tensor([c.std for c in channels])[:, None, None] + torch.tensor(
        [c.mean for c in channels]
    ).reshape(-1, 1, 1)
    if holes:
        values[torch.rand(values.shape, generator=generator) < holes] = torch.nan
    return aio.AtomSet.from_raster(values, channels, gsd, day, **more)


def forge(folder: Path) -> None:
    """Seal a changed config.json with the weights beside it, as anybody can who writes such files."""
    text = (folder / "config.json").read_text()
    tensors = load_file(folder / "model.safetensors")
    seal.save(tensors, folder / "model.safetensors", {}, of=seal.digest(text))


def of(atoms: aio.AtomSet) -> Sample:
    """A sample of one class, for what is done to its atoms."""
    return Sample.of_scene(atoms, 0, Meta("a"))


def sentinels() -> Sample:
    """Both Sentinels, all their bands."""
    return of(raster(1, SENTINEL1, ("VV", "VH")) + raster(2, SENTINEL2, SENTINEL2.names))


def names(sample: Sample) -> set[str]:
    """The names of the channels that were observed."""
    return {channel.name for channel in observed(sample.atoms)}


def points(seed: int, count: int = 150, extent: float = 50.0, **more):
    generator = torch.Generator().manual_seed(seed)
    xyz = (torch.rand(count, 3, generator=generator, dtype=torch.float64) - 0.5) * torch.tensor([extent, extent, 20.0])
    total = torch.randint(1, 5, (count,), generator=generator)
    number = (torch.rand(count, generator=generator) * total).long() + 1
    return aio.AtomSet.from_points(
        xyz, number, total, torch.rand(count, generator=generator, dtype=torch.float64) * 3000, **more
    )


def queries(seed: int, count: int = 30, extent: float = 60.0) -> Tensor:
    return (torch.rand(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5) * extent


def far_anchors() -> Tensor:
    return torch.tensor([[0.0, 0.0], [20.0, 10.0], [-20.0, 5.0], [300.0, 300.0], [310.0, 300.0]], dtype=torch.float64)


def data_folder(name: str) -> Path:
    """A folder of real data, or a skip that names what is missing."""
    root = Path(os.environ.get("ATOMIZER_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (root / name).is_dir():
        pytest.skip(f"no real data: {root / name} is absent; set ATOMIZER_DATA to the data folder")
    return root / name
