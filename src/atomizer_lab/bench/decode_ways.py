"""The ways to decode that ``bench/decode.py`` compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from atomizer_io.data.grid import Grid
from atomizer_io.decoding.calibration import Calibration
from atomizer_io.decoding.predictor import Prediction, ScenePredictor
from atomizer_io.decoding.strategies import STRATEGIES
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.latents import Latents

# what κ, m and k are varied with; the base has these among its starts and spacings
USUAL: dict[str, dict[str, int]] = {name: dict(way.usual) for name, way in STRATEGIES.items()}


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is varied, one at a time while the rest stays as the model has it, and when probes count as sure.

    Without ``atoms_per_latent``, half, twice and four times the model's κ.
    """

    atoms_per_latent: tuple[int, ...] = ()
    budgets: tuple[int, ...] = (256, 128, 64, 32)
    neighbors: tuple[int, ...] = (1, 4, 9, 16)
    starts: tuple[int, ...] = (4, 8, 16, 32, 64)
    spacings: tuple[int, ...] = (4, 5, 6, 8)
    margins: tuple[float, ...] = ()  # of the sketch, at each κ
    margin: float = 0.0
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Way:
    """One way to decode. ``alpha`` is the bound of a calibrated one; values further apart than ``precision`` differ.

    ``budget`` None: whole cells. A calibrated one is compared with the model's own dense prediction, as its alpha is.
    """

    strategy: str
    settings: tuple[tuple[str, int], ...]
    atoms_per_latent: int
    budget: int | None
    neighbors: int
    margin: float = 0.0
    tolerance: float = 0.0
    precision: float = 0.0
    alpha: float | None = None

    @property
    def encoding(self) -> tuple[int, int | None]:
        """The atoms per latent and the budget, which the latents depend on."""
        return (self.atoms_per_latent, self.budget)

    def decode(self, model: AtomizerIO, latents: Latents, where: Grid | Tensor, **how: Any) -> Prediction:
        """Decode a scene in this way; ``how`` takes the keywords of ``aio.decoding.dense``."""
        predictor = ScenePredictor(model, latents, where, neighbors=self.neighbors, **how)
        rule: dict[str, Any] = {"margin": self.margin, "tolerance": self.tolerance}
        return STRATEGIES[self.strategy].decode(predictor, **rule, **dict(self.settings))


def ways(
    config: AtomizerConfig, sweep: Sweep, calibrations: Sequence[Calibration] = (), grid: bool = True
) -> list[Way]:
    """All rows to measure, those of one encoding together and dense decoding first; a quadtree only on a ``grid``."""
    rule: dict[str, Any] = {"margin": sweep.margin, "tolerance": sweep.tolerance, "precision": sweep.tolerance}
    base = Way("dense", (), config.atoms_per_latent, None, config.neighbors, precision=sweep.tolerance)
    usual = [base]
    usual += [replace(base, strategy=s, settings=tuple(USUAL[s].items()), **rule) for s in USUAL if s != "dense"]
    rows = list(usual)
    for strategy, name, values in (("quadtree", "start", sweep.starts), ("sketch", "spacing", sweep.spacings)):
        for value in values:
            settings = tuple((USUAL[strategy] | {name: value}).items())
            rows.append(replace(base, strategy=strategy, settings=settings, **rule))
    kappas = sweep.atoms_per_latent or tuple(max(1, int(config.atoms_per_latent * times)) for times in (0.5, 2, 4))
    rows += [replace(way, neighbors=k) for k in sweep.neighbors for way in usual]
    rows += [replace(way, atoms_per_latent=kappa) for kappa in kappas for way in usual]
    rows += [replace(way, budget=m) for m in sweep.budgets for way in usual]
    sketches = [way for way in usual if way.strategy == "sketch"]
    rows += [replace(w, atoms_per_latent=kappa, margin=m) for kappa in kappas for m in sweep.margins for w in sketches]
    for c in calibrations:
        p = c.point
        here = replace(base, atoms_per_latent=p.atoms_per_latent, budget=p.budget, neighbors=p.neighbors)
        point: dict[str, Any] = {
            "margin": p.margin,
            "tolerance": p.tolerance,
            "precision": c.precision or 0.0,
            "alpha": c.alpha,
        }
        rows += [here, replace(here, strategy=p.strategy, settings=tuple(p.settings.items()), **point)]
    order = {encoding: number for number, encoding in enumerate(dict.fromkeys(way.encoding for way in rows))}
    kept = [way for way in dict.fromkeys(rows) if grid or way.strategy != "quadtree"]
    return sorted(kept, key=lambda way: (order[way.encoding], way.strategy != "dense"))


def operating_points(stored: Sequence[Calibration], alpha: float) -> list[Calibration]:
    """Of each restriction and precision, the calibration of the largest alpha that is not above ``alpha``."""
    best = {}
    for c in sorted(stored, key=lambda c: c.alpha):
        if c.alpha <= alpha:
            best[c.restricted, c.precision] = c
    return list(best.values())
