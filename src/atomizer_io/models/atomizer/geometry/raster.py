"""Pixels in rows, however they are rotated: which of them lies exactly where a query is.

Shapes: P pixels, M queries, 2 = (x, y) in metres.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from atomizer_io.models.sites import TIE_M, Floats


@dataclass(frozen=True, slots=True)
class Raster:
    """Pixels row by row, ``width`` in each; ``steps_22`` leads to the next of a row and to the next row."""

    positions_P2: Floats
    width: int
    steps_22: Floats

    @classmethod
    def of(cls, positions: Tensor) -> Raster | None:
        """Return the positions (P, 2) as a raster, or None where they do not fill rows of equal length."""
        positions_P2: Floats = positions.numpy()
        if len(positions_P2) < 4:
            return None
        moves = np.diff(positions_P2, axis=0)
        breaks = np.flatnonzero(np.abs(moves - moves[0]).max(axis=1) > TIE_M)
        width = int(breaks[0]) + 1 if len(breaks) else 0
        if width < 2 or len(positions_P2) % width:
            return None
        steps_22 = np.stack([moves[0], positions_P2[width] - positions_P2[0]])
        if abs(np.linalg.det(steps_22)) < TIE_M**2:
            return None
        row, column = np.divmod(np.arange(len(positions_P2)), width)
        error = np.abs(positions_P2 - positions_P2[0] - np.stack([column, row], axis=1) @ steps_22).max()
        return cls(positions_P2, width, steps_22) if error <= TIE_M else None

    def index(self, queries: Tensor) -> Tensor | None:
        """Return the pixel (M,) on which each query (M, 2) lies, or None where one lies on none, to the bit."""
        queries_M2: Floats = queries.numpy()
        place_M2 = np.rint((queries_M2 - self.positions_P2[0]) @ np.linalg.inv(self.steps_22))
        rows = len(self.positions_P2) // self.width
        if not len(place_M2) or place_M2.min() < 0 or place_M2[:, 0].max() >= self.width:
            return None
        if place_M2[:, 1].max() >= rows:
            return None
        index_M = (place_M2[:, 1] * self.width + place_M2[:, 0]).astype(np.int64)
        same = np.array_equal(self.positions_P2[index_M], queries_M2)
        return torch.from_numpy(index_M) if same else None
