"""Anchors that follow the data: every cell holds about as many atoms as every other, whatever the density.

Shapes: S sites, L cells, X axes: x, y and in three dimensions z, in metres.
"""

from __future__ import annotations

import numpy as np

from atomizer_io.models.sites import TIE_M, Floats, Ints

SIMILAR_SIDES = 1 - 1e-6  # sides of a box that differ by less are equal: the first of the axes is cut
KEY_BITS = 63


def balanced_cells(positions_SX: Floats, atoms_S: Ints, count: int) -> tuple[Ints, Floats]:
    """Return the cell (S,) of each site, and the anchors (L, X): the mean position of the atoms of each cell.

    Sites are cut in two along the longer side of their box, in proportion to the cells that each part is to have,
    until there are ``count``; where there are fewer sites than cells, each site is one. ``atoms_S`` are at least one
    each. Sites that differ by less than a micrometre on one axis are ordered by the others, so that the order in
    which sites are given does not matter unless they share a place.
    """
    values, ranks = zip(*(np.unique(np.round(w / TIE_M), return_inverse=True) for w in positions_SX.T), strict=True)
    keys_XS = np.stack([_keys([*ranks[axis:], *ranks[:axis]]) for axis in range(len(ranks))])
    site_S, start_L1 = _cut(keys_XS, values, atoms_S, count)
    cell_S = np.empty_like(site_S)
    cell_S[site_S] = np.repeat(np.arange(len(start_L1) - 1), np.diff(start_L1))
    total_L = np.bincount(cell_S, weights=atoms_S)
    sums = [np.bincount(cell_S, weights=atoms_S * w) for w in positions_SX.T]
    return cell_S, np.stack(sums, axis=1) / total_L[:, None]


def _keys(ranks: list[Ints]) -> Ints:
    """Return numbers (S,) that order sites by the first axis, then by the next ones as far as 63 bits reach."""
    key_S, bits = ranks[0].astype(np.int64), int(ranks[0].max()).bit_length()
    for rank_S in ranks[1:]:
        more = int(rank_S.max()).bit_length()
        if bits + more <= KEY_BITS:
            key_S, bits = key_S << more | rank_S, bits + more
    return key_S


def _cut(keys_XS: Ints, values: tuple[Floats, ...], atoms_S: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the sites in the order of their cells, and where in it each cell begins (L + 1,)."""
    site_S, atoms_S, sites = np.arange(keys_XS.shape[1]), atoms_S.copy(), keys_XS.shape[1]
    shifts = [int(key.max()).bit_length() - (len(v) - 1).bit_length() for key, v in zip(keys_XS, values, strict=True)]
    alike = bool((atoms_S == atoms_S[0]).all())
    begins, todo = [], [(0, sites, count)]
    while todo:
        start, end, cells = todo.pop()
        if cells == 1 or end - start == 1:
            begins.append(start)
            continue
        part = slice(start, end)
        box = [(key.min() >> s, key.max() >> s) for key, s in zip(keys_XS[:, part], shifts, strict=True)]
        sides = np.array([v[high] - v[low] for (low, high), v in zip(box, values, strict=True)])
        key = keys_XS[int((sides >= SIMILAR_SIDES * sides.max()).argmax()), part]
        share = cells // 2 / cells
        if alike:
            middle = round((end - start) * share)
            order = np.argpartition(key, np.clip(middle, 1, end - start - 1))
        else:
            order = np.argsort(key)
            done = np.cumsum(atoms_S[part][order])
            middle = 1 + int(np.abs(done - share * done[-1]).argmin())
        middle = start + int(np.clip(middle, 1, end - start - 1))
        keys_XS[:, part], site_S[part] = keys_XS[:, part][:, order], site_S[part][order]
        if not alike:
            atoms_S[part] = atoms_S[part][order]
        todo += [(middle, end, cells - cells // 2), (start, middle, cells // 2)]  # the first part is next
    return site_S, np.array([*begins, sites])
