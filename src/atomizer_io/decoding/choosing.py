"""Choosing between operating points by their operations, on scenes that then have no part in testing the choice.

First every strategy with every setting is tried at the model's own cost. The settings that come out cheapest for each
strategy, for the two cheapest strategies, are then tried at every other κ, m and k, with rules about as strict. That is
a race: scene by scene, a cost at which even asking everywhere differs too much is dropped, and with it every cost that
saves as much or more in κ, m and k alike; after three scenes also what cannot become the cheapest any more. The decoder
is asked at most once for each position, κ, m and k.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.decoding.calibration import CLASSES, PIXELS
from atomizer_io.decoding.operating_point import (
    DENSE,
    STRATEGIES,
    OperatingPoint,
    Settings,
    own_point,
)
from atomizer_io.decoding.predictor import Prediction, RecordedPredictor, ScenePredictor
from atomizer_io.decoding.squares import Scene, Squares
from atomizer_io.errors import ConfigError
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.partition import Geometry

STRICTNESS = (*(round(0.025 * step, 3) for step in range(38)), 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)
COARSE = STRICTNESS[::3]  # to choose with
TIMES = (1, 2, 4, 8)  # of the model's κ, and parts of a cell that a budget keeps
NEIGHBORS = (4, 1)  # beside the model's own
RACING = 2  # strategies that are tried at other costs
LOOSER, STRICTER = 1, 5  # how many rules, around the one at the model's own cost, are tried there
ENOUGH = 3  # scenes after which what is too expensive is dropped

Floats = NDArray[np.float64]
Reader = Callable[[OperatingPoint], ScenePredictor]


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
        found = self.strategies or {
            name: strategy.settings for name, strategy in STRATEGIES.items() if grids or name != "quadtree"
        }
        return Choices(kappas, self.budgets, neighbors, found)

    def costs(self) -> dict[tuple[int, int, int], OperatingPoint]:
        """Return dense points at all costs, by how far κ, m and k have each been turned down, expensive ones first."""
        found = {}
        for (a, kappa), (c, k) in itertools.product(enumerate(self.atoms_per_latent), enumerate(self.neighbors)):
            budgets = self.budgets or (None, *(max(1, kappa // times) for times in TIMES[1:]))
            for b, budget in enumerate(budgets):
                found[a, b, c] = OperatingPoint(kappa, budget, k)
        return dict(sorted(found.items()))  # one encoding after the other


@dataclass(frozen=True, slots=True)
class Task:
    """The model, what may differ, and how many squares will test it."""

    model: AtomizerIO
    alpha: float
    precision: float | None
    squares: int
    seed: int
    promise: str = PIXELS

    @property
    def most(self) -> float:
        """Return the mean loss on the squares that can just be promised to be at most alpha."""
        return self.alpha - (1 - self.alpha) / self.squares

    def reader(self, scene: Scene) -> Reader:
        """Return what encodes a scene for an operating point; the same encoding and neighbors are kept for the next."""

        @functools.lru_cache(maxsize=1)
        def geometry(kappa: int) -> Geometry:
            return self.model.geometry(scene.atoms, atoms_per_latent=kappa)

        @functools.lru_cache(maxsize=1)
        def encoded(kappa: int, budget: int | None) -> ScenePredictor:
            generator = None if budget is None else torch.Generator().manual_seed(self.seed + scene.number)
            latents = self.model.encode([scene.atoms], geometry=[geometry(kappa)], budget=budget, generator=generator)
            return ScenePredictor(self.model, latents, scene.where, sites=scene.sites, footprint_m=scene.footprint_m)

        @functools.lru_cache(maxsize=1)
        def predictor(kappa: int, budget: int | None, neighbors: int) -> ScenePredictor:
            return encoded(kappa, budget).reading(neighbors)

        return lambda point: predictor(point.atoms_per_latent, point.budget, point.neighbors)

    def truth(self, own: ScenePredictor, squares: Squares) -> Tensor:
        """Return the model's own answers (U, C) in the squares."""
        own.query(squares.numbers_U)
        return own.outputs_MC[squares.numbers_U].clone()

    def replay(
        self, point: OperatingPoint, predictor: ScenePredictor, squares: Squares, truth_UC: Tensor
    ) -> tuple[Floats, Floats, float, float]:
        """Return the losses (Q, P) of a point, areas of classes, its share of positions asked, and its operations."""
        found = point.guide(RecordedPredictor(predictor))
        asked, areas = found.decoded / len(predictor.queried_M), squares.areas(found).numpy()
        return self.losses(found, squares, truth_UC), areas, asked, point.operations(predictor, found)

    def everywhere(self, predictor: ScenePredictor, squares: Squares, truth_UC: Tensor) -> tuple[Floats, Floats]:
        """Return the losses (Q, P) of asking everywhere and the areas, for which only the squares are asked."""
        predictor.query(squares.numbers_U)
        found = predictor.prediction()
        return self.losses(found, squares, truth_UC), squares.areas(found).numpy()

    def losses(self, found: Prediction, squares: Squares, truth_UC: Tensor) -> Floats:
        """Return what the promise is about: the share of each square (Q, 1) that differs, or of each class (Q, C)."""
        if self.promise == CLASSES:
            return np.asarray(squares.class_losses(found, truth_UC).numpy())
        return np.asarray(squares.losses(found, truth_UC, self.precision).numpy()[:, None])

    def dense_operations(self, predictor: ScenePredictor) -> float:
        """Return the operations of asking everywhere."""
        return predictor.encoding_flops + predictor.cost(len(predictor.queried_M))


