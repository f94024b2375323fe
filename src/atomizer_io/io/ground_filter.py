"""From the lowest points of the cells of a grid to the ground below them: no class codes are needed.

A progressive morphological filter: what stands out of openings of growing size is an object (Zhang et al. 2003; with
a tolerance that grows with the opening, Pingel et al. 2013). Three things are added. The filter runs on cells of twice
the size first; the smooth shape of that surface is taken away and its roughness raises the tolerance, so that crests
and slopes are kept and objects on them are not. Roofs wider than any opening are found by their edges: they stand above
all around them, whereas terraces and hills have a side that leads up or on. Low noise is recognised by its loneliness.

Shapes: R rows and C columns of a grid; a cell without points has z = NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Grid = NDArray[np.float64]  # (R, C)
Mask = NDArray[np.bool_]  # (R, C)

ROUNDS = 2  # on cells of twice the size, after the first
RISE = 0.15  # over the half side of an opening: what stands out further is not ground
ROUGH_M = 0.25  # by how much ground may stand out in any opening
RELIEF = 2.5  # of the mean slope around a cell, over the growth of an opening: by how much ground may stand out as well
MOST_RISE_M = 4.0  # of both together
FIRST_M, WIDEST_M = 18.0, 30.0  # half sides that the openings of the first round, and of the others, reach at least
STEPS = ((1, 1), (2, 1), (3, 1), (4, 1), (6, 2), (8, 2), (12, 4), (16, 4), (24, 8), (32, 8))
"""Half sides of the openings of all rounds but the first and, for large ones, how many cells are taken as one."""
SMOOTH_M = 8.0  # size of the shapes that are taken away before the second and the third round
AROUND_M = 15.0  # side of the window over which slopes are averaged
STEEPEST = 1.5  # slope that moves the height of a lowest point to the centre of its cell
CAPPED = 1.0  # slopes count no more than this in the mean: a wall is no relief
LONELY_M = 1.5  # cells that lie deeper than this below their surroundings may be noise
COMPANIONS = 4  # more low cells than this side by side are no noise
TILE, MOST_CELLS = 6, 600  # cells along the side of a tile, for the slope, and of an axis, about
PLANE_ROUNDS = 20
OBJECTS_WEIGH = 0.1  # square root of the weight of what lies above the plane
BLOCK = 5  # cells along the side of the blocks that are compared


def ground_of_cells(x: Grid, y: Grid, z: Grid, cell_m: float) -> Grid:
    """Return the ground at the centres of all cells, from the lowest point (``x``, ``y``, ``z``) of each.

    ``x`` and ``y`` are metres from the corner of the first cell. The plane that the land lies in is taken away first,
    because a filter cannot separate it from objects at the edge of the points.
    """
    over, up = tilt(z, cell_m)
    rows, columns = (np.arange(n) + 0.5 for n in z.shape)
    return level_ground(x, y, z - over * x - up * y, cell_m) + cell_m * (over * columns + up * rows[:, None])


def tilt(z: Grid, cell_m: float) -> tuple[float, float]:
    """Return the slopes along x and y of the plane that the land lies in, such that few tiles lie far below it."""
    every = [max(1, n // MOST_CELLS) for n in z.shape]  # of large grids some rows and columns are enough
    tiles = _tiled(z[:: every[0], :: every[1]], TILE, np.nan).transpose(0, 2, 1, 3)
    ordered = np.sort(tiles.reshape(*tiles.shape[:2], -1), axis=2)  # NaN last; faster than nanmedian
    known = (~np.isnan(ordered)).sum(axis=2, keepdims=True)
    below, above = (
        np.take_along_axis(ordered, number, 2)[..., 0] for number in (np.maximum(known - 1, 0) // 2, known // 2)
    )
    middle = (below + above) / 2
    row, column = np.nonzero(~np.isnan(middle))
    if len(np.unique(row)) < 3 or len(np.unique(column)) < 3:
        return 0.0, 0.0
    along = [TILE * step * cell_m * index for step, index in zip(every, (row, column), strict=True)]
    table, height = np.stack([np.ones(len(row)), along[1], along[0]], axis=1), middle[row, column]
    plane: NDArray[Any] = np.zeros(3)
    weight = np.ones(len(row))
    for _ in range(PLANE_ROUNDS):
        plane = np.linalg.lstsq(table * weight[:, None], height * weight, rcond=None)[0]
        weight = np.where(height > table @ plane, OBJECTS_WEIGH, 1.0)
    return float(plane[1]), float(plane[2])


def level_ground(x: Grid, y: Grid, z: Grid, cell_m: float) -> Grid:
    """Return the ground at the centres of all cells of land without a common slope, as :func:`ground_of_cells` does."""
    coarse = provisional(*_lowest_of_four(x, y, z), 2 * cell_m)
    trend, slope, over, up = (_doubled(grid)[: z.shape[0], : z.shape[1]] for grid in coarse[:4])
    roof = _repeated(coarse[4], 2)[: z.shape[0], : z.shape[1]]
    left = at_centres(x, y, np.where(roof, np.nan, z), cell_m, over, up) - trend
    return trend + ground_surface(left, cell_m, slope)[0]


def provisional(x: Grid, y: Grid, z: Grid, cell_m: float) -> tuple[Grid, Grid, Grid, Grid, Mask]:
    """Return a smooth ground, the mean slope of what it leaves, the slopes along x and y, and the large roofs."""
    surface, ground = ground_surface(z, cell_m)
    roof = on_roof(z, ground, cell_m)
    z = np.where(roof, np.nan, z)
    surface = filled(np.where(ground, z, np.nan))
    trend, slope, over, up = shape_of(surface, cell_m)
    for _ in range(ROUNDS):
        left = at_centres(x, y, z, cell_m, over, up) - trend
        trend, slope, over, up = shape_of(trend + ground_surface(left, cell_m, slope)[0], cell_m)
    return trend, slope, over, up, roof


def ground_surface(z: Grid, cell_m: float, slope: Grid | None = None) -> tuple[Grid, Mask]:
    """Return the ground at all cells, and which of them it was seen in."""
    z = np.where(is_pit(z), np.nan, z)
    ground = is_ground(z, cell_m, slope)
    surface = filled(np.where(ground, z, np.nan))
    lonely = is_lonely(surface, ground)
    if lonely.any():
        ground &= ~lonely
        surface = filled(np.where(ground, z, np.nan))
    return surface, ground


def is_ground(z: Grid, cell_m: float, slope: Grid | None) -> Mask:
    """Return which cells are left by openings of growing size; a cell that stands out of one is not ground."""
    keep: Mask = ~np.isnan(z)
    relief = None if slope is None else RELIEF * slope
    empty, surface, before = ~keep, np.where(keep, z, np.inf), 0
    most: Any = np.empty_like(z)
    for half, together in openings(cell_m, first=slope is None):
        lower = _opened(surface, half // together, together)
        np.minimum(surface, lower, out=lower)
        if relief is None:
            most = ROUGH_M + min(MOST_RISE_M, RISE * half * cell_m)
        else:  # ROUGH_M + min(MOST_RISE_M, (RISE * half + relief * (half - before)) * cell_m)
            np.multiply(relief, half - before, out=most)
            most += RISE * half
            most *= cell_m
            np.minimum(most, MOST_RISE_M, out=most)
            most += ROUGH_M
        with np.errstate(invalid="ignore"):
            keep &= np.subtract(surface, lower, out=surface) <= most
        lower[empty] = np.inf  # cells without points take no part
        surface, before = lower, half
    return keep


def openings(cell_m: float, *, first: bool) -> list[tuple[int, int]]:
    """Return half sides in cells, and how many cells are taken as one: on land as it is, none may be."""
    if first:
        return [(half, 1) for half in range(1, max(2, round(FIRST_M / cell_m)) + 1)]
    before = [0, *(half for half, _ in STEPS)]
    return [step for step, last in zip(STEPS, before, strict=False) if last * cell_m < WIDEST_M]


def _opened(surface: Grid, half: int, together: int) -> Grid:
    """Return the morphological opening by a square of half side ``half``, with ``together`` cells taken as one.

    Cells beyond the edge take no part."""
    low = _windowed(np.minimum, _pooled(surface, together), half, np.inf)
    low[np.isinf(low)] = -np.inf
    high = _windowed(np.maximum, low, half, -np.inf)
    return _repeated(high, together)[: surface.shape[0], : surface.shape[1]]


def _windowed(extreme: np.ufunc, grid: Grid, half: int, beyond: float) -> Grid:
    """Return the minimum or maximum over the square around each cell, built from windows of doubling length."""
    for axis in (0, 1):
        wide = [(0, 0), (0, 0)]
        wide[axis] = (half, half)
        grid, length = np.pad(grid, wide, constant_values=beyond), 1
        while length < 2 * half + 1:
            step = min(length, 2 * half + 1 - length)
            grid = extreme(grid[step:], grid[:-step]) if axis == 0 else extreme(grid[:, step:], grid[:, :-step])
            length += step
    return grid


def is_pit(z: Grid) -> Mask:
    """Return which cells lie far below all blocks around their own, with few others beside them: they are noise."""
    surface = np.where(np.isnan(z), np.inf, z)
    low = _pooled(surface, BLOCK)
    ring = np.ones((5, 5), np.bool_)
    ring[2, 2] = False
    around = ndimage.minimum_filter(low, footprint=ring, mode="constant", cval=np.inf)
    deep = np.isfinite(around) & (low < around - LONELY_M)
    level = _repeated(np.where(deep, low + LONELY_M, -np.inf), BLOCK)
    return _few(surface <= level[: z.shape[0], : z.shape[1]])


def is_lonely(surface: Grid, ground: Mask) -> Mask:
    """Return which cells of the ground are holes in it with too few others beside them: they are noise."""
    closed = _windowed(np.minimum, _windowed(np.maximum, surface, 1, -np.inf), 1, np.inf)
    return _few(ground & (closed - surface > LONELY_M))


def _few(cells: Mask) -> Mask:
    """Return the cells that have few others beside them."""
    group, groups = ndimage.label(cells, np.ones((3, 3)))
    few = np.bincount(group.ravel(), minlength=groups + 1) <= COMPANIONS
    few[0] = False
    mask: Mask = few[group]
    return mask


def shape_of(surface: Grid, cell_m: float) -> tuple[Grid, Grid, Grid, Grid]:
    """Return a surface without its small shapes, the mean slope of those, and its own slopes along x and y."""
    smooth = ndimage.gaussian_filter(surface, SMOOTH_M / cell_m, mode="nearest")
    slope = np.hypot(*(_slope(surface - smooth, cell_m, axis, 1) for axis in (0, 1)))
    mean = ndimage.uniform_filter(np.minimum(slope, CAPPED), 2 * round(AROUND_M / cell_m / 2) + 1, mode="nearest")
    return smooth, mean, _slope(surface, cell_m, 1, 2), _slope(surface, cell_m, 0, 2)


def _slope(surface: Grid, cell_m: float, axis: int, reach: int) -> Grid:
    """Return the gentler of the slopes to either side, so that it is that of the land beside a wall; 0 on a crest."""
    wide = [(0, 0), (0, 0)]
    wide[axis] = (reach, reach)
    across = np.moveaxis(np.pad(surface, wide, mode="reflect", reflect_type="odd"), axis, 0)
    rise = (across[reach:] - across[:-reach]) / (reach * cell_m)
    before, after = rise[:-reach], rise[reach:]
    gentle = np.where(np.abs(before) < np.abs(after), before, after)
    return np.moveaxis(np.where(before * after > 0, gentle, 0.0), 0, axis)


def at_centres(x: Grid, y: Grid, z: Grid, cell_m: float, over: Grid, up: Grid) -> Grid:
    """Return what the heights would be at the centres of the cells, by the slopes along x (``over``) and y (``up``)."""
    rows, columns = z.shape
    steep = np.maximum(1.0, np.hypot(over, up) / STEEPEST)
    centred = over * ((np.arange(columns) + 0.5) * cell_m - x)
    centred += up * ((np.arange(rows)[:, None] + 0.5) * cell_m - y)
    centred /= steep
    centred += z
    return centred


def filled(z: Grid) -> Grid:
    """Return the grid with values for cells that are NaN: means of ever larger neighbourhoods, interpolated."""
    known = ~np.isnan(z)
    if known.all() or not known.any():
        return np.where(known, z, 0.0)
    rows, columns = z.shape
    total, count = (_tiled(np.where(known, part, 0.0), 2, 0.0).sum(axis=(1, 3)) for part in (z, 1.0))
    with np.errstate(invalid="ignore"):
        coarse = filled(np.where(count > 0, total / count, np.nan))
    return np.where(known, z, _doubled(coarse)[:rows, :columns])


def _tiled(grid: Grid, side: int, beyond: float) -> NDArray[np.float64]:
    """Return a grid cut into tiles (rows, side, columns, side) of cells, padded with ``beyond``."""
    rows, columns = (-(-n // side) for n in grid.shape)
    missing = [(0, count * side - n) for count, n in zip((rows, columns), grid.shape, strict=True)]
    return np.pad(grid, missing, constant_values=beyond).reshape(rows, side, columns, side)


def _pooled(surface: Grid, side: int) -> Grid:
    """Return the minimum of each block of ``side`` by ``side`` cells."""
    if side > 1:  # rows first: the columns are then few, and their slices faster than a minimum along short axes
        rows, columns = (-(-n // side) * side for n in surface.shape)
        missing = [(0, rows - surface.shape[0]), (0, columns - surface.shape[1])]
        surface = np.pad(surface, missing, constant_values=np.inf) if np.any(missing) else surface
        surface = np.minimum.reduce([surface[i::side] for i in range(side)])
        surface = np.minimum.reduce([surface[:, i::side] for i in range(side)])
    return surface


def _repeated(grid: NDArray[Any], side: int) -> NDArray[Any]:
    return grid if side == 1 else np.repeat(np.repeat(grid, side, axis=0), side, axis=1)


def _lowest_of_four(x: Grid, y: Grid, z: Grid) -> tuple[Grid, Grid, Grid]:
    """Return the lowest point of each block of two by two cells."""
    cut = [_tiled(grid, 2, np.nan).transpose(0, 2, 1, 3) for grid in (x, y, z)]
    parts = [part.reshape(*part.shape[:2], 4) for part in cut]
    first = np.where(np.isnan(parts[2]), np.inf, parts[2]).argmin(axis=2)[..., None]
    x, y, z = (np.take_along_axis(part, first, axis=2)[..., 0] for part in parts)
    return x, y, z


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


# Roofs wider than any opening of the filter: large, calm parts of a surface that stand above all around them. A roof
# ends in a jump down on nearly all sides. A terrace has a jump up as well, a hill none. What reaches the edge of the
# points may go on: it is a roof if it is not too large, about half of its outline lies inside, and that jumps down.

Parts = NDArray[np.int64]  # (R, C) number of the part that a cell belongs to; 0: none

JUMP_M, JUMP_SLOPE = 1.0, 1.0  # a step between neighbours that is higher than this, and steeper, is an edge
LEAST_M2 = 100.0  # smaller parts are left to the openings
REACH_M = 8.0  # a part ends where the next ground is farther than this
DOWN = 0.65  # share of a roof's outline that jumps down, at least
CUT_DOWN, CUT_INSIDE, CUT_M2 = 0.8, 0.4, 2000.0  # of a roof that the edge of the points cuts: the share that jumps down
# of its outline inside, the share of the outline that is inside, and the largest area: land may go on beyond the edge
BESIDE_M = 36.0  # how far the objects beside a roof are taken as part of it
ROOF_ROUNDS = 2  # a roof beside a higher one is found once that is gone


def on_roof(z: Grid, ground: Mask, cell_m: float) -> Mask:
    """Return which cells lie on large roofs, of those that a filter took for ground and of what stands on them."""
    jump = JUMP_M + JUMP_SLOPE * cell_m
    away, near = _nearest(ground)
    surface = z[near]
    parts = calm_parts(surface, away * cell_m <= REACH_M, jump, cell_m)
    roofs = np.zeros(int(parts.max()) + 1, np.bool_)
    owner = np.zeros_like(parts)
    for number in range(ROOF_ROUNDS):
        left = (parts > 0) & ~roofs[parts]
        if not left.any() or len(roofs) < 3:
            break
        away, near = _nearest(left)
        of = np.where(away * cell_m <= REACH_M, parts[near], 0)
        owner = of if number == 0 else owner
        roofs |= stand_out(of, surface[near], jump, cell_m, len(roofs))
    roof: Mask = roofs[owner]
    if roof.any():  # beside a hole in a roof, what is left of it is too small for the filter, which took it for a house
        roof = ndimage.binary_dilation(roof, iterations=int(BESIDE_M / cell_m) + 1, mask=roof | ~ground)
    return roof


def calm_parts(surface: Grid, inside: Mask, jump: float, cell_m: float) -> Parts:
    """Return the connected parts without jumps between neighbours, numbered from 1; small ones count as none."""
    calm = inside.copy()
    for here, there in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        steep = np.abs(surface[here] - surface[there]) > jump
        calm[here] &= ~steep
        calm[there] &= ~steep
    parts, count = ndimage.label(calm)
    large = np.bincount(parts.ravel(), minlength=count + 1) * cell_m**2 >= LEAST_M2
    large[0] = False
    return (np.cumsum(large) * large)[parts]


def stand_out(parts: Parts, height: Grid, jump: float, cell_m: float, count: int) -> Mask:
    """Return for each part whether its outline jumps down nearly everywhere; the edge of the grid does not."""
    area = np.bincount(parts.ravel(), minlength=count) * cell_m**2
    parts, height = np.pad(parts, 1), np.pad(height, 1, constant_values=np.nan)
    outline, inside, down = np.zeros((3, count))
    for after, before in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        for here, there in ((after, before), (before, after)):
            edge = parts[here] != parts[there]
            of, beside = parts[here][edge], parts[there][edge]
            with np.errstate(invalid="ignore"):
                lower = (beside > 0) & (height[here][edge] - height[there][edge] > jump)
            outline += np.bincount(of, minlength=count)
            inside += np.bincount(of[~np.isnan(height[there][edge])], minlength=count)
            down += np.bincount(of[lower], minlength=count)
    outline[0] = inside[0] = np.inf
    cut = (area < CUT_M2) & (inside > CUT_INSIDE * outline) & (down > CUT_DOWN * inside)
    roofs: Mask = cut | (down > DOWN * np.maximum(outline, 1))
    return roofs


def _nearest(known: Mask) -> tuple[Grid, tuple[Parts, Parts]]:
    """Return how many cells away the nearest known cell is, and its row and column."""
    away, near = ndimage.distance_transform_edt(~known, return_indices=True)
    return away, (near[0], near[1])
