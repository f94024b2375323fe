"""Who is nearest: anchors on a hexagonal lattice or anywhere, and the sites that a query sees (paper, §3.2).

Distances that differ by less than a micrometre are ties, and ties go to the lowest index: pixels and anchors on aligned
grids tie often, and rounding must not decide.

Shapes: S sites, L anchors, M queries, 2 = (x, y) in metres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

TIE_M = 1e-6
POINT_RADIUS_M = 0.05  # a query sees a point that lies within this distance

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HexLattice:
    """Anchors in ``rows`` × ``columns``, every second row shifted by half a step, filling a rectangle."""

    x_min: float
    y_min: float
    step_x: float
    step_y: float
    rows: int
    columns: int

    @classmethod
    def over(cls, bounds: tuple[float, float, float, float], count: int) -> HexLattice:
        """The lattice over ``bounds`` with nearly ``count`` anchors and nearly regular hexagons."""
        x_min, y_min, x_max, y_max = bounds
        width, height = max(x_max - x_min, 1e-3), max(y_max - y_min, 1e-3)
        spacing = math.sqrt(2 * width * height / (math.sqrt(3) * count))
        ideal_rows = height / (spacing * math.sqrt(3) / 2)

        def misfit(rows: int) -> float:
            columns = max(1, round(count / rows))
            aspect = (width / columns) * math.sqrt(3) / 2 / (height / rows)
            return 4 * abs(rows * columns - count) / count + abs(math.log(aspect))

        choices = range(max(1, math.floor(0.8 * ideal_rows)), min(count, math.ceil(1.25 * ideal_rows)) + 1)
        rows = min(choices, key=misfit, default=count)
        columns = max(1, round(count / rows))
        return cls(x_min, y_min, width / columns, height / rows, rows, columns)

    @property
    def anchors_L2(self) -> Floats:
        """Positions, row by row."""
        row, column = np.divmod(np.arange(self.rows * self.columns), self.columns)
        return np.stack([self._x(row, column), self._y(row)], axis=1)

    def nearest(self, positions_S2: Floats) -> Ints:
        """Index (S,) of the nearest anchor, in closed form: one of two neighbours in each of the rows around."""
        # At its ends a row leaves ¾ of a step free, where the next rows come within ¼. While those are farther off, two
        # rows are enough; else, the closest row has an anchor within hypot(¾ step_x, ½ step_y).
        reach = 1
        if self.step_y < 0.71 * self.step_x:
            reach = min(self.rows, math.ceil(math.hypot(0.75 * self.step_x, 0.5 * self.step_y) / self.step_y))
        below = np.floor((positions_S2[:, 1] - self.y_min) / self.step_y - 0.5)
        best_S = np.full(len(positions_S2), -1, dtype=np.int64)
        best_d_S = np.full(len(positions_S2), np.inf)
        for up in range(1 - reach, 1 + reach):
            row = np.clip(below + up, 0, self.rows - 1).astype(np.int64)
            left = np.floor((positions_S2[:, 0] - self.x_min) / self.step_x - self._shift(row))
            for right in (0, 1):
                column = np.clip(left + right, 0, self.columns - 1).astype(np.int64)
                distance = np.hypot(positions_S2[:, 0] - self._x(row, column), positions_S2[:, 1] - self._y(row))
                index = row * self.columns + column
                nearer = distance < best_d_S - TIE_M
                tie = (np.abs(distance - best_d_S) <= TIE_M) & (index < best_S)
                best_S = np.where(nearer | tie, index, best_S)
                best_d_S = np.minimum(distance, best_d_S)
        return best_S

    def _shift(self, row: Ints) -> Floats:
        return np.full(row.shape, 0.5) if self.rows == 1 else 0.25 + 0.5 * (row % 2)

    def _x(self, row: Ints, column: Ints) -> Floats:
        return self.x_min + (column + self._shift(row)) * self.step_x

    def _y(self, row: Ints) -> Floats:
        return self.y_min + (row + 0.5) * self.step_y


def nearest_anchor(positions_S2: Floats, anchors_L2: Floats) -> Ints:
    """Index (S,) of the nearest of any anchors."""
    return nearest_anchors(positions_S2, anchors_L2, 1)[:, 0]


def nearest_anchors(positions_M2: Floats, anchors_L2: Floats, k: int) -> Ints:
    """Indices (M, min(k, L)) of the ``k`` nearest anchors (paper, A_dec); ties for the last place: the lowest."""
    from scipy.spatial import cKDTree  # takes longer to import than most scenes to search

    tree, count = cKDTree(anchors_L2), len(anchors_L2)
    k = min(k, count)

    if not len(positions_M2):
        return np.zeros((0, k), dtype=np.int64)

    def search(positions: Floats, neighbors: int) -> tuple[Floats, Ints]:
        distance, index = tree.query(positions, neighbors, workers=torch.get_num_threads())
        return distance.reshape(-1, neighbors), index.reshape(-1, neighbors).astype(np.int64)

    distance_Mk, index_Mk = search(positions_M2, min(k + 1, count))
    if k == count:
        return index_Mk
    tied = np.flatnonzero(distance_Mk[:, k] - distance_Mk[:, k - 1] <= TIE_M)
    index_Mk, candidates = index_Mk[:, :k], k + 1
    while len(tied):
        candidates = min(2 * candidates, count)  # until the last no longer ties
        distance, index = search(positions_M2[tied], candidates)
        group = np.cumsum(np.diff(distance, axis=1, prepend=0.0) > TIE_M, axis=1)
        order = np.argsort(group * count + index, axis=1)[:, :k]
        index_Mk[tied] = np.take_along_axis(index, order, axis=1)
        tied = tied[(distance[:, -1] - distance[:, k - 1] <= TIE_M) & (candidates < count)]
    return index_Mk


def colocated_sites(
    queries_M2: Floats, sites_S2: Floats, occupied_S: NDArray[np.bool_], footprint_m: tuple[float, float]
) -> Ints:
    """Site (M,) seen at each query, or −1: the pixel that contains it, or the nearest point within 5 cm.

    On the border of two pixels it is the one with the smaller y, then x, so that the order of sites does not matter; of
    sites at the same place it is the first.
    """
    present, pixels = np.flatnonzero(occupied_S), min(footprint_m) > 0
    if not len(present) or not len(queries_M2):
        return np.full(len(queries_M2), -1, dtype=np.int64)
    found_M = _nearest_on_lattice(queries_M2, sites_S2[present]) if pixels else None
    if found_M is None:
        present = present[np.lexsort(np.round(sites_S2[present] / TIE_M).T)]
        found_M = nearest_anchor(queries_M2, sites_S2[present])
    site_M = present[found_M]
    offset_M2 = np.abs(queries_M2 - sites_S2[site_M])
    if pixels:
        beyond_M = (offset_M2 - np.array(footprint_m) / 2).max(axis=1)
    else:
        beyond_M = np.hypot(offset_M2[:, 0], offset_M2[:, 1]) - POINT_RADIUS_M
    return np.where(beyond_M <= TIE_M, site_M, -1)


def _nearest_on_lattice(queries_M2: Floats, sites_S2: Floats) -> Ints | None:
    """Index (M,) of the nearest site where sites fill a lattice of rows and columns, in closed form; else None.

    A query between missing sites may get one that is not the nearest; it is too far away to be seen then.
    """
    nodes = []
    for axis in (0, 1):
        values = np.unique(sites_S2[:, axis])
        nodes.append(values[np.diff(values, prepend=-np.inf) > 10 * TIE_M])  # one of those that differ by rounding only
    columns, rows = len(nodes[0]), len(nodes[1])
    if rows * columns > 4 * len(sites_S2):
        return None
    x_S, y_S = (np.searchsorted(node, sites_S2[:, axis], side="right") - 1 for axis, node in enumerate(nodes))
    site_at = np.full(rows * columns, -1, dtype=np.int64)
    site_at[(y_S * columns + x_S)[::-1]] = np.arange(len(sites_S2))[::-1]  # the lowest of several
    right_M, above_M = (np.searchsorted(node, queries_M2[:, axis]) for axis, node in enumerate(nodes))
    best_M, best_d_M = np.zeros(len(queries_M2), dtype=np.int64), np.full(len(queries_M2), np.inf)  # first of equals
    for y in (above_M - 1, above_M):
        for x in (right_M - 1, right_M):
            site = site_at[np.clip(y, 0, rows - 1) * columns + np.clip(x, 0, columns - 1)]
            distance = np.hypot(queries_M2[:, 0] - sites_S2[site, 0], queries_M2[:, 1] - sites_S2[site, 1])
            nearer = (site >= 0) & (distance < best_d_M - TIE_M)
            best_M, best_d_M = np.where(nearer, site, best_M), np.where(nearer, distance, best_d_M)
    return best_M
