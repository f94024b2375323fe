"""Where compiled libraries are kept, and why they can be trusted: only this user or root can have put them there.

A library runs with all the rights of its user. It is therefore taken only from a folder, and as a file, that belongs to
this user or root, that nobody else may write to, and that is no symbolic link. A checksum beside each library tells a
whole file from a truncated one, which the loader may answer with a crash.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE_S = 300.0  # how long to wait for another process that compiles; then this one compiles for itself


class Untrusted(OSError):
    """A folder or library that somebody else may have written to, or that is not as it was when it was put there."""


def user_folder() -> Path:
    """This user's folder of compiled libraries, made if need be; raises OSError where there is no private one."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        base = given if given.is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error
    folder = base / "atomizer_io" / "kernels"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _check(folder, folder.lstat(), stat.S_ISDIR)
    return folder


@functools.cache
def temporary_folder() -> Path:
    """A private folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="atomizer-kernels-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child, whose parent goes on
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def load(path: Path) -> ctypes.CDLL:
    """Load a library if it is private and whole; raises OSError otherwise.

    The folder is held open from the check to the loading, so that it cannot be exchanged in between.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check(path.parent, os.fstat(folder), stat.S_ISDIR)
        held = Path(f"/proc/self/fd/{folder}")
        here = held if held.exists() else path.parent  # not every system shows open files
        for name in (path.name, _sum_of(path).name):
            _check(here / name, os.stat(name, dir_fd=folder, follow_symlinks=False), stat.S_ISREG)
        if _digest(here / path.name) != (here / _sum_of(path).name).read_text():
            raise Untrusted(f"{path} is not as it was compiled")
        return ctypes.CDLL(str(here / path.name))
    finally:
        os.close(folder)


def keep(built: Path, target: Path) -> None:
    """Move a new library to its place, in one step; its checksum goes first, so that it is never there without one."""
    built.chmod(0o700)
    checksum = _sum_of(built)
    checksum.write_text(_digest(built))
    checksum.chmod(0o600)
    checksum.replace(_sum_of(target))
    built.replace(target)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process compiles into ``folder``; where files cannot be locked, go on without."""
    import fcntl  # not on every system; this module is

    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + PATIENCE_S
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


def _check(path: Path, found: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    if not is_kind(found.st_mode):
        raise Untrusted(f"{path} is a symbolic link or of another kind than expected")
    if found.st_uid not in (os.geteuid(), 0):
        raise Untrusted(f"{path} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted(f"{path} can be written to by other users")


def _sum_of(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
