"""All that the cost of a prediction depends on: how a scene is encoded, and how it is then read out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.decoding.predictor import Prediction, Predictor, ScenePredictor
from atomizer_io.decoding.sketching import sketch_flops, sketch_rest
from atomizer_io.decoding.strategies import probe_squares, probe_zones
from atomizer_io.errors import check_count
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.geometry.neighbors import SitesOfQueries
from atomizer_io.models.base import Cost

Settings = Mapping[str, int]
DENSE = "dense"


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to decode: how a predictor is guided through it, its usual settings, and those worth trying."""

    guide: Callable[..., Prediction]
    usual: Settings
    settings: tuple[Settings, ...]


def query_all(predictor: Predictor, *, margin: float = math.inf, tolerance: float = 0.0) -> Prediction:
    """Guide a predictor to every position; the rule makes no difference."""
    return predictor.query_all()


STRATEGIES = {
    DENSE: Strategy(query_all, {}, ({},)),
    "quadtree": Strategy(
        probe_squares,
        {"start": 32, "probes": 4},
        tuple({"start": s, "probes": k} for s in (8, 16, 32) for k in (4, 9)),
    ),
    "zone_probe": Strategy(probe_zones, {"probes": 4}, tuple({"probes": k} for k in (4, 9, 13))),
    "sketch": Strategy(sketch_rest, {"spacing": 5}, tuple({"spacing": s} for s in (4, 5, 6, 8, 12))),
}


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Atoms per latent κ, budget m (None: whole cells), neighbors k, the strategy, its settings and when it is sure."""

    atoms_per_latent: int
    budget: int | None
    neighbors: int
    strategy: str = DENSE
    settings: Settings = field(default_factory=dict)
    margin: float = math.inf
    tolerance: float = 0.0

    @property
    def dense(self) -> bool:
        """Return whether every position is asked."""
        return self.strategy == DENSE or math.isinf(self.margin)

    @property
    def cost(self) -> Cost:
        """Return the counts of the encoding and of the neighbors."""
        return Cost(self.atoms_per_latent, self.budget, self.neighbors)

    def guide(self, predictor: Predictor) -> Prediction:
        """Guide a predictor, whose scene was encoded at this cost, and return its answers."""
        return STRATEGIES[self.strategy].guide(predictor, **self.settings, margin=self.margin, tolerance=self.tolerance)

    def predict(
        self,
        model: AtomizerIO,
        atoms: AtomSet,
        where: Grid | Tensor,
        *,
        sites: SitesOfQueries | None = None,
        seed: int = 0,
    ) -> Prediction:
        """Encode a scene and read it out at ``where``; ``seed`` draws the atoms that the budget keeps."""
        generator = None if self.budget is None else torch.Generator().manual_seed(seed)
        with torch.no_grad():
            latents = model.encode(
                [atoms], atoms_per_latent=self.atoms_per_latent, budget=self.budget, generator=generator
            )
        return self.guide(ScenePredictor(model, latents, where, sites=sites, neighbors=self.neighbors))

    def operations(self, predictor: ScenePredictor, found: Prediction) -> float:
        """Return the operations of a whole prediction, from atoms to ``found``; a multiply-add counts as two."""
        sketching = 0.0
        if self.strategy == "sketch" and not self.dense:
            outputs = found.outputs.shape[-1]
            sketching = sketch_flops(predictor.atoms, predictor.shape, self.settings["spacing"], outputs, found.classes)
        return predictor.encoding_flops + predictor.cost(found.decoded) + sketching

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
    """Refuse counts, a strategy or settings of it that no operating point has; a ValueError says which."""
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
