"""What ends a run early: ``--max-time``, shared out among its phases, and the signals SIGINT (Ctrl-C) and SIGTERM.

The time of a command counts from its start. Steps end early enough for the final scores, which take as long as
validations did, and for :data:`CLOSING_SHARE` of the time, in which the baselines are fitted; these are given up where
it is over.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from atomizer_io.errors import ConfigError

CLOSING_SHARE = 0.1
MOST_CLOSING = 0.5  # of all time: so much is left for steps, however long validations take
START, READING, INITIALISATION = "start", "reading", "initialisation"
TRAINING, VALIDATION, CLOSING, BASELINES = "training", "validation", "closing", "baselines"
PHASES = (START, READING, INITIALISATION, TRAINING, VALIDATION, CLOSING, BASELINES)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Timing:
    """Measures the phases of one command, and how much of its time is left; ``limit_s`` of None is no limit."""

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
        """How long the end of the run will take, as far as that can be estimated."""
        if self.limit_s is None:
            return 0.0
        needed = CLOSING_SHARE * self.limit_s + self.final_validations * self.validation_s
        return min(needed, MOST_CLOSING * self.limit_s)

    @property
    def out_of_time(self) -> bool:
        """Whether a run of known length makes no further step, so that it is stopped in time."""
        if self.limit_s is None:
            return False
        # a run that is stopped is validated, and its best model scored; nothing is tested or compared
        ending = 2 * self.validation_s or CLOSING_SHARE * self.limit_s
        return time.monotonic() - self.began_s > self.limit_s - min(ending, MOST_CLOSING * self.limit_s)

    def over(self, seconds: float | None = None) -> bool:
        """Whether all time has passed; ``seconds`` are those of all sessions, by default of this one."""
        taken = time.monotonic() - self.began_s if seconds is None else seconds
        return self.limit_s is not None and taken > self.limit_s

    def line(self) -> str:
        """Return what the phases took, in one line."""
        shown, before, whole = list[str](), 0, 0.0
        for name, seconds in self.shares().items():
            whole += seconds
            if round(whole) > before:  # sums are rounded, so that what is shown adds up
                shown.append(f"{name} {clock(round(whole) - before)}")
            before = round(whole)
        return f"took {clock(before)}" + (f": {', '.join(shown)}" if shown else "")

    def shares(self) -> dict[str, float]:
        """Return the seconds of each phase until now; ``start`` is what no other one counts, such as imports."""
        whole = time.monotonic() - self.began_s
        start = max(0.0, whole - sum(self.phases.values()))
        return {START: start} | {name: self.phases[name] for name in PHASES if name in self.phases}


def clock(seconds: float) -> str:
    """Return a time as ``mm:ss``, or ``h:mm:ss``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def seconds_of(text: str | None) -> float | None:
    """Return the seconds of ``hh:mm:ss`` or ``dd:hh:mm:ss``."""
    if text is None:
        return None
    parts = str(text).split(":")
    if len(parts) not in (3, 4) or not all(part.isdigit() for part in parts):
        raise ConfigError(f"training.max_time is {text!r}; write hh:mm:ss")
    days, hours, minutes, rest = (int(part) for part in (["0"] * (4 - len(parts)) + parts))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


class Interrupts:
    """Within this context both signals raise ``KeyboardInterrupt``; during steps, the first one only sets ``pending``.

    The state is then saved after the step, or the validation, that is under way; a second signal stops at once. Only
    the main thread receives signals: in others everything is as it was.
    """

    def __init__(self) -> None:
        self.pending, self.waits = False, False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self.listen()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def listen(self, waits: bool = False) -> None:
        """Handle the signals from now on, also where somebody else took them over; ``waits`` for the end of a step."""
        self.waits = waits
        for number in self._before:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.pending or not self.waits:
            raise KeyboardInterrupt
        self.pending = True
        print("\nstopping once this step, or this validation, is over; again: at once", file=sys.stderr, flush=True)
