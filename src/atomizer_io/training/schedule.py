"""How long a run trains and at which learning rate: the paper's cosine, or early stopping with a cool-down.

A run is open where its settings name neither epochs nor steps. It trains until its validation score stops rising or its
time is nearly over. Its learning rate warms up, stays, and falls linearly to zero over a share of the steps made so far
once the end is in sight. The best model of both phases is kept.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from atomizer_io.models.base import Model
from atomizer_io.training.batches import Batch
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.data import Collate, EvaluationSamples, TrainingSamples
from atomizer_io.training.draws import Draws

PATIENCE, TIME = "patience", "time"  # what ended a run
VALIDATION_SHARE = 0.1  # of the time that validations may take
LEAST_STEPS = 100  # between two validations: saving and drawing take time as well
FORWARD_AND_BACKWARD = 3.0  # FLOPs of a training step, in those of its forward pass
FEW = 2  # batches and samples of which FLOPs are counted


def cosine(step: int, steps: int, warmup: float = 0.05) -> float:
    """Return the paper's factor of the learning rate at ``step`` (from 0) of ``steps``: linear warm-up, then cosine."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rise) / max(1, steps - rise))))


class OpenSchedule:
    """Early stopping: decides after each step and validation how a run goes on; ``higher`` scores are better, or lower.

    ``every`` is the number of steps between validations. ``begun`` is the step at which the cool-down of ``length``
    steps began, because of ``reason``. ``max_seconds`` counts all sessions of a run that was stopped and resumed, from
    ``began_s`` on, or from now on. It is kept as well as the speed of the steps can be estimated; ``closing_s`` returns
    what must be left of it when they are made.
    """

    def __init__(
        self,
        training: TrainingSettings,
        every: int,
        higher: bool,
        max_seconds: float | None = None,
        *,
        began_s: float | None = None,
        closing_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.patience, self.tolerance, self.cooldown = training.patience, training.tolerance, training.cooldown
        self.warmup_steps, self.every = max(1, training.warmup_steps), max(1, every)
        self.higher, self.max_seconds = higher, max_seconds
        self.best: float | None = None
        self.waited = 0  # validations since the last that raised the score by more than the tolerance
        self.begun: int | None = None
        self.length, self.reason, self.ended = 0, "", False
        self.limit: float | None = None  # the time that the run had when it began to cool down
        self.began_s, self.closing_s = time.monotonic() if began_s is None else began_s, closing_s
        self.before_s, self.session_s = 0.0, self.began_s
        self.first_step, self.validating_s, self.validation_s = 0, 0.0, 0.0

    def rate(self, step: int) -> float:
        """Return the factor of the learning rate at ``step`` (from 0)."""
        rise = min(1.0, (step + 1) / self.warmup_steps)
        if self.begun is None or step < self.begun:
            return rise
        return rise * max(0.0, 1 - (step - self.begun) / self.length)

    @property
    def seconds(self) -> float:
        """The time that all sessions of the run took so far."""
        return self.before_s + time.monotonic() - self.session_s

    @property
    def seconds_left(self) -> float | None:
        """The time after which the run will have ended; None where there is no limit."""
        return None if self.max_seconds is None else max(0.0, self.max_seconds - self.seconds)

    def start(self, step: int) -> None:
        """Begin to measure how long steps take, at the step where the session begins."""
        self.first_step, self.validating_s = step, 0.0
        self.before_s, self.session_s = self.seconds, time.monotonic()

    def nearly_over(self, step: int) -> bool:
        """Whether the time that is left after ``step`` steps is what a cool-down with its validations takes."""
        left = self.seconds_left
        if left is None or self.begun is not None:  # a cool-down is completed, so that a resumed one ends the same
            return False
        trained_s = time.monotonic() - self.session_s - self.validating_s
        step_s = trained_s / max(1, step - self.first_step)
        steps = self._cooldown_steps(step)
        # before the first validation: as long as it takes at most, if the steps between two were left to the run
        validation_s = self.validation_s or step_s * self.every * VALIDATION_SHARE
        return left - self.closing_s() <= steps * step_s + (1 + steps // self.every) * validation_s

    def stepped(self, step: int, nearly_over: bool) -> None:
        """Record that ``step`` steps were made; the run may cool down from here on, or end here."""
        if self.begun is None and nearly_over:
            self._cool(step, TIME)
        elif self.begun is not None and step >= self.begun + self.length:
            self.ended = True

    def validated(self, step: int, score: float, seconds: float) -> None:
        """Record the score of a validation, and cool down if the last ones in a row did not raise it."""
        self.validation_s = seconds
        self.validating_s += seconds
        gain = math.inf if self.best is None else (score - self.best if self.higher else self.best - score)
        if not math.isnan(score) and (self.best is None or gain > self.tolerance * abs(self.best)):
            self.best, self.waited = score, 0
        else:
            self.waited += 1
        if self.begun is None and self.waited >= self.patience:
            self._cool(step, PATIENCE)

    def _cooldown_steps(self, step: int) -> int:
        """Return the length of a cool-down that begins after ``step`` steps."""
        return max(1, round(self.cooldown * step))

    def _cool(self, step: int, reason: str) -> None:
        """Begin the cool-down with the next step."""
        self.begun, self.length, self.reason, self.limit = step, self._cooldown_steps(step), reason, self.max_seconds

    def resume(self) -> bool:
        """Whether there is more to do; a run that ended for lack of time goes on if it now has more, at full rate."""
        more = self.max_seconds is None or (self.limit is not None and self.max_seconds > self.limit)
        if self.ended and self.reason == TIME and more:
            self.begun, self.length, self.reason, self.ended, self.waited = None, 0, "", False, 0
        return not self.ended

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs to go on with this schedule."""
        names = ("best", "waited", "begun", "length", "reason", "ended", "limit", "validation_s")
        return {**{name: getattr(self, name) for name in names}, "seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the schedule of a stored state."""
        for name, value in state.items():
            if name != "seconds":
                setattr(self, name, value)
        self.before_s, self.session_s = float(state["seconds"]), self.began_s


def validation_interval(
    model: Model, training: TrainingSamples, draws: Draws, collate: Collate, validation: EvaluationSamples
) -> int:
    """Return the steps between validations of early stopping, which then take about a tenth of the time.

    FLOPs are counted, not seconds, so that two runs with one seed validate after the same steps on any machine.
    """
    batches = (collate([training[draw] for draw in batch]) for batch in itertools.islice(draws, FEW))
    step = FORWARD_AND_BACKWARD * training.training.accumulate * mean_flops(model, batches)
    numbers = range(0, len(validation), max(1, len(validation) // FEW))[:FEW]
    single = Collate(model.preparer())
    singles = (single([validation[number]]) for number in numbers)
    whole = mean_flops(model, singles) * len(validation) / draws.processes
    if not step:
        return LEAST_STEPS
    return max(LEAST_STEPS, math.ceil(whole * (1 - VALIDATION_SHARE) / VALIDATION_SHARE / step))


def mean_flops(model: Model, batches: Iterable[Batch]) -> float:
    """Return the FLOPs of a forward pass of a batch, on average."""
    flops = [model.flops(batch.inputs) if batch.inputs else 0.0 for batch in batches]
    return sum(flops) / max(1, len(flops))
