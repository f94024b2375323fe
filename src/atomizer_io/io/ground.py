"""Heights above a local ground that is estimated from the points alone, in one pass and with memory for the area only.

The lowest point of every cell is kept while points stream by; :mod:`~atomizer_io.io.ground_filter` finds the
ground among them. Sparse point clouds get larger cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from atomizer_io.errors import AtomsError
from atomizer_io.io.ground_filter import ground_of_cells

Floats = NDArray[np.float64]

NOISE = (7, 18, 65, 66)  # classes of low and high noise: of the LAS standard, and two of IGN
FINEST_M = 1.0  # side of a cell where there are points enough
LEAST_POINTS = 0.5  # per cell, on average
STEP_M, STEP_SLOPE = 0.5, 1.5  # ground that rises by more than both together from a cell to the next is a wall
MOST_CELLS = 1 << 24  # of a grid: about 1.5 GB while the ground is found
FEW_CELLS, CELLS_PER_POINT = 1 << 20, 100  # a grid has no more cells than that for the points there are
WIDEST_KM2 = 100 * 100  # of what is not stray
STRAY = 1e-3  # share of all points: blocks that hold less may be left out where a grid would be too large
BLOCK = 1000  # finest cells along a side of such a block
SPAN = 1 << 31  # finest cells along an axis, at most


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """Elevations of the ground (R, C) in metres at points ``cell_m`` apart, the first at ``origin`` (x, y).

    Between them it is linear along x and y, beyond them it stays as at the edge. At a wall, where it rises too steeply
    for that, a point may stand on either side: its ground is then the height between both that is nearest to it.
    """

    elevation: NDArray[np.float32]
    base_m: float
    origin: tuple[float, float]
    cell_m: float
    walls: NDArray[np.bool_] = field(init=False)  # (R - 1, C - 1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "walls", _walls(self.elevation, self.cell_m))

    def at(self, x: Floats, y: Floats) -> Floats:
        """Return the elevation of the ground at points, in metres; at a wall, between both sides."""
        return self._at(*self._cells(x, y))

    def _at(self, row: NDArray[np.int64], column: NDArray[np.int64], v: Floats, u: Floats) -> Floats:
        columns = self.elevation.shape[1]
        flat, first = self.elevation.ravel(), row * columns + column
        low = flat[first] * (1 - u) + flat[first + 1] * u
        high = flat[first + columns] * (1 - u) + flat[first + columns + 1] * u
        elevation: Floats = self.base_m + low * (1 - v) + high * v
        return elevation

    def height(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """Return the heights of points above the ground, in metres."""
        row, column, v, u = self._cells(x, y)
        ground = self._at(row, column, v, u)
        beside = np.flatnonzero(self.walls[row, column])
        near = [
            np.clip(of[beside, None] + np.arange(-1, 3), 0, n - 1)
            for of, n in zip((row, column), self.elevation.shape, strict=True)
        ]
        around = self.base_m + self.elevation[near[0][:, :, None], near[1][:, None, :]].astype(np.float64)
        ground[beside] = np.clip(z[beside], around.min(axis=(1, 2)), around.max(axis=(1, 2)))
        return z - ground

    def _cells(self, x: Floats, y: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]:
        """Return the row and column of the known points below and left of points, and how far they are beyond them."""
        rows, columns = self.elevation.shape
        u = np.clip((x - self.origin[0]) / self.cell_m, 0, columns - 1)
        v = np.clip((y - self.origin[1]) / self.cell_m, 0, rows - 1)
        column, row = np.minimum(u.astype(np.int64), columns - 2), np.minimum(v.astype(np.int64), rows - 2)
        return row, column, v - row, u - column


def _walls(elevation: NDArray[np.float32], cell_m: float) -> NDArray[np.bool_]:
    """Return between which points of the ground there is a wall, or beside one a remainder of it."""
    four = elevation[:-1, :-1], elevation[1:, :-1], elevation[:-1, 1:], elevation[1:, 1:]
    rise = np.maximum(np.maximum(*four[:2]), np.maximum(*four[2:]))
    rise -= np.minimum(np.minimum(*four[:2]), np.minimum(*four[2:]))
    steep = ndimage.binary_dilation(rise > STEP_M + STEP_SLOPE * cell_m, np.ones((3, 3)))
    walls: NDArray[np.bool_] = steep & (rise > STEP_M)
    return walls


class LowestPoints:
    """The lowest point of every cell of 1 m that has any, gathered from points that stream by."""

    def __init__(self) -> None:
        self._corner: tuple[float, float] | None = None
        self._key = np.empty(0, np.int64)
        self._xyz = np.empty((0, 3))
        self._count = np.empty(0, np.int64)

    def add(self, x: Floats, y: Floats, z: Floats, classification: NDArray[Any] | None = None) -> None:
        """Add points in metres; those of noise do not count."""
        if classification is not None:
            keep = ~np.isin(classification, NOISE)
            x, y, z = x[keep], y[keep], z[keep]
        if not len(x):
            return
        if self._corner is None:
            self._corner = (float(np.floor(x.min())), float(np.floor(y.min())))
        column, row = (
            np.clip(np.floor((axis - low) / FINEST_M), -SPAN // 2, SPAN // 2 - 1).astype(np.int64) + SPAN // 2
            for axis, low in zip((x, y), self._corner, strict=True)
        )
        new = lowest(row * SPAN + column, np.stack([x, y, z], axis=1))
        if len(self._key):
            new = lowest(*(np.concatenate(both) for both in zip((self._key, self._xyz, self._count), new, strict=True)))
        self._key, self._xyz, self._count = new

    def ground(self) -> Ground | None:
        """Return the ground under all points so far; None if there were none that count."""
        if self._corner is None:
            return None
        row, column = np.divmod(self._key, SPAN)
        keep = _gathered(row, column, self._count)
        row, column, count, xyz = row[keep], column[keep], self._count[keep], self._xyz[keep]
        low_row, low_column = int(row.min()), int(column.min())
        row, column = row - low_row, column - low_column
        wide, high = (int(axis.max()) * FINEST_M / 1000 for axis in (column, row))
        if max(wide, 1) * max(high, 1) > WIDEST_KM2:
            raise AtomsError(
                f"the points extend over {wide:.0f} × {high:.0f} km, too far for a ground below them: cut the "
                "point cloud into tiles, or look whether its coordinates are right"
            )
        factor = _coarsening(row, column, count)
        row, column = row // factor, column // factor
        width = int(column.max()) + 1
        key = row * width + column
        if factor > 1:
            key, xyz, _ = lowest(key, xyz, count)
        cell = factor * FINEST_M
        corner = [
            low + (first - SPAN // 2) * FINEST_M for low, first in zip(self._corner, (low_column, low_row), strict=True)
        ]
        base = float(np.median(xyz[:, 2]))
        grids = np.full((3, int(row.max()) + 3, width + 2), np.nan)  # with an empty cell on each side
        for grid, values, low in zip(grids, xyz.T, (*corner, base), strict=True):
            inner = np.full((int(row.max()) + 1) * width, np.nan)
            inner[key] = values - low
            grid[1:-1, 1:-1] = inner.reshape(-1, width)
        elevation = ground_of_cells(grids[0] + cell, grids[1] + cell, grids[2], cell)
        origin = (corner[0] - cell / 2, corner[1] - cell / 2)
        return Ground(elevation.astype(np.float32), base, origin, cell)


def lowest(
    key: NDArray[np.int64], xyz: Floats, count: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Return each key once, in order, with its lowest point (of equals the first by x and y) and its sum of counts."""
    order = np.argsort(key)
    ordered = key[order]
    first, size = _groups(ordered)
    z = xyz[:, 2][order]
    lowest_z = np.minimum.reduceat(z, first)
    total = size if count is None else np.add.reduceat(count[order], first)
    at_bottom = z == np.repeat(lowest_z, size)
    order, ordered = order[at_bottom], ordered[at_bottom]
    first, size = _groups(ordered)
    tied = np.repeat(size > 1, size)  # few, which are sorted with care
    ties = order[tied]
    order[tied] = ties[np.lexsort((xyz[ties, 1], xyz[ties, 0], key[ties]))]
    return ordered[first], xyz[order[first]], total


