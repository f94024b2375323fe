"""Conformal risk control: the cheapest operating point whose outputs differ no more than promised from the model's own.

The loss of a block at an operating point is the share of its positions whose output differs from the model's own:
dense, from whole cells, with its own κ and k. No labels are needed. First, some scenes choose (``search.py``): κ, m,
k, the strategy and its settings. Then other scenes test that choice by conformal risk control (Angelopoulos et al.,
2022): along steps j from cheap to expensive, laid down by the scenes that chose, of which the last is the model's own
prediction, the loss is made monotone, L̃(j) = max over j' ≥ j of L(j'), and the first step is taken with

    (ΣL̃ᵢ(j) + 1) / (n + 1) ≤ alpha    over the n blocks.

Where the promise is for classes, the loss is the share of a class: of the positions that have it in the model's own
prediction. Each class is tested like that, on the blocks that have it, and the first step is taken that passes for all.

If a new block is exchangeable with these (``blocks.py`` states when), its expected loss is at most alpha, however many
points were tried before, because those that test had no part in the choice. The last step has no loss, so there is
always a result.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.grid import Grid
from atomizer_io.decoding.blocks import Blocks, Sampling, Scene, Scenes, observed, scene_of
from atomizer_io.decoding.calibration import CLASSES, PIXELS, Calibration, Step
from atomizer_io.decoding.search import STRICTNESS, Candidate, Choices, Search, Task, Trial, with_rule
from atomizer_io.decoding.strategies import DENSE, STRATEGIES, OperatingPoint, own_point
from atomizer_io.errors import ConfigError, listed
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.storage import fingerprint
from atomizer_io.progress import progress_bar

LEFT = 5  # blocks times alpha, by default: a fifth of alpha is for how few they are
FEW_SCENES = 10

Floats = NDArray[np.float64]


@torch.no_grad()
def calibrate(
    model: AtomizerIO,
    scenes: Scenes,
    alpha: float = 0.01,
    *,
    choices: Choices = Choices(),
    precision: float | None = None,
    promise: str = PIXELS,
    sampling: Sampling = Sampling(),
    progress: bool = False,
) -> Calibration:
    """Find the cheapest operating point at which at most ``alpha`` of the positions differ from dense decoding.

    ``scenes`` is a list of pairs of atoms and a grid (or positions, but not for a quadtree), or a dataset.
    ``precision`` is the distance from which two values of a regression target differ, in its unit. ``promise`` is for
    all positions together (``pixels``), which may lose a rare class, or for those of every class (``classes``).
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha must lie between 0 and 1, got {alpha}")
    if model.task_spec.task == "regression" and not (precision is not None and precision > 0):
        raise ConfigError(
            "the model predicts a regression target: say with precision= when two values differ, in its unit"
        )
    if promise not in (PIXELS, CLASSES):
        raise ConfigError(f"promise {promise!r} is not known; use {PIXELS} or {CLASSES}")
    if promise == CLASSES and model.task_spec.regression:
        raise ConfigError(
            "the model predicts a regression target, which has no classes: leave the promise for classes out"
        )
    if not len(scenes):
        raise ConfigError("there are no scenes to calibrate on: pass a dataset, or a list of (atoms, grid)")
    blocks = math.ceil(LEFT / alpha) if sampling.blocks is None else sampling.blocks
    choosing, testing = sampling.sample(len(scenes), blocks)
    choices = choices.complete(model.config, _on_grids(scenes, testing))
    task = Task(model, alpha, precision, blocks, sampling.seed, promise)
    bar = progress_bar(2 * len(choosing) + len(testing), title="calibrating", unit=" scenes", show=progress, stay=False)
    search = Search(task, choices)
    if task.most > 0:  # else no point could pass the test
        for scene, count in observed(scenes, choosing):
            search.own(scene, Blocks.sample(scene, count, sampling.seed))
            bar.update()
        search.begin_race()
        for scene, count in observed(scenes, choosing):
            search.race(scene, Blocks.sample(scene, count, sampling.seed))
            bar.update()
    steps = steps_of(search.best, search.fallback, task)
    test = HeldOutTest(task, steps)
    # other blocks than those that chose, where scenes are so few that they do both
    for scene, count in observed(scenes, testing):
        test.add(scene, Blocks.sample(scene, count, sampling.seed + 1))
        bar.update()
    bar.close()
    restricted = next(iter(choices.strategies)) if len(choices.strategies) == 1 else None
    return test.result(restricted)


