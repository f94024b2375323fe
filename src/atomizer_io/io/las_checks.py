"""Checks of the header of a LAS or LAZ file, before anything is read or allocated by its numbers.

Offsets are those of the LAS specification and, for the record and the table of chunks of LAZ, of LASzip's.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from atomizer_io.errors import DataError

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
    found = sum(struct.unpack_from("<2xH", laszip, 34 + 6 * i)[0] for i in range(items))
    if found != point_bytes:
        return f"points of {point_bytes} bytes that are compressed as {found}"
    return _wrong_chunks(file, start, size, point_bytes, points, chunk) if compressor in CHUNKED else None


def _wrong_chunks(file: BinaryIO, start: int, size: int, point_bytes: int, points: int, chunk: int) -> str | None:
    """Return what is impossible in the table of chunks: its place, or more chunks than there is room for."""
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
