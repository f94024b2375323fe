"""Windows along tiles of points, and a small model for them, that several tests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import atomizer_io as aio
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import LIDAR
from atomizer_io.datasets.dataset import Dataset, Info
from scenes import SMALL

CLASSES = ("ground", "wire", "roof")
WINDOW_M, STRIDE_M, LONG_M = 20.0, 10.0, 50.0


def cloud(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The points (P, 3) and classes (P,) of a tile of 50 m × 20 m; the class of some is not known."""
    rng = np.random.default_rng(len(name))
    xyz = rng.uniform(size=(400, 3)) * (LONG_M, WINDOW_M, 12.0)
    return xyz, rng.integers(-1, 3, 400)


class Strips(Dataset):
    """Windows of 20 m every 10 m along tiles of 50 m."""

    info = Info("strips", "Strips", "segmentation", LIDAR.pick("elevation"), WINDOW_M, classes=CLASSES)

    def __init__(self, root: Path, names: Sequence[str] = ("one", "number two"), regression: bool = False) -> None:
        self.names, self.regression = names, regression
        super().__init__(root)

    def find(self) -> list[tuple[str, float]]:
        return [(name, west) for name in self.names for west in np.arange(0, LONG_M - WINDOW_M + 1, STRIDE_M)]

    def files(self, item: Any) -> tuple[Path, ...]:
        return (Path(item[0]),)

    def whole_of(self, index: int) -> str:
        return self.items[index][0]

    def read(self, item: tuple[str, float]) -> Sample:
        name, west = item
        xyz, classes = cloud(name)
        inside = np.flatnonzero((xyz[:, 0] >= west) & (xyz[:, 0] < west + WINDOW_M))
        local = xyz[inside] - (west + WINDOW_M / 2, WINDOW_M / 2, 0)
        ones = np.ones(len(inside), int)
        atoms = aio.AtomSet.from_points(local, ones, ones, ones * 100.0, datum_m=0.0)
        target = np.where(classes < 0, np.nan, xyz[:, 2]).astype(np.float32) if self.regression else classes
        sites = {0: torch.arange(len(inside))}
        sample = Sample.of_points(atoms, local[:, :2], target[inside], Meta(f"{name} {west}"), sites)
        return replace(sample, queries=replace(sample.queries, whole=name, members=torch.from_numpy(inside)))


def model_of(scale: float = 1.0, **more: Any) -> aio.AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, **more}).eval()
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(scale)
    return model
