"""A point cloud on disk, sorted into blocks that windows consist of: memory depends on the window, not on the file.

OUTPUT.parts/points.bin    all points, each chunk of the file sorted by block: what atoms are made of
OUTPUT.parts/answers.bin   mean probabilities in the same order, written block by block
OUTPUT.parts/finished.bin  a number per block: the checksum of its answers once they are there, before that 0
OUTPUT.parts/index.npy     which records are of which block; saved last, so that all of the above are there with it

Windows are those of ``formats.tile_windows``, so that prediction cuts a file as training does. Their edges cut the
file into blocks, such that each window is a rectangle of whole blocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.io.cut_tile import settled_bounds
from atomizer_io.io.point_clouds import COLOURS, Bounds, PointCloudHeader, check_finite
from atomizer_io.io.tile_windows import edges, too_far
from atomizer_io.prediction.las import Original
from atomizer_io.prediction.options import CloudWindows
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.progress import progress_bar

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KINDS = {"return_number": "u1", "number_of_returns": "u1", "intensity": "u2", "classification": "u1", "gps_time": "f8"}
KINDS |= dict.fromkeys(COLOURS, "u2")
POINTS, ANSWERS, FINISHED = "points.bin", "answers.bin", "finished.bin"
CHECK = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Axis:
    """The windows along x or y, and the blocks between their edges: window i is blocks ``first[i]`` to ``last[i]``."""

    centres: Floats
    cuts: Floats
    first: Ints
    last: Ints  # exclusive

    @classmethod
    def over(cls, low: float, high: float, window_m: float, stride_m: float) -> Axis | None:
        """Return the windows between ``low`` and ``high``, or None where there would be unreasonably many."""
        near, far, centres = edges(low, high, window_m, stride_m)
        if not len(centres):
            return None
        cuts = np.unique([*near[1:], *far[:-1]])
        return cls(centres, cuts, np.searchsorted(cuts, near, "right"), np.searchsorted(cuts, far, "left") + 1)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.cuts) + 1

    def block(self, x: Floats) -> Ints:
        """Return the block that each coordinate lies in."""
        return np.searchsorted(self.cuts, x, side="right")

    def covering(self, block: int) -> range:
        """Return the windows that a block is part of."""
        return range(
            int(np.searchsorted(self.last, block, side="right")), int(np.searchsorted(self.first, block, side="right"))
        )


@dataclass(frozen=True, slots=True)
class CloudWindow:
    """A window with points: its blocks that have any, and where their records lie (first, count), in that order."""

    row: int
    column: int
    centre: tuple[float, float]
    blocks: tuple[int, ...]
    pieces: tuple[tuple[int, int], ...]

    @property
    def name(self) -> str:
        """The name of the file of its answers."""
        return f"window-{self.row:05d}-{self.column:05d}"

    @property
    def seed(self) -> int:
        """The number that draws are made with: another for each window, and always the same."""
        return self.row << 32 | self.column

    def read(self, folder: Path, kind: np.dtype[Any]) -> NDArray[Any]:
        """Read the points of the window, block by block."""
        found = np.empty(sum(count for _, count in self.pieces), kind)
        filled = 0
        with (folder / POINTS).open("rb") as file:
            for start, count in self.pieces:
                file.seek(start * kind.itemsize)
                found[filled : filled + count] = np.fromfile(file, kind, count)
                filled += count
        return found


@dataclass(frozen=True, slots=True)
class CloudBlocks:
    """Where the points of each block lie on disk, and which windows there are; blocks are numbered along x, then y."""

    columns: Axis
    rows: Axis
    runs: Ints  # (runs, 3): block, first record, how many; sorted
    starts: Ints  # of the runs of each block, and the end
    counts: Ints  # points of each block

    @classmethod
    def of(cls, columns: Axis, rows: Axis, runs: Ints) -> CloudBlocks:
        """Return the blocks that these runs of records make up."""
        number = np.arange(columns.blocks * rows.blocks + 1)
        counts = np.bincount(runs[:, 0], weights=runs[:, 2], minlength=len(number) - 1).astype(np.int64)
        return cls(columns, rows, runs, np.searchsorted(runs[:, 0], number), counts)

    def windows(self) -> Iterator[CloudWindow]:
        """Yield the windows that have points, row by row from the south."""
        for row in range(len(self.rows.centres)):
            for column in range(len(self.columns.centres)):
                window = self.window(row, column)
                if window.blocks:
                    yield window

    def window(self, row: int, column: int) -> CloudWindow:
        """Return the window at (row, column), which may have no points."""
        blocks = self.inside(row, column)
        pieces = tuple((int(start), int(n)) for block in blocks for _, start, n in self.runs_of(block))
        centre = (float(self.columns.centres[column]), float(self.rows.centres[row]))
        return CloudWindow(row, column, centre, blocks, pieces)

    def inside(self, row: int, column: int) -> tuple[int, ...]:
        """Return the blocks of a window that have points."""
        across = range(self.columns.first[column], self.columns.last[column])
        numbers = (
            r * self.columns.blocks + c for r in range(self.rows.first[row], self.rows.last[row]) for c in across
        )
        return tuple(number for number in numbers if self.counts[number])

    def covering(self, block: int) -> list[tuple[int, int]]:
        """Return (row, column) of each window that a block is part of."""
        row, column = divmod(block, self.columns.blocks)
        return [(r, c) for r in self.rows.covering(row) for c in self.columns.covering(column)]

    def runs_of(self, block: int) -> Ints:
        """Return the runs of a block."""
        return self.runs[self.starts[block] : self.starts[block + 1]]


def record_type(fields: Sequence[str]) -> np.dtype[Any]:
    """Return the type of a stored point: its number in the file, metres, and some of the columns of the file."""
    return np.dtype([("index", "i8"), ("x", "f8"), ("y", "f8"), ("z", "f8"), *((name, KINDS[name]) for name in fields)])


def split(
    original: Original,
    header: PointCloudHeader,
    parts: PartsFolder,
    windows: CloudWindows,
    fields: Sequence[str],
    outputs: int,
    progress: bool,
) -> CloudBlocks:
    """Sort the points of a file into blocks in one pass; blocks that an earlier run completed are used again.

    A second pass is needed where points lie outside of what the header says.
    """

    def axes(bounds: Bounds) -> tuple[Axis | None, Axis | None]:
        columns, rows = (Axis.over(bounds[i], bounds[i + 2], windows.side_m, windows.step_m) for i in (0, 1))
        return columns, rows

    if "index" in parts and "bounds" in parts and parts.sound(POINTS):
        west, south, east, north = parts.load("bounds").tolist()
        columns, rows = axes((west, south, east, north))
        assert columns is not None and rows is not None
        _sized(parts, outputs, original.points, columns.blocks * rows.blocks)
        return CloudBlocks.of(columns, rows, np.array(parts.load("index")))
    bounds = header.bounds
    columns, rows = axes(bounds)
    runs, seen = _sort(original, header, parts, columns, rows, fields, progress)
    if runs is None or settled_bounds(bounds, seen) != bounds:
        bounds = seen
        columns, rows = axes(bounds)
        runs, _ = _sort(original, header, parts, columns, rows, fields, progress)
    if columns is None or rows is None or runs is None:
        raise too_far(original.path, seen, windows.side_m)
    _sized(parts, outputs, original.points, columns.blocks * rows.blocks)
    parts.seal(POINTS)
    parts.save("bounds", np.array(bounds))
    parts.save("index", runs)
    return CloudBlocks.of(columns, rows, runs)


def _sized(parts: PartsFolder, outputs: int, points: int, blocks: int) -> None:
    """Create the files for all answers: what is there stays, the rest are zeros that take no space yet."""
    for name, size in ((ANSWERS, 4 * outputs * points), (FINISHED, CHECK.itemsize * blocks)):
        with parts.path(name).open("ab") as file:
            file.truncate(size)


def check_of(mark: bytes, block: int, answers: bytes | bytearray | memoryview) -> int:
    """Return the checksum, never 0, of the answers of a block in the order of its runs, for the plan of this mark."""
    return zlib.crc32(answers, zlib.crc32(mark + block.to_bytes(8, "little"))) or 1


def sound_blocks(blocks: CloudBlocks, parts: PartsFolder, outputs: int) -> NDArray[np.bool_]:
    """Return which blocks have answers that are as they were written."""
    checks = np.fromfile(parts.path(FINISHED), CHECK)
    found = checks != 0
    with parts.path(ANSWERS).open("rb") as file:
        for block in np.flatnonzero(found).tolist():
            content = bytearray()
            for _, first, count in blocks.runs_of(block).tolist():
                file.seek(4 * outputs * first)
                content += file.read(4 * outputs * count)
            found[block] = check_of(parts.mark, block, content) == checks[block]
    return found


def _sort(
    original: Original,
    header: PointCloudHeader,
    parts: PartsFolder,
    columns: Axis | None,
    rows: Axis | None,
    fields: Sequence[str],
    progress: bool,
) -> tuple[Ints | None, Bounds]:
    """Write all points to disk; return the runs of each block (None without blocks) and the bounds of the points."""
    kind, runs, done = record_type(fields), list[Ints](), 0
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    bar = progress_bar(original.points, title="sorting", unit=" points", large=True, show=progress)
    with parts.path(POINTS).open("wb") as file, bar:
        for points in original.chunks():
            table = np.empty(len(points), kind)
            table["index"] = np.arange(done, done + len(points))
            for axis, unit in (("x", header.unit_m), ("y", header.unit_m), ("z", header.unit_z_m)):
                table[axis] = np.asarray(points[axis], dtype=np.float64) * unit
            check_finite(original.path, {axis: table[axis] for axis in "xyz"})
            for name in fields:
                table[name] = points[name]
            low = np.minimum(low, (table["x"].min(), table["y"].min()))
            high = np.maximum(high, (table["x"].max(), table["y"].max()))
            if columns is not None and rows is not None:
                block = rows.block(table["y"]) * columns.blocks + columns.block(table["x"])
                order = np.argsort(block, kind="stable")
                number, first, count = np.unique(block[order], return_index=True, return_counts=True)
                runs.append(np.stack([number, done + first, count], axis=1))
                file.write(table[order].data)
            done += len(points)
            bar.update(len(points))
    bounds = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
    if not runs:
        return None, bounds
    found = np.concatenate(runs)
    return found[np.argsort(found[:, 0], kind="stable")], bounds