@dataclass(slots=True, eq=False)
class Candidate:
    """A strategy with its settings at one cost: losses (squares, rules) and operations (rules) of each scene so far.

    The strictest rules ask nearly everywhere, also where they are not among those tried: losses are made monotone with
    those of asking everywhere at this cost.
    """

    point: OperatingPoint
    rules: tuple[float, ...]
    losses: list[Floats] = field(default_factory=list)
    operations: list[Floats] = field(default_factory=list)

    def risk(self, errors: int = 2) -> Floats:
        """Return the mean loss by rule, made monotone as the test will make it, plus ``errors`` standard errors of it.

        Of many candidates the cheapest are often those with luck on these scenes, and would not pass on others.
        """
        of_scenes = [part.mean(axis=0) for part in self.losses]
        error = np.std(of_scenes, axis=0) / max(1, len(of_scenes) - 1) ** 0.5
        return np.asarray(np.mean(of_scenes, axis=0) + errors * error)

    def work(self, most: float, errors: int = 2) -> float:
        """Return the operations at the least strict rule with at most this loss; infinity where there is none."""
        kept = np.flatnonzero(self.risk(errors) <= most)
        return float(np.stack(self.operations).mean(axis=0)[kept[0]]) if len(kept) else math.inf

    def at(self, point: OperatingPoint, most: float) -> Candidate:
        """Return the same at the cost of another point, not tried yet, with rules about as strict as it needs here."""
        kept = np.flatnonzero(self.risk() <= most)
        first = int(kept[0]) if len(kept) else len(self.rules) - 1
        here = replace(point, strategy=self.point.strategy, settings=self.point.settings)
        return Candidate(here, self.rules[max(0, first - LOOSER) : first + STRICTER])

    def first_below(self, most: float) -> float | None:
        """Return the least strict rule with at most this loss."""
        kept = np.flatnonzero(self.risk() <= most)
        return self.rules[kept[0]] if len(kept) else None


