"""Which outputs of a folder are finished, and still as they were written: a record with a checksum of every file.

FOLDER/.finished.jsonl   a line for each output: the names of its files, with size and checksum of each

Later lines replace earlier ones, and lines that were cut off count for nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from atomizer_io.durable import append_line
from atomizer_io.errors import AtomizerError
from atomizer_io.io.point_clouds import open_las
from atomizer_io.io.point_store import CHUNK
from atomizer_io.io.raster_files import open_raster
from atomizer_io.prediction.las import SUFFIXES
from atomizer_io.texts import parse_json

RECORD = ".finished.jsonl"
WHOLE, CHANGED, READABLE, UNREADABLE = "whole", "changed", "readable", "unreadable"
PIECE = 4 << 20  # bytes of a file in memory at a time


class Finished:
    """The outputs that were finished in a folder, by the names of their first files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, list[Any] | None]] = {}
        with contextlib.suppress(OSError):
            for line in (folder / RECORD).read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    record = parse_json(line)
                    self.files[str(record["output"])] = dict(record["files"])

    def add(self, output: Path, files: Iterable[Path]) -> None:
        """Record the files of an output that was written, and return when the record is on the disk."""
        traces = {path.name: trace(path) for path in files if path.is_file()}
        self.files[output.name] = traces
        append_line(self.folder / RECORD, json.dumps({"output": output.name, "files": traces}))

    def state(self, output: Path) -> str:
        """Return whether an output is as it was written; one without a record is read to its end instead."""
        if output.name not in self.files:
            return READABLE if readable(output) else UNREADABLE
        files = self.files[output.name]
        same = all(trace(self.folder / Path(name).name) == stored for name, stored in files.items())
        return WHOLE if same and output.name in files else CHANGED


def trace(path: Path) -> list[Any] | None:
    """Return size and checksum of a file; None where there is no ordinary file."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            size = 0
            while piece := file.read(PIECE):
                digest.update(piece)
                size += len(piece)
    except OSError:
        return None
    return [size, digest.hexdigest()]


def readable(path: Path) -> bool:
    """Whether all of a map or a point cloud can be read, to its last block; its values are not judged."""
    from rasterio.errors import RasterioError

    try:
        if path.suffix.lower() in SUFFIXES:
            with open_las(path) as points:
                count = sum(len(chunk) for chunk in points.chunk_iterator(CHUNK))
                return bool(count == points.header.point_count)
        with open_raster(path) as source:
            for _, window in source.block_windows(1):
                source.read(window=window)
    except (OSError, ValueError, RuntimeError, AtomizerError, RasterioError):
        return False
    return True
