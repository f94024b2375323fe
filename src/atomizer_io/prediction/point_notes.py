"""What is reported about a point cloud before it is predicted: units, date, and what is unlike the training data."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from atomizer_io.data.acquisition import varying_fields
from atomizer_io.data.channels import Channel
from atomizer_io.data.misfits import OTHER_UNITS
from atomizer_io.data.sensors import LIDAR, LIDAR_HEIGHT
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.io.point_atoms import colour_values, point_cloud_atoms, points_per_m2
from atomizer_io.io.point_clouds import PointCloud, PointCloudHeader

DENSITY_RATIO = 4.0  # times denser or sparser than the training data; feet taken as metres are 11 times sparser
DEVIATIONS = 3.0  # standard deviations of the training data, beyond which a mean is unusual


def assumed(path: Path, header: PointCloudHeader) -> str | None:
    """Return a line about the units that were assumed, or None where the file states them."""
    if not header.metres_assumed:
        return None
    return f"{path.name} has no coordinate system; coordinates are taken as metres"


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


def class_map_note(task_spec: TaskSpec) -> str | None:
    """Return a line about maps of classes, or None for a regression target: a pixel holds several returns."""
    if task_spec.regression:
        return None
    return (
        "each pixel is predicted from all returns inside it, but a model that learned the classes of points has seen "
        "one return at a time: classify the points instead (-o FILE.laz)"
    )


def warn_unlike(task_spec: TaskSpec, path: Path, header: PointCloudHeader, samples: Sequence[PointCloud]) -> None:
    """Warn of a point cloud that is unlike those the model was trained on: other units, another sensor."""
    odd = [*_density(task_spec, header, samples), *_intensity(task_spec, samples), *_heights(task_spec, samples)]
    if odd:
        warnings.warn(f"{path.name} is unlike the training data: {'; '.join(odd)}", stacklevel=4)


def warn_lacking_fields(task_spec: TaskSpec, path: Path, samples: Sequence[PointCloud]) -> None:
    """Warn of returns or intensities that each training sample had, and that a point cloud lacks."""
    if not task_spec.complete_fields:
        return
    atoms = [point_cloud_atoms(points, np.stack([points.x, points.y], axis=1), 0.0, colour=False) for points in samples]
    text = task_spec.lacking_fields(varying_fields(part for acquisitions in atoms for part in acquisitions))
    if text is not None:
        warnings.warn(f"{path.name}: {text}", stacklevel=4)


def colours_of(samples: Iterable[PointCloud]) -> tuple[Channel, ...]:
    """Return the aerial channels of the colours that points carry."""
    return tuple(dict.fromkeys(channel for points in samples for channel in colour_values(points)[1]))


def _density(task_spec: TaskSpec, header: PointCloudHeader, samples: Sequence[PointCloud]) -> Iterator[str]:
    if task_spec.point_density is None:
        return
    mean, std = task_spec.point_density
    density = float(np.median([points_per_m2(np.stack([points.x, points.y], axis=1)) for points in samples]))
    most = max(DENSITY_RATIO, 1 + DEVIATIONS * std / mean)
    if not task_spec.thinning / most < density / mean < most:
        units = " (if the coordinates are not metres, name their system: --crs EPSG:..., in Python crs=)"
        hint = units if header.metres_assumed else ""
        thinned = f", thinned down to {mean * task_spec.thinning:.2g}" if task_spec.thinning < 1 else ""
        yield f"{density:.3g} points per m², where the model knows {mean:.3g} ± {std:.2g}{thinned}{hint}"


def _intensity(task_spec: TaskSpec, samples: Sequence[PointCloud]) -> Iterator[str]:
    usual = None if "intensity_rank" in task_spec.fields else task_spec.fields.get("intensity")
    known = [points.intensity for points in samples if points.intensity is not None and np.any(points.intensity)]
    if usual is None or not known:
        return
    mean = float(np.log1p(np.concatenate(known).astype(np.float64)).mean())
    if abs(mean - usual[0]) > DEVIATIONS * usual[1]:
        yield f"intensities around {np.expm1(mean):.3g}, where the model knows about {np.expm1(usual[0]):.3g}"


def _heights(task_spec: TaskSpec, samples: Sequence[PointCloud]) -> Iterator[str]:
    statistics = task_spec.statistics()
    for channel in (*LIDAR.channels, *LIDAR_HEIGHT.channels):
        usual = statistics.get((channel.sensor, channel.name))
        columns = [points.height if channel.name == "height" else points.z for points in samples]
        known = [float(column.std()) for column in columns if column is not None]
        if usual is not None and usual.std and known and np.median(known) > OTHER_UNITS * usual.std:
            yield f"{channel.name}s that vary by {np.median(known):.3g} m, where the model knows {usual.std:.3g} m"
