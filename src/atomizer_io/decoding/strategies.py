"""Dense, zone-probe and quadtree decoding (paper, §4.3 and its appendix on FLOPs), and the registry of all strategies.

An :class:`OperatingPoint` is all that the cost of a prediction depends on: how a scene is encoded, and how decoded.

All strategies have the dense output wherever the decoder was called; they differ in where they call it.

Shapes: M positions, R regions, k probes; i and j count rows and columns of regions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.decoding.predictor import Prediction, Predictor, ScenePredictor
from atomizer_io.decoding.sketching import sketch, sketch_flops
from atomizer_io.errors import ConfigError, QueryError, check_count
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.geometry.neighbors import SitesOfQueries
from atomizer_io.models.atomizer.latents import Latents
from atomizer_io.models.base import Cost

# Where probes lie in a region, as shares of its sides; the first k are the probes, so that sets are nested.
PROBES = np.array(
    [
        *((0.25, 0.25), (0.75, 0.75), (0.75, 0.25), (0.25, 0.75), (0.5, 0.5), (0.0, 0.0), (1.0, 1.0), (1.0, 0.0)),
        *((0.0, 1.0), (0.5, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 0.5)),
    ]
)
DENSE = "dense"
Ints = NDArray[np.int64]
Settings = Mapping[str, int]


def dense(predictor: Predictor, *, margin: float = 0.0, tolerance: float = 0.0) -> Prediction:
    """Decode every position; ``margin`` and ``tolerance`` make no difference."""
    return predictor.query_all()


def zone_probe(predictor: Predictor, *, probes: int = 4, margin: float = 0.0, tolerance: float = 0.0) -> Prediction:
    """Decode ``probes`` positions of each latent's cell; cells whose probes do not agree are decoded everywhere.

    Probes agree if all are of one class and at least ``margin`` ahead of the second; for a regression target, if they
    lie within ``tolerance`` of each other. A ``margin`` of infinity is dense decoding.
    """
    check_probes(probes)
    zone_M = predictor.zone_M.numpy()
    order = np.argsort(zone_M, kind="stable")
    start = np.flatnonzero(np.diff(zone_M[order], prepend=-1))
    count = np.diff(np.append(start, len(order)))
    # evenly through the zone in the order of its positions: for a grid, from north to south
    share = (np.arange(1, probes + 1) - 0.5) / probes
    within = np.minimum((share * count[:, None]).astype(np.int64), count[:, None] - 1)
    probes_Rk = torch.from_numpy(order[start[:, None] + within])
    predictor.query(probes_Rk.flatten())
    agreed_R = predictor.agree(probes_Rk, margin, tolerance)
    region_M = torch.empty(len(order), dtype=torch.long)
    region_M[torch.from_numpy(order)] = torch.repeat_interleave(torch.arange(len(count)), torch.from_numpy(count))
    agreed_M = agreed_R[region_M]
    predictor.query((~agreed_M).nonzero()[:, 0])
    predictor.fill(agreed_M, region_M, probes_Rk)
    return predictor.prediction()


def quadtree(
    predictor: Predictor, *, start: int = 32, probes: int = 4, margin: float = 0.0, tolerance: float = 0.0
) -> Prediction:
    """Decode ``probes`` positions of each region of ``start`` pixels a side; where they disagree, of its quarters, …

    The last regions are single pixels, so that at worst every pixel is decoded, once. Probes agree as in
    :func:`zone_probe`. Rows and columns are halved alike for all regions of a level, so a level is the product of two
    cuts, and the open regions are a mask over that product.
    """
    check_probes(probes)
    if start < 1:
        raise ConfigError(f"start must be at least one pixel, got {start}")
    if len(predictor.shape) != 2:
        raise QueryError(
            "a quadtree needs a grid: pass aio.Grid(...); for positions, such as points, use zone-probe or sketch"
        )
    height, width = predictor.shape
    rows, columns = cut(height, start), cut(width, start)
    open_ij = np.ones((len(rows) - 1, len(columns) - 1), dtype=bool)
    while open_ij.any():
        i, j = np.nonzero(open_ij)
        row_Rk, column_Rk = (_inside(*axis, probes) for axis in ((rows, i, 0), (columns, j, 1)))
        probes_Rk = torch.from_numpy(row_Rk * width + column_Rk)
        predictor.query(probes_Rk.flatten())
        agreed_R = predictor.agree(probes_Rk, margin, tolerance).numpy()
        region_ij, done_ij = np.zeros(open_ij.shape, dtype=np.int64), np.zeros_like(open_ij)
        region_ij[i, j], done_ij[i, j] = np.arange(len(i)), agreed_R
        if agreed_R.any():
            of_pixels = (a.repeat(np.diff(rows), axis=0).repeat(np.diff(columns), axis=1) for a in (done_ij, region_ij))
            marked_M, region_M = (torch.from_numpy(a.reshape(-1)) for a in of_pixels)
            predictor.fill(marked_M, region_M, probes_Rk)
        finer_rows, row_parents = halved(rows)
        finer_columns, column_parents = halved(columns)
        if len(finer_rows) == len(rows) and len(finer_columns) == len(columns):
            break  # single pixels: all open ones have been decoded
        open_ij = (open_ij & ~done_ij)[row_parents][:, column_parents]
        rows, columns = finer_rows, finer_columns
    return predictor.prediction()


def check_probes(probes: int) -> None:
    """Refuse a number of probes without meaning."""
    if not 1 <= probes <= len(PROBES):
        raise ConfigError(f"probes must be from 1 to {len(PROBES)}, got {probes}")


def cut(length: int, size: int) -> Ints:
    """Return where a side is cut into parts of ``size``, both ends included; the last part may be shorter."""
    return np.append(np.arange(0, length, size), length)


def halved(cuts: Ints) -> tuple[Ints, Ints]:
    """Return the cuts with parts of two or more halved, and for each new part the index of the one it came from."""
    middles = (cuts[:-1] + cuts[1:] + 1) // 2
    finer = np.unique(np.concatenate([cuts, middles]))
    return finer, np.searchsorted(cuts, finer[:-1], side="right") - 1


def _inside(cuts: Ints, part: Ints, axis: int, count: int) -> Ints:
    """Return the rows (or columns) (R, k) of the probes of these parts."""
    first, last = cuts[part][:, None], cuts[part + 1][:, None]
    return np.asarray(np.minimum(first + (PROBES[:count, axis] * (last - first)).astype(np.int64), last - 1))


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to decode: ``guide`` queries a predictor, with ``usual`` settings or ``settings`` worth trying.

    ``needs_grid``: it cannot decode lists of positions. ``flops`` counts what it computes beside the decoder.
    """

    guide: Callable[..., Prediction]
    usual: Settings
    settings: tuple[Settings, ...]
    needs_grid: bool = False
    flops: Callable[..., float] | None = None

    def decode(
        self, predictor: Predictor, *, margin: float = 0.0, tolerance: float = 0.0, **settings: int
    ) -> Prediction:
        """Decode where the strategy must; a ``margin`` of infinity is dense decoding."""
        if not margin >= 0 or not tolerance >= 0:
            raise ConfigError(f"margin and tolerance must not be negative, got {margin} and {tolerance}")
        if math.isinf(margin):
            return predictor.query_all()
        return self.guide(predictor, **{**self.usual, **settings}, margin=margin, tolerance=tolerance)

    def of_latents(self) -> Callable[..., Prediction]:
        """Return the strategy as a function of a model, its latents and a grid or positions."""

        @functools.wraps(self.guide)
        def decode(
            model: AtomizerIO,
            latents: Latents,
            where: Grid | Tensor,
            *,
            margin: float = 0.0,
            tolerance: float = 0.0,
            index: int | None = None,
            **options: Any,
        ) -> Prediction:
            scene = {name: options.pop(name) for name in ("sites", "neighbors", "footprint_m") if name in options}
            predictor = ScenePredictor(model, latents, where, index=index, **scene)
            return self.decode(predictor, margin=margin, tolerance=tolerance, **options)

        return decode


