"""LAZ files are decompressed in processes that may die: a broken file can make lazrs abort, not raise.

A process is started when the first LAZ file is read, and kept for the next ones. laspy reads headers and asks
:class:`Guarded` for points.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atomizer_io.errors import DataError
from atomizer_io.io import laz_process

MEMORY = 512 << 20  # bytes that the process may take beside twice the size of the file
BROKEN = "cannot be read: its compressed points are broken"

_idle: dict[int, list[subprocess.Popen[bytes]]] = {}  # by process: a fork must not use those of its parent


class Guarded:
    """A backend for laspy whose point readers ask a process of their own for the points of ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_available(self) -> bool:
        """Return whether LAZ can be read; a missing library is the error of its import."""
        import lazrs  # type: ignore[import-untyped]

        return lazrs is not None

    def create_reader(self, source: Any, header: Any, decompression_selection: Any) -> GuardedPoints:
        """Return a point reader for laspy."""
        (vlr,) = header.vlrs.get("LasZipVlr")
        request = {
            "path": os.path.abspath(self.path),
            "start": header.offset_to_point_data,
            "vlr": bytes(vlr.record_data).hex(),
            "everything": decompression_selection.is_set(decompression_selection.INTENSITY),
            "memory": MEMORY + 2 * self.path.stat().st_size,
        }
        return GuardedPoints(self.path, source, request, header.point_format.size)


class GuardedPoints:
    """Points of one file, from a process that is taken at the first request and given back at the end."""

    def __init__(self, path: Path, source: Any, request: dict[str, Any], size: int) -> None:
        self.path, self.source, self.request, self.size = path, source, request, size
        self.process: subprocess.Popen[bytes] | None = None
        self.sound = True  # nothing is on its way between the processes

    def read_n_points(self, n: int) -> bytearray:
        """Return the next ``n`` points as stored."""
        found = bytearray(n * self.size)
        self.sound = False
        if self.process is None:
            self.process = _taken()
            self._ask(self.request)
        self._ask({"points": n, "size": self.size})
        view, filled = memoryview(found), 0
        while filled < len(found):
            (length,) = struct.unpack("<q", self._read(8))
            if length < 0:
                raise DataError(self.path, f"{BROKEN} ({self._read(-length).decode('utf-8', 'replace')})")
            self._read_into(view[filled : filled + length])
            filled += length
        self.sound = True
        return found

    def close(self) -> None:
        """Give the process back, or end it if it is in the middle of an answer."""
        self.source.close()
        if self.process is not None:
            if self.sound:
                _idle.setdefault(os.getpid(), []).append(self.process)
            else:
                _end(self.process)
            self.process = None

    def _ask(self, request: dict[str, Any]) -> None:
        assert self.process is not None and self.process.stdin is not None
        with self._alive():
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def _read(self, count: int) -> bytes:
        found = bytearray(count)
        self._read_into(memoryview(found))
        return bytes(found)

    def _read_into(self, view: memoryview) -> None:
        assert self.process is not None and self.process.stdout is not None
        with self._alive():
            while view:
                count = self.process.stdout.readinto(view)  # type: ignore[attr-defined]
                if not count:
                    raise EOFError
                view = view[count:]

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            raise DataError(self.path, f"{BROKEN}, and the decompressor broke down over them") from error


def _taken() -> subprocess.Popen[bytes]:
    """Return a process that waits for work, or a new one."""
    waiting = _idle.setdefault(os.getpid(), [])
    while waiting:
        process = waiting.pop()
        if process.poll() is None:
            return process
        _end(process)
    return subprocess.Popen(
        [sys.executable, "-P", laz_process.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # where the decompressor says why it aborts
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what was not written yet has no reader
            assert pipe is not None
            pipe.close()
    process.wait()


@atexit.register
def _end_all() -> None:
    for process in _idle.pop(os.getpid(), []):
        _end(process)
