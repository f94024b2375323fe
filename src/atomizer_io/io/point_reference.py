"""What the points of a point cloud are compared with: the ground below them, and the intensities of the whole file.

Both belong to a whole file, not to a window of it, and are gathered while its points stream by: memory depends on the
area, not on the number of points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import AtomsError, DataError
from atomizer_io.io.ground import Ground, LowestPoints, ground_of
from atomizer_io.io.point_clouds import PointCloud, PointCloudHeader, check_finite, column_chunks, point_cloud_header
from atomizer_io.progress import progress_bar

Floats = NDArray[np.float64]

LEVELS = 1 << 16  # of intensity


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The rank from 0 to 1 of each of 65 536 levels of intensity between ``low`` and ``high``, among all returns.

    A rank is the share of returns that are weaker and half of those that are as strong.
    """

    table: Floats
    low: float
    high: float

    @classmethod
    def of_counts(cls, counts: NDArray[np.int64], low: float, high: float) -> Ranks:
        """Return the ranks for this many returns of each level."""
        before = np.cumsum(counts) - counts
        return cls((before + counts / 2) / max(1, counts.sum()), low, high)

    def of(self, intensity: NDArray[Any]) -> Floats:
        """Return the rank of each intensity, NaN where it is no number."""
        finite = np.isfinite(intensity)
        ranks = self.table[levels(np.where(finite, intensity, self.low), self.low, self.high)]
        ranks[~finite] = np.nan
        return ranks


def levels(intensity: NDArray[Any], low: float, high: float) -> NDArray[np.int64]:
    """Return the level of each intensity; whole numbers that fit are their own level."""
    scaled = (intensity.astype(np.float64) - low) * ((LEVELS - 1) / max(high - low, 1e-300))
    return np.clip(np.round(scaled), 0, LEVELS - 1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PointCloudReference:
    """The ground below a whole point cloud and the ranks of its intensities; None where it has no intensities."""

    ground: Ground
    ranks: Ranks | None

    @classmethod
    def of_file(
        cls, path: str | Path, crs: str | None = None, *, las_standard: bool = True, progress: bool = False
    ) -> PointCloudReference:
        """Return the reference of a file, read some points at a time; ``crs`` is for a file that has none.

        ``las_standard=False``: its classes are not those of the LAS standard, so that none of them is noise.
        """
        path = Path(path)
        header = point_cloud_header(path, crs)
        lowest, seen, low, high = LowestPoints(), 0, np.inf, -np.inf
        counts: NDArray[np.int64] | None = np.zeros(LEVELS, np.int64)
        names = ("z", "classification", "intensity") if las_standard else ("z", "intensity")
        bar = progress_bar(header.points, title="ground", unit=" points", large=True, show=progress)
        with bar:
            for columns in column_chunks(path, header, names):
                check_finite(path, columns)
                lowest.add(columns["x"], columns["y"], columns["z"], columns.get("classification"))
                seen += len(columns["x"])
                bar.update(len(columns["x"]))
                strength = known(columns.get("intensity"))
                if len(strength):
                    low, high = min(low, float(strength.min())), max(high, float(strength.max()))
                    counts = (
                        counts + counted(strength, 0, LEVELS - 1) if counts is not None and whole(strength) else None
                    )
        if seen < header.points:
            raise DataError(path, f"is truncated: it holds {seen} of {header.points} points")
        try:
            ground = lowest.ground() or ground_of_all(path, header)
        except AtomsError as error:
            raise DataError(path, str(error)) from error
        if not low < np.inf or low == high == 0:  # 0 in all points is what files hold that never recorded any
            return cls(ground, None)
        if counts is not None:
            return cls(ground, Ranks.of_counts(counts, 0, LEVELS - 1))
        counts = np.zeros(LEVELS, np.int64)
        for columns in column_chunks(path, header, ("intensity",)):
            counts += counted(known(columns["intensity"]), low, high)
        return cls(ground, Ranks.of_counts(counts, low, high))

    @classmethod
    def of_point_cloud(cls, point_cloud: PointCloud, *, las_standard: bool = True) -> PointCloudReference:
        """Return the reference of a whole point cloud that is in memory; for ``las_standard`` see :meth:`of_file`."""
        codes = point_cloud.classification if las_standard else None
        ground = ground_of(point_cloud.x, point_cloud.y, point_cloud.z, codes)
        strength = known(point_cloud.intensity)
        if not strength.any():
            return cls(ground, None)
        low, high = (0.0, LEVELS - 1.0) if whole(strength) else (float(strength.min()), float(strength.max()))
        return cls(ground, Ranks.of_counts(counted(strength, low, high), low, high))

    def complete(self, point_cloud: PointCloud) -> PointCloud:
        """Return points of the point cloud with their heights above ground and the ranks of their intensities."""
        rank = None if self.ranks is None or point_cloud.intensity is None else self.ranks.of(point_cloud.intensity)
        return replace(
            point_cloud, height=self.ground.height(point_cloud.x, point_cloud.y, point_cloud.z), intensity_rank=rank
        )


def known(intensity: NDArray[Any] | None) -> NDArray[Any]:
    """Return the intensities that are numbers; none where there is no such column."""
    return np.empty(0) if intensity is None else intensity[np.isfinite(intensity)]


def whole(intensity: NDArray[Any]) -> bool:
    """Return whether intensities are whole numbers of 16 bits, each of which is a level."""
    return intensity.dtype.kind in "ui" and int(intensity.min()) >= 0 and int(intensity.max()) < LEVELS


def counted(intensity: NDArray[Any], low: float, high: float) -> NDArray[np.int64]:
    """Return how many returns each level has."""
    return np.bincount(levels(intensity, low, high), minlength=LEVELS)


def ground_of_all(path: Path, header: PointCloudHeader) -> Ground:
    """Return the ground of a file whose points are all noise, which count then."""
    lowest = LowestPoints()
    for columns in column_chunks(path, header, ("z",)):
        lowest.add(columns["x"], columns["y"], columns["z"])
    ground = lowest.ground()
    assert ground is not None
    return ground
