"""Which sites a position sees: the pixel that contains it, or the nearest point within 5 cm (paper, §3.2).

A query with a footprint sees every finer site whose centre lies in that rectangle.

Distances that differ by less than a micrometre are ties, and ties go to the lowest index: pixels on aligned grids tie
often, and rounding must not decide.

Shapes: S sites, L anchors, M queries, W sites of a query, 2 = (x, y) in metres.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.sample import Queries

TIE_M = 1e-6
POINT_RADIUS_M = 0.05  # a query without a footprint sees a point that lies within this distance
PAIRS = 1 << 22  # of queries and sites that are compared at once

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


def nearest_anchor(positions_S2: Floats, anchors_L2: Floats) -> Ints:
    """Index (S,) of the nearest of any anchors."""
    return nearest_anchors(positions_S2, anchors_L2, 1)[:, 0]


def nearest_anchors(positions_M2: Floats, anchors_L2: Floats, k: int) -> Ints:
    """Indices (M, min(k, L)) of the ``k`` nearest anchors (paper, A_dec); ties for the last slot: the lowest index."""
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
    sites at the same position it is the first.
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


def sites_within(
    queries_M2: Floats, sites_S2: Floats, occupied_S: NDArray[np.bool_], size_M2: Floats, most: int
) -> Ints:
    """Sites (M, W) whose centres lie in the rectangle of ``size_M2`` around each query, −1 where there are fewer.

    The west and south sides belong to a rectangle. Sites come in the order of x, then y, then number; of more than
    ``most``, those are taken whose index in that order has the least fraction when multiplied by the golden ratio: they
    are spread evenly, and depend on nothing else in the scene. There is at least one column.
    """
    present = np.flatnonzero(occupied_S)
    if not len(present) or not len(queries_M2):
        return np.full((len(queries_M2), 1), -1, dtype=np.int64)
    tied_S2 = np.round(sites_S2[present] / TIE_M)
    order = np.lexsort((tied_S2[:, 1], tied_S2[:, 0]))
    present = present[order]
    low_M2, high_M2 = queries_M2 - size_M2 / 2 - TIE_M, queries_M2 + size_M2 / 2 - TIE_M
    begin_M2, end_M2, rank_S = _candidates(tied_S2[order], low_M2, high_M2)
    chosen = []
    for rows in _blocks((end_M2 - begin_M2).sum(axis=1)):
        query, rank = _pairs(begin_M2[rows], end_M2[rows], rank_S)
        where_2 = sites_S2[present[rank]]
        inside = ((where_2 >= low_M2[rows][query]) & (where_2 < high_M2[rows][query])).all(axis=1)
        query, rank = np.divmod(np.sort(query[inside] * len(present) + rank[inside]), len(present))
        kept = _numbers(query, _scattered(_numbers(query))) < most
        query, rank = query[kept], rank[kept]
        chosen.append((rows.start + query, _numbers(query), rank))
    query, slot, rank = (np.concatenate(column) for column in zip(*chosen, strict=True))
    sites_MW = np.full((len(queries_M2), int(slot.max(initial=0)) + 1), -1, dtype=np.int64)
    sites_MW[query, slot] = present[rank]
    return sites_MW


def _numbers(query: Ints, key: Ints | None = None) -> Ints:
    """Return the number of each pair among those of its query, in their order or in that of a ``key`` below 2³²."""
    if key is not None:
        order = np.argsort(query << 32 | key)
        numbers = np.empty_like(query)
        numbers[order] = _numbers(query[order])
        return numbers
    count = np.bincount(query)
    return np.arange(len(query)) - (np.cumsum(count) - count)[query]


def _scattered(number: Ints) -> Ints:
    """Return multiples of the golden ratio, modulo one, in units of 2⁻³²: the least k of n are spread evenly.

    Every n-th of a raster would be whole rows of it where n divides its width.
    """
    return number * 2_654_435_769 % (1 << 32)


def _candidates(tied_S2: Floats, low_M2: Floats, high_M2: Floats) -> tuple[Ints, Ints, Ints]:
    """Return ranges (M, 2), begin and end, of ``rank_S`` that hold the sites of each rectangle, and few others.

    Sites are sorted by x; their ranks are listed strip by strip, and a rectangle is never taller than a strip.
    """
    count, x_S = len(tied_S2), tied_S2[:, 0]
    tall, origin = float((high_M2 - low_M2)[:, 1].max()) + 10 * TIE_M, float(low_M2[:, 1].min())
    strip_S = np.floor((tied_S2[:, 1] * TIE_M - origin) / tall).astype(np.int64)
    key_S = np.sort(strip_S * count + np.arange(count))
    first_M = np.searchsorted(x_S, low_M2[:, 0] / TIE_M - 1)
    last_M = np.searchsorted(x_S, high_M2[:, 0] / TIE_M + 1, side="right")
    strip_M2 = np.floor((np.stack([low_M2[:, 1], high_M2[:, 1]], axis=1) - origin + [-TIE_M, TIE_M]) / tall)
    base_M2 = strip_M2.astype(np.int64) * count
    begin_M2 = np.searchsorted(key_S, base_M2 + first_M[:, None])
    end_M2 = np.searchsorted(key_S, base_M2 + last_M[:, None])
    end_M2[:, 1] = np.where(base_M2[:, 0] == base_M2[:, 1], begin_M2[:, 1], end_M2[:, 1])  # one strip counts once
    return begin_M2, end_M2, key_S % count


def _blocks(work_M: Ints) -> list[slice]:
    """Return the queries in ranges of about :data:`PAIRS` candidates, at least one query each."""
    group_M = np.cumsum(work_M) // PAIRS
    bounds = np.flatnonzero(np.diff(group_M)) + 1
    return [slice(int(a), int(b)) for a, b in zip([0, *bounds], [*bounds, len(work_M)], strict=True)]


def _pairs(begin_M2: Ints, end_M2: Ints, rank_S: Ints) -> tuple[Ints, Ints]:
    """Return each query of a block with each of its candidates, by rank."""
    begin, length = begin_M2.flatten(), (end_M2 - begin_M2).flatten()
    query = np.repeat(np.arange(len(begin)) // 2, length)
    index = np.arange(len(query)) + np.repeat(begin - (np.cumsum(length) - length), length)
    return query, rank_S[index]


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
