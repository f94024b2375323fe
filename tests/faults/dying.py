"""Commands that die at a chosen moment of their writing: before a file is opened, renamed or removed, or within it."""

from __future__ import annotations

import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from processes import command, exit_code, start

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
DEATHS = (-signal.SIGKILL, -signal.SIGXFSZ)


def is_change(event: str, arguments: tuple[Any, ...], folder: str) -> bool:
    """Whether an event of Python is about to change a file below a folder."""
    if event == "open":
        changes = isinstance(arguments[2], int) and bool(arguments[2] & WRITING)
    else:
        changes = event in CHANGES
    path = arguments[0] if arguments else None
    return changes and isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(folder)


def die(folder: Path, number: int, within: bool = False) -> None:
    """Let this process die at its ``number``-th change of files below ``folder``, or ``within`` what it writes next.

    The next write then ends after one byte, and the process with it: a kill in the middle of a file.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    below, left = str(folder), [number]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not left[0] or not is_change(event, arguments, below):
            return
        left[0] -= 1
        if not left[0] and within:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
        elif not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def count(folder: Path, tally: Path) -> None:
    """Let this process write down how often it changes files below ``folder``: a byte for each change."""
    below, file = str(folder), tally.open("ab", buffering=0)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if is_change(event, arguments, below):
            file.write(b".")

    sys.addaudithook(hook)


def changes_of(words: tuple[str, ...], folder: Path, tally: Path) -> int:
    """Run a command to its end; return how often it changed files below ``folder``."""
    ended = exit_code(start(command, words, partial(count, folder, tally)))
    assert ended == 0, f"ended with {ended}"
    return tally.stat().st_size


def dies(words: tuple[str, ...], folder: Path, number: int, within: bool) -> bool:
    """Run a command that dies at a change; return whether it did, and did not end before."""
    ended = exit_code(start(command, words, partial(die, folder, number, within)))
    assert ended in (0, *DEATHS), f"ended with {ended}"
    return ended != 0


def evenly(most: int, count: int) -> list[int]:
    """Return ``count`` numbers from 1 to ``most`` at even distances, or all where there are no more."""
    return sorted({1 + round(i * (most - 1) / max(1, count - 1)) for i in range(min(count, most))})
