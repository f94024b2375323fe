"""How a model is decoded, as a user chooses it: the strategy, what may differ, and what it may cost."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.decoding.calibration import Calibration, load
from atomizer_io.decoding.predictor import Prediction, Predictor
from atomizer_io.decoding.strategies import DENSE, STRATEGIES
from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Cost, Model

NAMES = tuple(name.replace("_", "-") for name in STRATEGIES)
CALIBRATED = "calibrated"  # the strategy of the operating point that alpha needs, not looked up yet


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a model is decoded.

    ``alpha`` alone sets the whole cost: it is the share of positions that may differ from the model's own dense
    prediction, and needs a model that was calibrated for it. A strategy beside it takes the calibration of that
    strategy. Without alpha, the strategy ``dense``, the default, decodes every position; ``quadtree``, ``zone-probe``
    and ``sketch`` decode fewer, for models that predict at any position; ``cost`` then limits the computation.
    ``calibration`` is what alpha came to: :meth:`checked` looks it up.
    """

    strategy: str = ""
    alpha: float | None = None
    cost: Cost = field(default_factory=Cost)
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        usual = DENSE if self.alpha is None else CALIBRATED
        object.__setattr__(self, "strategy", self.strategy.replace("_", "-") or usual)
        if self.strategy not in NAMES and not (self.strategy == CALIBRATED and self.alpha is not None):
            raise ConfigError(f"decode {self.strategy!r} is not known; use {', '.join(NAMES)}")
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise ConfigError(f"alpha must lie between 0 and 1, got {self.alpha:g}")
        if self.alpha is not None and self.cost.max_points is not None:
            raise ConfigError("alpha is promised for the model's own number of points: leave out max_points, or alpha")

    @property
    def dense(self) -> bool:
        """Whether every position is decoded."""
        return self.strategy == DENSE

    def decode(self, predictor: Predictor) -> Prediction:
        """Decode where the strategy must: with the settings that were calibrated, or else its usual ones."""
        if self.calibration is not None:
            return self.calibration.point.decode(predictor)
        return STRATEGIES[self.strategy.replace("-", "_")].decode(predictor)

    def options(self) -> dict[str, Any]:
        """Return what was chosen by the names of the command line."""
        return {
            "--decode": self.strategy,
            "--alpha": self.alpha,
            "--kappa": self.cost.atoms_per_latent,
            "--budget": self.cost.budget,
            "--neighbors": self.cost.neighbors,
            "--max-points": self.cost.max_points,
        }

    def checked(self, model: Model, folder: Path | None) -> Decoding:
        """Refuse a model that cannot be decoded like this; look up the calibration in its folder that alpha needs.

        ``folder`` is None for a model in memory, which has none.
        """
        called = "alpha" if self.strategy == CALIBRATED else f"decode {self.strategy}"
        cheaper = self.strategy != DENSE or self.alpha is not None
        if cheaper and not model.capabilities.anywhere:
            also = " and alpha" if self.alpha is not None and called != "alpha" else ""
            raise ConfigError(
                f"{model.preset or model.family} predicts at all positions at once: {called}{also} is for "
                "models that encode a scene and then predict anywhere; use dense"
            )
        if cheaper and not model.task_spec.dense:
            raise ConfigError(f"{called} is for predictions at positions; a {model.task_spec.task} has one")
        model.check_cost(self.cost)
        if self.alpha is None:
            return self
        if folder is None or not folder.is_dir():
            raise ConfigError("alpha needs the calibration in the folder of a model: pass that folder as the model")
        stored = load(
            folder,
            self.alpha,
            model,  # type: ignore[arg-type]  # all that predicts anywhere
            strategy=None if self.strategy == CALIBRATED else self.strategy.replace("-", "_"),
            cost=self.cost,
        )
        if stored.warning is not None:
            warnings.warn(stored.warning, stacklevel=2)
        return Decoding(stored.point.strategy, self.alpha, stored.point.cost, stored)

    def check_no_grid(self, positions: str) -> None:
        """Refuse a quadtree where there is no grid; ``positions`` is what there is instead."""
        if self.strategy == CALIBRATED or not STRATEGIES[self.strategy.replace("-", "_")].needs_grid:
            return
        if self.alpha is not None:
            raise ConfigError(
                f"alpha {self.alpha:g} was calibrated to a {self.strategy}, which needs a grid; {positions} have none: "
                "calibrate another strategy (`atomizer calibrate --decode sketch`) and name it with --decode"
            )
        raise ConfigError(
            f"a {self.strategy} needs a grid, which {positions} do not have: use dense, zone-probe or sketch"
        )
