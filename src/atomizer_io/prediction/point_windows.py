"""The windows of a point cloud: what a worker does with one, and the means over all, which are kept on disk.

OUTPUT.parts/predictions.bin   mean probabilities in the order of the stored points, written block by block
OUTPUT.parts/finished.bin      a number per block: the checksum of its probabilities once they are there, before that 0

Windows are those of training, and each is a rectangle of whole blocks of the store beside these files. So memory
depends on the window, not on the file.

All points of a window are observations; how many of them become context is decided by the model (``Cost.max_points``).

Shapes: P points of a window, D of which are decoded, C classes.
"""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.sensors import LIDAR, LIDAR_HEIGHT
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.scene_decoder import SavedModel, SceneOutputs
from atomizer_io.errors import AtomizerError
from atomizer_io.io.overlays import Overlay
from atomizer_io.io.point_atoms import Heights, one_per_cube
from atomizer_io.io.point_clouds import PointCloud
from atomizer_io.io.point_scene import PointScene
from atomizer_io.io.point_store import LAST, PointStore
from atomizer_io.io.point_windows import WindowGrid
from atomizer_io.io.raster_sources import RasterSource
from atomizer_io.prediction.options import Execution, PointCloudWindows
from atomizer_io.prediction.parts_folder import PartsFolder, WindowOutputs

Floats = NDArray[np.float64]
PREDICTIONS, FINISHED = "predictions.bin", "finished.bin"
CHECK = np.dtype("<u4")
NEIGHBORS = 4  # decoded points whose outputs another point gets
NEAREST_M = 1e-3  # closer points count as if they were this far away


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


def interpolated(decoded_xyz: Floats, probabilities: NDArray[Any], all_xyz: Floats) -> NDArray[Any]:
    """Return outputs (P, C) at ``all_xyz`` (P, 3) from those (D, C) at ``decoded_xyz`` (D, 3), all in metres.

    They are means over the nearest four in three dimensions, weighted by inverse distance; a decoded point
    keeps its own output.
    """
    if len(decoded_xyz) == len(all_xyz) and np.array_equal(decoded_xyz, all_xyz):
        return probabilities
    from scipy.spatial import cKDTree

    count = min(NEIGHBORS, len(decoded_xyz))
    distance, near = (column.reshape(len(all_xyz), count) for column in cKDTree(decoded_xyz).query(all_xyz, k=count))
    weight = 1 / np.maximum(distance, NEAREST_M)
    exact = distance[:, 0] == 0
    weight[exact] = np.eye(1, count)
    weight /= weight.sum(axis=1, keepdims=True)
    outputs: NDArray[Any] = np.einsum("pk,pkc->pc", weight, probabilities[near]).astype(probabilities.dtype)
    return outputs


@functools.lru_cache(maxsize=2)
def _store(folder: Path, key: str, modified: int) -> PointStore:
    return PointStore(folder, key)


def windows_with_points(grid: WindowGrid, store: PointStore) -> list[PointWindow]:
    """Return the windows that have points, row by row from the south."""
    return [PointWindow.at(grid, row, column) for row, column in np.argwhere(grid.occupied(store.counts())).tolist()]


class PointPredictions:
    """The mean probabilities of ``outputs`` classes of the points in ``store``; those that are sound are used again."""

    def __init__(self, parts: PartsFolder, store: PointStore, grid: WindowGrid, outputs: int) -> None:
        self.parts, self.store, self.grid, self.outputs = parts, store, grid, outputs
        self.counts = store.counts()
        for name, size in (
            (PREDICTIONS, 4 * outputs * self.counts.sum()),
            (FINISHED, CHECK.itemsize * len(self.counts)),
        ):
            with (parts.folder / name).open(
                "ab"
            ) as file:  # what is there stays, the rest are zeros that take no space yet
                file.truncate(int(size))
        self.finished = np.fromfile(parts.folder / FINISHED, CHECK) != 0
        self._check_finished()
        self.finished |= self.counts == 0
        self.windows = {(window.row, window.column): window for window in windows_with_points(grid, store)}
        self.blocks = {  # those with points of each window
            at: [block for span in window.blocks for block in range(*span) if self.counts[block]]
            for at, window in self.windows.items()
        }
        self.unfinished = {at: int((~self.finished[blocks]).sum()) for at, blocks in self.blocks.items()}
        self.there = {at for at, window in self.windows.items() if window.name in parts}

    def _check_finished(self) -> None:
        """Keep only those blocks finished whose probabilities are as they were written."""
        checks = np.fromfile(self.parts.folder / FINISHED, CHECK)
        with (self.parts.folder / PREDICTIONS).open("rb") as file:
            for block in np.flatnonzero(self.finished).tolist():
                content = bytearray()
                for _, first, count, _ in self.store.runs_of(block, block + 1).tolist():
                    file.seek(4 * self.outputs * first)
                    content += file.read(4 * self.outputs * count)
                self.finished[block] = self._check_of(block, content) == checks[block]

    def _check_of(self, block: int, content: Any) -> int:
        """Return the checksum, never 0, of the probabilities of a block for the plan of these parts."""
        return zlib.crc32(content, zlib.crc32(self.parts.mark + block.to_bytes(8, "little"))) or 1

    def compute(self, job: PointJob, execution: Execution) -> list[str]:
        """Compute what is missing; return the names of all windows.

        The predictions of a window are kept until all its blocks have those of their other windows.
        """
        todo = [window for at, window in self.windows.items() if self.unfinished[at] and at not in self.there]
        # unbuffered: what is marked as finished has left this process before
        with (
            (self.parts.folder / PREDICTIONS).open("r+b", 0) as values,
            (self.parts.folder / FINISHED).open("r+b", 0) as ledger,
        ):
            for at in sorted(self.there):
                for block in self.blocks[at]:
                    self._finish(block, values, ledger)
            for window in self.parts.compute(
                functools.partial(predict_window, job), todo, len(self.windows), execution
            ):
                at = (window.row, window.column)
                self.there.add(at)
                for block in self.blocks[at]:
                    self._finish(block, values, ledger)
        return [window.name for window in self.windows.values()]

    def _finish(self, block: int, values: Any, ledger: Any) -> None:
        """Write the mean of a block once all its windows are there; delete windows that are needed no more."""
        covering = self.grid.covering(block)
        if self.finished[block] or not self.there.issuperset(covering):
            return
        total = np.zeros((self.counts[block], self.outputs), np.float32)
        for at in covering:
            inside = self.blocks[at]
            start = int(self.counts[inside[: inside.index(block)]].sum())
            total += self.parts.load(self.windows[at].name)[start : start + len(total)]
        total /= len(covering)
        done = 0
        for _, first, count, _ in self.store.runs_of(block, block + 1).tolist():
            values.seek(4 * self.outputs * first)
            values.write(total[done : done + count].data)
            done += count
        ledger.seek(CHECK.itemsize * block)
        ledger.write(CHECK.type(self._check_of(block, total.data.cast("B"))).tobytes())
        self.finished[block] = True
        for at in covering:
            self.unfinished[at] -= 1
            if not self.unfinished[at]:
                self.parts.drop(self.windows[at].name)