STRATEGIES = {
    DENSE: Strategy(dense, {}, ({},)),
    "quadtree": Strategy(
        quadtree,
        {"start": 32, "probes": 4},
        tuple({"start": s, "probes": k} for s in (8, 16, 32) for k in (4, 9)),
        needs_grid=True,
    ),
    "zone_probe": Strategy(zone_probe, {"probes": 4}, tuple({"probes": k} for k in (4, 9, 13))),
    "sketch": Strategy(sketch, {"spacing": 5}, tuple({"spacing": s} for s in (4, 5, 6, 8, 12)), flops=sketch_flops),
}


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """κ, m (None: whole cells), k, the strategy, its settings, and the margin or tolerance at which it is sure."""

    atoms_per_latent: int
    budget: int | None
    neighbors: int
    strategy: str = DENSE
    settings: Settings = field(default_factory=dict)
    margin: float = math.inf
    tolerance: float = 0.0

    @property
    def dense(self) -> bool:
        """Whether every position is decoded."""
        return self.strategy == DENSE or math.isinf(self.margin)

    @property
    def cost(self) -> Cost:
        """The counts of the encoding and of the neighbors."""
        return Cost(self.atoms_per_latent, self.budget, self.neighbors)

    def decode(self, predictor: Predictor) -> Prediction:
        """Decode a scene that was encoded at this cost."""
        strategy = STRATEGIES[self.strategy]
        return strategy.decode(predictor, **self.settings, margin=self.margin, tolerance=self.tolerance)

    def predict(
        self,
        model: AtomizerIO,
        atoms: AtomSet,
        where: Grid | Tensor,
        *,
        sites: SitesOfQueries | None = None,
        seed: int = 0,
    ) -> Prediction:
        """Encode a scene and decode it at ``where``; ``seed`` samples the atoms that the budget keeps."""
        return self.decode(ScenePredictor.encode(model, atoms, where, cost=self.cost, seed=seed, sites=sites))

    def flops(self, predictor: ScenePredictor, prediction: Prediction) -> float:
        """Return the FLOPs of a whole prediction, from atoms to outputs; a multiply-add counts as two."""
        total = predictor.encoding_flops + prediction.flops
        if (beside := STRATEGIES[self.strategy].flops) is not None and not self.dense:
            outputs = prediction.outputs.shape[-1]
            total += beside(predictor.atoms, predictor.shape, outputs, prediction.classes, **self.settings)
        return total

    def __str__(self) -> str:
        kept = "whole cells" if self.budget is None else f"m {self.budget}"
        settings = "".join(f", {name} {value}" for name, value in self.settings.items())
        rule = "" if self.dense else f", margin {self.margin:.4g}"
        if self.tolerance:
            rule = f", tolerance {self.tolerance:.4g}"
        strategy = self.strategy.replace("_", "-")
        return f"κ {self.atoms_per_latent}, {kept}, k {self.neighbors}, {strategy}{settings}{rule}"


