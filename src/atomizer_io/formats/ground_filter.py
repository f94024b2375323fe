"""From the lowest points of the cells of a grid to the ground below them: no class codes are needed.

Steep land is no harder than flat land: planes that follow the lowest points are taken away first, and all that comes
after works on what is left. Low noise is recognised by its loneliness; trees and houses by vanishing in openings of
growing size (a progressive morphological filter). What they covered is filled from around.

Shapes: R rows and C columns of a grid; a cell without points has z = NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Grid = NDArray[np.float64]  # (R, C)
Mask = NDArray[np.bool_]  # (R, C)

BLOCK_M = 50.0  # spacing of the planes; each is fitted to twice as much
LOW = 0.1  # share of the lowest points that lie below a plane
ROUNDS = 25  # of the fit of a plane
LEAST_CELLS = 30  # for a plane of one block; with less it would follow single points
STEEPEST = 3.0  # rise over run of a plane
RARE = 0.01  # share of the cells around: less than that may be noise
COMPANIONS = 4  # low cells close to each other are no noise
NEAR = 3  # cells around a low one in which its companions are sought
LONELY_M = 0.8  # a cell that lies deeper than this below its surroundings may be noise
SMOOTH_M = 8.0  # size of the shapes that the first round tells from houses
WIDEST_M = 50.0  # half the side of the largest opening: wider things are ground
RISE = 0.2  # over the half side of an opening: what stands out further is not ground
MOST_RISE_M = 4.0  # in the largest openings, so that halls are no ground either
ROUGH_M = 0.2  # by how much ground may stand out in any opening


def ground_of_cells(x: Grid, y: Grid, z: Grid, cell_m: float) -> Grid:
    """Return the ground at the centres of all cells, from the lowest point (``x``, ``y``, ``z``) of each.

    ``x`` and ``y`` are metres from the corner of the first cell.
    """
    trend = Trend.of(x, y, z, cell_m)
    left = z - trend.at(x, y)
    left[is_lonely(left, cell_m)] = np.nan
    # what the first round finds is smoothed and taken away like the planes, so that hilltops are not taken for houses
    shape = smoothed(filled(np.where(is_ground(left, cell_m), left, np.nan)), cell_m)
    left -= shape
    left[is_lonely(left, cell_m)] = np.nan  # noise that lay no lower than the land farther off
    surface = shape + filled(np.where(is_ground(left, cell_m), left, np.nan))
    centres = (np.indices(z.shape) + 0.5) * cell_m
    found: Grid = surface + trend.at(centres[1], centres[0])
    return found


def smoothed(surface: Grid, cell_m: float) -> Grid:
    """Return a surface without its small shapes."""
    found: Grid = ndimage.gaussian_filter(surface, SMOOTH_M / cell_m, mode="nearest")
    return found


def is_lonely(z: Grid, cell_m: float) -> Mask:
    """Return which cells lie far below nearly all around them and have no company: they are noise."""
    lonely = np.zeros(z.shape, np.bool_)
    step = max(1, round(BLOCK_M / 2 / cell_m))
    for row in range(0, z.shape[0], step):
        for column in range(0, z.shape[1], step):
            around = z[max(0, row - step) : row + 2 * step, max(0, column - step) : column + 2 * step]
            known = around[~np.isnan(around)]
            if len(known) > COMPANIONS:
                own = np.s_[row : row + step, column : column + step]
                place = max(COMPANIONS, int(RARE * len(known)))
                lonely[own] = z[own] < np.partition(known, place)[place] - LONELY_M
    wide = np.pad(np.where(np.isnan(z), np.inf, z), NEAR, constant_values=np.inf)
    cells = np.argwhere(lonely)
    offsets = np.stack(np.meshgrid(*[np.arange(2 * NEAR + 1)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    for some in np.array_split(cells, 1 + len(cells) // 10_000):
        near = wide[tuple((some[:, None] + offsets).transpose(2, 0, 1))]
        company = (near <= z[tuple(some.T)][:, None] + LONELY_M).sum(axis=1) - 1
        lonely[tuple(some[company >= COMPANIONS].T)] = False
    return lonely


def is_ground(z: Grid, cell_m: float) -> Mask:
    """Return which cells are left by openings of growing size; a cell that stands out of one is not ground."""
    keep: Mask = ~np.isnan(z)
    surface, empty = np.where(keep, z, np.inf), ~keep
    half, widest = 1, max(1, min(round(WIDEST_M / cell_m), max(z.shape)))
    while True:
        opened = _opened(surface, empty, half)
        keep[keep] = surface[keep] - opened[keep] <= ROUGH_M + min(MOST_RISE_M, RISE * (half - 1) * cell_m)
        surface = opened
        if half >= widest:
            return keep
        half = min(widest, max(half + 1, int(1.35 * half)))


def _opened(surface: Grid, empty: Mask, half: int) -> Grid:
    """Return the opening by a square; cells without points and those beyond the edge take no part."""
    size = 2 * half + 1
    low = ndimage.minimum_filter(surface, size, mode="constant", cval=np.inf)
    low = np.where(np.isinf(low), -np.inf, low)
    high = ndimage.maximum_filter(low, size, mode="constant", cval=-np.inf)
    return np.where(empty, np.inf, high)


def filled(z: Grid) -> Grid:
    """Return the grid with values for cells that are NaN: means of ever larger squares, smoothly joined."""
    known = ~np.isnan(z)
    if known.all() or not known.any():
        return np.where(known, z, 0.0)
    rows, columns = z.shape
    wide = np.pad(np.where(known, z, 0.0), ((0, rows % 2), (0, columns % 2)))
    weight = np.pad(known.astype(np.float64), ((0, rows % 2), (0, columns % 2)))
    total, count = (_halved(part) for part in (wide, weight))
    with np.errstate(invalid="ignore"):
        coarse = filled(np.where(count > 0, total / count, np.nan))
    return np.where(known, z, _doubled(coarse)[:rows, :columns])


def _halved(grid: Grid) -> Grid:
    rows, columns = grid.shape
    found: Grid = grid.reshape(rows // 2, 2, columns // 2, 2).sum(axis=(1, 3))
    return found


def _doubled(grid: Grid) -> Grid:
    """Return a grid of half the cell size, between the centres by linear interpolation."""
    for axis in (0, 1):
        wide = np.concatenate([grid.take([0], axis), grid, grid.take([-1], axis)], axis)
        one = 0.75 * grid
        before, after = (0.25 * wide.take(range(i, i + grid.shape[axis]), axis) for i in (0, 2))
        both = np.stack([one + before, one + after], axis=axis + 1)
        shape = list(grid.shape)
        shape[axis] *= 2
        grid = both.reshape(shape)
    return grid


class Trend:
    """Planes on a lattice of 50 m, blended linearly in between; tilting the points tilts it exactly as much."""

    def __init__(self, planes: NDArray[np.float64]) -> None:
        self.planes = planes  # (rows, columns, 3): height at the node of the lattice, slopes along x and y

    @classmethod
    def of(cls, x: Grid, y: Grid, z: Grid, cell_m: float) -> Trend:
        """Return the planes that follow the lowest points around each node of the lattice."""
        rows, columns = (max(2, int(np.ceil(n * cell_m / BLOCK_M)) + 1) for n in z.shape)
        planes = np.full((rows, columns, 3), np.nan)
        for row, column in _nodes_near(z, cell_m, (rows, columns)):
            part = (_around(row, cell_m), _around(column, cell_m))
            known = ~np.isnan(z[part])
            if known.sum() >= LEAST_CELLS:
                offsets = x[part][known] - column * BLOCK_M, y[part][known] - row * BLOCK_M
                planes[row, column] = low_plane(*offsets, z[part][known])
        return cls(_all_planes(planes, x, y, z))

    def at(self, x: Grid, y: Grid) -> Grid:
        """Return the height of the trend at places, in metres from the corner of the first cell."""
        rows, columns, _ = self.planes.shape
        u, v = np.clip(x / BLOCK_M, 0, columns - 1), np.clip(y / BLOCK_M, 0, rows - 1)
        column, row = (np.minimum(np.nan_to_num(w).astype(np.int64), n - 2) for w, n in ((u, columns), (v, rows)))
        u, v = u - column, v - row
        total = np.zeros_like(u)
        for i, j, share in ((0, 0, (1 - v) * (1 - u)), (0, 1, (1 - v) * u), (1, 0, v * (1 - u)), (1, 1, v * u)):
            plane = self.planes[row + i, column + j]
            over, up = x - (column + j) * BLOCK_M, y - (row + i) * BLOCK_M
            total += share * (plane[..., 0] + plane[..., 1] * over + plane[..., 2] * up)
        return total


def _nodes_near(z: Grid, cell_m: float, shape: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the nodes of a lattice that may have known cells around them: a large grid may be nearly empty."""
    near = np.zeros(shape, np.bool_)
    cells = (np.nonzero(~np.isnan(z)), shape)
    near[tuple(np.minimum((of * cell_m / BLOCK_M).astype(np.int64), n - 1) for of, n in zip(*cells, strict=True))] = (
        True
    )
    return [(int(row), int(column)) for row, column in np.argwhere(ndimage.binary_dilation(near, np.ones((5, 5))))]


