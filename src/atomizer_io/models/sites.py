"""Which site a position sees: the pixel that contains it, or the nearest point within 5 cm (paper, §3.2).

Distances that differ by less than a micrometre are ties, and ties go to the lowest index: pixels on aligned grids tie
often, and rounding must not decide.

Shapes: S sites, L anchors, M queries, 2 = (x, y) in metres, X two or three axes.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.acquisition import Acquisition
from atomizer_io.sample import Queries

TIE_M = 1e-6
POINT_RADIUS_M = 0.05  # a query sees a point that lies within this distance

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


def nearest_anchor(positions_SX: Floats, anchors_LX: Floats) -> Ints:
    """Index (S,) of the nearest of any anchors."""
    return nearest_anchors(positions_SX, anchors_LX, 1)[:, 0]


def nearest_anchors(positions_MX: Floats, anchors_LX: Floats, k: int) -> Ints:
    """Indices (M, min(k, L)) of the ``k`` nearest anchors (paper, A_dec); ties for the last place: the lowest."""
    from scipy.spatial import cKDTree  # takes longer to import than most scenes to search

    tree, count = cKDTree(anchors_LX), len(anchors_LX)
    k = min(k, count)

    if not len(positions_MX):
        return np.zeros((0, k), dtype=np.int64)

    def search(positions: Floats, neighbors: int) -> tuple[Floats, Ints]:
        distance, index = tree.query(positions, neighbors, workers=torch.get_num_threads())
        return distance.reshape(-1, neighbors), index.reshape(-1, neighbors).astype(np.int64)

    distance_Mk, index_Mk = search(positions_MX, min(k + 1, count))
    if k == count:
        return index_Mk
    tied = np.flatnonzero(distance_Mk[:, k] - distance_Mk[:, k - 1] <= TIE_M)
    index_Mk, candidates = index_Mk[:, :k], k + 1
    while len(tied):
        candidates = min(2 * candidates, count)  # until the last no longer ties
        distance, index = search(positions_MX[tied], candidates)
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


def seen_sites(acquisition: Acquisition, number: int, queries: Queries) -> Tensor:
    """Return the site (M,) of acquisition ``number`` of a sample that each query sees, −1 where it sees none."""
    named_M = queries.sites.get(number)
    if named_M is not None:
        return named_M
    occupied, footprint = acquisition.occupied().cpu().numpy(), acquisition.footprint_m or (0.0, 0.0)
    where, sites = queries.positions.numpy(), acquisition.positions.numpy()
    return torch.from_numpy(colocated_sites(where, sites, occupied, footprint))
