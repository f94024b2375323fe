"""How long an open run trains: until its validation score stops rising or its time is nearly over, then a cool-down.

An open run is one for which the settings name neither epochs nor steps. Its learning rate warms up, stays, and falls
linearly to zero over a share of the steps made so far once the end is in sight. The best model of both phases is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from atomizer_io.training.config import TrainingSettings

PATIENCE, TIME = "patience", "time"  # what ended a run
SHARE = 0.1  # of the time that validations may take


class Plan:
    """Says after each step and each validation of an open run how it goes on; ``higher`` scores are better, or lower.

    ``every`` is the number of steps between validations. ``begun`` is the step at which the cool-down of ``length``
    steps began, because of ``reason``. ``max_seconds`` counts all sessions of a run that was stopped and resumed, from
    ``began_s`` on, or from now on. It is kept as well as the speed of the steps can be told; ``closing_s`` tells what
    must be left of it when they are made.
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
        steps = self.steps_to_cool(step)
        # before the first validation: as long as it takes at most, if the steps between two were left to the run
        validation_s = self.validation_s or step_s * self.every * SHARE
        return left - self.closing_s() <= steps * step_s + (1 + steps // self.every) * validation_s

    def steps_to_cool(self, step: int) -> int:
        """Return the length of a cool-down that begins after ``step`` steps."""
        return max(1, round(self.cooldown * step))

    def stepped(self, step: int, nearly_over: bool) -> None:
        """Take note that ``step`` steps were made; the run may cool down from here on, or end here."""
        if self.begun is None and nearly_over:
            self.cool(step, TIME)
        elif self.begun is not None and step >= self.begun + self.length:
            self.ended = True

    def validated(self, step: int, score: float, seconds: float) -> None:
        """Take note of the score of a validation, and cool down if none of the last ones raised it."""
        self.validation_s = seconds
        self.validating_s += seconds
        if (self.best is None and not math.isnan(score)) or self.risen(score):
            self.best, self.waited = score, 0
        else:
            self.waited += 1
        if self.begun is None and self.waited >= self.patience:
            self.cool(step, PATIENCE)

    def risen(self, score: float) -> bool:
        """Whether ``score`` is better than the best so far by more than the tolerance, a share of that best."""
        if self.best is None:
            return False
        gain = score - self.best if self.higher else self.best - score
        return gain > self.tolerance * abs(self.best)

    def cool(self, step: int, reason: str) -> None:
        """Begin the cool-down with the next step."""
        self.begun, self.length, self.reason, self.limit = step, self.steps_to_cool(step), reason, self.max_seconds

    def resume(self) -> bool:
        """Whether there is more to do; a run that ended for lack of time goes on if it now has more, at full rate."""
        more = self.max_seconds is None or (self.limit is not None and self.max_seconds > self.limit)
        if self.ended and self.reason == TIME and more:
            self.begun, self.length, self.reason, self.ended, self.waited = None, 0, "", False, 0
        return not self.ended

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs to go on as planned."""
        names = ("best", "waited", "begun", "length", "reason", "ended", "limit", "validation_s")
        return {**{name: getattr(self, name) for name in names}, "seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the plan of a stored state."""
        for name, value in state.items():
            if name != "seconds":
                setattr(self, name, value)
        self.before_s, self.session_s = float(state["seconds"]), self.began_s
