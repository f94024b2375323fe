"""Spatial cross-validation: positions in square blocks, and whole blocks in folds.

Positions near each other are alike in their target and in what was observed there, so that a random split tests a model
on what it was trained on. Blocks wider than the distance over which they are alike keep the splits apart.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError
from atomizer_io.io.vector_sampling import metres_at

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NICE = (1.0, 2.0, 5.0)
BLOCKS_PER_FOLD = 10  # about, where the user names no size


def blocks_of(xy: Floats, crs: str | None, size_m: float) -> Ints:
    """Return the column and the row (M, 2) of the block of ``size_m`` that each position lies in."""
    if not len(xy):
        return np.empty((0, 2), dtype=np.int64)
    along = float(metres_at(crs, np.array([float(np.median(xy[:, 1]))]))[0, 1])
    row = np.floor(xy[:, 1] * along / size_m).astype(np.int64)
    rows, inverse = np.unique(row, return_inverse=True)
    across = metres_at(crs, np.asarray((rows + 0.5) * size_m / along, dtype=np.float64))[inverse, 0]
    return np.stack([np.floor(xy[:, 0] * across / size_m).astype(np.int64), row], axis=1)


def usual_block_m(xy: Floats, crs: str | None, folds: int) -> float:
    """Return a size of blocks, a round number, of which the extent of all positions holds about ten for each fold."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    width, height = ((high - low) * metres_at(crs, (low[1:] + high[1:]) / 2)[0]).tolist()
    side = max(math.sqrt(width * height / (BLOCKS_PER_FOLD * folds)), max(width, height) / (BLOCKS_PER_FOLD * folds))
    scale = 10.0 ** math.floor(math.log10(max(side, 1e-3)))
    return max(number * scale for number in NICE if number * scale <= max(side, 1e-3))


def folds_of(
    blocks: Ints, feature: Ints, groups: Ints, weight: NDArray[np.floating], folds: int
) -> tuple[NDArray[np.int16], int]:
    """Return the fold 0 … ``folds`` − 1 of each position (M,), and of how many parts the folds are made.

    A part is a block, with those that a feature connects it to, so that neither a block nor a polygon is in two folds.
    The heaviest parts are dealt first, each to the fold that then has the most even share of each of the ``groups``
    (classes, by number).
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, block = np.unique(blocks, axis=0, return_inverse=True)
    block = block.reshape(-1)
    _, first, of_feature = np.unique(feature, return_index=True, return_inverse=True)
    count = int(block.max()) + 1 if len(block) else 0
    links = coo_array((np.ones(len(block)), (block[first][of_feature], block)), shape=(count, count))
    parts, part_of = connected_components(links, directed=False) if count else (0, block)
    if parts < folds:
        raise ConfigError(
            f"the labels lie in {parts} blocks that no polygon connects, fewer than {folds} folds: make block_m smaller"
        )
    part = part_of[block]
    table = np.zeros((parts, int(groups.max()) + 1))
    np.add.at(table, (part, groups), weight)
    total = np.maximum(table.sum(axis=0), 1e-12)
    shares, held = table / total, np.zeros((folds, table.shape[1]))
    fold_of_part = np.empty(parts, dtype=np.int16)
    for number in np.argsort(-shares.sum(axis=1), kind="stable").tolist():
        fold = int(((held + shares[number]) ** 2 - held**2).sum(axis=1).argmin())
        fold_of_part[number] = fold
        held[fold] += shares[number]
    return fold_of_part[part], parts
