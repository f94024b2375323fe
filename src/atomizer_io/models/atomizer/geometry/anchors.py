"""Anchors on a hexagonal lattice, and which of them is nearest (paper, §3.2).

Distances that differ by less than a micrometre are ties, and ties go to the lowest index: pixels and anchors on aligned
grids tie often, and rounding must not decide.

Shapes: S sites, L anchors, 2 = (x, y) in metres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from atomizer_io.models.sites import TIE_M, Floats, Ints


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
        """Return the lattice over ``bounds`` with nearly ``count`` anchors and nearly regular hexagons."""
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
        """Return the positions of the anchors, row by row."""
        row, column = np.divmod(np.arange(self.rows * self.columns), self.columns)
        return np.stack([self._x(row, column), self._y(row)], axis=1)

    def nearest(self, positions_S2: Floats) -> Ints:
        """Return the index (S,) of the nearest anchor in closed form: one of two in each of the rows around."""
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