def own_point(model: AtomizerIO) -> OperatingPoint:
    """Return what every promise refers to: dense, whole cells, the model's own κ and k."""
    return OperatingPoint(model.config.atoms_per_latent, None, model.config.neighbors)


def point_of(row: Mapping[str, Any]) -> OperatingPoint:
    """Return the operating point that :func:`plain` wrote."""
    return OperatingPoint(**{**row, "margin": math.inf if row["margin"] is None else row["margin"]})


def check_point(point: OperatingPoint) -> None:
    """Refuse counts, a strategy or settings of it that no operating point has; a ValueError names them."""
    check_count("atoms_per_latent", point.atoms_per_latent)
    check_count("neighbors", point.neighbors)
    if point.budget is not None:
        check_count("budget", point.budget)
    if point.strategy not in STRATEGIES:
        raise ValueError(f"the strategy is {point.strategy!r}; known are {', '.join(STRATEGIES)}")
    if not isinstance(point.settings, dict) or set(point.settings) != set(STRATEGIES[point.strategy].usual):
        raise ValueError(f"the settings of {point.strategy} are {point.settings!r}")
    for name, value in point.settings.items():
        check_count(name, value)
    for name, number in (("margin", point.margin), ("tolerance", point.tolerance)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
            raise ValueError(f"{name} is {number!r}")


def plain(point: OperatingPoint) -> dict[str, Any]:
    """Return an operating point as plain values for JSON, where an infinite margin is None."""
    row = {name: getattr(point, name) for name in OperatingPoint.__slots__}
    return {**row, "settings": dict(point.settings), "margin": None if math.isinf(point.margin) else point.margin}