def _on_grids(scenes: Scenes, numbers: Mapping[int, int]) -> bool:
    """Return whether the first scene that could be read is decoded on a grid."""
    first = next((scene for scene in (scenes[number] for number in numbers) if scene), None)
    return first is None or isinstance(scene_of(first)[1], Grid)


def steps_of(best: Candidate | None, fallback: Candidate | None, task: Task) -> list[OperatingPoint]:
    """Return the points to test, from cheap to expensive: of the best at all margins, of the fallback, the model's own.

    The fallback, at the model's own cost, is there in case that the best does not pass. Of it only margins count that
    differ little: for the test, the loss of a step is the worst of all steps after it.
    """
    own = own_point(task.model)
    steps: list[OperatingPoint] = []
    if best is not None:
        rules = (1.0,) if best.point.strategy == DENSE else STRICTNESS
        steps += [with_rule(best.point, strictness, task.precision) for strictness in rules]
        if fallback is not None and best.point.cost != own.cost:
            careful = fallback.first(task.alpha / 10)
            if careful is not None:
                rules = tuple(strictness for strictness in STRICTNESS if strictness >= fallback.rules[careful])
                steps += [with_rule(fallback.point, strictness, task.precision) for strictness in rules]
    return [*(step for step in steps if step != own), own]


