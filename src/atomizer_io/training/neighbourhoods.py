"""Features of what lies around a site, for tabular baselines: the shape of a point's surroundings, windows of pixels.

Shapes: P sites of an acquisition, M of them that are described, C channels, K neighbours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.io.point_atoms import one_per_cube

RADII_M = (1.0, 2.0)  # of the neighbourhoods of points
WINDOWS = (7,)  # sides of the windows of pixels
FINENESS = 5  # cubes along a radius, one point in each: dense point clouds cost no more than sparse ones
NEIGHBOURS = 96  # points of a neighbourhood at most, the nearest
CHUNK, WINDOW_CHUNK = 1 << 14, 1 << 12  # points, pixels that are described at once
SHAPES = ("linearity", "planarity", "scattering", "verticality")
HEIGHTS = ("height deviation", "height above lowest", "height below highest")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def surroundings(acquisition: Acquisition, site_M: Ints) -> dict[str, Floats]:
    """Return features (M,) by name of what lies around sites of an acquisition; NaN where too little does.

    A single site, and points without a height, have none.
    """
    found, heights = dict[str, Floats](), acquisition.heights_m
    if heights is not None:
        xyz = np.column_stack([acquisition.positions.numpy(), heights.double().numpy()])
        for radius_m in RADII_M:
            found |= {f"{name} within {radius_m:g} m": values for name, values in around(xyz, site_M, radius_m).items()}
    elif len(acquisition.positions) > 1 and min(acquisition.footprint_m or (0.0, 0.0)) > 0:
        for side in WINDOWS:
            found |= {f"{name} {side}×{side}": values for name, values in in_window(acquisition, site_M, side).items()}
    return found


def in_window(acquisition: Acquisition, site_M: Ints, side: int) -> dict[str, Floats]:
    """Return mean and standard deviation (M,) of every channel in the window around the pixels ``site_M``."""
    pixels = Window(acquisition.positions.numpy(), acquisition.footprint_m or (1.0, 1.0), side)
    values = acquisition.observed().double().numpy()
    parts = [pixels.statistics(values, part) for part in np.array_split(site_M, len(site_M) // WINDOW_CHUNK + 1)]
    mean, deviation = (np.concatenate(each) for each in zip(*parts, strict=True))
    names = [channel.name for channel in acquisition.channels]
    found = {f"{name} mean": column for name, column in zip(names, mean.T, strict=True)}
    return found | {f"{name} deviation": column for name, column in zip(names, deviation.T, strict=True)}


def around(xyz: Floats, site_M: Ints, radius_m: float) -> dict[str, Floats]:
    """Return the shape of the neighbourhood, and where in it the height lies, of the points ``site_M`` of (P, 3)."""
    known = np.asarray(np.isfinite(xyz).all(axis=1))
    table = np.full((len(site_M), len(SHAPES) + len(HEIGHTS)), np.nan)
    rows = np.flatnonzero(known[site_M])
    if len(rows):
        near, column = Sphere(xyz[known], radius_m), Columns(xyz[known], radius_m)
        for first in range(0, len(rows), CHUNK):
            part = rows[first : first + CHUNK]
            where = xyz[site_M[part]]
            table[part] = np.column_stack([near.shape(where), column.heights(where)])
    return dict(zip((*SHAPES, *HEIGHTS), table.T, strict=True))


class Sphere:
    """The neighbours of points in space."""

    def __init__(self, xyz: Floats, radius_m: float) -> None:
        from scipy.spatial import cKDTree

        self.points, self.radius_m = xyz[one_per_cube(xyz, radius_m / FINENESS)], radius_m
        self.tree = cKDTree(self.points)

    def shape(self, where: Floats) -> Floats:
        """Return linearity, planarity, scattering and verticality (M, 4) by the eigenvalues of the covariance."""
        k = min(NEIGHBOURS, len(self.points))
        index = self.tree.query(where, k, distance_upper_bound=self.radius_m)[1].reshape(len(where), k)
        here = (index < len(self.points))[..., None]
        offset = np.where(here, self.points[np.minimum(index, len(self.points) - 1)] - where[:, None], 0.0)
        count = here.sum(axis=1)
        offset = np.where(here, offset - offset.sum(axis=1, keepdims=True) / count[..., None].clip(1), 0.0)
        least, middle, largest, normal = eigen(offset.transpose(0, 2, 1) @ offset)
        largest = np.where((count[:, 0] >= 3) & (largest > 0), largest, np.nan)
        shapes = [(largest - middle) / largest, (middle - least) / largest, least / largest]
        return np.column_stack([*shapes, np.where(np.isnan(largest), np.nan, 1 - np.abs(normal))])


def eigen(matrix: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the eigenvalues (M,) of matrices (M, 3, 3), ascending, and z of the eigenvector of the first."""
    values, vectors = np.linalg.eigh(matrix)
    return values[:, 0], values[:, 1], values[:, 2], vectors[:, 2, 0]


