"""Inputs on which models are measured: those of the paper's datasets (its Table 1), and rasters of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from atomizer_io.cli.info import optical_channels
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Queries, queries_at
from atomizer_io.data.sensors import AERIAL, HLS, LANDSAT8, LIDAR_HEIGHT, SENTINEL1, SENTINEL2, SENTINEL2_L2A, VHR
from atomizer_io.data.task_spec import TaskSpec

HEIGHT_M = 20.0  # of synthetic points


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What a model reads: a raster of some sensors and dates, points, or both; values are noise.

    ``encoding_m`` is the resolution at which RAMEN and UniverSat encode it in the paper, ``stride`` the pixels between
    the outputs of UniverSat.
    """

    name: str
    task: str
    outputs: int
    sensors: tuple[tuple[Channel, ...], ...] = ()  # one raster each
    pixels: tuple[int, int] = (0, 0)
    gsd_m: float = 10.0
    dates: int = 1
    points: int = 0
    encoding_m: float | None = None
    stride: int = 4

    @property
    def channels(self) -> tuple[Channel, ...]:
        """All channels, of rasters and points."""
        rasters = tuple(channel for sensor in self.sensors for channel in sensor)
        return (*rasters, *(LIDAR_HEIGHT.channels if self.points else ()))

    @property
    def extent_m(self) -> float:
        """The width of the scene."""
        return self.gsd_m * max(self.pixels)

    @property
    def task_spec(self) -> TaskSpec:
        """What a model predicts."""
        return TaskSpec(self.task, self.outputs, channels=self.channels, extent_m=self.extent_m)

    def made(self) -> tuple[AtomSet, Queries | None]:
        """Return a scene of noise, and queries at all pixels or points; None where the whole scene is classified."""
        generator = torch.Generator().manual_seed(0)
        where, sites = Grid(*self.pixels, gsd_m=self.gsd_m).positions(), {}
        atoms = noise(self.sensors, self.pixels, self.gsd_m, self.dates, generator)
        if self.points:
            xyz = torch.rand(self.points, 3, generator=generator, dtype=torch.float64)
            xyz = xyz * torch.tensor([self.extent_m, self.extent_m, HEIGHT_M]) - torch.tensor(
                [self.extent_m / 2] * 2 + [0.0]
            )
            (points,) = AtomSet.from_points(xyz, values=xyz[:, 2:], channels=LIDAR_HEIGHT.channels)
            atoms = AtomSet((points.with_channels([1]), *atoms))
            where, sites = xyz[:, :2], {0: torch.arange(self.points)}
        dense = self.task in ("segmentation", "regression")
        return atoms, queries_at(where, sites) if dense else None


def noise(
    sensors: Sequence[Sequence[Channel]], pixels: tuple[int, int], gsd_m: float, dates: int, generator: torch.Generator
) -> AtomSet:
    """Return rasters of noise at the usual levels of their channels: one for each sensor and date."""
    atoms = AtomSet()
    for date in range(dates):
        for channels in sensors:
            mean = torch.tensor([channel.mean or 0.0 for channel in channels])[:, None, None]
            std = torch.tensor([channel.std or 1.0 for channel in channels])[:, None, None]
            values = mean + std * torch.randn(len(channels), *pixels, generator=generator)
            atoms += AtomSet.from_raster(values, channels, gsd_m, 1 + date * 365 // dates)
    return atoms


def raster_input(height: int, width: int, channels: int, dates: int = 1) -> ModelInput:
    """Return a raster of so many synthetic optical channels and dates, to be segmented into two classes."""
    size = f"{height}x{width}x{channels}" + (f"x{dates}" if dates > 1 else "")
    return ModelInput(
        size, "segmentation", 2, (optical_channels(channels),), (height, width), 10.0, dates, encoding_m=40.0
    )


_RADAR, _ORBITS = SENTINEL1.pick("VV", "VH"), SENTINEL1.pick("ASC_VV", "ASC_VH", "DSC_VV", "DSC_VH")
_TEN = SENTINEL2_L2A.pick("B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12")
_SIX = ("B02", "B03", "B04", "B8A", "B11", "B12")
PAPER_INPUTS = {
    item.name: item
    for item in (
        ModelInput(
            "forestnet",
            "classification",
            12,
            (LANDSAT8.pick("B2", "B3", "B4", "B5", "B6", "B7"),),
            (332, 332),
            15.0,
            encoding_m=40.0,
        ),
        ModelInput("burnscars", "segmentation", 2, (HLS.pick(*_SIX),), (512, 512), 30.0, encoding_m=120.0),
        ModelInput("eurosat", "classification", 10, (SENTINEL2.channels,), (64, 64), encoding_m=40.0),
        ModelInput("cashew", "segmentation", 7, (SENTINEL2.channels,), (256, 256), encoding_m=40.0, stride=1),
        ModelInput("sen1floods11", "segmentation", 2, (_RADAR, SENTINEL2.channels), (512, 512), encoding_m=40.0),
        ModelInput("xview2", "segmentation", 5, (VHR.pick("R", "G", "B"),), (512, 512), 0.5, dates=2, encoding_m=2.0),
        ModelInput("biomassters", "regression", 1, (_ORBITS, _TEN), (256, 256), dates=3, encoding_m=40.0),
        ModelInput("pastis", "segmentation", 19, (_TEN,), (128, 128), dates=6, encoding_m=40.0, stride=1),
        ModelInput("dales", "segmentation", 8, pixels=(50, 50), gsd_m=1.0, points=125_000),
        ModelInput("fractal", "segmentation", 7, (AERIAL.pick("R", "G", "B"),), (250, 250), 0.2, points=62_500),
    )
}
