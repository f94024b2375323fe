"""The time of a run: what each of its phases takes, and what ``--max-time`` leaves for them.

All of a command counts from its start. Steps end early enough for the scores at the end, as long as validations took,
and for :data:`CLOSING_SHARE` of the time, in which simple baselines are fitted; these are given up where that is over.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from atomizer_io.training.plan import Plan

CLOSING_SHARE = 0.1
MOST_CLOSING = 0.5  # of all time: so much is left for steps, however long validations take
READING, INITIALISATION, TRAINING, VALIDATION = "reading", "initialisation", "training", "validation"
CLOSING, BASELINES = "closing", "baselines"
PHASES = (READING, INITIALISATION, TRAINING, VALIDATION, CLOSING, BASELINES)


class Timing:
    """Measures the phases of one command, and says how much of its time is left; ``limit_s`` of None is no limit."""

    def __init__(self, began_s: float, limit_s: float | None) -> None:
        self.began_s, self.limit_s = began_s, limit_s
        self.phases: dict[str, float] = {}
        self.final_validations = 1.0  # what the scores at the end take, in validations
        self.validation_s = 0.0  # what the last one took

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time within this context as that of a phase; that of an inner one counts there only."""
        began, inner = time.monotonic(), sum(self.phases.values())
        try:
            yield
        finally:
            took = time.monotonic() - began - (sum(self.phases.values()) - inner)
            self.phases[name] = self.phases.get(name, 0.0) + took

    def validated(self, seconds: float) -> None:
        """Count a validation."""
        self.validation_s = seconds
        self.phases[VALIDATION] = self.phases.get(VALIDATION, 0.0) + seconds

    @property
    def closing_s(self) -> float:
        """How long the end of the run will take, as far as that can be told."""
        if self.limit_s is None:
            return 0.0
        wanted = CLOSING_SHARE * self.limit_s + self.final_validations * self.validation_s
        return min(wanted, MOST_CLOSING * self.limit_s)

    @property
    def steps_end(self) -> bool:
        """Whether a run of known length makes no further step, so that it is stopped in time."""
        if self.limit_s is None:
            return False
        # a run that is stopped is validated, and its best model scored; nothing is tested or compared
        ending = 2 * self.validation_s or CLOSING_SHARE * self.limit_s
        return time.monotonic() - self.began_s > self.limit_s - min(ending, MOST_CLOSING * self.limit_s)

    def over(self, plan: Plan | None) -> bool:
        """Whether all time has passed; that of an open run, which follows a ``plan``, counts its earlier sessions."""
        if self.limit_s is None:
            return False
        taken = time.monotonic() - self.began_s if plan is None else plan.seconds
        return taken > self.limit_s

    def line(self) -> str:
        """Return what the phases took, in one line."""
        whole = time.monotonic() - self.began_s
        shown = [f"{name} {clock(self.phases[name])}" for name in PHASES if self.phases.get(name, 0.0) >= 1]
        return f"took {clock(whole)}" + (f": {', '.join(shown)}" if shown else "")


def clock(seconds: float) -> str:
    """Return a time as ``mm:ss``, or ``h:mm:ss``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
