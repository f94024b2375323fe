"""Overlapping windows over a raster, and the weight of each where they overlap."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError
from atomizer_io.prediction.options import MOST_OVERLAP


@dataclass(frozen=True, slots=True)
class RasterWindow:
    """A rectangle of pixels of a map; ``row`` and ``column`` count windows."""

    row: int
    column: int
    top: int
    left: int
    height: int
    width: int

    @property
    def name(self) -> str:
        """The name of the file of its outputs."""
        return f"window-{self.row:05d}-{self.column:05d}"


@dataclass(frozen=True, slots=True)
class WindowLayout:
    """The windows of a map: where each row and column of them begins, and how high and wide it is."""

    height: int
    width: int
    tops: tuple[int, ...]
    lefts: tuple[int, ...]
    heights: tuple[int, ...]
    widths: tuple[int, ...]

    @classmethod
    def over(cls, shape: tuple[int, int], size: tuple[int, int], overlap: float) -> WindowLayout:
        """Return windows of ``size`` pixels (rows, columns), cut to the map, that overlap by ``overlap`` or more."""
        if min(size) < 1:
            raise ConfigError(f"a window must have at least one pixel, got {min(size)}")
        if not 0 <= overlap <= MOST_OVERLAP:
            raise ConfigError(f"overlap must be a share of a window from 0 to {MOST_OVERLAP}, got {overlap}")
        tops, lefts = (starts(*lengths, overlap) for lengths in zip(shape, size, strict=True))
        high, wide = min(size[0], shape[0]), min(size[1], shape[1])
        return cls(*shape, tops, lefts, (high,) * len(tops), (wide,) * len(lefts))

    @property
    def size(self) -> tuple[int, int]:
        """The rows and columns of pixels of the largest window."""
        return max(self.heights), max(self.widths)

    def __len__(self) -> int:
        return len(self.tops) * len(self.lefts)

    def window(self, row: int, column: int) -> RasterWindow:
        """Return the window at (row, column)."""
        return RasterWindow(row, column, self.tops[row], self.lefts[column], self.heights[row], self.widths[column])

    def row(self, row: int) -> list[RasterWindow]:
        """Return the windows of one row."""
        return [self.window(row, column) for column in range(len(self.lefts))]

    def strip(self, row: int) -> tuple[int, int]:
        """Return the first and the last row of pixels, exclusive, between the starts of two rows of windows."""
        return self.tops[row], self.tops[row + 1] if row + 1 < len(self.tops) else self.height

    def columns(self, column: int) -> tuple[int, int]:
        """Return the first and the last column of pixels, exclusive, between the starts of two columns of windows."""
        return self.lefts[column], self.lefts[column + 1] if column + 1 < len(self.lefts) else self.width

    def covering(self, top: int, bottom: int) -> range:
        """Return the rows of windows that overlap these rows of pixels."""
        return _covering(self.tops, self.heights, top, bottom)

    def covering_columns(self, left: int, right: int) -> range:
        """Return the columns of windows that overlap these columns of pixels."""
        return _covering(self.lefts, self.widths, left, right)


def starts(length: int, size: int, overlap: float) -> tuple[int, ...]:
    """Return where windows begin, evenly from end to end."""
    if length <= size:
        return (0,)
    stride = max(1, math.floor(size * (1 - overlap) + 1e-9))
    count = math.ceil((length - size) / stride) + 1
    return tuple(round(i * (length - size) / (count - 1)) for i in range(count))


def ramp(size: int) -> NDArray[np.float32]:
    """Return the weight of each pixel of a window along an axis: most in the middle, little at the edge, never zero."""
    return ramp_at(np.arange(size, dtype=np.float64) + 0.5, size)


def ramp_at(position: NDArray[Any], size: int) -> NDArray[np.float32]:
    """Return the weight at any position in a window, given in pixels from its edge."""
    return np.asarray(np.sin(np.pi * position / size) ** 2 + 1e-3, dtype=np.float32)


def _covering(begins: tuple[int, ...], sizes: tuple[int, ...], first: int, last: int) -> range:
    numbers = range(len(begins))
    reach = bisect.bisect_right(numbers, first, key=lambda number: begins[number] + sizes[number])
    return range(reach, bisect.bisect_left(begins, last))
