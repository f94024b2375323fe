"""Who fits a model may watch, and say when there is no more time."""

from __future__ import annotations

from collections.abc import Callable

# told what is counted, how much of it was done and how much there is; returns whether there is time to go on
Watch = Callable[[str, int, int], bool]


def unwatched(what: str, done: int, total: int) -> bool:
    """Go on, whatever was done."""
    return True
