"""A tile cut once: its points sorted into squares, so that a window is read without reading the tile.

FOLDER/points.npy   all points sorted by square, mapped into memory and never read as a whole
FOLDER/squares.npy  where the points of each square begin, and their checksum
FOLDER/tile.json    how the squares lie, and what the header of the file says; written last
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError, first_line
from atomizer_io.io.point_clouds import (
    COLOURS,
    Bounds,
    PointCloud,
    PointCloudHeader,
    coordinates,
    point_cloud_chunks,
    point_cloud_header,
    within,
)
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.texts import parse_json, read_text

SQUARE_M = 12.5
MOST_SQUARES = 1024  # along one axis; squares of larger tiles are larger
HEADER_SLACK_M = 0.01  # by how much the bounds of a header may be off
LAST = "tile.json"  # a tile without this file is not there
COLUMNS = ("number", "x", "y", "z", "return_number", "number_of_returns", "intensity", "classification", "gps_time")
KINDS = {"height": np.dtype("<f4"), "intensity_rank": np.dtype("<f4")}  # by the reference of the whole tile
SQUARE = np.dtype([("first", "<i8"), ("check", "<u4")])


class Damaged(Exception):
    """What lies in the cache is not what was written."""


@dataclass(frozen=True, slots=True)
class Squares:
    """Squares of ``side_m`` from the corner ``west``, ``south``, numbered along x, then y."""

    west: float
    south: float
    side_m: float
    columns: int
    rows: int

    @classmethod
    def over(cls, bounds: Bounds) -> Squares:
        """Return the squares that cover ``bounds``."""
        across, along = bounds[2] - bounds[0], bounds[3] - bounds[1]
        side = max(SQUARE_M, across / MOST_SQUARES, along / MOST_SQUARES)
        return cls(bounds[0], bounds[1], side, int(across // side) + 1, int(along // side) + 1)

    def column(self, x: Any) -> Any:
        """Return the column of each x; what lies beyond the outermost belongs to it."""
        return np.clip(np.floor((x - self.west) / self.side_m), 0, self.columns - 1).astype(np.int64)

    def row(self, y: Any) -> Any:
        """Return the row of each y; what lies beyond the outermost belongs to it."""
        return np.clip(np.floor((y - self.south) / self.side_m), 0, self.rows - 1).astype(np.int64)

    def number(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the square of each point."""
        found: NDArray[np.int64] = self.row(y) * self.columns + self.column(x)
        return found

    def reached(self, bounds: Bounds) -> list[tuple[int, int]]:
        """Return the squares that may have points inside ``bounds`` as ranges, one for each row."""
        low, high = (int(self.column(x)) for x in (bounds[0], bounds[2]))
        rows = range(int(self.row(bounds[1])), int(self.row(bounds[3])) + 1)
        return [(row * self.columns + low, row * self.columns + high + 1) for row in rows]


class CutTile:
    """A tile in the cache: ``bounds`` are those of its windows, in metres."""

    def __init__(self, folder: Path) -> None:
        try:
            about = parse_json(read_text(folder / LAST))
            self.path, self.bounds = Path(about["path"]), tuple(about["bounds"])
            self.crs, self.unit_m = about["crs"], about["unit_m"]
            if about.pop("seal") != _seal(about):
                raise ValueError("its description was changed")
            self.squares = Squares(**about["squares"])
            table = np.load(folder / "squares.npy", allow_pickle=False)
            self.points = np.load(folder / "points.npy", mmap_mode="r", allow_pickle=False)
            self.first, self.checks = table["first"], table["check"]
            whole = zlib.crc32(table.tobytes()) == about["check"] and self.first[-1] == len(self.points)
            whole &= self.points.ndim == 1 and _columns(self.points.dtype) == about["columns"]
        except Exception as error:  # of broken bytes: anything
            raise Damaged(f"{folder}: {first_line(error)}") from error
        if not whole:
            raise Damaged(f"{folder}: it is not whole")
        self.sound = np.zeros(len(self.checks), dtype=bool)  # squares whose checksum was compared

    def read(self, bounds: Bounds) -> PointCloud:
        """Return the points inside ``bounds`` (far edges excluded), in the order of the file."""
        found = np.concatenate([self.between(*part) for part in self.squares.reached(bounds)])
        found = found[within(found["x"], found["y"], bounds)]
        found = found[np.argsort(found["number"])]
        columns = {name: np.ascontiguousarray(found[name]) for name in found.dtype.names or ()}
        columns |= {name: columns[name].astype(np.float64) for name in KINDS if name in columns}
        colours = {name: columns.pop(name) for name in COLOURS if name in columns}
        return PointCloud(self.path, **columns, colours=colours or None, crs=self.crs, unit_m=self.unit_m)

    def has_points(self, bounds: Bounds) -> bool:
        """Return whether there are points inside ``bounds``; points are looked at only in the squares on its edges."""
        reached = self.squares.reached(bounds)
        if any(self.first[end - 1] > self.first[begin + 1] for begin, end in reached[1:-1] if end - begin > 2):
            return True
        parts = (self.between(begin, end) for begin, end in reached if self.first[begin] < self.first[end])
        return any(within(part["x"], part["y"], bounds).any() for part in parts)

    def between(self, begin: int, end: int) -> NDArray[Any]:
        """Return the points of the squares from ``begin`` up to ``end``, whose checksums are compared once."""
        for square in (np.flatnonzero(~self.sound[begin:end]) + begin).tolist():
            content = self.points[self.first[square] : self.first[square + 1]].tobytes()
            if zlib.crc32(content) != self.checks[square]:
                raise Damaged(f"square {square} is not as it was written")
            self.sound[square] = True
        found: NDArray[Any] = self.points[self.first[begin] : self.first[end]]
        return found


