"""The points of a file sorted into blocks on disk, so that a part is read without reading the file.

FOLDER/points.bin  all points: each chunk of the file sorted by block, so that one pass suffices
FOLDER/runs.npy    which points are of which block: a run for each block in each chunk, with its checksum
FOLDER/store.json  where the blocks lie, and what the header of the file states; written last

Training keeps such stores of large tiles (:mod:`~atomizer_io.io.tile_cache`), prediction makes one of its input. Memory
depends on what is read at once, not on the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
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
    point_cloud_chunks,
    point_cloud_header,
    within,
)
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.texts import parse_json, read_text

POINTS, RUNS, LAST = "points.bin", "runs.npy", "store.json"  # a store without the last is not there
CHUNK = 500_000  # points that are sorted at once
HEADER_SLACK_M = 0.01  # by how much the bounds of a header may be off
COLUMNS = ("number", "x", "y", "z", "return_number", "number_of_returns", "intensity", "classification", "gps_time")
DERIVED = {"height": np.dtype("<f4"), "intensity_rank": np.dtype("<f4")}  # from the reference of the whole file
RUN = np.dtype([("block", "<i8"), ("first", "<i8"), ("count", "<i8"), ("check", "<u4")])


class DamagedStoreError(Exception):
    """What lies in the folder is not what was written."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Rectangles between the coordinates ``x_cuts`` and ``y_cuts``, the outermost open, numbered along x, then y."""

    x_cuts: NDArray[np.float64]
    y_cuts: NDArray[np.float64]

    @property
    def columns(self) -> int:
        """The number of blocks along x."""
        return len(self.x_cuts) + 1

    def __len__(self) -> int:
        return self.columns * (len(self.y_cuts) + 1)

    def numbers(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the block of each point."""
        row: NDArray[np.int64] = np.searchsorted(self.y_cuts, y, side="right")
        return row * self.columns + np.searchsorted(self.x_cuts, x, side="right")

    def reached(self, bounds: Bounds) -> list[tuple[int, int]]:
        """Return the blocks that may have points inside ``bounds`` as ranges, one for each row."""
        low, high = (int(np.searchsorted(self.x_cuts, x, side="right")) for x in (bounds[0], bounds[2]))
        south, north = (int(np.searchsorted(self.y_cuts, y, side="right")) for y in (bounds[1], bounds[3]))
        return [(row * self.columns + low, row * self.columns + high + 1) for row in range(south, north + 1)]


class PointStore:
    """A store that was written to ``folder`` for this ``key``; ``bounds`` are those of its points, in metres."""

    def __init__(self, folder: Path, key: str = "") -> None:
        try:
            about = parse_json(read_text(folder / LAST))
            self.folder, self.path, self.bounds = folder, Path(about["path"]), tuple(about["bounds"])
            self.crs, self.unit_m = about["crs"], about["unit_m"]
            if about.pop("seal") != _seal(about) or about["key"] != key:
                raise ValueError("its description was changed")
            self.blocks = Blocks(np.array(about["x_cuts"], float), np.array(about["y_cuts"], float))
            self.kind = np.dtype([(name, kind) for name, kind in about["columns"]])
            self.runs = np.load(folder / RUNS, allow_pickle=False)
            whole = zlib.crc32(self.runs.tobytes()) == about["check"]
            whole &= (folder / POINTS).stat().st_size == self.kind.itemsize * int(self.runs["count"].sum())
        except Exception as error:  # of broken bytes: anything
            raise DamagedStoreError(f"{folder}: {first_line(error)}") from error
        if not whole:
            raise DamagedStoreError(f"{folder}: it is not whole")

    def counts(self) -> NDArray[np.int64]:
        """Return the number of points of each block."""
        weights = self.runs["count"]
        return np.bincount(self.runs["block"], weights=weights, minlength=len(self.blocks)).astype(np.int64)

    def runs_of(self, begin: int, end: int) -> NDArray[Any]:
        """Return the runs of the blocks from ``begin`` up to ``end``, block by block."""
        runs: NDArray[Any] = self.runs[slice(*np.searchsorted(self.runs["block"], (begin, end)))]
        return runs

    def records(self, ranges: Iterable[tuple[int, int]]) -> NDArray[Any]:
        """Return the stored points of ranges of blocks, block by block, each in the order of the file."""
        runs = [self.runs_of(*blocks) for blocks in ranges]
        records = np.empty(sum(int(part["count"].sum()) for part in runs), self.kind)
        with (self.folder / POINTS).open("rb") as file:
            done = 0
            for _, first, count, check in (run for part in runs for run in part.tolist()):
                content = records[done : done + count].view(np.uint8)
                file.seek(first * self.kind.itemsize)
                if file.readinto(content) != len(content) or zlib.crc32(content) != check:  # type: ignore[arg-type]
                    raise DamagedStoreError(f"{self.folder}: points are not as they were written")
                done += count
        return records

    def numbers(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the numbers in the file of ``count`` stored points from the ``first``, in the order of the store."""
        start = first * self.kind.itemsize
        numbers: NDArray[np.int64] = np.fromfile(self.folder / POINTS, self.kind, count, offset=start)["number"]
        return numbers

    def check(self) -> None:
        """Raise an error if any point is not as it was written."""
        for number in np.unique(self.runs["block"]).tolist():
            self.records([(number, number + 1)])

    def points(self, records: NDArray[Any]) -> PointCloud:
        """Return stored points with what is known of them from the whole file."""
        columns = {name: np.ascontiguousarray(records[name]) for name in records.dtype.names or ()}
        columns |= {name: columns[name].astype(np.float64) for name in DERIVED if name in columns}
        colours = {name: columns.pop(name) for name in COLOURS if name in columns}
        return PointCloud(self.path, **columns, colours=colours or None, crs=self.crs, unit_m=self.unit_m)

    def read(self, bounds: Bounds) -> PointCloud:
        """Return the points inside ``bounds`` (far edges excluded), in the order of the file."""
        records = self.records(self.blocks.reached(bounds))
        records = records[within(records["x"], records["y"], bounds)]
        return self.points(records[np.argsort(records["number"])])

    def has_points(self, bounds: Bounds) -> bool:
        """Return whether there are points inside ``bounds``; points are read only of the blocks on its edges."""
        reached = self.blocks.reached(bounds)
        if any(len(self.runs_of(begin + 1, end - 1)) for begin, end in reached[1:-1] if end - begin > 2):
            return True
        parts = (self.records([blocks]) for blocks in reached)
        return any(within(part["x"], part["y"], bounds).any() for part in parts)


def write_store(
    path: Path,
    crs: str | None,
    folder: Path,
    blocks_over: Callable[[Bounds], Blocks],
    reference: PointCloudReference,
    *,
    colours: bool = True,
    key: str = "",
    advance: Callable[[int], object] = lambda _: None,
) -> None:
    """Write the store of a file into ``folder`` in one pass, or in two where points lie outside of the header's bounds.

    ``blocks_over`` gives the blocks for the bounds of the points, and raises a DataError where they reach too far;
    ``reference`` gives the heights and ranks that are stored with them. ``crs`` is for a file that has none.
    ``advance`` is called with the number of points of each chunk.
    """
    header = point_cloud_header(path, crs)
    (folder / LAST).unlink(missing_ok=True)
    bounds, possible = header.bounds, True
    try:
        blocks = blocks_over(bounds)
    except DataError:  # the points may reach less far
        blocks, possible = Blocks(np.empty(0), np.empty(0)), False
    columns, runs, seen = _sort(_completed(path, header, reference, colours, advance), folder / POINTS, blocks)
    if not possible or actual_bounds(bounds, seen) != bounds:
        bounds, blocks = seen, blocks_over(seen)
        columns, runs, _ = _sort(_completed(path, header, reference, colours), folder / POINTS, blocks)
    np.save(folder / RUNS, runs, allow_pickle=False)
    facts: dict[str, Any] = {"path": str(path), "bounds": bounds, "crs": header.crs, "unit_m": header.unit_m}
    facts |= {"x_cuts": blocks.x_cuts.tolist(), "y_cuts": blocks.y_cuts.tolist(), "key": key}
    facts |= {"check": zlib.crc32(runs.tobytes()), "columns": columns}  # checksums do not cover what bytes mean
    (folder / LAST).write_text(json.dumps({**facts, "seal": _seal(facts)}), encoding="utf-8")


def record_bytes(path: Path, crs: str | None = None, *, colours: bool = True) -> int:
    """Return the bytes that a point of a file takes in a store."""
    first = next(point_cloud_chunks(path, point_cloud_header(path, crs), 1))
    zero = np.zeros(1)
    return _table(replace(first, height=zero, intensity_rank=zero), colours).dtype.itemsize


def actual_bounds(stated: Bounds, seen: Bounds) -> Bounds:
    """Return the bounds that a header states, or those that were seen where points lie outside of these."""
    excess = np.array(stated[:2] + seen[2:]) - np.array(seen[:2] + stated[2:])
    return stated if (excess <= HEADER_SLACK_M).all() else seen  # not all programs keep the header up to date


def _completed(
    path: Path,
    header: PointCloudHeader,
    reference: PointCloudReference,
    colours: bool,
    advance: Callable[[int], object] = lambda _: None,
) -> Iterator[NDArray[Any]]:
    """Yield the points of a file as records, some at a time."""
    for points in point_cloud_chunks(path, header, CHUNK):
        yield _table(reference.complete(points), colours)
        advance(len(points))


def _sort(chunks: Iterable[NDArray[Any]], path: Path, blocks: Blocks) -> tuple[list[list[str]], NDArray[Any], Bounds]:
    """Write records sorted by block; return their columns, their runs by block, and the bounds of the points."""
    parts, done, columns = list[NDArray[Any]](), 0, list[list[str]]()
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    with path.open("wb") as file:
        for records in chunks:
            columns = [[name, records.dtype[name].str] for name in records.dtype.names or ()]
            x, y = records["x"], records["y"]
            low, high = np.minimum(low, (x.min(), y.min())), np.maximum(high, (x.max(), y.max()))
            number = blocks.numbers(x, y)
            order = np.argsort(number, kind="stable")
            content = records[order]
            block, first, count = np.unique(number[order], return_index=True, return_counts=True)
            runs = np.empty(len(block), RUN)
            runs["block"], runs["first"], runs["count"] = block, done + first, count
            runs["check"] = [zlib.crc32(content[begin : begin + n].data) for begin, n in zip(first, count, strict=True)]
            parts.append(runs)
            file.write(content.data)
            done += len(records)
    runs = np.concatenate(parts)
    bounds = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
    return columns, runs[np.argsort(runs["block"], kind="stable")], bounds


def _table(points: PointCloud, colours: bool) -> NDArray[Any]:
    """Return points as a table with those columns that they have."""
    columns = {name: getattr(points, name) for name in (*COLUMNS, *DERIVED) if getattr(points, name) is not None}
    columns |= (points.colours or {}) if colours else {}
    table = np.empty(
        len(points), [(name, DERIVED.get(name, column.dtype.newbyteorder("<"))) for name, column in columns.items()]
    )
    for name, column in columns.items():
        table[name] = column
    return table


def _seal(facts: dict[str, Any]) -> int:
    """Return the checksum of the description of a store."""
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())
