"""Dense clouds thinned by a grid of cubes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def one_per_cube(xyz: NDArray[np.float64], side: float) -> NDArray[np.int64]:
    """Return the numbers of the points of (P, 3) that are the first in their cube of ``side`` metres, in order."""
    cube = np.floor(xyz / side)
    cube -= cube.min(axis=0)
    order = np.lexsort(cube.T)
    ordered = cube[order]
    new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])[: len(order)]
    return np.sort(order[new])  # the sort is stable: of a cube, the first point comes first
