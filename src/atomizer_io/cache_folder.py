"""Folders in which this user keeps what took long to make, and how processes take turns in them.

What lies in such a folder can be trusted: it belongs to this user or root, nobody else may write to it, and it is no
symbolic link.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path


class Untrusted(OSError):
    """A folder or file that somebody else may have written to, or that is not as it was when it was put there."""


def user_folder(name: str) -> Path:
    """Return this user's folder ``name`` for such things, made if need be; raises OSError without a private one."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        base = given if given.is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error
    folder = base / "atomizer_io" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    check_private(folder, folder.lstat(), stat.S_ISDIR)
    return folder


def check_private(path: Path, found: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Refuse a file or folder, whose state was ``found``, that others may change or that is of another kind."""
    if not hasattr(os, "geteuid"):  # a system whose files have no such owners
        return
    if not is_kind(found.st_mode):
        raise Untrusted(f"{path} is a symbolic link or of another kind than expected")
    if found.st_uid not in (os.geteuid(), 0):
        raise Untrusted(f"{path} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted(f"{path} can be written to by other users")


@contextlib.contextmanager
def locked(folder: Path, patience_s: float, name: str = "lock") -> Iterator[None]:
    """Wait until no other process holds the lock ``name`` of ``folder``; where files cannot be locked, go on without.

    After ``patience_s`` seconds this process goes on as well.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # not on every system
        yield
        return
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:  # some network file systems
                break
        yield
    finally:
        os.close(handle)  # which also unlocks
