"""Answers for all points of a dense cloud from some of them that were asked.

Shapes: A asked points, P points, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NEIGHBORS = 4
NEAREST_M = 1e-3  # closer points count as if they were this far away


def one_per_cube(xyz: NDArray[np.float64], side: float) -> NDArray[np.int64]:
    """Return the numbers of the points of (P, 3) that are the first in their cube of ``side`` metres, in order."""
    cube = np.floor(xyz / side)
    cube -= cube.min(axis=0)
    order = np.lexsort(cube.T)
    ordered = cube[order]
    new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])[: len(order)]
    return np.sort(order[new])  # the sort is stable: of a cube, the first point comes first


def interpolated(
    asked_xyz: NDArray[np.float64], probabilities: NDArray[Any], all_xyz: NDArray[np.float64]
) -> NDArray[Any]:
    """Return answers (P, C) at ``all_xyz`` (P, 3) from those (A, C) at ``asked_xyz`` (A, 3), all in metres.

    They are means over the nearest four in three dimensions, weighted by inverse distance; a point that was asked
    keeps its own answer.
    """
    if len(asked_xyz) == len(all_xyz) and np.array_equal(asked_xyz, all_xyz):
        return probabilities
    from scipy.spatial import cKDTree

    count = min(NEIGHBORS, len(asked_xyz))
    distance, near = (found.reshape(len(all_xyz), count) for found in cKDTree(asked_xyz).query(all_xyz, k=count))
    weight = 1 / np.maximum(distance, NEAREST_M)
    exact = distance[:, 0] == 0
    weight[exact] = np.eye(1, count)
    weight /= weight.sum(axis=1, keepdims=True)
    found: NDArray[Any] = np.einsum("pk,pkc->pc", weight, probabilities[near]).astype(probabilities.dtype)
    return found
