"""The input of a prediction from a point cloud: the file, images over it, the model, and what the model is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import atomizer_io
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import LIDAR, LIDAR_HEIGHT
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.scene_decoder import SavedModel
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.point_clouds import Bounds, PointCloud, PointCloudHeader, point_cloud_header
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.point_store import CHUNK, LAST, POINTS, Blocks, DamagedStoreError, PointStore, write_store
from atomizer_io.io.point_windows import WindowGrid
from atomizer_io.io.raster_sources import RasterInput, RasterSource, alike, open_rasters, overlap
from atomizer_io.models.base import Model
from atomizer_io.models.storage import fingerprint
from atomizer_io.prediction.las import Original
from atomizer_io.prediction.options import Decoding, Execution, PointCloudWindows
from atomizer_io.prediction.parts_folder import MODEL, PartsFolder
from atomizer_io.prediction.plans import Plan
from atomizer_io.prediction.point_notes import assumed, colours_of, date_note, warn_lacking_fields, warn_unlike
from atomizer_io.prediction.point_predictions import windows_with_points
from atomizer_io.prediction.point_windows import Inputs, PointJob, knows_colours
from atomizer_io.prediction.raster_notes import warn_uncovered
from atomizer_io.prediction.raster_scene import warn_lacking
from atomizer_io.progress import progress_bar

EXAMINED = 8  # windows of a file that are compared with the training data


@dataclass(frozen=True, slots=True, eq=False)
class PointInput:
    """A point cloud and how it is predicted; ``path`` is the user's file, ``stored`` the same points as LAS."""

    path: Path
    stored: Path
    crs: str | None
    original: Original
    header: PointCloudHeader
    source_model: Model | str | Path
    model: Model
    saved: SavedModel
    sources: tuple[RasterSource, ...]
    windows: PointCloudWindows
    inputs: Inputs

    @classmethod
    def of(
        cls,
        model: Model | str | Path,
        path: Path,
        stored: Path,
        *,
        crs: str | None,
        rasters: Sequence[RasterInput | str | Path | dict[str, Any]],
        colour: bool | None,
        windows: PointCloudWindows,
        decoding: Decoding,
        execution: Execution,
    ) -> PointInput:
        """Open the file and its rasters, and load the model; report what is assumed."""
        original, header = Original.read(stored, crs, path), point_cloud_header(stored, crs)
        if (line := assumed(path, header)) is not None:
            execution.report(line)
        own, saved = SavedModel.of(model, decoding, execution.report)
        sources = tuple(sources_of(rasters, path, header, own.task_spec.channels))
        check_points(own)
        if colour is None:
            colour = not sources and knows_colours(own.task_spec)
        inputs = Inputs.of(own.task_spec, colour)
        return cls(path, stored, crs, original, header, model, own, saved, sources, windows, inputs)

    def plan(self, options: Mapping[str, Any], resolved: Mapping[str, Any]) -> Plan:
        """Return the plan of a prediction; ``options`` and ``resolved`` are those of its product."""
        inputs = {
            "cloud": trace(self.path),
            "crs": self.crs,
            "model": fingerprint(self.model),
            "rasters": [[repr(source), *trace(source.path)] for source in self.sources],
            "version": atomizer_io.__version__,
        }
        own = {
            "--model": None if isinstance(self.source_model, Model) else self.saved.folder,
            "--window": self.windows.side_m,
        }
        common = {
            "windows": {**asdict(self.windows), **asdict(self.inputs)},
            "decoding": self.saved.decoding.plain(),
            "chunk": CHUNK,
        }
        return Plan(inputs, {**own, **options}, {**common, **resolved})

    def sort_into(self, parts: PartsFolder, execution: Execution) -> tuple[PointStore, WindowGrid]:
        """Return the store of the points in the folder of parts, and the windows; a sound store is used again."""
        key, points = parts.mark.hex(), self.original.points

        def grid_over(bounds: Bounds) -> WindowGrid:
            return WindowGrid.over(self.stored, bounds, self.windows.side_m, self.windows.step_m)

        def blocks_over(bounds: Bounds) -> Blocks:
            return grid_over(bounds).blocks

        if parts.path(LAST).exists():
            try:
                store = PointStore(parts.folder, key)
                store.check()
            except DamagedStoreError:
                parts.warn_damaged(POINTS)
            else:
                return store, grid_over(store.bounds)
        reference = PointCloudReference.of_file(
            self.stored, self.crs, las_standard=self.inputs.las_standard, progress=execution.progress
        )
        how: dict[str, Any] = {"colours": self.inputs.colour, "key": key}
        with progress_bar(points, title="sorting", unit=" points", large=True, show=execution.progress) as bar:
            write_store(self.stored, self.crs, parts.folder, blocks_over, reference, advance=bar.update, **how)
        store = PointStore(parts.folder, key)
        return store, grid_over(store.bounds)

    def job(self, parts: PartsFolder, leave_out: tuple[int, ...] = ()) -> PointJob:
        """Return what workers need; a model that is only in memory is saved for them."""
        # named by content, because a worker keeps the model that it once loaded from a folder
        saved = self.saved.stored(self.source_model, parts.path(f"{MODEL}{fingerprint(self.model)}").absolute())
        folder, key = parts.folder.absolute(), parts.mark.hex()
        return PointJob(saved, folder, key, self.sources, self.windows, self.inputs, leave_out)

    def examine(self, job: PointJob, grid: WindowGrid, execution: Execution) -> list[PointCloud]:
        """Report and warn of what is unusual; return the points of a few windows from all over the file."""
        store, task_spec = job.store(), self.model.task_spec
        windows = windows_with_points(grid, store)
        numbers = np.unique(np.linspace(0, len(windows) - 1, EXAMINED).astype(int)).tolist()
        samples = [job.points(store.records(windows[number].blocks)) for number in numbers]
        warn_unlike(task_spec, self.path, self.header, samples)
        images = (channel for source in self.sources for channel in source.channels)
        warn_lacking_fields(task_spec, self.path, samples)
        warn_lacking(task_spec, (*LIDAR, *LIDAR_HEIGHT, *colours_of(samples), *images))
        execution.report(date_note(task_spec, self.path, samples))
        return samples