class HeldOutTest:
    """Runs all steps on blocks of scenes that had no part in their choice."""

    def __init__(self, task: Task, steps: Sequence[OperatingPoint]) -> None:
        self.task, self.steps, self.own = task, steps, steps[-1]
        self.losses: list[Floats] = []  # (blocks, steps, 1 or classes) of each scene; NaN where a class is absent
        self.areas: list[Floats] = []  # (steps, classes) of each scene, in blocks
        self.decoded: list[Floats] = []  # (steps,) of each scene
        self.flops: list[Floats] = []

    def add(self, scene: Scene, blocks: Blocks) -> None:
        """Decode a scene at every step; the blocks of a scene share that."""
        encoded = self.task.encoder(scene)
        own = encoded(self.own)
        reference = self.task.reference(own, blocks)
        trials: list[Trial] = []
        for step in self.steps[:-1]:
            predictor = own if step.cost == self.own.cost else encoded(step)
            trials.append(self.task.trial(step, predictor, blocks, reference))
        losses, areas, decoded, flops = zip(*trials, self.task.dense(own, blocks, reference), strict=True)
        self.losses.append(np.stack(losses, axis=1))
        self.areas.append(np.stack(areas))
        self.decoded.append(np.array(decoded))
        self.flops.append(np.array(flops))

    def result(self, restricted: str | None) -> Calibration:
        """Return the first step that keeps the promise, which the last one always does."""
        if not self.losses:
            raise ConfigError("nothing was observed in any of the scenes: pass scenes with valid atoms")
        alpha, n = self.task.alpha, sum(len(part) for part in self.losses)
        worst = [np.maximum.accumulate(part[:, ::-1], axis=1)[:, ::-1] for part in self.losses]
        tests = [_Tested.on([part[:, :, group] for part in worst]) for group in range(worst[0].shape[2])]
        present = [test for test in tests if test is not None]
        risk_J, bound_J = (np.max([getattr(t, name) for t in present], axis=0) for name in ("risk_J", "bound_J"))
        kept = np.flatnonzero(bound_J[:-1] <= alpha)
        number = int(kept[0]) if len(kept) else len(self.steps) - 1
        self._warn(n, tests, bool(len(kept)))
        decoded_J, flops_J = (np.stack(part).mean(axis=0) for part in (self.decoded, self.flops))
        of_scenes = max(present, key=lambda test: float(test.risk_J[number])).of_scenes(number)
        shares_J = flops_J / flops_J[-1]
        columns = zip(self.steps, risk_J, bound_J, decoded_J, shares_J, strict=True)
        curve = [Step(point, *(float(value) for value in values)) for point, *values in columns]
        curve[-1] = replace(curve[-1], bound=0.0)  # the model's own prediction: nothing can differ
        calibration = Calibration(
            model=fingerprint(self.task.model),
            alpha=alpha,
            restricted=restricted,
            point=self.steps[number],
            precision=self.task.precision,
            blocks=n,
            scenes=len(self.losses),
            standard_error=float(of_scenes.std() / max(1, len(of_scenes) - 1) ** 0.5),
            curve=tuple(curve),
            promise=self.task.promise,
            kept=self._kept(number),
        )
        if calibration.warning is not None:
            warnings.warn(calibration.warning, stacklevel=4)
        return calibration

    def _kept(self, number: int) -> dict[str, float]:
        """Return the area of each class at a step, with that of the model's own prediction as 1."""
        if self.task.model.task_spec.regression:
            return {}
        areas_JC = np.sum(self.areas, axis=0)
        pairs = zip(self.task.model.task_spec.names, areas_JC[number], areas_JC[-1], strict=True)
        return {name: float(area / own) for name, area, own in pairs if own > 0}

    def _warn(self, n: int, tests: Sequence[_Tested | None], kept: bool) -> None:
        alpha = self.task.alpha
        least = math.ceil(1 / alpha - 1)
        names = self.task.model.task_spec.names if self.task.promise == CLASSES else ()
        rare = [f"{name} is in {t.blocks}" for name, t in zip(names, tests, strict=False) if t and t.blocks < least]
        if not kept:
            few = f"alpha {alpha:g} takes at least {least} blocks, not {n}"
            why = few if (n + 1) * alpha < 1 else f"no cheaper operating point keeps alpha {alpha:g} on {n} blocks"
            if rare and (n + 1) * alpha >= 1:
                why = f"alpha {alpha:g} takes at least {least} blocks with each class, and of {n} {listed(rare)}"
            more = " (use more blocks, of more scenes, or a larger alpha)" if rare else ""
            warnings.warn(f"{why}: the calibrated decoding is dense{more}", stacklevel=5)
        elif len(self.losses) < FEW_SCENES:
            warnings.warn(
                f"alpha {alpha:g} was tested on blocks of {len(self.losses)} scenes only: it holds for further "
                "positions in these, and others may differ by more; calibrate on more scenes",
                stacklevel=5,
            )


@dataclass(frozen=True, slots=True)
class _Tested:
    """The test of one promise, for all positions or for a class: losses (blocks that have it, steps) of each scene."""

    losses: list[Floats]
    blocks: int
    risk_J: Floats
    bound_J: Floats

    @classmethod
    def on(cls, losses: Sequence[Floats]) -> _Tested | None:
        """Return the mean loss and what it can promise, for each step; None where no block has the class."""
        there = [part[~np.isnan(part[:, -1])] for part in losses]
        there = [part for part in there if len(part)]
        if not there:
            return None
        n, risk_J = sum(map(len, there)), np.concatenate(there).mean(axis=0)
        return cls(there, n, risk_J, (n * risk_J + 1) / (n + 1))

    def of_scenes(self, number: int) -> Floats:
        """Return the mean loss of each scene at a step."""
        return np.array([part[:, number].mean() for part in self.losses])


def strategies(*names: str) -> dict[str, tuple[Mapping[str, int], ...]]:
    """Return these strategies with the settings worth trying, for :class:`Choices`."""
    for name in names:
        if name not in STRATEGIES:
            raise ConfigError(f"strategy {name!r} is not known; use {', '.join(STRATEGIES)}")
    return {name: STRATEGIES[name].settings for name in names}
