"""Files that stay: a file gets its name only when all of it is on the disk, so that written means on the disk.

What a user or a later command relies on goes through :func:`publish` or :func:`append_line`: products, models, training
states, settings, calibrations, reports, and records of what is finished. Parts in the folder of unfinished work, and
caches, need not: each has its own checksum, and what a power cut takes of them is computed again. So the number of
times that a prediction waits for the disk does not grow with the number of its windows.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

LOST = (errno.EIO, errno.ENOSPC, errno.EDQUOT)  # errors of a disk; others are of systems that cannot sync folders


def publish(files: Mapping[Path, Path]) -> None:
    """Move complete files to their final names, in order; a power cut leaves the new file or the one before, whole.

    Returns when contents and names are on the disk. Both names of a file are on one file system.
    """
    for made, path in files.items():
        with made.open("rb" if os.name == "posix" else "r+b") as file:
            try:
                os.fsync(file.fileno())
            except OSError as error:  # names the file that it would have become
                error.filename = str(path)
                raise
    for made, path in files.items():
        os.replace(made, path)
    for folder in dict.fromkeys(path.parent for path in files.values()):
        sync_folder(folder)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file and return when it is on the disk; a last line that was cut off is ended first."""
    new = not path.exists()
    with path.open("a+b") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        cut = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * cut + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder, with those around it, and return when their names are on the disk."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system supports it."""
    try:
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as error:
        if error.errno in LOST:
            error.filename = str(folder)
            raise
