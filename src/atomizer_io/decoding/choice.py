"""How a model is read out, as a user chooses it: the strategy, what may differ, and what it may cost."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.decoding.calibration import Calibration, load
from atomizer_io.decoding.operating_point import DENSE, STRATEGIES
from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Cost, Model

NAMES = tuple(name.replace("_", "-") for name in STRATEGIES)
CALIBRATED = "calibrated"  # the strategy of the operating point that alpha asks for, not looked up yet


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a model is read out.

    ``alpha`` alone sets the whole cost: it is the share of positions that may differ from the model's own dense
    answer, and needs a model that was calibrated for it. A strategy beside it takes the calibration of that strategy.
    Without alpha, the strategy ``dense``, the default, asks at every position; ``quadtree``, ``zone-probe`` and
    ``sketch`` ask at fewer, for models that answer at any position; ``cost`` then says how much may be computed.
    """

    strategy: str = ""
    alpha: float | None = None
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        usual = DENSE if self.alpha is None else CALIBRATED
        object.__setattr__(self, "strategy", self.strategy.replace("_", "-") or usual)
        if self.strategy not in NAMES and not (self.strategy == CALIBRATED and self.alpha is not None):
            raise ConfigError(f"decode {self.strategy!r} is not known; use {', '.join(NAMES)}")
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise ConfigError(f"alpha must lie between 0 and 1, got {self.alpha:g}")
        if self.alpha is not None and self.cost.max_points is not None:
            raise ConfigError("alpha is promised for the model's own number of points: leave out max_points, or alpha")

    def at(self, calibration: Calibration | None) -> Decoding:
        """Return the strategy and the cost of a calibration, where there is one."""
        if calibration is None:
            return self
        return Decoding(calibration.point.strategy, self.alpha, calibration.point.cost)

    def as_options(self) -> dict[str, Any]:
        """Return what was chosen by the names of the command line."""
        return {
            "--decode": self.strategy,
            "--alpha": self.alpha,
            "--kappa": self.cost.atoms_per_latent,
            "--budget": self.cost.budget,
            "--neighbors": self.cost.neighbors,
            "--max-points": self.cost.max_points,
        }


def calibration_for(model: Model, decoding: Decoding, folder: Path | None) -> Calibration | None:
    """Check that a model can be read out like this, and return the calibration of its folder that ``alpha`` asks for.

    ``folder`` is None for a model in memory, which has none.
    """
    asked = "alpha" if decoding.strategy == CALIBRATED else f"decode {decoding.strategy}"
    cheaper = decoding.strategy != DENSE or decoding.alpha is not None
    if cheaper and not model.capabilities.anywhere:
        also = " and alpha" if decoding.alpha is not None and asked != "alpha" else ""
        raise ConfigError(
            f"{model.preset or model.family} answers at all positions at once: {asked}{also} is for "
            "models that encode a scene and then answer anywhere; use dense"
        )
    if cheaper and not model.task_spec.dense:
        raise ConfigError(f"{asked} is for answers at positions; a {model.task_spec.task} has one")
    model.check_cost(decoding.cost)
    if decoding.alpha is None:
        return None
    if folder is None or not folder.is_dir():
        raise ConfigError("alpha needs the calibration in the folder of a model: pass that folder as the model")
    found = load(
        folder,
        decoding.alpha,
        model,  # type: ignore[arg-type]  # all that answers anywhere
        strategy=None if decoding.strategy == CALIBRATED else decoding.strategy.replace("-", "_"),
        cost=decoding.cost,
    )
    if found.warning is not None:
        warnings.warn(found.warning, stacklevel=2)
    return found


def check_no_grid(decoding: Decoding, places: str) -> None:
    """Refuse a quadtree where there is no grid; ``places`` says what there is instead."""
    if decoding.strategy != "quadtree":
        return
    if decoding.alpha is not None:
        raise ConfigError(
            f"alpha {decoding.alpha:g} was calibrated to a quadtree, which needs a grid; {places} have none: calibrate "
            "another strategy (`atomizer calibrate --decode sketch`) and name it with --decode"
        )
    raise ConfigError(f"a quadtree needs a grid, which {places} do not have: use dense, zone-probe or sketch")
