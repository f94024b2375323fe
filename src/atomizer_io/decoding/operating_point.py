"""All that the cost of a prediction depends on: how a scene is encoded, and how it is then decoded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.decoding.predictor import Prediction, Predictor, ScenePredictor
from atomizer_io.decoding.strategies import DENSE, STRATEGIES, Settings
from atomizer_io.errors import check_count
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.geometry.neighbors import SitesOfQueries
from atomizer_io.models.base import Cost


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
