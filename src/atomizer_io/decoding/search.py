"""The search for the operating point with the fewest FLOPs, on scenes that then have no part in testing the choice.

First every strategy with every setting is tried at the model's own cost. The settings that come out cheapest for each
strategy, for the two cheapest strategies, are then tried at every other κ, m and k, with rules about as strict. That is
a race: scene by scene, a cost at which even dense decoding differs too much is dropped, and with it every cost that
saves as much or more in κ, m and k alike; after three scenes also what cannot become the cheapest any more. The decoder
decodes each position at most once for each κ, m and k.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.decoding.blocks import Blocks, Scene
from atomizer_io.decoding.calibration import CLASSES, PIXELS
from atomizer_io.decoding.predictor import Prediction, RecordedPredictor, ScenePredictor
from atomizer_io.decoding.strategies import DENSE, STRATEGIES, OperatingPoint, Settings, own_point
from atomizer_io.errors import ConfigError
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.base import Cost

STRICTNESS = (*(round(0.025 * step, 3) for step in range(38)), 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)
COARSE = STRICTNESS[::3]  # to choose with
TIMES = (1, 2, 4, 8)  # of the model's κ, and parts of a cell that a budget keeps
NEIGHBORS = (4, 1)  # beside the model's own
RACING = 2  # strategies that are tried at other costs
LOOSER, STRICTER = 1, 5  # how many rules, around the one at the model's own cost, are tried there
ENOUGH = 3  # scenes after which what is too expensive is dropped

Floats = NDArray[np.float64]
Encoder = Callable[[OperatingPoint], ScenePredictor]


@dataclass(frozen=True, slots=True)
class Choices:
    """What may be chosen: κ, m (None: whole cells), k, and strategies with their settings.

    Without ``atoms_per_latent``: once, twice, four and eight times the model's. Without ``budgets``: whole cells, and a
    half, a quarter and an eighth of κ. Without ``neighbors``: the model's, 4 and 1. Without ``strategies``: all that
    the scenes allow. Numbers go from expensive to cheap.
    """

    atoms_per_latent: tuple[int, ...] = ()
    budgets: tuple[int | None, ...] = ()
    neighbors: tuple[int, ...] = ()
    strategies: Mapping[str, Sequence[Settings]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.strategies:
            if name not in STRATEGIES:
                raise ConfigError(f"strategy {name!r} is not known; use {', '.join(STRATEGIES)}")

    def complete(self, config: AtomizerConfig, grids: bool) -> Choices:
        """Return the same with what was left out; a quadtree only where there are ``grids``."""
        kappas = self.atoms_per_latent or tuple(config.atoms_per_latent * times for times in TIMES)
        neighbors = self.neighbors or (config.neighbors, *(k for k in NEIGHBORS if k < config.neighbors))
        allowed = {name: way.settings for name, way in STRATEGIES.items() if grids or not way.needs_grid}
        return Choices(kappas, self.budgets, neighbors, self.strategies or allowed)

    def costs(self) -> dict[tuple[int, int, int], OperatingPoint]:
        """Return dense points at all costs, by how far κ, m and k have each been reduced, expensive ones first."""
        points = {}
        for (a, kappa), (c, k) in itertools.product(enumerate(self.atoms_per_latent), enumerate(self.neighbors)):
            budgets = self.budgets or (None, *(max(1, kappa // times) for times in TIMES[1:]))
            for b, budget in enumerate(budgets):
                points[a, b, c] = OperatingPoint(kappa, budget, k)
        return dict(sorted(points.items()))  # one encoding after the other


@dataclass(frozen=True, slots=True)
class Task:
    """The model, what may differ, and how many blocks will test it."""

    model: AtomizerIO
    alpha: float
    precision: float | None
    blocks: int
    seed: int
    promise: str = PIXELS

    @property
    def most(self) -> float:
        """The mean loss on the blocks that can just be promised to be at most alpha."""
        return self.alpha - (1 - self.alpha) / self.blocks

    def encoder(self, scene: Scene) -> Encoder:
        """Return what encodes a scene for an operating point; the same encoding and neighbors are kept for the next."""
        how: dict[str, Any] = {"sites": scene.sites, "footprint_m": scene.footprint_m}

        @functools.lru_cache(maxsize=1)
        def geometry(kappa: int) -> Geometry:
            return self.model.geometry(scene.atoms, atoms_per_latent=kappa)

        @functools.lru_cache(maxsize=1)
        def encoded(kappa: int, budget: int | None) -> ScenePredictor:
            how.update(cost=Cost(kappa, budget), seed=self.seed + scene.number, geometry=geometry(kappa))
            return ScenePredictor.encode(self.model, scene.atoms, scene.where, **how)

        @functools.lru_cache(maxsize=1)
        def predictor(kappa: int, budget: int | None, neighbors: int) -> ScenePredictor:
            return encoded(kappa, budget).with_neighbors(neighbors)

        return lambda point: predictor(point.atoms_per_latent, point.budget, point.neighbors)

    def reference(self, own: ScenePredictor, blocks: Blocks) -> Tensor:
        """Return the model's own outputs (U, C) in the blocks."""
        own.query(blocks.indices_U)
        return own.outputs_MC[blocks.indices_U].clone()

    def trial(self, point: OperatingPoint, predictor: ScenePredictor, blocks: Blocks, reference_UC: Tensor) -> Trial:
        """Decode a scene at an operating point; the predictor keeps what was decoded for the next one."""
        prediction = point.decode(RecordedPredictor(predictor))
        decoded = prediction.decoded / len(predictor.queried_M)
        areas_C, flops = blocks.areas(prediction).numpy(), point.flops(predictor, prediction)
        return Trial(self.losses(prediction, blocks, reference_UC), areas_C, decoded, flops)

    def dense(self, predictor: ScenePredictor, blocks: Blocks, reference_UC: Tensor) -> Trial:
        """Return what dense decoding would come to, for which only the blocks are decoded."""
        predictor.query(blocks.indices_U)
        prediction = predictor.prediction()
        flops = predictor.encoding_flops + predictor.flops(len(predictor.queried_M))
        areas_C = blocks.areas(prediction).numpy()
        return Trial(self.losses(prediction, blocks, reference_UC), areas_C, 1.0, flops)

    def losses(self, prediction: Prediction, blocks: Blocks, reference_UC: Tensor) -> Floats:
        """Return what the promise is about: the share of each block (Q, 1) that differs, or of each class (Q, C)."""
        if self.promise == CLASSES:
            return np.asarray(blocks.class_losses(prediction, reference_UC).numpy())
        return np.asarray(blocks.losses(prediction, reference_UC, self.precision).numpy()[:, None])


