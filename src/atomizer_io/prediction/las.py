"""Writing LAS and LAZ files like an original: header, records and points to the bit, with more bytes per point.

laspy reads the points. Headers and records are copied as bytes, because writing them anew would lose what a library
does not know of, or means to know better: extents, dates, no-data values of extra dimensions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.las_guard import VLR_BYTES
from atomizer_io.io.point_clouds import open_las, point_cloud_header
from atomizer_io.io.point_store import CHUNK

Bytes = NDArray[np.uint8]
Extra = tuple[str, str, str]  # a dimension that is added: its name, its type (u1 or f4), its meaning or its unit

COPIED = 16 << 20  # bytes at once
SUFFIXES = (".las", ".laz")
LASZIP = ("laszip encoded", 22204)
EXTRA = ("LASF_Spec", 4)
MAKER = ("atomizer-io", 1)  # which model classified the points, as JSON
DESCRIPTION = 192  # bytes per extra dimension
NAME = 32  # bytes of the name of an extra dimension
MOST = 65535  # bytes of a point, and of what a record holds
UNDOCUMENTED = 7  # bytes in one description; laspy takes some larger numbers for flags
TYPES = {"u1": 1, "f4": 9}  # LAS's number of a type
SIZES = (1, 1, 2, 2, 4, 4, 8, 8, 4, 8)  # bytes of types 1 … 10; then pairs and triples of the same
COMPRESSED = 0b1100_0000  # bits of the point format that LAZ sets
NOT_IN_LAZ = (9, 10)  # lazrs mixes up their waveforms where there are several scanner channels


@dataclass(frozen=True, slots=True)
class Record:
    """A variable length record of a LAS file: where it lies and who defined it."""

    start: int
    size: int
    owner: str
    number: int

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class Original:
    """The file that a new one is written like; ``dimensions`` are the names of all values of a point.

    Messages name the file ``called``, which is another one if ``path`` is a copy of a PLY file.

    ``tail`` are the pieces behind the points: extended records, or the waveforms of LAS 1.3. ``gone`` are those bytes
    of a stored point that are left out, because an earlier prediction added them.
    """

    path: Path
    called: Path
    head: bytes  # up to the first point
    records: tuple[Record, ...]
    tail: tuple[Record, ...]
    points: int
    dimensions: tuple[str, ...]
    gone: tuple[int, ...] = ()

    @classmethod
    def read(cls, path: Path, crs: str | None = None, called: Path | None = None) -> Original:
        """Read everything but the points; ``crs`` is for a file without a coordinate system."""
        if path.suffix.lower() not in SUFFIXES:
            raise DataError(path, "is neither LAS, LAZ nor PLY: only those are read as point clouds")
        points = point_cloud_header(path, crs).points
        with open_las(path) as reader, path.open("rb") as file:
            names = tuple(reader.header.point_format.dimension_names)
            head = file.read(reader.header.offset_to_point_data)
            if head[104] & COMPRESSED and head[104] & ~COMPRESSED in NOT_IN_LAZ:
                raise DataError(path, "is LAZ with waveforms, which would be lost: convert it to .las first")
            size, _, count = struct.unpack_from("<HII", head, 94)
            records = _records(file, size, count, "<2x16sHH32x")
            return cls(path, called or path, head, records, _tail(file, head), points, names)

    @property
    def minor(self) -> int:
        """The minor version of LAS: 4 in LAS 1.4."""
        return self.head[25]

    @property
    def point_format(self) -> int:
        """The number of the point format."""
        return self.head[104] & ~COMPRESSED

    @property
    def record_length(self) -> int:
        """The number of bytes per point."""
        return int(struct.unpack_from("<H", self.head, 105)[0])

    @property
    def header_size(self) -> int:
        """The number of bytes of the header."""
        return int(struct.unpack_from("<H", self.head, 94)[0])

    @property
    def gap(self) -> bytes:
        """What lies between the records and the points."""
        return self.head[max([record.end for record in self.records], default=self.header_size) :]

    @property
    def extra_bytes(self) -> int:
        """How many bytes of a point come after those of its point format."""
        import laspy

        return self.record_length - int(laspy.PointFormat(self.point_format).size)

    def chunks(self) -> Iterator[Any]:
        """Yield the points as laspy reads them, ``CHUNK`` at a time; fewer than the header promises are an error."""
        count = 0
        with open_las(self.path) as reader:
            for points in reader.chunk_iterator(CHUNK):
                count += len(points)
                yield points
        if count < self.points:
            raise DataError(self.called, f"is truncated: it holds {count} of {self.points} points")

    def bytes_of(self, points: Any) -> Bytes:
        """Return a copy of the points of :meth:`chunks` as they are stored (P, bytes)."""
        raw: Bytes = np.frombuffer(np.ascontiguousarray(points.array), np.uint8).reshape(len(points), -1)
        length = self.record_length + len(self.gone)
        if raw.shape[1] != length:
            raise DataError(self.called, f"cannot be read: points have {raw.shape[1]} bytes, not {length}")
        return np.delete(raw, self.gone, axis=1) if self.gone else raw.copy()

    def copied_record(self, record: Record) -> bytes:
        """Return the bytes of a record before the points."""
        return self.head[record.start : record.start + record.size]


def check_output(path: Path) -> None:
    """Refuse an output that is neither .las nor .laz."""
    if path.name.lower().endswith(".copc.laz"):
        raise ConfigError(
            f"{path}: COPC is not written, because it would change the order of the points; write .laz and convert it "
            "to COPC (pdal translate in.laz out.copc.laz)"
        )
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: a point cloud is written as .las or .laz")


@contextmanager
def written_like(
    original: Original, target: Path, extras: Sequence[Extra], maker: Mapping[str, str]
) -> Iterator[Callable[[Bytes], object]]:
    """Write a LAS file, or LAZ by its suffix; the function that is yielded takes points (P, bytes), new bytes included.

    ``extras`` are the dimensions that are added, ``maker`` names the model that made them. Index and order of a COPC
    file are not those of the new one, so the records that describe them are left out; all others are kept.
    """
    length = original.record_length + sum(np.dtype(kind).itemsize for _, kind, _ in extras)
    if length > MOST:
        raise DataError(original.called, f"points would have {length} bytes, more than LAS can hold")
    with target.open("wb") as file:
        if target.suffix.lower() != ".laz":
            file.write(_head(original, extras, maker, None, length))
            yield lambda raw: file.write(np.ascontiguousarray(raw).data)
        else:
            import lazrs  # type: ignore[import-untyped]

            number = original.point_format
            if number in NOT_IN_LAZ:
                raise DataError(original.called, f"has point format {number}, which is written as .las only")
            vlr = lazrs.LazVlr.new_for_compression(number, length - original.record_length + original.extra_bytes)
            file.write(_head(original, extras, maker, vlr.record_data(), length))
            compressor = lazrs.LasZipCompressor(file, vlr)
            yield lambda raw: compressor.compress_many(raw.reshape(-1))
            compressor.done()
            file.seek(0, 2)
        _write_tail(original, file)


def check_extras(original: Original, names: Sequence[str]) -> None:
    """Refuse new dimensions whose name is taken or too long."""
    there = {name.casefold(): name for name in (*original.dimensions, "x", "y", "z")}
    for name in names:
        if name.casefold() in there:
            raise DataError(
                original.called,
                f"has a dimension {there[name.casefold()]!r} already: give the class another name, or write fewer "
                "dimensions (no probabilities; replace the classification)",
            )
        if len(name.encode()) > NAME:
            raise ConfigError(
                f"class {name!r} is too long for LAS, which has {NAME} bytes for a name: leave the probabilities out"
            )
        there[name.casefold()] = name


def _head(
    original: Original, extras: Sequence[Extra], maker: Mapping[str, str], laz: bytes | None, length: int
) -> bytes:
    """Return the header and the records of the new file."""
    written, described = list[bytes](), False
    for record in original.records:
        own = original.copied_record(record)
        if record.owner == "copc" or (record.owner, record.number) in (LASZIP, MAKER):
            continue
        if (record.owner, record.number) == EXTRA and extras and not described:
            own, described = _vlr(*EXTRA, _descriptions(original, own[VLR_BYTES:], extras), own[22:VLR_BYTES]), True
        written.append(own)
    if extras and not described:
        written.append(_vlr(*EXTRA, _descriptions(original, b"", extras), b"Extra Bytes Record"))
    written.append(_vlr(*MAKER, json.dumps(maker).encode(), b"model of the classes"))
    if laz is not None:
        written.append(_vlr(*LASZIP, laz, b"atomizer-io by lazrs"))
    header = bytearray(original.head[: original.header_size])
    compressed = original.point_format | (0b1000_0000 if laz is not None else 0)
    start = len(header) + sum(map(len, written)) + len(original.gap)
    struct.pack_into("<IIBH", header, 96, start, len(written), compressed, length)
    return bytes(header) + b"".join(written) + original.gap


def _descriptions(original: Original, stored: bytes, extras: Sequence[Extra]) -> bytes:
    """Describe the bytes after the standard ones of a point: as stored, then the undescribed, then the new ones."""
    there = original.extra_bytes
    if not there:  # some programs leave descriptions of bytes that they took away
        stored = b""
    unknown = there - sum(described_bytes(stored[i : i + DESCRIPTION]) for i in range(0, len(stored), DESCRIPTION))
    for first in range(0, unknown, UNDOCUMENTED):
        called = f"undocumented {first}".encode()
        stored += struct.pack("<2xBB32s", 0, min(UNDOCUMENTED, unknown - first), called).ljust(DESCRIPTION, b"\0")
    for name, kind, meaning in extras:
        known = struct.pack("<2xBB32s", TYPES[kind], 0, name.encode())
        stored += known.ljust(DESCRIPTION - NAME, b"\0") + struct.pack("<32s", meaning.encode())
    if len(stored) > MOST:
        raise DataError(
            original.called, f"would have more extra dimensions than LAS can hold: {len(stored) // DESCRIPTION}"
        )
    return stored


def described_bytes(description: bytes) -> int:
    """Return how many bytes of a point a description covers; one that is cut off covers none."""
    if len(description) < DESCRIPTION:
        return 0
    kind, options = description[2], description[3]
    return options if kind == 0 else SIZES[(kind - 1) % 10] * ((kind - 1) // 10 + 1)


def _vlr(owner: str, number: int, content: bytes, text: bytes) -> bytes:
    return struct.pack("<H16sHH32s", 0, owner.encode(), number, len(content), text) + content


def _records(file: BinaryIO, start: int, count: int, form: str) -> tuple[Record, ...]:
    """Read consecutive records; ``form`` gives owner, number and length."""
    records, own = [], struct.calcsize(form)
    for _ in range(count):
        file.seek(start)
        owner, number, length = struct.unpack(form, file.read(own))
        records.append(Record(start, own + length, owner.split(b"\0")[0].decode("ascii", "replace"), number))
        start += own + length
    return tuple(records)


def _tail(file: BinaryIO, head: bytes) -> tuple[Record, ...]:
    """Return the records after the points, without the index of a COPC file."""
    end = file.seek(0, 2)
    if head[25] >= 4:
        start, count = struct.unpack_from("<QI", head, 235)
        records = _records(file, start, count, "<2x16sHQ32x")
        return tuple(record for record in records if record.owner != "copc")
    wave = struct.unpack_from("<Q", head, 227)[0] if head[25] == 3 else 0
    return (Record(wave, end - wave, "waveforms", 0),) if 0 < wave < end else ()


def _write_tail(original: Original, file: BinaryIO) -> None:
    """Copy what lies after the points, and write its new position into the header."""
    moved = {}
    first = file.tell()
    with original.path.open("rb") as source:
        for record in original.tail:
            moved[record.start] = file.tell()
            source.seek(record.start)
            left = record.size
            while left and (block := source.read(min(left, COPIED))):
                file.write(block)
                left -= len(block)
            if left:
                raise DataError(original.called, "is truncated: a record behind the points is not complete")
    if original.minor >= 3:
        wave = struct.unpack_from("<Q", original.head, 227)[0]
        file.seek(227)
        file.write(struct.pack("<Q", moved.get(wave, wave)))
    if original.minor >= 4:
        file.seek(235)
        file.write(struct.pack("<QI", first if original.tail else 0, len(original.tail)))
