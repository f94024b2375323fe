"""Where compiled libraries are kept, and why they can be trusted: only this user or root can have put them there.

A library runs with all the rights of its user. It is therefore taken only from a folder, and as a file, that belongs to
this user or root, that nobody else may write to, and that is no symbolic link. A checksum beside each library shows
that the file is whole: the loader may crash on a truncated one.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import shutil
import stat
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from atomizer_io import cache_folder
from atomizer_io.cache_folder import Untrusted, check_private
from atomizer_io.locks import alone

PATIENCE_S = 300.0  # how long to wait for another process that compiles; then this one compiles for itself


def user_folder() -> Path:
    """This user's folder of compiled libraries, made if need be; raises OSError where there is no private one."""
    return cache_folder.user_folder("kernels")


def locked(folder: Path) -> AbstractContextManager[None]:
    """Wait until no other process compiles into ``folder``; where files cannot be locked, go on without."""
    return alone(folder, PATIENCE_S)


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
        check_private(path.parent, os.fstat(folder), stat.S_ISDIR)
        held = Path(f"/proc/self/fd/{folder}")
        here = held if held.exists() else path.parent  # not every system shows open files
        for name in (path.name, _sum_of(path).name):
            check_private(here / name, os.stat(name, dir_fd=folder, follow_symlinks=False), stat.S_ISREG)
        if _digest(here / path.name) != (here / _sum_of(path).name).read_text():
            raise Untrusted(f"{path} is not as it was compiled")
        return ctypes.CDLL(str(here / path.name))
    finally:
        os.close(folder)


def keep(built: Path, target: Path) -> None:
    """Move a new library into the cache, in one step; its checksum goes first, so it is never there without one."""
    built.chmod(0o700)
    checksum = _sum_of(built)
    checksum.write_text(_digest(built))
    checksum.chmod(0o600)
    checksum.replace(_sum_of(target))
    built.replace(target)


def _sum_of(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
