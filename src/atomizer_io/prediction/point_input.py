"""The input of a prediction from a point cloud: the file, images over it, the model, and what the model is shown."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import atomizer_io
from atomizer_io.data.acquisition import varying_fields
from atomizer_io.data.channels import Channel
from atomizer_io.data.misfits import OTHER_UNITS
from atomizer_io.data.sensors import AERIAL, LIDAR, LIDAR_HEIGHT
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.scene_decoder import SavedModel
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.point_atoms import colour_values, point_cloud_atoms, points_per_m2
from atomizer_io.io.point_clouds import Bounds, PointCloud, PointCloudHeader, point_cloud_header
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.point_store import CHUNK, LAST, POINTS, DamagedStoreError, PointStore, write_store
from atomizer_io.io.point_windows import WindowGrid
from atomizer_io.io.raster_sources import RasterInput, RasterSource, alike, open_rasters, overlap
from atomizer_io.models.base import Model
from atomizer_io.models.storage import fingerprint
from atomizer_io.prediction.las import Original
from atomizer_io.prediction.options import Decoding, Execution, PointCloudWindows
from atomizer_io.prediction.parts_folder import MODEL, PartsFolder
from atomizer_io.prediction.plans import Plan
from atomizer_io.prediction.point_windows import Inputs, PointJob, windows_with_points
from atomizer_io.prediction.raster_checks import warn_lacking, warn_uncovered
from atomizer_io.progress import progress_bar

DENSITY_RATIO = 4.0  # times denser or sparser than the training data; feet taken as metres are 11 times sparser
DEVIATIONS = 3.0  # standard deviations of the training data, beyond which a mean is unusual
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
        if header.metres_assumed:
            execution.report(f"{path.name} has no coordinate system; coordinates are taken as metres")
        own, saved = SavedModel.of(model, decoding, execution.report)
        sources = tuple(sources_of(rasters, path, header, own.task_spec.channels))
        check_points(own)
        if colour is None:
            known = own.task_spec.statistics()
            colour = not sources and any((channel.sensor, channel.name) in known for channel in AERIAL.channels)
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
            "decoding": asdict(self.saved.decoding),
            "chunk": CHUNK,
        }
        return Plan(inputs, {**own, **options}, {**common, **resolved})

    def sort_into(self, parts: PartsFolder, execution: Execution) -> tuple[PointStore, WindowGrid]:
        """Return the store of the points in the folder of parts, and the windows; a sound store is used again."""
        key, points = parts.mark.hex(), self.original.points

        def grid_over(bounds: Bounds) -> WindowGrid:
            return WindowGrid.over(self.stored, bounds, self.windows.side_m, self.windows.step_m)

        if (parts.folder / LAST).exists():
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
            write_store(
                self.stored,
                self.crs,
                parts.folder,
                lambda bounds: grid_over(bounds).blocks,
                reference,
                advance=bar.update,
                **how,
            )
        store = PointStore(parts.folder, key)
        return store, grid_over(store.bounds)

    def prepared(
        self, parts: PartsFolder, execution: Execution, leave_out: tuple[int, ...] = ()
    ) -> tuple[PointJob, WindowGrid, list[PointCloud]]:
        """Return what workers need, the windows, and the points of a few of them from all over the file.

        A model that is only in memory is saved for the workers. What is unusual is reported and warned of.
        """
        store, grid = self.sort_into(parts, execution)
        # named by content, because a worker keeps the model that it once loaded from a folder
        folder = parts.folder.absolute()
        saved = self.saved.stored(self.source_model, folder / f"{MODEL}{fingerprint(self.model)}")
        job = PointJob(saved, folder, parts.mark.hex(), self.sources, self.windows, self.inputs, leave_out)
        spec, windows = self.model.task_spec, windows_with_points(grid, store)
        numbers = np.unique(np.linspace(0, len(windows) - 1, EXAMINED).astype(int)).tolist()
        samples = [job.points(store.records(windows[number].blocks)) for number in numbers]
        warn_unlike(spec, self.path, self.header, samples)
        warn_lacking_fields(spec, self.path, samples)
        colours = (channel for points in samples for channel in colour_values(points)[1])
        images = (channel for source in self.sources for channel in source.channels)
        warn_lacking(spec, (*LIDAR, *LIDAR_HEIGHT, *colours, *images))
        execution.report(date_note(spec, self.path, samples))
        return job, grid, samples


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
    known = model.task_spec.statistics()
    if known and not any((channel.sensor, channel.name) in known for channel in (*LIDAR, *LIDAR_HEIGHT)):
        raise ConfigError(
            "the model was trained without point clouds: use a model that was trained with heights of points"
        )


def date_note(task_spec: TaskSpec, path: Path, samples: Sequence[PointCloud]) -> str:
    """Return a line about the date that is used and where it comes from, or why none is."""
    if not task_spec.dates:
        return "no date is used: the model was trained without dates, or with a single one"
    days = sorted({points.date for points in samples if points.date is not None})
    if not days:
        return (
            f"no date is used: {path.name} has no adjusted standard GPS time between 1990 and today (the creation date "
            "of a file is not the day of the flight)"
        )
    span = f"{days[0]}" if len(days) == 1 else f"{days[0]} … {days[-1]}"
    return f"date {span}, from the GPS time of the points"


def warn_unlike(task_spec: TaskSpec, path: Path, header: PointCloudHeader, samples: Sequence[PointCloud]) -> None:
    """Warn of a point cloud that is unlike those the model was trained on: other units, another sensor."""
    odd, usual = list[str](), task_spec.statistics()
    if task_spec.point_density is not None:
        mean, std = task_spec.point_density
        density = median_density(samples)
        most = max(DENSITY_RATIO, 1 + DEVIATIONS * std / mean)
        if not task_spec.thinning / most < density / mean < most:
            units = " (if the coordinates are not metres, name their system: --crs EPSG:..., in Python crs=)"
            hint = units if header.metres_assumed else ""
            thinned = f", thinned down to {mean * task_spec.thinning:.2g}" if task_spec.thinning < 1 else ""
            odd.append(f"{density:.3g} points per m², where the model knows {mean:.3g} ± {std:.2g}{thinned}{hint}")
    recorded = [points.intensity for points in samples if points.intensity is not None and np.any(points.intensity)]
    if "intensity" in task_spec.fields and "intensity_rank" not in task_spec.fields and recorded:
        mean, std = task_spec.fields["intensity"]
        here = float(np.log1p(np.concatenate(recorded).astype(np.float64)).mean())
        if abs(here - mean) > DEVIATIONS * std:
            odd.append(f"intensities around {np.expm1(here):.3g}, where the model knows about {np.expm1(mean):.3g}")
    for channel in (*LIDAR.channels, *LIDAR_HEIGHT.channels):
        of_channel = usual.get((channel.sensor, channel.name))
        columns = [points.height if channel.name == "height" else points.z for points in samples]
        stds = [float(column.std()) for column in columns if column is not None]
        if of_channel is not None and of_channel.std and stds and np.median(stds) > OTHER_UNITS * of_channel.std:
            varies = f"{channel.name}s that vary by {np.median(stds):.3g} m"
            odd.append(f"{varies}, where the model knows {of_channel.std:.3g} m")
    if odd:
        warnings.warn(f"{path.name} is unlike the training data: {'; '.join(odd)}", stacklevel=4)


def median_density(samples: Sequence[PointCloud]) -> float:
    """Return how many points per square metre the windows of a point cloud have, by their median."""
    return float(np.median([points_per_m2(np.stack([points.x, points.y], axis=1)) for points in samples]))


def warn_lacking_fields(task_spec: TaskSpec, path: Path, samples: Sequence[PointCloud]) -> None:
    """Warn of returns or intensities that each training sample had, and that a point cloud lacks."""
    if not task_spec.complete_fields:
        return
    atoms = [point_cloud_atoms(points, np.stack([points.x, points.y], axis=1), 0.0, colour=False) for points in samples]
    text = task_spec.lacking_fields(varying_fields(part for acquisitions in atoms for part in acquisitions))
    if text is not None:
        warnings.warn(f"{path.name}: {text}", stacklevel=4)