class Trial(NamedTuple):
    """A scene decoded at one operating point: losses (Q, P), areas of classes, share of positions decoded, FLOPs."""

    losses_QP: Floats
    areas_C: Floats
    decoded: float
    flops: float


@dataclass(slots=True, eq=False)
class Candidate:
    """A strategy with its settings at one cost: losses (blocks, rules) and FLOPs (rules) of each scene so far.

    The strictest rules decode nearly everywhere, also where they are not among those tried: losses are made monotone
    with those of dense decoding at this cost.
    """

    point: OperatingPoint
    rules: tuple[float, ...]
    losses: list[Floats] = field(default_factory=list)
    flops: list[Floats] = field(default_factory=list)

    def risk(self, errors: int = 2) -> Floats:
        """Return the mean loss by rule, made monotone as the test will make it, plus ``errors`` standard errors of it.

        Of many candidates the cheapest are often those with luck on these scenes, and would not pass on others.
        """
        of_scenes = [part.mean(axis=0) for part in self.losses]
        error = np.std(of_scenes, axis=0) / max(1, len(of_scenes) - 1) ** 0.5
        return np.asarray(np.mean(of_scenes, axis=0) + errors * error)

    def first(self, most: float, errors: int = 2) -> int | None:
        """Return the number of the least strict rule with at most this loss; None where there is none."""
        kept = np.flatnonzero(self.risk(errors) <= most)
        return int(kept[0]) if len(kept) else None

    def cheapest(self, most: float, errors: int = 2) -> float:
        """Return the FLOPs at the least strict rule with at most this loss; infinity where there is none."""
        first = self.first(most, errors)
        return math.inf if first is None else float(np.stack(self.flops).mean(axis=0)[first])

    def at(self, point: OperatingPoint, most: float) -> Candidate:
        """Return the same at the cost of another point, not tried yet, with rules about as strict as it needs here."""
        kept = self.first(most)
        first = len(self.rules) - 1 if kept is None else kept
        here = replace(point, strategy=self.point.strategy, settings=self.point.settings)
        return Candidate(here, self.rules[max(0, first - LOOSER) : first + STRICTER])