class Columns:
    """The heights of all points in vertical columns; a neighbourhood has the columns around, at any height."""

    def __init__(self, xyz: Floats, radius_m: float) -> None:
        from scipy.spatial import cKDTree

        self.radius_m, side = radius_m, radius_m / 2
        cells, cell, count = np.unique(np.floor(xyz[:, :2] / side), axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(cell.reshape(-1), kind="stable")
        z, first = xyz[order, 2], np.concatenate([[0], np.cumsum(count)[:-1]])
        self.level = z.mean()
        sums = [np.add.reduceat((z - self.level) ** power, first) for power in (1, 2)]
        extremes = [kind.reduceat(z, first) for kind in (np.minimum, np.maximum)]
        empty = [[0.0, 0.0, 0.0, np.inf, -np.inf]]  # stands for neighbours that there are not
        self.table = np.concatenate([np.column_stack([count, *sums, *extremes]), empty])
        self.tree = cKDTree((cells + 0.5) * side)

    def heights(self, where: Floats) -> Floats:
        """Return the deviation of heights around, and the height above the lowest and below the highest (M, 3)."""
        k = min(16, len(self.table) - 1)
        index = self.tree.query(where[:, :2], k, distance_upper_bound=self.radius_m)[1].reshape(len(where), k)
        count, total, squares, low, high = np.moveaxis(self.table[index], -1, 0)
        mean = total.sum(axis=1) / count.sum(axis=1)
        deviation = np.sqrt(np.maximum(squares.sum(axis=1) / count.sum(axis=1) - mean**2, 0))
        return np.column_stack([deviation, where[:, 2] - low.min(axis=1), high.max(axis=1) - where[:, 2]])


class Window:
    """The pixels of a grid of ``pixel_m`` that lie around others, at most half of ``side`` pixels away on each axis."""

    def __init__(self, positions: Floats, pixel_m: tuple[float, float], side: int) -> None:
        reach = side // 2
        self.column, self.row = np.round((positions - positions.min(axis=0)) / pixel_m).astype(np.int64).T + reach
        self.site = np.full((self.row.max() + reach + 1, self.column.max() + reach + 1), -1)  # −1 also all around
        self.site[self.row, self.column] = np.arange(len(positions))
        self.steps = np.arange(-reach, reach + 1)

    def statistics(self, values: Floats, site_M: Ints) -> tuple[Floats, Floats]:
        """Return mean and standard deviation (M, C) of the pixels around that have a value (P, C), not NaN."""
        row, column = self.row[site_M][:, None] + self.steps, self.column[site_M][:, None] + self.steps
        near = self.site[row[:, :, None], column[:, None, :]].reshape(len(site_M), -1)
        found = values[near]
        here = np.isfinite(found) & (near >= 0)[..., None]
        count = np.where(here.any(axis=1), here.sum(axis=1), np.nan)
        mean = np.where(here, found, 0.0).sum(axis=1) / count
        squares = np.where(here, found - mean[:, None], 0.0) ** 2
        return mean, np.sqrt(squares.sum(axis=1) / count)
