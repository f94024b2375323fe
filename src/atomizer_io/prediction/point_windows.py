"""What a worker does with a window of a point cloud: it reads the points, makes atoms of them and predicts.

All points of a window are observations; how many of them become context is decided by the model (``Cost.max_points``).

Shapes: P points of a window, C classes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.sensors import AERIAL, LIDAR, LIDAR_HEIGHT
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.interpolation import interpolated
from atomizer_io.decoding.scene_decoder import SavedModel, SceneOutputs
from atomizer_io.errors import AtomizerError
from atomizer_io.io.overlays import Overlay
from atomizer_io.io.point_atoms import Heights, one_per_cube
from atomizer_io.io.point_clouds import PointCloud
from atomizer_io.io.point_scene import PointScene
from atomizer_io.io.point_store import LAST, PointStore
from atomizer_io.io.point_windows import WindowGrid
from atomizer_io.io.raster_sources import RasterSource
from atomizer_io.prediction.options import PointCloudWindows
from atomizer_io.prediction.parts_folder import WindowOutputs


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a model is shown of a point cloud, as it was in training.

    ``heights`` above ground, elevations or both; ``ranked`` intensities, or those recorded; ``colour`` of points.
    ``las_standard``: whether the classes are those of the LAS standard, of which some are noise.
    """

    heights: Heights
    ranked: bool
    colour: bool
    las_standard: bool = True

    @classmethod
    def of(cls, task_spec: TaskSpec, colour: bool) -> Inputs:
        """Return what the training data had; a model that does not know it gets what datasets give by default."""
        known = task_spec.statistics()
        height, elevation = ((c.sensor, c.name) in known for c in (*LIDAR_HEIGHT.channels, *LIDAR.channels))
        heights: Heights = "elevation" if elevation and not height else "both" if elevation else "ground"
        ranked = "intensity" not in task_spec.fields or "intensity_rank" in task_spec.fields
        return cls(heights, ranked, colour, task_spec.las_standard)


@dataclass(frozen=True, slots=True)
class PointWindow:
    """A window of a point cloud: its centre in metres, and its blocks in the store, as ranges."""

    row: int
    column: int
    centre: tuple[float, float]
    blocks: tuple[tuple[int, int], ...]

    @classmethod
    def at(cls, grid: WindowGrid, row: int, column: int) -> PointWindow:
        """Return the window at (row, column), which may have no points."""
        return cls(row, column, grid.centre(row, column), tuple(grid.inside(row, column)))

    @property
    def name(self) -> str:
        """The name of the file of its predictions."""
        return f"window-{self.row:05d}-{self.column:05d}"

    @property
    def seed(self) -> int:
        """The seed of its random numbers: another for each window, and always the same."""
        return self.row << 32 | self.column


@dataclass(frozen=True)
class PointJob:
    """All that a worker needs to predict the points of a window; ``key`` is that of the store in ``folder``."""

    model: SavedModel
    folder: Path
    key: str
    sources: tuple[RasterSource, ...]
    windows: PointCloudWindows
    inputs: Inputs
    leave_out: tuple[int, ...] = ()

    def store(self) -> PointStore:
        """Return the store of the points, opened once per process while it is the same."""
        return _store(self.folder, self.key, (self.folder / LAST).stat().st_mtime_ns)

    def points(self, records: NDArray[Any]) -> PointCloud:
        """Return stored points as datasets read them."""
        points = self.store().points(records)
        return points if self.inputs.ranked else replace(points, intensity_rank=None)


class WindowPoints(NamedTuple):
    """The points of a window that a model sees; ``order`` are their numbers among the stored records of the window."""

    order: NDArray[np.int64]
    scene: PointScene


def predict_window(job: PointJob, window: PointWindow) -> WindowOutputs:
    """Return the probabilities (P, C) of the points of one window, in the order of its blocks."""
    records = job.store().records(window.blocks)
    probabilities = np.zeros((len(records), job.model.model.task_spec.num_outputs), np.float16)
    points = window_points(job, window, records)
    if points is None:
        return WindowOutputs(probabilities, 0)
    seen, positions = points.scene.points, points.scene.positions
    queried = np.arange(len(positions))
    if job.windows.decode_every_m is not None:
        queried = one_per_cube(np.column_stack([seen.x, seen.y, seen.z]), job.windows.decode_every_m)
    outputs = job.model.predict(
        points.scene.atoms,
        torch.from_numpy(positions[queried]),
        sites={0: torch.from_numpy(queried)},
        seed=window.seed,
    )
    check_numbers(outputs, window)
    xyz = np.column_stack([positions, seen.z])
    probabilities[points.order] = interpolated(xyz[queried], outputs.values_MC, xyz)
    return WindowOutputs(probabilities, outputs.decoded)


def check_numbers(outputs: SceneOutputs, window: PointWindow) -> None:
    """Refuse predictions of a window that are not finite."""
    if not np.isfinite(outputs.values_MC).all():
        x, y = window.centre
        raise AtomizerError(f"the model predicts NaN or infinity in the window around {x:.0f}, {y:.0f} m")


def window_points(job: PointJob, window: PointWindow, records: NDArray[Any]) -> WindowPoints | None:
    """Return the ``records`` of a window as a model sees them; None where all of them are left out."""
    order = np.argsort(records["number"])  # as in the file, which is how training sees them
    order = order[~np.isin(records["classification"][order], job.leave_out)]
    if not len(order):
        return None
    points, inputs = job.points(records[order]), job.inputs
    how: dict[str, Any] = {"heights": inputs.heights, "las_standard": inputs.las_standard}
    scene = PointScene.of(points, window.centre, colour=inputs.colour, **how)
    return WindowPoints(order, scene.with_images(Overlay(job.sources), job.windows.side_m))


@functools.lru_cache(maxsize=2)
def _store(folder: Path, key: str, modified: int) -> PointStore:
    return PointStore(folder, key)


def knows_colours(task_spec: TaskSpec) -> bool:
    """Return whether a model was trained with aerial colours."""
    known = task_spec.statistics()
    return any((channel.sensor, channel.name) in known for channel in AERIAL.channels)
