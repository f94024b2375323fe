"""Points become atoms, alike in training and prediction: height, echo, intensity and colours."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import AERIAL, LIDAR, LIDAR_HEIGHT
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.ground import NOISE
from atomizer_io.io.point_clouds import PointCloud

Heights = Literal["ground", "elevation", "both"]
HEIGHT_CHANNELS: dict[str, tuple[Channel, ...]] = {
    "ground": LIDAR_HEIGHT.channels,
    "elevation": LIDAR.channels,
    "both": (*LIDAR.channels, *LIDAR_HEIGHT.channels),
}

CHANNEL_OF = {"red": "R", "green": "G", "blue": "B", "nir": "NIR"}
CELL_M = 5.0


def point_cloud_atoms(
    point_cloud: PointCloud,
    positions: NDArray[np.float64],
    datum_m: float,
    colour: bool,
    heights: Heights = "elevation",
) -> AtomSet:
    """Return points as atoms: how high they are, echo, intensity and, if wanted, colours.

    ``heights`` is ``ground`` (the height above the local ground, which a
    :class:`~atomizer_io.io.point_reference.PointCloudReference` gives), ``elevation`` (above ``datum_m``) or ``both``.
    Intensity is the rank among the returns of the whole point cloud where it is known, else as it was recorded.
    """
    height_channels(heights)
    values, channels = colour_values(point_cloud) if colour else (None, ())
    if heights != "elevation":
        if point_cloud.height is None:
            raise DataError(point_cloud.path, "has no heights above ground yet: complete it by its PointCloudReference")
        above = point_cloud.height.astype(np.float32)[:, None]
        values = above if values is None else np.concatenate([above, values], axis=1)
        channels = (*LIDAR_HEIGHT.channels, *channels)
    # 0 in all points is what files hold that never recorded an intensity
    intensity = point_cloud.intensity if point_cloud.intensity is not None and np.any(point_cloud.intensity) else None
    echo = (point_cloud.return_number, point_cloud.number_of_returns)
    (points,) = AtomSet.from_points(
        np.column_stack([positions, point_cloud.z]),
        *((None, None) if any(part is None for part in echo) else echo),
        intensity if point_cloud.intensity_rank is None else None,
        values=values,
        channels=channels,
        day_of_year=point_cloud.date,
        datum_m=datum_m,
    )
    if heights == "ground":
        points = points.with_channels(range(1, len(points.channels)))
    if point_cloud.intensity_rank is not None:
        rank = torch.from_numpy(point_cloud.intensity_rank.astype(np.float32))
        points = replace(points, site_fields={**points.site_fields, "intensity_rank": rank})
    return AtomSet((points,))


def height_channels(heights: str) -> tuple[Channel, ...]:
    """Return the channels that the option ``heights`` stands for."""
    if heights not in HEIGHT_CHANNELS:
        raise ConfigError(f"heights is {heights!r}; use {', '.join(HEIGHT_CHANNELS)}")
    return HEIGHT_CHANNELS[heights]


def datum_of(point_cloud: PointCloud, *, las_standard: bool = True) -> float:
    """Return the elevation of the lowest point that is not noise, in metres; of all points where all are noise.

    ``las_standard=False``: classes are not those of the LAS standard, so that none of them is noise.
    """
    codes = point_cloud.classification if las_standard else None
    sure = point_cloud.z if codes is None else point_cloud.z[~np.isin(codes, NOISE)]
    return float((sure if len(sure) else point_cloud.z).min())


def colour_values(point_cloud: PointCloud) -> tuple[NDArray[np.float32] | None, tuple[Channel, ...]]:
    """Return colours (P, C) on the 8-bit scale of ``sensors.AERIAL``, NaN where there is none, and their channels.

    A photograph shows the first surface: later returns of a pulse have no colour of their own. A colour that is 0 in
    all points was never recorded, and points with 0 in all colours were not painted.
    """
    recorded = {name: column for name, column in (point_cloud.colours or {}).items() if np.any(column)}
    if not recorded:
        return None, ()
    values = np.stack(list(recorded.values()), axis=1).astype(np.float32)
    if values.max() > 255:  # 16 bits, as the standard wants; some programs write 8
        values /= 256
    values[(values == 0).all(axis=1)] = np.nan
    if point_cloud.return_number is not None:
        values[point_cloud.return_number > 1] = np.nan
    return values, AERIAL.pick(*(CHANNEL_OF[name] for name in recorded))


def points_per_m2(positions: NDArray[np.float64]) -> float:
    """Points (P, 2) per area of the cells of 5 m that hold any, so that gaps and ragged edges do not count."""
    cells = np.floor(positions / CELL_M).astype(np.int64)
    cells -= cells.min(axis=0)
    occupied = len(np.unique(cells[:, 0] * (cells[:, 1].max() + 1) + cells[:, 1]))
    return len(positions) / (occupied * CELL_M**2)


def one_per_cube(xyz: NDArray[np.float64], side: float) -> NDArray[np.int64]:
    """Return the numbers of the points of (P, 3) that are the first in their cube of ``side`` metres, in order."""
    cube = np.floor(xyz / side)
    cube -= cube.min(axis=0)
    order = np.lexsort(cube.T)
    ordered = cube[order]
    new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])[: len(order)]
    return np.sort(order[new])  # the sort is stable: of a cube, the first point comes first
