"""One lock: a process holds a file or a folder until it lets go or ends, however it ends; others wait or give up.

It is an ``flock``, which keeps threads of one process apart as well. A forked child would hold it, too, and longer than
its parent lives: it closes its copy. Where a file system, or Windows, has no locks, all processes go on at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from atomizer_io.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
POLL_S = 0.05
_held: set[Lock] = set()


class Lock:
    """A locked file or folder, by the ``number`` of its open file; to be closed, or used in a ``with``."""

    def __init__(self, number: int) -> None:
        self.number = number
        _held.add(self)

    def close(self) -> None:
        """Let go of the lock."""
        if self in _held:
            _held.remove(self)
            os.close(self.number)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _let_go() -> None:
    for lock in list(_held):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def lock(path: Path, wait_s: float = math.inf) -> Lock | None:
    """Lock a file, which is made if need be, or a folder; None if another process still holds it after ``wait_s``.

    Who holds a lock may remove its file: those who waited for it then lock the one that is there.
    """
    writing = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    deadline = time.monotonic() + wait_s
    while True:
        held = Lock(os.open(path, os.O_RDONLY if path.is_dir() else writing, 0o666))
        if not _waited(held, deadline):
            held.close()
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held.number), os.stat(path)):
                return held
        held.close()


def _waited(held: Lock, deadline: float) -> bool:
    """Wait until no other process has the lock; return whether that was so before the ``deadline``."""
    while fcntl is not None:
        try:
            fcntl.flock(held.number, fcntl.LOCK_EX | (0 if deadline == math.inf else fcntl.LOCK_NB))
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
            continue
        except OSError:  # a file system without locks
            pass
        break
    return True


@contextlib.contextmanager
def alone(path: Path, wait_s: float = math.inf) -> Iterator[None]:
    """Wait until no other process is in such a context for ``path``, a file or folder; at most ``wait_s`` seconds."""
    held = None if fcntl is None else lock(path, wait_s)  # where there is no fcntl, a folder cannot even be opened
    with held or contextlib.nullcontext():
        yield


def locked(folder: Path, output: Path) -> Lock:
    """Create the ``folder`` of the unfinished prediction ``output`` if necessary, and lock it."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held = lock(folder / LOCK, wait_s=0)
        except FileNotFoundError:  # the folder of a prediction that ended just now
            continue
        if held is None:
            text = ""
            with contextlib.suppress(OSError):
                text = (folder / LOCK).read_bytes()[:200].decode(errors="replace").strip()
            raise ConfigError(
                f"another prediction is writing {output}{f' ({text})' if text else ''}: "
                "wait until it ends, or name another output"
            )
        os.truncate(held.number, 0)
        os.write(held.number, f"process {os.getpid()} on {socket.gethostname()}".encode())
        return held