class Chooser:
    """Tries operating points scene by scene: all settings at the model's own cost, then the best at other costs."""

    def __init__(self, task: Task, choices: Choices) -> None:
        self.task, self.choices = task, choices
        own = own_point(task.model)
        self.truths: dict[int, Tensor] = {}
        self.costs = choices.costs()
        # unless κ, m and k are given, these are at the model's own cost, which is the first
        self.first = next(iter(self.costs.values()))
        self.tried = [
            candidate(replace(self.first, strategy=name, settings=dict(settings)))
            for name, several in choices.strategies.items()
            for settings in several
        ]
        self.is_own = self.first.cost == own.cost
        self.own_cost = own
        self.racing: dict[tuple[int, int, int], list[Candidate]] = {}
        self.dense: dict[tuple[int, int, int], list[Floats]] = {}

    def own(self, scene: Scene, squares: Squares) -> None:
        """Try all strategies with all settings at the first cost."""
        reader = self.task.reader(scene)
        truth = self.truths[scene.number] = self.task.truth(reader(self.own_cost), squares)
        predictor = reader(self.first)
        self._try(self.tried, predictor, squares, truth, worst(self.task.everywhere(predictor, squares, truth)[0]))

    def other(self, scene: Scene, squares: Squares) -> None:
        """Try the best strategies at the other costs that are still in the race."""
        reader, truth = self.task.reader(scene), self.truths[scene.number]
        for turned, point in self.costs.items():
            if turned not in self.racing:
                continue
            predictor = reader(point)
            everywhere_Q, seen = worst(self.task.everywhere(predictor, squares, truth)[0]), self.dense[turned]
            seen.append(everywhere_Q)
            if np.concatenate(seen).mean() > self.task.most * (1 + 2 / len(seen)):
                self._drop(turned)
            else:
                self._try(self.racing[turned], predictor, squares, truth, everywhere_Q)
        self._drop_expensive(max((len(seen) for seen in self.dense.values()), default=0))

    def begin_race(self) -> None:
        """Take the best settings of the best strategies into the race at other costs."""
        if not self.truths:  # nothing was observed
            return
        best: dict[str, Candidate] = {}
        for each in self.tried:
            name = each.point.strategy
            if name not in best or self._work(each) < self._work(best[name]):
                best[name] = each
        cheapest = sorted(best.values(), key=lambda each: (self._work(each), each.risk()[-1]))[:RACING]
        for turned, point in self.costs.items():
            if point != self.first:
                self.racing[turned] = [each.at(point, self.task.most) for each in cheapest]
                self.dense[turned] = []

    @property
    def best(self) -> Candidate | None:
        """Return the candidate with the fewest operations among those that should pass the test."""
        every = [*self.tried, *itertools.chain.from_iterable(self.racing.values())]
        kept = [each for each in every if each.losses and math.isfinite(self._work(each))]
        return min(kept, key=self._work, default=None)

    @property
    def fallback(self) -> Candidate | None:
        """Return the best candidate at the model's own cost."""
        kept = [each for each in self.tried if each.losses and self.is_own and each.point.strategy != DENSE]
        return min((each for each in kept if math.isfinite(self._work(each))), key=self._work, default=None)

    def _work(self, each: Candidate) -> float:
        return each.work(self.task.most)

    def _try(
        self,
        candidates: Sequence[Candidate],
        predictor: ScenePredictor,
        squares: Squares,
        truth: Tensor,
        everywhere_Q: Floats,
    ) -> None:
        for each in candidates:
            points = [with_rule(each.point, strictness, self.task.precision) for strictness in each.rules]
            found = [self.task.replay(point, predictor, squares, truth) for point in points]
            losses, _, _, operations = zip(*found, strict=True)
            losses_QV = np.maximum(np.stack([worst(each_QP) for each_QP in losses], axis=1), everywhere_Q[:, None])
            each.losses.append(np.maximum.accumulate(losses_QV[:, ::-1], axis=1)[:, ::-1])
            each.operations.append(np.array(operations))

    def _drop_expensive(self, scenes: int) -> None:
        """After scenes enough, leave out costs that would be too expensive even if they had only bad luck so far."""
        best = self.best
        if scenes < ENOUGH or best is None:
            return
        for turned, several in list(self.racing.items()):
            if best not in several and min(each.work(self.task.most, -1) for each in several) >= self._work(best):
                del self.racing[turned]

    def _drop(self, turned: tuple[int, int, int]) -> None:
        """Leave a cost out of the race, and all that are turned down as far or further in everything."""
        for other in list(self.racing):
            if all(there >= here for there, here in zip(other, turned, strict=True)):
                del self.racing[other]


def worst(losses_QP: Floats) -> Floats:
    """Return the largest of several losses of each square (Q,): on the safe side of each, which is enough to choose."""
    return np.asarray(np.nanmax(losses_QP, axis=1))


def candidate(point: OperatingPoint) -> Candidate:
    """Return a candidate that has not been tried."""
    return Candidate(point, (1.0,) if point.strategy == DENSE else COARSE)


def with_rule(point: OperatingPoint, strictness: float, precision: float | None) -> OperatingPoint:
    """Return a point with a rule: for classes the margin is the strictness, for a quantity the tolerance shrinks."""
    if point.strategy == DENSE:
        return point
    if precision is None:
        return replace(point, margin=strictness, tolerance=0.0)
    return replace(point, margin=0.0, tolerance=(1 - strictness) * precision)