class Search:
    """Tries operating points scene by scene: all settings at the model's own cost, then the best at other costs."""

    def __init__(self, task: Task, choices: Choices) -> None:
        self.task, self.choices = task, choices
        own = own_point(task.model)
        self.references: dict[int, Tensor] = {}
        self.costs = choices.costs()
        # unless κ, m and k are given, these are at the model's own cost, which is the first
        self.first = next(iter(self.costs.values()))
        self.tried = [
            Candidate(replace(self.first, strategy=name, settings=dict(settings)), (1.0,) if name == DENSE else COARSE)
            for name, worth_trying in choices.strategies.items()
            for settings in worth_trying
        ]
        self.is_own = self.first.cost == own.cost
        self.own_cost = own
        self.racing: dict[tuple[int, int, int], list[Candidate]] = {}
        self.dense: dict[tuple[int, int, int], list[Floats]] = {}

    def own(self, scene: Scene, blocks: Blocks) -> None:
        """Try all strategies with all settings at the first cost."""
        encoded = self.task.encoder(scene)
        reference = self.references[scene.number] = self.task.reference(encoded(self.own_cost), blocks)
        predictor = encoded(self.first)
        self._try(
            self.tried, predictor, blocks, reference, worst(self.task.dense(predictor, blocks, reference).losses_QP)
        )

    def race(self, scene: Scene, blocks: Blocks) -> None:
        """Try the best strategies at the other costs that are still in the race."""
        encoded, reference = self.task.encoder(scene), self.references[scene.number]
        for step, point in self.costs.items():
            if step not in self.racing:
                continue
            predictor = encoded(point)
            dense_Q, seen = worst(self.task.dense(predictor, blocks, reference).losses_QP), self.dense[step]
            seen.append(dense_Q)
            if np.concatenate(seen).mean() > self.task.most * (1 + 2 / len(seen)):
                self._drop(step)
            else:
                self._try(self.racing[step], predictor, blocks, reference, dense_Q)
        self._drop_expensive(max((len(seen) for seen in self.dense.values()), default=0))

    def begin_race(self) -> None:
        """Take the best settings of the best strategies into the race at other costs."""
        if not self.references:  # nothing was observed
            return
        best: dict[str, Candidate] = {}
        for tried in self.tried:
            name = tried.point.strategy
            if name not in best or self._flops(tried) < self._flops(best[name]):
                best[name] = tried
        cheapest = sorted(best.values(), key=lambda tried: (self._flops(tried), tried.risk()[-1]))[:RACING]
        for step, point in self.costs.items():
            if point != self.first:
                self.racing[step] = [tried.at(point, self.task.most) for tried in cheapest]
                self.dense[step] = []

    @property
    def best(self) -> Candidate | None:
        """The candidate with the fewest FLOPs among those that should pass the test."""
        return self._cheapest([*self.tried, *itertools.chain.from_iterable(self.racing.values())])

    @property
    def fallback(self) -> Candidate | None:
        """The best candidate at the model's own cost."""
        return self._cheapest([tried for tried in self.tried if self.is_own and tried.point.strategy != DENSE])

    def _flops(self, tried: Candidate) -> float:
        return tried.cheapest(self.task.most)

    def _cheapest(self, candidates: Iterable[Candidate]) -> Candidate | None:
        kept = [tried for tried in candidates if tried.losses and math.isfinite(self._flops(tried))]
        return min(kept, key=self._flops, default=None)

    def _try(
        self,
        candidates: Sequence[Candidate],
        predictor: ScenePredictor,
        blocks: Blocks,
        reference: Tensor,
        dense_Q: Floats,
    ) -> None:
        for candidate in candidates:
            points = [with_rule(candidate.point, strictness, self.task.precision) for strictness in candidate.rules]
            trials = [self.task.trial(point, predictor, blocks, reference) for point in points]
            losses_QV = np.maximum(np.stack([worst(trial.losses_QP) for trial in trials], axis=1), dense_Q[:, None])
            candidate.losses.append(np.maximum.accumulate(losses_QV[:, ::-1], axis=1)[:, ::-1])
            candidate.flops.append(np.array([trial.flops for trial in trials]))

    def _drop_expensive(self, scenes: int) -> None:
        """After scenes enough, leave out costs that would be too expensive even if they had only bad luck so far."""
        best = self.best
        if scenes < ENOUGH or best is None:
            return
        for step, candidates in list(self.racing.items()):
            if best not in candidates and min(
                tried.cheapest(self.task.most, -1) for tried in candidates
            ) >= self._flops(best):
                del self.racing[step]

    def _drop(self, step: tuple[int, int, int]) -> None:
        """Leave a cost out of the race, and all that are reduced as far or further in everything."""
        for racing in list(self.racing):
            if all(there >= here for there, here in zip(racing, step, strict=True)):
                del self.racing[racing]


def worst(losses_QP: Floats) -> Floats:
    """Return the largest of several losses of each block (Q,): on the safe side of each, which is enough to choose."""
    return np.asarray(np.nanmax(losses_QP, axis=1))


def with_rule(point: OperatingPoint, strictness: float, precision: float | None) -> OperatingPoint:
    """Return a point with a rule: the strictness is the margin of classes, or shrinks the tolerance of regression."""
    if point.strategy == DENSE:
        return point
    if precision is None:
        return replace(point, margin=strictness, tolerance=0.0)
    return replace(point, margin=0.0, tolerance=(1 - strictness) * precision)