def write_tile(
    path: Path, crs: str | None, folder: Path, *, coded: bool = True, tell: Callable[[float], object] = lambda _: None
) -> None:
    """Write the files of a tile into ``folder`` in a few passes; memory does not depend on the number of points.

    ``coded`` is as in :meth:`~atomizer_io.io.point_reference.PointCloudReference.of_file`; ``tell`` is told how many
    more points are done.
    """
    header = point_cloud_header(path, crs)
    bounds = header.bounds
    squares = Squares.over(bounds)
    counts, seen = _count(path, header, squares)
    if (settled := settled_bounds(bounds, seen)) != bounds:
        bounds, squares = settled, Squares.over(settled)
        counts, _ = _count(path, header, squares)
    table = np.zeros(len(counts) + 1, SQUARE)
    table["first"][1:] = np.cumsum(counts)
    reference = PointCloudReference.of_file(path, crs, coded=coded)
    tell(header.points / 2)
    with (folder / "points.npy").open("wb") as file:
        free, start, kind = table["first"].copy(), 0, None
        for cloud in point_cloud_chunks(path, header):
            records = _records(reference.complete(cloud))
            if kind is None:
                kind = records.dtype
                described = np.lib.format.dtype_to_descr(kind)
                about = {"descr": described, "fortran_order": False, "shape": (header.points,)}
                np.lib.format.write_array_header_1_0(file, about)
                start = file.tell()
            number = squares.number(cloud.x, cloud.y)
            order = np.argsort(number, kind="stable")
            records = records[order].astype(kind, copy=False)
            found, first, count = np.unique(number[order], return_index=True, return_counts=True)
            for square, begin, length in zip(found.tolist(), first.tolist(), count.tolist(), strict=True):
                content = records[begin : begin + length].tobytes()
                file.seek(start + int(free[square]) * kind.itemsize)
                file.write(content)
                table["check"][square] = zlib.crc32(content, int(table["check"][square]))
                free[square] += length
            tell(len(cloud) / 2)
    np.save(folder / "squares.npy", table, allow_pickle=False)
    facts: dict[str, Any] = {"path": str(path), "bounds": bounds, "crs": header.crs, "unit_m": header.unit_m}
    columns = [] if kind is None else _columns(kind)  # checksums of points do not cover what their bytes mean
    facts |= {"squares": asdict(squares), "check": zlib.crc32(table.tobytes()), "columns": columns}
    (folder / LAST).write_text(json.dumps({**facts, "seal": _seal(json.loads(json.dumps(facts)))}), encoding="utf-8")


def _columns(kind: np.dtype[Any]) -> list[list[str]]:
    """Return the names and types of the columns of points, as JSON has them."""
    return [[name, kind[name].str] for name in kind.names or ()]


def _seal(facts: dict[str, Any]) -> int:
    """Return the checksum of the description of a tile."""
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def settled_bounds(said: Bounds, seen: Bounds) -> Bounds:
    """Return the bounds that a header says, or those that were seen where points lie outside of what it says."""
    excess = np.array(said[:2] + seen[2:]) - np.array(seen[:2] + said[2:])
    return said if (excess <= HEADER_SLACK_M).all() else seen  # not all programs keep the header up to date


def _count(path: Path, header: PointCloudHeader, squares: Squares) -> tuple[NDArray[np.int64], Bounds]:
    """Return the number of points in each square, and the bounds of the points."""
    counts = np.zeros(squares.columns * squares.rows, dtype=np.int64)
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    for x, y in coordinates(path, header):
        low, high = np.minimum(low, (x.min(), y.min())), np.maximum(high, (x.max(), y.max()))
        if not np.isfinite([low, high]).all():
            raise DataError(path, "has points without finite x or y")
        counts += np.bincount(squares.number(x, y), minlength=len(counts))
    if counts.sum() != header.points:
        raise DataError(path, f"is truncated: it holds {counts.sum()} of {header.points} points")
    return counts, (float(low[0]), float(low[1]), float(high[0]), float(high[1]))


def _records(cloud: PointCloud) -> NDArray[Any]:
    """Return points as a table with those columns that the cloud has."""
    columns = {name: getattr(cloud, name) for name in (*COLUMNS, *KINDS) if getattr(cloud, name) is not None}
    columns |= cloud.colours or {}
    kinds = [(name, KINDS.get(name, column.dtype.newbyteorder("<"))) for name, column in columns.items()]
    table = np.empty(len(cloud), kinds)
    for name, column in columns.items():
        table[name] = column
    return table


def record_bytes(path: Path, crs: str | None = None) -> int:
    """Return the bytes that a point of a file takes when it is cut."""
    some = next(point_cloud_chunks(path, point_cloud_header(path, crs), 1))
    return _records(some).dtype.itemsize + sum(kind.itemsize for kind in KINDS.values())
