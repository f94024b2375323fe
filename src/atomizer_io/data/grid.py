"""A regular grid of positions: the pixel centres of a raster, or the query positions of a map."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from atomizer_io.errors import QueryError

KEPT_PIXELS = 1 << 20


@dataclass(frozen=True, slots=True)
class Grid:
    """``height`` × ``width`` pixels of ``gsd_m`` metres (one number, or x and y), north up, around ``center_m``.

    ``AtomSet.from_raster`` puts its pixels on the same grid, so ``Grid(H, W, gsd_m=g).positions()`` has one query per
    pixel.
    """

    height: int
    width: int
    gsd_m: float | Sequence[float] = 1.0
    center_m: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise QueryError(f"a grid needs at least one pixel, got height={self.height}, width={self.width}")
        if np.size(self.gsd_m) not in (1, 2) or not all(0 < size < math.inf for size in self.pixel_m):
            raise QueryError(f"gsd_m must be one positive number of metres, or two for x and y; got {self.gsd_m}")

    @property
    def pixel_m(self) -> tuple[float, float]:
        """Size of a pixel along x and y, in metres."""
        sizes = np.atleast_1d(np.asarray(self.gsd_m, dtype=np.float64)).tolist()
        return (sizes[0], sizes[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels, to fold a list of predictions back into a map."""
        return (self.height, self.width)

    @property
    def size_m(self) -> tuple[float, float]:
        """Extent along x and y, in metres."""
        return (self.width * self.pixel_m[0], self.height * self.pixel_m[1])

    def positions(self) -> Tensor:
        """Return the centres of the pixels as (H·W, 2) float64 metres, row-major from the north-west corner."""
        return self.shared_positions().clone()

    def shared_positions(self) -> Tensor:
        """Return ``positions()`` as a tensor that small equal grids share: it must not be changed in place."""
        make = _kept_centres if self.height * self.width <= KEPT_PIXELS else _centres
        return make(self.height, self.width, self.pixel_m, self.center_m)


def _centres(height: int, width: int, pixel_m: tuple[float, float], center_m: tuple[float, float]) -> Tensor:
    step_x, step_y = pixel_m
    x = center_m[0] + (torch.arange(width, dtype=torch.float64) - (width - 1) / 2) * step_x
    y = center_m[1] - (torch.arange(height, dtype=torch.float64) - (height - 1) / 2) * step_y
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([columns, rows], dim=-1).reshape(-1, 2)


_kept_centres = functools.lru_cache(maxsize=16)(_centres)
