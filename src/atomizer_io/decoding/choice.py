"""How a model is read out, as a user chooses it: the strategy, what may differ, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.decoding.calibration import STRATEGIES, Calibration, load
from atomizer_io.errors import ConfigError
from atomizer_io.models.contract import Cost, Model

DENSE = "dense"
NAMES = (DENSE, *(name.replace("_", "-") for name in STRATEGIES))


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a model is read out.

    The strategy ``dense`` asks at every position; ``quadtree``, ``zone-probe`` and ``sketch`` ask at fewer, for models
    that answer at any position. ``alpha`` is the share of positions that may differ from dense decoding: it needs a
    model that was calibrated for it. ``cost`` says how much may be computed.
    """

    strategy: str = DENSE
    alpha: float | None = None
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", self.strategy.replace("_", "-"))
        if self.strategy not in NAMES:
            raise ConfigError(f"decode {self.strategy!r} is not known; use {', '.join(NAMES)}")
        if self.alpha is not None and self.strategy == DENSE:
            raise ConfigError(f"alpha is for cheaper decoding than dense: choose {', '.join(NAMES[1:])} as well")
        if self.alpha is not None and self.cost.budget is not None:
            raise ConfigError("alpha is promised for whole cells: leave out the budget, or alpha")
        if self.alpha is not None and self.cost.max_points is not None:
            raise ConfigError("alpha is promised for the model's own number of points: leave out max_points, or alpha")

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
    if decoding.strategy != DENSE and not model.abilities.anywhere:
        also = " and alpha" if decoding.alpha is not None else ""
        raise ConfigError(
            f"{model.preset or model.family} answers at all positions at once: decode {decoding.strategy}{also} is for "
            "models that encode a scene and then answer anywhere; use dense"
        )
    if decoding.strategy != DENSE and not model.problem.dense:
        raise ConfigError(f"decode {decoding.strategy} is for answers at positions; a {model.problem.task} has one")
    model.check_cost(decoding.cost)
    if decoding.alpha is None:
        return None
    if folder is None or not folder.is_dir():
        raise ConfigError("alpha needs the calibration in the folder of a model: pass that folder as the model")
    return load(
        folder,
        decoding.alpha,
        model,  # type: ignore[arg-type]  # all that answers anywhere
        strategy=decoding.strategy.replace("-", "_"),
        atoms_per_latent=decoding.cost.atoms_per_latent,
        neighbors=decoding.cost.neighbors,
    )