def _groups(key: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each group of equal keys begins, and how many keys it has."""
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    return first, np.diff(first, append=len(key))


def _gathered(row: NDArray[np.int64], column: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which cells to keep: all, unless stray points far away would make the grid too large."""
    keep = np.ones(len(row), np.bool_)
    if _cells(row, column) <= MOST_CELLS:
        return keep
    block = row // BLOCK * SPAN + column // BLOCK
    _, member = np.unique(block, return_inverse=True)
    points = np.bincount(member, weights=count)
    keep = points[member] >= STRAY * count.sum()
    return keep if keep.any() else points[member] == points.max()


def _coarsening(row: NDArray[np.int64], column: NDArray[np.int64], count: NDArray[np.int64]) -> int:
    """Return how many finest cells the side of a cell has: few points per cell, not too many cells."""
    side, most = 5, 1 << 10
    while True:  # the density of blocks that hold points, large enough to hold several each
        blocks = len(np.unique(row // side * SPAN + column // side))
        if count.sum() >= 8 * blocks or blocks == 1 or side >= most:
            break
        side *= 2
    density = count.sum() / (blocks * (side * FINEST_M) ** 2)
    factor = max(1, int(np.ceil(np.sqrt(LEAST_POINTS / density) / FINEST_M - 1e-9)))
    factor = min(factor, 10)
    most = min(MOST_CELLS, max(FEW_CELLS, CELLS_PER_POINT * int(count.sum())))
    while _cells(row // factor, column // factor) > most:
        factor *= 2
    return factor


def _cells(row: NDArray[np.int64], column: NDArray[np.int64]) -> int:
    return (int(np.ptp(row)) + 1) * (int(np.ptp(column)) + 1)


def ground_of(x: Floats, y: Floats, z: Floats, classification: NDArray[Any] | None = None) -> Ground:
    """Return the ground below points in metres; without points that count, of all of them."""
    lowest_points = LowestPoints()
    lowest_points.add(x, y, z, classification)
    ground = lowest_points.ground()
    if ground is None:
        lowest_points.add(x, y, z)
        ground = lowest_points.ground()
    assert ground is not None
    return ground


def height_above_ground(xyz: Any, classification: Any = None) -> Floats:
    """Return the height (P,) of each point of a point cloud ``xyz`` (P, 3) above the local ground, all in metres.

    The ground is estimated from the points alone, on relief as on flat land; single points below it, which are noise,
    have negative heights. Where ``classification`` (P,) is given, the classes of noise (7, 18, 65, 66) do not count.
    """
    points = np.asarray(xyz, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3:
        raise AtomsError(f"points have shape {points.shape}, expected (points, 3): x, y, z in metres")
    wrong = int((~np.isfinite(points)).any(axis=1).sum())
    if wrong:
        raise AtomsError(f"{wrong} of {len(points)} points are not finite: remove them")
    if not len(points):
        return np.empty(0)
    x, y, z = points.T
    codes = None if classification is None else np.asarray(classification)
    return ground_of(x, y, z, codes).height(x, y, z)
