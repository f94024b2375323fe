"""Outputs at all points of a dense point cloud from those at some of them, which were decoded.

Shapes: D decoded points, P points, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NEIGHBORS = 4
NEAREST_M = 1e-3  # closer points count as if they were this far away


def interpolated(
    decoded_xyz: NDArray[np.float64], probabilities: NDArray[Any], all_xyz: NDArray[np.float64]
) -> NDArray[Any]:
    """Return outputs (P, C) at ``all_xyz`` (P, 3) from those (D, C) at ``decoded_xyz`` (D, 3), all in metres.

    They are means over the nearest four in three dimensions, weighted by inverse distance; a decoded point
    keeps its own output.
    """
    if len(decoded_xyz) == len(all_xyz) and np.array_equal(decoded_xyz, all_xyz):
        return probabilities
    from scipy.spatial import cKDTree

    count = min(NEIGHBORS, len(decoded_xyz))
    distance, near = (column.reshape(len(all_xyz), count) for column in cKDTree(decoded_xyz).query(all_xyz, k=count))
    weight = 1 / np.maximum(distance, NEAREST_M)
    exact = distance[:, 0] == 0
    weight[exact] = np.eye(1, count)
    weight /= weight.sum(axis=1, keepdims=True)
    outputs: NDArray[Any] = np.einsum("pk,pkc->pc", weight, probabilities[near]).astype(probabilities.dtype)
    return outputs
