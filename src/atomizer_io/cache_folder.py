"""Folders in which this user keeps what took long to make.

What lies in such a folder can be trusted: it belongs to this user or root, nobody else may write to it, and it is no
symbolic link.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path


class Untrusted(OSError):
    """A folder or file that somebody else may have written to, or that is not as it was when it was put there."""


def user_folder(name: str) -> Path:
    """Return this user's folder ``name`` for such things, made if need be; raises OSError without a private one."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        base = cache_home if cache_home.is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error
    folder = base / "atomizer_io" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    check_private(folder, folder.lstat(), stat.S_ISDIR)
    return folder


def check_private(path: Path, state: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Refuse a file or folder, by its ``state``, that others may change or that is of another kind."""
    if not hasattr(os, "geteuid"):  # a system whose files have no such owners
        return
    if not is_kind(state.st_mode):
        raise Untrusted(f"{path} is a symbolic link or of another kind than expected")
    if state.st_uid not in (os.geteuid(), 0):
        raise Untrusted(f"{path} belongs to another user")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted(f"{path} can be written to by other users")
