"""Ctrl-C (SIGINT) and SIGTERM in a training: the first one asks it to save its state and stop, a second stops it."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Within this context both signals raise ``KeyboardInterrupt``; while steps are made, the first one only asks.

    Only the main thread hears signals: in others everything is as it was.
    """

    def __init__(self) -> None:
        self.asked, self.waits = False, False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.getsignal(each) for each in SIGNALS}
            self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)

    def listen(self, waits: bool = False) -> None:
        """Hear the signals from now on, also where somebody else took them over; ``waits`` until a step is made."""
        self.waits = waits
        for each in self._before:
            signal.signal(each, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self.waits:
            raise KeyboardInterrupt
        self.asked = True
        print("\nstopping once this step, or this validation, is over; again: at once", file=sys.stderr, flush=True)
