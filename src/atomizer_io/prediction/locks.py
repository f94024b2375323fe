"""One prediction at a time may write an output: a lock that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import BinaryIO

from atomizer_io.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows: predictions there are not kept from each other
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
