"""What is reported about a point cloud before it is predicted: units, date, and what is unlike the training data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from atomizer_io.data.acquisition import varying_fields
from atomizer_io.data.misfits import OTHER_UNITS
from atomizer_io.data.sensors import LIDAR, LIDAR_HEIGHT
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.io.point_atoms import point_cloud_atoms, points_per_m2
from atomizer_io.io.point_clouds import PointCloud, PointCloudHeader

DENSITY_RATIO = 4.0  # times denser or sparser than the training data; feet taken as metres are 11 times sparser
DEVIATIONS = 3.0  # standard deviations of the training data, beyond which a mean is unusual


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