def _around(node: int, cell_m: float) -> slice:
    """Return the cells along an axis that are at most a block away from a node of the lattice."""
    return slice(max(0, int((node - 1) * BLOCK_M / cell_m)), int(np.ceil((node + 1) * BLOCK_M / cell_m)))


def low_plane(x: Grid, y: Grid, z: Grid) -> NDArray[np.float64]:
    """Return height at (0, 0) and slopes of the plane that a tenth of the points lie below (quantile regression)."""
    middle = np.array([x.mean(), y.mean(), z.mean()])
    design = np.stack([np.ones_like(x), x - middle[0], y - middle[1]], axis=1)
    ridge = np.diag([0.0, 1.0, 1.0]) * 1e-3  # a single line of points has no slope across it
    weight, found = np.ones_like(z), np.zeros(3)
    for _ in range(ROUNDS):
        weighted = design * weight[:, None]
        found = np.linalg.solve(weighted.T @ design + ridge * weight.sum(), weighted.T @ (z - middle[2]))
        error = z - middle[2] - design @ found
        weight = np.where(error > 0, LOW, 1 - LOW) / np.maximum(np.abs(error), 0.05)
    slopes = np.clip(found[1:], -STEEPEST, STEEPEST)
    return np.array([middle[2] + found[0] - slopes @ middle[:2], *slopes])


def _all_planes(planes: NDArray[np.float64], x: Grid, y: Grid, z: Grid) -> NDArray[np.float64]:
    """Return planes for all nodes: those without points of their own continue the nearest that have some."""
    known = ~np.isnan(planes[..., 0])
    if not known.any():
        there = ~np.isnan(z)
        if there.sum() >= LEAST_CELLS:
            first = low_plane(x[there], y[there], z[there])
        else:
            first = np.array([np.min(z[there]), 0.0, 0.0])
        planes[0, 0], known[0, 0] = first, True
    near = ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True)
    rows, columns = np.indices(known.shape)
    found: NDArray[np.float64] = planes[near[0], near[1]]
    over, up = (columns - near[1]) * BLOCK_M, (rows - near[0]) * BLOCK_M
    found[..., 0] += found[..., 1] * over + found[..., 2] * up
    return found
