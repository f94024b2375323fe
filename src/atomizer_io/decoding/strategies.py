"""Dense, zone-probe and quadtree decoding (paper, §4.3 and its appendix on GFLOPs).

All three give the dense answer wherever the decoder was called; they differ in where they call it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.grid import Grid
from atomizer_io.decoding.predictor import Prediction, Predictor, ScenePredictor
from atomizer_io.errors import ConfigError, QueryError
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.latents import Latents

# Where probes lie in a region, as shares of its sides; the first k are the probes, so that sets are nested.
PROBES = np.array(
    [
        *((0.25, 0.25), (0.75, 0.75), (0.75, 0.25), (0.25, 0.75), (0.5, 0.5), (0.0, 0.0), (1.0, 1.0), (1.0, 0.0)),
        *((0.0, 1.0), (0.5, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 0.5)),
    ]
)
Ints = NDArray[np.int64]


def dense(model: AtomizerIO, latents: Latents, where: Grid | Tensor, **how: Any) -> Prediction:
    """Ask at every position; ``how`` may hold ``index`` (of the scene), ``sites``, ``neighbors``, ``footprint_m``."""
    return ScenePredictor(model, latents, where, **how).query_all()


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
    """Ask ``probes`` positions of each latent's cell; cells whose probes do not agree are asked everywhere.

    Probes agree if all are of one class and at least ``margin`` ahead of the second; for a quantity, if they lie within
    ``tolerance`` of each other. A ``margin`` of infinity is dense decoding.
    """
    predictor = ScenePredictor(model, latents, where, **how)
    return probe_zones(predictor, probes=probes, margin=margin, tolerance=tolerance)


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

    The last squares are single pixels, so that at worst every pixel is asked, once. Probes agree as in
    :func:`zone_probe`.
    """
    predictor = ScenePredictor(model, latents, where, **how)
    return probe_squares(predictor, start=start, probes=probes, margin=margin, tolerance=tolerance)


def probe_zones(predictor: Predictor, *, probes: int, margin: float, tolerance: float) -> Prediction:
    """Guide a predictor through :func:`zone_probe` and return its answers."""
    check(probes, margin, tolerance)
    if math.isinf(margin):
        return predictor.query_all()
    zone_M = predictor.zone_M.numpy()
    order = np.argsort(zone_M, kind="stable")
    start = np.flatnonzero(np.diff(zone_M[order], prepend=-1))
    count = np.diff(np.append(start, len(order)))
    # spread evenly through the zone in the order of its positions: for a grid, from north to south
    share = (np.arange(1, probes + 1) - 0.5) / probes
    places = np.minimum((share * count[:, None]).astype(np.int64), count[:, None] - 1)
    probes_Rk = torch.from_numpy(order[start[:, None] + places])
    predictor.query(probes_Rk.flatten())
    agreed_R = predictor.agree(probes_Rk, margin, tolerance)
    region_M = torch.empty(len(order), dtype=torch.long)
    region_M[torch.from_numpy(order)] = torch.repeat_interleave(torch.arange(len(count)), torch.from_numpy(count))
    agreed_M = agreed_R[region_M]
    predictor.query((~agreed_M).nonzero()[:, 0])
    predictor.fill_from_probes(agreed_M, region_M, probes_Rk)
    return predictor.prediction()


def probe_squares(predictor: Predictor, *, start: int, probes: int, margin: float, tolerance: float) -> Prediction:
    """Guide a predictor through :func:`quadtree` and return its answers.

    Rows and columns are halved alike for all squares of a level, so a level is the product of two cuts, and the open
    squares are a mask over that product.
    """
    check(probes, margin, tolerance)
    if start < 1:
        raise ConfigError(f"start must be at least one pixel, got {start}")
    if math.isinf(margin):
        return predictor.query_all()
    if len(predictor.shape) != 2:
        raise QueryError(
            "a quadtree needs a grid: pass aio.Grid(...); for positions, such as points, use zone-probe or sketch"
        )
    height, width = predictor.shape
    rows, columns = cut(height, start), cut(width, start)
    open_ij = np.ones((len(rows) - 1, len(columns) - 1), dtype=bool)
    while open_ij.any():
        i, j = np.nonzero(open_ij)
        probes_Rk = torch.from_numpy(_probes(rows, columns, i, j, probes, width))
        predictor.query(probes_Rk.flatten())
        agreed_R = predictor.agree(probes_Rk, margin, tolerance).numpy()
        region_ij = np.zeros(open_ij.shape, dtype=np.int64)
        region_ij[i, j] = np.arange(len(i))
        done_ij = np.zeros_like(open_ij)
        done_ij[i, j] = agreed_R
        if agreed_R.any():
            marked_M, region_M = (torch.from_numpy(_spread(a, rows, columns)) for a in (done_ij, region_ij))
            predictor.fill_from_probes(marked_M, region_M, probes_Rk)
        finer_rows, row_parents = halved(rows)
        finer_columns, column_parents = halved(columns)
        if len(finer_rows) == len(rows) and len(finer_columns) == len(columns):
            break  # single pixels: all open ones have been asked
        open_ij = (open_ij & ~done_ij)[row_parents][:, column_parents]
        rows, columns = finer_rows, finer_columns
    return predictor.prediction()


def check(probes: int, margin: float, tolerance: float) -> None:
    """Refuse a number of probes or a rule without meaning."""
    if not 1 <= probes <= len(PROBES):
        raise ConfigError(f"probes must be from 1 to {len(PROBES)}, got {probes}")
    check_rule(margin, tolerance)


def check_rule(margin: float, tolerance: float) -> None:
    """Refuse a negative margin or tolerance."""
    if not margin >= 0 or not tolerance >= 0:
        raise ConfigError(f"margin and tolerance must not be negative, got {margin} and {tolerance}")


def cut(length: int, size: int) -> Ints:
    """Return where a side is cut into parts of ``size``, both ends included; the last part may be shorter."""
    return np.append(np.arange(0, length, size), length)


def halved(cuts: Ints) -> tuple[Ints, Ints]:
    """Return the cuts with parts of two or more halved, and for each new part the number of the one it came from."""
    middles = (cuts[:-1] + cuts[1:] + 1) // 2
    finer = np.unique(np.concatenate([cuts, middles]))
    return finer, np.searchsorted(cuts, finer[:-1], side="right") - 1


def _probes(rows: Ints, columns: Ints, i: Ints, j: Ints, count: int, width: int) -> Ints:
    """Return the numbers (R, k) of the pixels that probe the squares (i, j)."""

    def inside(cuts: Ints, part: Ints, share_k: NDArray[np.float64]) -> Ints:
        first, last = cuts[part][:, None], cuts[part + 1][:, None]
        return np.asarray(np.minimum(first + (share_k * (last - first)).astype(np.int64), last - 1))

    return inside(rows, i, PROBES[:count, 0]) * width + inside(columns, j, PROBES[:count, 1])


def _spread(of_squares: NDArray[Any], rows: Ints, columns: Ints) -> NDArray[Any]:
    """Return a value per square as one per pixel, in one row."""
    return of_squares.repeat(np.diff(rows), axis=0).repeat(np.diff(columns), axis=1).reshape(-1)
