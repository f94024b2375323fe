"""Processes that work for this one, and end when it ends."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor


def spawned(count: int, begin: Callable[[], None] | None = None) -> ProcessPoolExecutor:
    """Return a pool of ``count`` processes, which call ``begin`` first; a killed parent leaves none of them behind.

    They are spawned, as a fork would share the thread pools of this process.
    """
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(begin,))


def _begin(begin: Callable[[], None] | None) -> None:
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    if begin is not None:
        begin()