def trace(path: Path) -> list[Any]:
    """Return path, size and time of change of a file, by which a changed file is recognised."""
    state = path.stat()
    return [str(path.absolute()), state.st_size, state.st_mtime_ns]


def sources_of(
    rasters: Sequence[Any], path: Path, header: PointCloudHeader, channels: Sequence[Channel] = ()
) -> list[RasterSource]:
    """Open the rasters beside a point cloud, as a model knows their ``channels``; all of them have to overlap it."""
    sources = []
    for source in open_rasters(rasters, channels) if rasters else ():
        if (source.crs is None) != (header.crs is None):
            bare, located = (source.path, path) if source.crs is None else (path, source.path)
            raise DataError(
                bare,
                f"has no coordinate system, but {located} has: give it (--crs EPSG:..., in Python crs=), or write it "
                "into the file",
            )
        source = replace(alike(source, header.crs), path=source.path.absolute())
        west, south, east, north = (edge / header.unit_m for edge in header.bounds)
        if not overlap(source, header.crs, (west, south, east, north)):
            raise DataError(source.path, f"does not overlap the point cloud {path.name}")
        warn_uncovered(path.name, (west, south, east, north), header.crs, source)
        sources.append(source)
    return sources


def check_points(model: Model) -> None:
    """Refuse a model that cannot read points, or was trained without any."""
    if not model.capabilities.points:
        own = model.preset or model.family
        raise ConfigError(f"{own} reads rasters only: a point cloud (--points) needs a model that reads points")
    if without_points(model.task_spec):
        raise ConfigError(
            "the model was trained without point clouds: use a model that was trained with heights of points"
        )


def without_points(task_spec: TaskSpec) -> bool:
    """Return whether the training data are known, and had no heights of points."""
    known = task_spec.statistics()
    return bool(known) and not any((channel.sensor, channel.name) in known for channel in (*LIDAR, *LIDAR_HEIGHT))
