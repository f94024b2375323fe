"""Dense, zone-probe and quadtree decoding (paper, §4.3 and its appendix on GFLOPs).

All three give the dense answer wherever the decoder was called; they differ in where they call it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from atomizer_io.decoding.asking import Asker, Prediction
from atomizer_io.errors import ConfigError, QueryError
from atomizer_io.grid import Grid
from atomizer_io.model.atomizer import AtomizerIO, Latents

# Where probes lie in a region, as shares of its sides; the first k are the probes, so that sets are nested.
PROBES = (
    *((0.25, 0.25), (0.75, 0.75), (0.75, 0.25), (0.25, 0.75), (0.5, 0.5), (0.0, 0.0), (1.0, 1.0), (1.0, 0.0)),
    *((0.0, 1.0), (0.5, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 0.5)),
)


def dense(model: AtomizerIO, latents: Latents, where: Grid | Tensor, **how: Any) -> Prediction:
    """Ask at every position; ``how``: ``index`` of the scene, ``sites``, ``neighbors``."""
    asker = Asker(model, latents, where, **how)
    asker.ask(torch.arange(len(asker.asked_M)))
    return asker.prediction()


def zone_probe(
    model: AtomizerIO,
    latents: Latents,
    where: Grid | Tensor,
    *,
    probes: int = 4,
    margin: float = 0.0,
    tolerance: float = 0.0,
    **how: Any,
) -> Prediction:
    """Ask ``probes`` positions of each latent's cell; cells whose probes do not agree are asked everywhere."""
    _check(probes, margin, tolerance)
    asker = Asker(model, latents, where, **how)
    if math.isinf(margin):
        asker.ask(torch.arange(len(asker.asked_M)))
        return asker.prediction()
    owner = cKDTree(asker.latents.anchors(0).numpy()).query(asker.positions_M2.numpy())[1]
    order = np.argsort(owner, kind="stable")
    start = np.flatnonzero(np.diff(owner[order], prepend=-1))
    count = np.diff(np.append(start, len(order)))
    # spread evenly through the cell in the order of its positions: for a grid, from north to south
    share = (np.arange(1, probes + 1) - 0.5) / probes
    places = np.minimum((share * count[:, None]).astype(np.int64), count[:, None] - 1)
    probes_Rk = torch.from_numpy(order[start[:, None] + places])
    asker.ask(probes_Rk.flatten())
    agreed = asker.agree(probes_Rk, margin, tolerance)
    region_M = torch.empty(len(order), dtype=torch.long)
    region_M[torch.from_numpy(order)] = torch.repeat_interleave(torch.arange(len(count)), torch.from_numpy(count))
    asker.ask((~agreed[region_M]).nonzero()[:, 0])
    silent = (~asker.asked_M).nonzero()[:, 0]
    asker.answers_MC[silent] = asker.spread(probes_Rk)[region_M[silent]]
    return asker.prediction()


def quadtree(
    model: AtomizerIO,
    latents: Latents,
    where: Grid,
    *,
    start: int = 32,
    probes: int = 4,
    margin: float = 0.0,
    tolerance: float = 0.0,
    **how: Any,
) -> Prediction:
    """Ask ``probes`` positions of each square of ``start`` pixels; where they do not agree, its quarters, and so on.

    The last squares are single pixels, so that at worst every pixel is asked, once. A region is taken over only if all
    its probes are of one class and at least ``margin`` ahead of the second (a quantity: within ``tolerance``).
    """
    _check(probes, margin, tolerance)
    if not isinstance(where, Grid):
        raise QueryError("a quadtree needs a grid: pass aio.Grid(...), or use zone_probe for a list of positions")
    if start < 1:
        raise ConfigError(f"start must be at least one pixel, got {start}")
    asker = Asker(model, latents, where, **how)
    if math.isinf(margin):
        asker.ask(torch.arange(len(asker.asked_M)))
        return asker.prediction()
    answers = asker.answers_MC.reshape(*where.shape, -1)
    cells = _tiles(where, start)
    while len(cells):
        probes_Rk = torch.from_numpy(_probes(cells, probes, where.width))
        asker.ask(probes_Rk[probes_Rk >= 0])
        agreed = asker.agree(probes_Rk, margin, tolerance).numpy()
        single = (cells[:, 1] - cells[:, 0]) * (cells[:, 3] - cells[:, 2]) == 1
        done = agreed & ~single
        for (top, bottom, left, right), answer in zip(
            cells[done].tolist(), asker.spread(probes_Rk[torch.from_numpy(done)]), strict=True
        ):
            asked = asker.asked_M.reshape(where.shape)[top:bottom, left:right, None]
            part = answers[top:bottom, left:right]
            part.copy_(torch.where(asked, part, answer))
        cells = _quarters(cells[~agreed & ~single])
    return asker.prediction()


def _check(probes: int, margin: float, tolerance: float) -> None:
    if not 1 <= probes <= len(PROBES):
        raise ConfigError(f"probes must be from 1 to {len(PROBES)}, got {probes}")
    if not margin >= 0 or not tolerance >= 0:
        raise ConfigError(f"margin and tolerance must not be negative, got {margin} and {tolerance}")


def _tiles(grid: Grid, size: int) -> NDArray[np.int64]:
    """Squares of ``size`` pixels, cut at the border: rows of top, bottom, left, right."""
    tops, lefts = np.arange(0, grid.height, size), np.arange(0, grid.width, size)
    top, left = (side.reshape(-1) for side in np.meshgrid(tops, lefts, indexing="ij"))
    bottom, right = np.minimum(top + size, grid.height), np.minimum(left + size, grid.width)
    return np.stack([top, bottom, left, right], axis=1).astype(np.int64)


def _quarters(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each cell cut in the middle of its sides; parts without pixels are none."""
    top, bottom, left, right = cells.T
    row, column = (top + bottom + 1) // 2, (left + right + 1) // 2
    parts = np.concatenate(
        [
            np.stack(sides, axis=1)
            for sides in (
                (top, row, left, column),
                (top, row, column, right),
                (row, bottom, left, column),
                (row, bottom, column, right),
            )
        ]
    )
    return parts[(parts[:, 1] > parts[:, 0]) & (parts[:, 3] > parts[:, 2])]


def _probes(cells: NDArray[np.int64], count: int, width: int) -> NDArray[np.int64]:
    """Numbers (R, k) of the pixels that probe each cell."""
    share = np.array(PROBES[:count])
    top, bottom, left, right = (side[:, None] for side in cells.T)
    rows = np.minimum(top + (share[:, 0] * (bottom - top)).astype(np.int64), bottom - 1)
    columns = np.minimum(left + (share[:, 1] * (right - left)).astype(np.int64), right - 1)
    return rows * width + columns
