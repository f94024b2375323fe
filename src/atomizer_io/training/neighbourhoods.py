"""Features of the neighbourhood of a site, for tabular baselines: PCA features of points, statistics of pixel windows.

Shapes: P sites of an acquisition, M of them that are described, K neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.io.point_atoms import one_per_cube

RADII_M = (1.0, 2.0)  # of the neighbourhoods of points
WINDOWS = (3, 7, 15)  # sides of the windows of pixels
FINENESS = 5  # cubes along a radius, one point in each: dense point clouds cost no more than sparse ones
NEIGHBOURS = 96  # points of a neighbourhood at most, the nearest
CHUNK = 1 << 14  # points that are described at once
SHAPES = ("linearity", "planarity", "scattering", "verticality")
HEIGHTS = ("height deviation", "height above lowest", "height below highest")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def surroundings(acquisition: Acquisition, site_M: Ints, windows: Sequence[int] = WINDOWS) -> dict[str, Floats]:
    """Return features (M,) of the neighbourhood of sites of an acquisition by name; NaN where too little is there.

    ``windows`` are the sides of windows of pixels. A single site, and points without a height, have no neighbourhood.
    """
    heights = acquisition.heights_m
    if heights is not None:
        xyz = np.column_stack([acquisition.positions.numpy(), heights.double().numpy()])
        by_size = {f"within {radius_m:g} m": around(xyz, site_M, radius_m) for radius_m in RADII_M}
    elif len(acquisition.positions) > 1 and min(acquisition.footprint_m or (0.0, 0.0)) > 0:
        by_size = {f"{side}×{side}": in_window(acquisition, site_M, side) for side in windows}
    else:
        return {}
    return {f"{name} {size}": values for size, features in by_size.items() for name, values in features.items()}


def in_window(acquisition: Acquisition, site_M: Ints, side: int) -> dict[str, Floats]:
    """Return mean and standard deviation (M,) of every channel over the known pixels of the window around a pixel."""
    from scipy.ndimage import uniform_filter

    positions = acquisition.positions.numpy()
    pixel_m = acquisition.footprint_m or (1.0, 1.0)
    column, row = np.round((positions - positions.min(axis=0)) / pixel_m).astype(np.int64).T

    def window_sum(values: Floats) -> Floats:
        grid = np.zeros((row.max() + 1, column.max() + 1))
        grid[row, column] = values
        sums: Floats = uniform_filter(grid, side, mode="constant")[row[site_M], column[site_M]] * side**2
        return sums

    features: dict[str, Floats] = {}
    for channel, values in zip(acquisition.channels, acquisition.observed().double().numpy().T, strict=True):
        known = np.isfinite(values)
        level = values[known].mean() if known.any() else 0.0
        offsets = np.where(known, values - level, 0.0)
        count = np.rint(window_sum(known.astype(np.float64)))
        count = np.where(count > 0, count, np.nan)
        mean = window_sum(offsets) / count
        features[f"{channel.name} mean"] = mean + level
        features[f"{channel.name} deviation"] = np.sqrt(np.maximum(window_sum(offsets**2) / count - mean**2, 0))
    return features


def around(xyz: Floats, site_M: Ints, radius_m: float) -> dict[str, Floats]:
    """Return the shape of the neighbourhood, and where in it the height lies, of the points ``site_M`` of (P, 3)."""
    known = np.asarray(np.isfinite(xyz).all(axis=1))
    table = np.full((len(site_M), len(SHAPES) + len(HEIGHTS)), np.nan)
    rows = np.flatnonzero(known[site_M])
    if len(rows):
        points, where = xyz[known], xyz[site_M[rows]]
        parts = np.array_split(where, -(-len(where) // CHUNK))
        described = [shapes(points, radius_m), heights(points, radius_m)]
        table[rows] = np.concatenate([np.column_stack([of(part) for of in described]) for part in parts])
    return dict(zip((*SHAPES, *HEIGHTS), table.T, strict=True))


def shapes(xyz: Floats, radius_m: float) -> Callable[[Floats], Floats]:
    """Return what gives linearity, planarity, scattering and verticality (M, 4) around positions (M, 3).

    They are PCA features: of the eigenvalues, and of the normal, of the covariance of the neighbours in space.
    """
    from scipy.spatial import cKDTree

    points = xyz[one_per_cube(xyz, radius_m / FINENESS)]
    tree, k = cKDTree(points), min(NEIGHBOURS, len(points))

    def describe(where: Floats) -> Floats:
        index = tree.query(where, k, distance_upper_bound=radius_m)[1].reshape(len(where), k)
        here = (index < len(points))[..., None]
        offset = np.where(here, points[np.minimum(index, len(points) - 1)] - where[:, None], 0.0)
        count = here.sum(axis=1)
        offset = np.where(here, offset - offset.sum(axis=1, keepdims=True) / count[..., None].clip(1), 0.0)
        values, vectors = np.linalg.eigh(offset.transpose(0, 2, 1) @ offset)
        least, middle, largest = values.T
        largest = np.where((count[:, 0] >= 3) & (largest > 0), largest, np.nan)
        verticality = np.where(np.isnan(largest), np.nan, 1 - np.abs(vectors[:, 2, 0]))
        return np.column_stack([(largest - middle) / largest, (middle - least) / largest, least / largest, verticality])

    return describe


def heights(xyz: Floats, radius_m: float) -> Callable[[Floats], Floats]:
    """Return what gives the deviation of heights, the height above the lowest and below the highest (M, 3) around.

    A neighbourhood has all points in the vertical columns around a position, at any height.
    """
    from scipy.spatial import cKDTree

    side = radius_m / 2
    cells, cell, count = np.unique(np.floor(xyz[:, :2] / side), axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(cell.reshape(-1), kind="stable")
    z, first = xyz[order, 2], np.concatenate([[0], np.cumsum(count)[:-1]])
    sums = [np.add.reduceat((z - z.mean()) ** power, first) for power in (1, 2)]
    extremes = [kind.reduceat(z, first) for kind in (np.minimum, np.maximum)]
    empty = [[0.0, 0.0, 0.0, np.inf, -np.inf]]  # stands for absent neighbours
    table = np.concatenate([np.column_stack([count, *sums, *extremes]), empty])
    tree, k = cKDTree((cells + 0.5) * side), min(16, len(cells))

    def describe(where: Floats) -> Floats:
        index = tree.query(where[:, :2], k, distance_upper_bound=radius_m)[1].reshape(len(where), k)
        count, total, total_of_powers, low, high = np.moveaxis(table[index], -1, 0)
        mean = total.sum(axis=1) / count.sum(axis=1)
        deviation = np.sqrt(np.maximum(total_of_powers.sum(axis=1) / count.sum(axis=1) - mean**2, 0))
        return np.column_stack([deviation, where[:, 2] - low.min(axis=1), high.max(axis=1) - where[:, 2]])

    return describe
