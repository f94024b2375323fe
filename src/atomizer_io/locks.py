"""One process at a time may write an output: locks that end with the process that holds them."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from atomizer_io.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows: processes there are not kept from each other
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"


def locked(folder: Path, output: Path) -> BinaryIO:
    """Create ``folder`` if necessary and lock it until the returned file is closed.

    Where a file system knows no locks, the folder is used without one.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            number = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except FileNotFoundError:  # the folder of a prediction that ended just now
            continue
        file = os.fdopen(number, "r+b", buffering=0)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                holder = file.read(200).decode("utf-8", "replace").strip()
            raise ConfigError(
                f"another prediction is writing {output}{f' ({holder})' if holder else ''}: wait until it ends, or "
                "name another output"
            ) from None
        except OSError:
            pass
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK, follow_symlinks=False)):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
                return file
        file.close()  # of a folder that was removed before the lock was free


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process changes files of ``folder`` in a context like this one, then keep others waiting.

    Where a file system knows no locks, nobody waits.
    """
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            number = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, number)
            with contextlib.suppress(OSError):
                fcntl.flock(number, fcntl.LOCK_EX)
        yield


def owned(path: Path) -> BinaryIO | None:
    """Return the open file ``path``, locked for this process until it is closed; None where another process has it.

    Processes that are forked from this one do not hold the lock: it ends with this process even if they live on.
    """
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666), "r+b", buffering=0)
    try:
        if fcntl is not None:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.close()
        return None
    except OSError:  # a file system without locks
        pass
    return file
