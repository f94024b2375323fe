"""Guards against broken LAS and LAZ: headers are checked first, points decompressed in processes that may die.

Nothing is read or allocated by the numbers of a header before these are checked: offsets are those of the LAS
specification and, for the record and the table of chunks of LAZ, of LASzip's. A broken file can make lazrs abort, not
raise: a process is started when the first LAZ file is read, and kept for the next ones; laspy reads headers and takes
points from :class:`Guarded`.
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
from typing import Any, BinaryIO

from atomizer_io.errors import DataError
from atomizer_io.io import laz_process

HEAD = 375  # bytes of the longest header
VLR_BYTES, EVLR_BYTES = 54, 60  # the least that a record takes
COMPRESSED = 0b1000_0000  # bit of the point format that LAZ sets
POINT_BYTES = (20, 28, 26, 34, 57, 63, 30, 36, 38, 59, 67)  # the least of each point format
LASZIP = (b"laszip encoded", 22204)
CHUNKED = (2, 3)  # compressors that write a table of chunks
VARIABLE = 0xFFFFFFFF  # the size of chunks that differ in size


def check_las(path: Path) -> None:
    """Refuse a file whose header promises more than the file can hold."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD)
        if head[:4] != b"LASF" or len(head) < 227:
            raise DataError(path, "cannot be read: truncated or not a LAS or LAZ file")
        cause = _wrong(file, head, size)
    if cause:
        raise DataError(path, f"cannot be read: truncated, or its header is broken ({cause})")


def _wrong(file: BinaryIO, head: bytes, size: int) -> str | None:
    """Return what is impossible in a header, None if nothing is."""
    length, start, records, kind, point_bytes, points = struct.unpack_from("<HIIBHI", head, 94)
    later, more = 0, 0
    if head[25] >= 4 and len(head) == HEAD:
        later, more, points = struct.unpack_from("<QIQ", head, 235)
    point_format = kind & 0b0011_1111
    if length + VLR_BYTES * records > start or start > size or (more and later + EVLR_BYTES * more > size):
        return f"{records} + {more} records"
    if point_format >= len(POINT_BYTES) or point_bytes < POINT_BYTES[point_format]:
        return f"points of format {point_format} with {point_bytes} bytes"
    laszip, end = _walk(file, length, records, "<2x16sHH32x", start)
    if end > start:
        return "records that reach into the points"
    if more and _walk(file, later, more, "<2x16sHQ32x", size)[1] > size:
        return "records that reach beyond the file"
    if kind & COMPRESSED:
        return _wrong_laz(file, laszip, start, size, point_bytes, points)
    if start + points * point_bytes > size:
        return f"it holds {(size - start) // point_bytes} of {points} points"
    return None


def _walk(file: BinaryIO, start: int, count: int, form: str, most: int) -> tuple[bytes, int]:
    """Return the content of LASzip's record, and where the last record ends, or the first that ends behind ``most``."""
    laszip, own = b"", struct.calcsize(form)
    for _ in range(count):
        file.seek(start)
        record = file.read(own)
        if len(record) < own:
            return laszip, most + 1
        owner, number, length = struct.unpack(form, record)
        start += own + length
        if start > most:
            break
        if (owner.split(b"\0")[0], number) == LASZIP:
            laszip = file.read(length)
    return laszip, start


def _wrong_laz(file: BinaryIO, laszip: bytes, start: int, size: int, point_bytes: int, points: int) -> str | None:
    if len(laszip) < 34:
        return "no record of LASzip"
    compressor, chunk, items = struct.unpack_from("<H10xI16xH", laszip)
    if len(laszip) < 34 + 6 * items:
        return "a record of LASzip that is cut off"
    item_bytes = sum(struct.unpack_from("<2xH", laszip, 34 + 6 * i)[0] for i in range(items))
    if item_bytes != point_bytes:
        return f"points of {point_bytes} bytes that are compressed as {item_bytes}"
    return _wrong_chunks(file, start, size, point_bytes, points, chunk) if compressor in CHUNKED else None


def _wrong_chunks(file: BinaryIO, start: int, size: int, point_bytes: int, points: int, chunk: int) -> str | None:
    """Return what is impossible in the table of chunks: its offset, or more chunks than there is room for."""
    file.seek(start)
    (table,) = struct.unpack("<q", file.read(8).ljust(8, b"\xff"))
    if table == -1:  # the writer could not go back: it is at the end of the file
        file.seek(max(size - 8, 0))
        (table,) = struct.unpack("<q", file.read(8).ljust(8, b"\xff"))
    if not start + 8 <= table <= size - 8:
        return "a table of chunks outside of the file"
    file.seek(table)
    _, chunks = struct.unpack("<II", file.read(8))
    if chunks * point_bytes > table - start - 8 or (chunk != VARIABLE and chunks * chunk < points):
        return f"{chunks} chunks for {points} points"
    return None


MEMORY = 512 << 20  # bytes that the process may take beside twice the size of the file
BROKEN = "cannot be read: its compressed points are broken"

_idle: dict[int, list[subprocess.Popen[bytes]]] = {}  # by process: a fork must not use those of its parent


class Guarded:
    """A backend for laspy whose point readers let another process decompress the points of ``path``."""

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
        points = bytearray(n * self.size)
        self.sound = False
        if self.process is None:
            self.process = _worker()
            self._request(self.request)
        self._request({"points": n, "size": self.size})
        view, filled = memoryview(points), 0
        while filled < len(points):
            (length,) = struct.unpack("<q", self._read(8))
            if length < 0:
                raise DataError(self.path, f"{BROKEN} ({self._read(-length).decode('utf-8', 'replace')})")
            self._read_into(view[filled : filled + length])
            filled += length
        self.sound = True
        return points

    def close(self) -> None:
        """Give the process back, or end it if it is in the middle of a reply."""
        self.source.close()
        if self.process is not None:
            if self.sound:
                _idle.setdefault(os.getpid(), []).append(self.process)
            else:
                _end(self.process)
            self.process = None

    def _request(self, request: dict[str, Any]) -> None:
        assert self.process is not None and self.process.stdin is not None
        with self._alive():
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def _read(self, count: int) -> bytes:
        data = bytearray(count)
        self._read_into(memoryview(data))
        return bytes(data)

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


def _worker() -> subprocess.Popen[bytes]:
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
        stderr=subprocess.DEVNULL,  # where the decompressor reports why it aborts
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
