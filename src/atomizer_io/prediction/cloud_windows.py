"""What a worker does with a window of a cloud: its points become atoms, the model is asked, probabilities come back.

All points of a window are observations; how many of them become context is for the model (``Cost.max_points``).

Shapes: P points of a window, C classes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import AERIAL, LIDAR, LIDAR_HEIGHT
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.interpolation import interpolated
from atomizer_io.decoding.scene_decoder import SavedModel, SceneOutputs
from atomizer_io.errors import AtomizerError
from atomizer_io.io.crs import box_of
from atomizer_io.io.overlays import Overlay, frame_of
from atomizer_io.io.point_atoms import Heights, datum_of, one_per_cube, point_cloud_atoms
from atomizer_io.io.point_clouds import COLOURS, PointCloud, PointCloudHeader
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.raster_sources import RasterSource
from atomizer_io.prediction.cloud_blocks import CloudBlocks, CloudWindow, record_type
from atomizer_io.prediction.cloud_notes import LOOKED_AT
from atomizer_io.prediction.options import CloudWindows
from atomizer_io.prediction.parts_folder import WindowOutputs

REFERENCE = "reference"  # the part with the ground and the ranks of the whole cloud


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a model is shown of a cloud, as it was in training.

    ``heights`` above ground, elevations or both; ``ranked`` intensities, or those recorded; ``colour`` of points.
    """

    heights: Heights
    ranked: bool
    colour: bool

    @classmethod
    def of(cls, task_spec: TaskSpec, colour: bool) -> Inputs:
        """Return what the training data had; a model that does not know it gets what datasets give by default."""
        known = task_spec.statistics()
        height, elevation = ((c.sensor, c.name) in known for c in (*LIDAR_HEIGHT.channels, *LIDAR.channels))
        heights: Heights = "elevation" if elevation and not height else "both" if elevation else "ground"
        return cls(heights, "intensity" not in task_spec.fields or "intensity_rank" in task_spec.fields, colour)


@dataclass(frozen=True)
class CloudJob:
    """All that a worker needs to know to answer for the points of a window."""

    model: SavedModel
    folder: Path
    path: Path
    header: PointCloudHeader
    fields: tuple[str, ...]
    sources: tuple[RasterSource, ...]
    windows: CloudWindows
    inputs: Inputs
    leave_out: tuple[int, ...]


class WindowPoints(NamedTuple):
    """The points of a window that a model sees, as atoms and in metres from its centre.

    ``order`` are their numbers among the stored records of the window: they are in the order of the file.
    """

    order: NDArray[np.int64]
    cloud: PointCloud
    positions: NDArray[np.float64]
    atoms: AtomSet


def answer(job: CloudJob, window: CloudWindow) -> WindowOutputs:
    """Return the probabilities (P, C) of the points of one window, in the order of its blocks."""
    outputs = job.model.model.task_spec.num_outputs
    answers = np.zeros((sum(count for _, count in window.pieces), outputs), np.float16)
    points = window_points(job, window)
    if points is None:
        return WindowOutputs(answers, 0)
    xyz = np.column_stack([points.positions, points.cloud.z])
    asked = np.arange(len(xyz))
    if job.windows.ask_every_m is not None:
        exact = np.stack([points.cloud.x, points.cloud.y, points.cloud.z], axis=1)  # the same cubes in all windows
        asked = one_per_cube(exact, job.windows.ask_every_m)
    found = job.model.predict(
        points.atoms,
        torch.from_numpy(points.positions[asked]),
        sites={0: torch.from_numpy(asked)},
        seed=window.seed,
    )
    check_numbers(found, window)
    answers[points.order] = interpolated(xyz[asked], found.values_MC, xyz)
    return WindowOutputs(answers, found.decoded)


def check_numbers(found: SceneOutputs, window: CloudWindow) -> None:
    """Refuse answers of a window that are no numbers."""
    if not np.isfinite(found.values_MC).all():
        x, y = window.centre
        raise AtomizerError(f"the model answers NaN or infinity in the window around {x:.0f}, {y:.0f} m")


def window_points(job: CloudJob, window: CloudWindow) -> WindowPoints | None:
    """Return the points of a window as a model sees them; None where all of them are left out."""
    records = window.read(job.folder, record_type(job.fields))
    order = np.argsort(records["index"])  # as in the file, which is how training sees them
    order = order[~np.isin(records["classification"][order], job.leave_out)]
    if not len(order):
        return None
    cloud = cloud_of(job, records[order])
    x, y = window.centre
    positions = np.stack([cloud.x - x, cloud.y - y], axis=1)
    atoms = point_cloud_atoms(cloud, positions, datum_of(cloud), job.inputs.colour, job.inputs.heights)
    box = box_of(positions, job.windows.side_m)
    atoms += Overlay(job.sources).atoms(frame_of(job.header, window.centre), box)
    return WindowPoints(order, cloud, positions, atoms)


def looked_at(job: CloudJob, blocks: CloudBlocks) -> list[PointCloud]:
    """Return the points of a few windows from all over the cloud."""
    windows = list(blocks.windows())
    chosen = np.unique(np.linspace(0, len(windows) - 1, LOOKED_AT).astype(int))
    return [cloud_of(job, windows[i].read(job.folder, record_type(job.fields))) for i in chosen]


def cloud_of(job: CloudJob, records: NDArray[Any]) -> PointCloud:
    """Return stored points as a cloud, as datasets read them, with what is known from the whole cloud."""
    names = {field.name for field in fields(PointCloud)}
    columns = {name: np.ascontiguousarray(records[name]) for name in ("x", "y", "z", *job.fields)}
    colours = {name: column for name, column in columns.items() if name in COLOURS}
    plain: dict[str, Any] = {name: column for name, column in columns.items() if name in names}
    if not job.header.standard_time:
        plain["gps_time"] = None  # another clock: no date
    cloud = PointCloud(job.path, **plain, colours=colours or None, crs=job.header.crs, unit_m=job.header.unit_m)
    whole = reference(job.folder).complete(cloud)
    return whole if job.inputs.ranked else replace(whole, intensity_rank=None)


def reference(folder: Path) -> PointCloudReference:
    """Return the reference of the whole cloud from a folder of parts, read once per process while it is the same."""
    path = folder / f"{REFERENCE}.npy"
    return _reference(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _reference(path: Path, modified: int) -> PointCloudReference:
    return PointCloudReference.load(path)


def knows_colours(task_spec: TaskSpec) -> bool:
    """Return whether a model was trained with aerial colours."""
    known = task_spec.statistics()
    return any((channel.sensor, channel.name) in known for channel in AERIAL.channels)
