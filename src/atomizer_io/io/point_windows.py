"""Square windows of point clouds, the same in training and in prediction: found first, then read one by one."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.point_clouds import (
    Bounds,
    PointCloud,
    PointCloudHeader,
    coordinates,
    point_cloud_header,
    read_point_cloud,
    within,
)
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.point_store import Blocks, PointStore, actual_bounds
from atomizer_io.io.tile_cache import LEAST_POINTS, TileCache

SLIVER = 0.02  # share of a window: a narrower strip at the far edge belongs to the last window
KEPT_POINTS = 30_000_000  # most points of a tile that stays in memory between two windows
KEPT_REFERENCES = 8  # such tiles whose ground and intensities stay in memory
MOST_WINDOWS = 1000  # along one axis; more are taken for stray points

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """The windows along x or y: their near and far edges, of which the outermost are infinite, and their centres.

    Edges cut the axis at ``cuts`` into blocks, such that window i is the blocks ``first[i]`` to ``last[i]``, exclusive.
    """

    near: Floats
    far: Floats
    centres: Floats
    cuts: Floats
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @classmethod
    def over(cls, low: float, high: float, window_m: float, stride_m: float) -> Axis | None:
        """Return the windows between ``low`` and ``high``, or None where they would be unreasonably many."""
        steps = (high - low - (1 + SLIVER) * window_m) / stride_m
        if not steps < MOST_WINDOWS:  # or NaN
            return None
        start = low + stride_m * np.arange(max(1, math.ceil(steps) + 1), dtype=np.float64)
        near, far = start.copy(), start + window_m
        near[0], far[-1] = -np.inf, np.inf
        cuts = np.unique([*near[1:], *far[:-1]])
        first, last = np.searchsorted(cuts, near, "right"), np.searchsorted(cuts, far, "left") + 1
        return cls(near, far, start + window_m / 2, cuts, first, last)

    @property
    def windows(self) -> int:
        """The number of windows."""
        return len(self.centres)

    def block(self, x: Floats) -> NDArray[np.int64]:
        """Return the block that each coordinate lies in."""
        return np.searchsorted(self.cuts, x, side="right")

    def covering(self, block: int) -> range:
        """Return the windows that a block is part of."""
        first, last = (int(np.searchsorted(edge, block, side="right")) for edge in (self.last, self.first))
        return range(first, last)


@dataclass(frozen=True, slots=True, eq=False)
class WindowGrid:
    """The windows over ``extent`` (metres), rows from the south; each is a rectangle of whole blocks."""

    columns: Axis
    rows: Axis
    extent: Bounds

    @classmethod
    def over(cls, path: Path, extent: Bounds, window_m: float, stride_m: float) -> WindowGrid:
        """Return the windows of a file over ``extent``; so many that some points must be stray are an error."""
        columns, rows = (Axis.over(extent[i], extent[i + 2], window_m, stride_m) for i in (0, 1))
        if columns is None or rows is None:
            sides = " × ".join(f"{high - low:.0f} m" for low, high in zip(extent[:2], extent[2:], strict=True))
            raise DataError(path, f"reaches over {sides}, too far for windows of {window_m:g} m: has it stray points?")
        return cls(columns, rows, extent)

    @property
    def blocks(self) -> Blocks:
        """The blocks between the edges of all windows."""
        return Blocks(self.columns.cuts, self.rows.cuts)

    def bounds(self, row: int, column: int) -> Bounds:
        """Return the bounds of a window."""
        x, y = self.columns, self.rows
        return float(x.near[column]), float(y.near[row]), float(x.far[column]), float(y.far[row])

    def centre(self, row: int, column: int) -> tuple[float, float]:
        """Return the centre of a window."""
        return float(self.columns.centres[column]), float(self.rows.centres[row])

    def inside(self, row: int, column: int) -> list[tuple[int, int]]:
        """Return the blocks of a window as ranges, one for each row of blocks."""
        wide, low, high = self.blocks.columns, int(self.columns.first[column]), int(self.columns.last[column])
        return [(y * wide + low, y * wide + high) for y in range(int(self.rows.first[row]), int(self.rows.last[row]))]

    def covering(self, block: int) -> list[tuple[int, int]]:
        """Return (row, column) of each window that a block is part of."""
        y, x = divmod(block, self.blocks.columns)
        return [(row, column) for row in self.rows.covering(y) for column in self.columns.covering(x)]

    def occupied(self, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which windows (rows, columns) have points, from the number of points of each block."""
        total = np.zeros((len(self.rows.cuts) + 2, len(self.columns.cuts) + 2), dtype=np.int64)
        total[1:, 1:] = counts.reshape(total.shape[0] - 1, -1).cumsum(axis=0).cumsum(axis=1)
        x, y = self.columns, self.rows
        north, south = total[y.last], total[y.first]
        inside: NDArray[np.int64] = north[:, x.last] - north[:, x.first] - south[:, x.last] + south[:, x.first]
        return inside > 0


@dataclass(frozen=True, slots=True)
class TileWindow:
    """A tile (a file of points), or its part inside ``bounds`` around ``centre`` (metres).

    ``number`` counts the windows of a split. Windows at the border of a tile are open outwards, so that every point is
    in one. ``extent`` are the bounds of the tile, None where the file was not looked at.
    """

    path: Path
    id: str
    number: int = 0
    bounds: Bounds | None = None
    centre: tuple[float, float] | None = None
    keep: bool = False  # the tile is small enough to stay in memory between two windows
    stored: bool = False  # the tile is in a cache
    extent: Bounds | None = None


def find_windows(
    paths: Sequence[Path],
    window_m: float,
    stride_m: float | None = None,
    *,
    skip_broken: bool = False,
    crs: str | None = None,
    cache: TileCache | None = None,
) -> list[TileWindow]:
    """Return the windows of each file that have points, rows from the south.

    x and y of all points are read once, or, with a ``cache``, large tiles are sorted into it. With ``skip_broken`` a
    file that cannot be read becomes one window; reading it raises the error. ``crs`` is for files that
    have none.
    """
    step = window_m if stride_m is None else stride_m
    if cache is not None:
        large = list[Path]()
        for path in paths:
            with contextlib.suppress(DataError):  # the error is raised when the file is read
                large += [path] if is_large(point_cloud_header(path, crs), window_m) else []
        cache = cache if cache.prepare(large, crs, skip_broken=skip_broken) else None
    windows: list[TileWindow] = []
    for path in paths:
        try:
            windows += windows_of(path, window_m, step, crs, cache)
        except DataError:
            if not skip_broken:
                raise
            windows.append(whole_file(path))
    return numbered(windows)


def is_large(header: PointCloudHeader, window_m: float) -> bool:
    """Return whether a tile is worth storing: it has many points and more than one window."""
    spans = (header.bounds[i + 2] - header.bounds[i] for i in (0, 1))
    return header.points >= LEAST_POINTS and any((1 + SLIVER) * window_m < span < math.inf for span in spans)


def numbered(windows: Iterable[TileWindow]) -> list[TileWindow]:
    """Return the windows, numbered from 0."""
    return [replace(window, number=number) for number, window in enumerate(windows)]


def whole_file(path: Path) -> TileWindow:
    """Return a window that is a whole file."""
    return TileWindow(path, tile_name(path))


def tile_name(path: Path) -> str:
    """Return the name of a file without ``.laz`` or ``.copc.laz``."""
    return path.stem.removesuffix(".copc")


def read_window(
    window: TileWindow, crs: str | None = None, cache: TileCache | None = None, *, las_standard: bool = True
) -> PointCloud:
    """Read the points of a window, with what takes their whole tile: heights above ground and ranks of intensity.

    A tile that is in the ``cache`` is not read for that. Otherwise the last tile stays in memory, so that windows of
    one tile in a row are read once; one of more than 30 million points does not, and is read in pieces for each window.
    ``las_standard``: whether classes are those of the LAS standard, of which some are noise.
    """
    bounds = window.bounds
    if cache is not None and window.stored and bounds is not None:
        points = cache.use(window.path, crs, lambda store: store.read(bounds))
        if points is not None:
            return points
    try:
        state = window.path.stat()
    except OSError as error:
        raise DataError(window.path, "no such file") from error
    key = (window.path, crs, las_standard, state.st_mtime_ns, state.st_size)
    if bounds is None or window.keep:
        tile = _tile(*key)
        return tile if bounds is None else tile.where(np.flatnonzero(within(tile.x, tile.y, bounds)))
    return _reference(*key).complete(read_point_cloud(window.path, bounds=bounds, crs=crs))


# Both are of this process: nothing of them is pickled with a dataset.
@functools.lru_cache(maxsize=1)
def _tile(path: Path, crs: str | None, las_standard: bool, modified: int, size: int) -> PointCloud:
    tile = read_point_cloud(path, crs=crs)
    return PointCloudReference.of_point_cloud(tile, las_standard=las_standard).complete(tile)


@functools.lru_cache(maxsize=KEPT_REFERENCES)
def _reference(path: Path, crs: str | None, las_standard: bool, modified: int, size: int) -> PointCloudReference:
    return PointCloudReference.of_file(path, crs, las_standard=las_standard)


def windows_of(
    path: Path, window_m: float, stride_m: float, crs: str | None = None, cache: TileCache | None = None
) -> list[TileWindow]:
    """Return the windows of one file that have points."""
    header = point_cloud_header(path, crs)
    stored = cache is not None and is_large(header, window_m)

    def occupied_in(store: PointStore) -> tuple[WindowGrid, NDArray[np.bool_]]:
        grid = WindowGrid.over(path, store.bounds, window_m, stride_m)
        rows, columns = range(grid.rows.windows), range(grid.columns.windows)
        return grid, np.array([[store.has_points(grid.bounds(row, column)) for column in columns] for row in rows])

    in_store = cache.use(path, crs, occupied_in) if cache is not None and stored else None
    grid, occupied = in_store or _occupied(path, header, window_m, stride_m)
    keep = header.points <= KEPT_POINTS
    windows = []
    for row, column in np.argwhere(occupied).tolist():
        name = f"{tile_name(path)}_r{row:02d}_c{column:02d}"
        bounds, centre = grid.bounds(row, column), grid.centre(row, column)
        windows.append(TileWindow(path, name, 0, bounds, centre, keep, stored, grid.extent))
    return windows


def _occupied(
    path: Path, header: PointCloudHeader, window_m: float, stride_m: float
) -> tuple[WindowGrid, NDArray[np.bool_]]:
    """Return the windows of a file, and which of them (rows, columns) have points: x and y of all points are read."""
    try:
        grid = WindowGrid.over(path, header.bounds, window_m, stride_m)
    except DataError:  # the points may reach less far
        grid = None
    counts, seen = _counts(path, header, grid)
    if grid is None or actual_bounds(header.bounds, seen) != header.bounds:
        grid = WindowGrid.over(path, seen, window_m, stride_m)
        counts, _ = _counts(path, header, grid)
    return grid, grid.occupied(counts)


def _counts(path: Path, header: PointCloudHeader, grid: WindowGrid | None) -> tuple[NDArray[np.int64], Bounds]:
    """Return the number of points of each block of windows, and the bounds of the points."""
    blocks = Blocks(np.empty(0), np.empty(0)) if grid is None else grid.blocks
    counts = np.zeros(len(blocks), dtype=np.int64)
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    for x, y in coordinates(path, header):
        low, high = np.minimum(low, (x.min(), y.min())), np.maximum(high, (x.max(), y.max()))
        counts += np.bincount(blocks.numbers(x, y), minlength=len(counts))
    return counts, (float(low[0]), float(low[1]), float(high[0]), float(high[1]))


def check_window(window_m: float | None, stride_m: float | None) -> None:
    """Refuse windows without a size and strides that leave gaps."""
    if window_m is not None and not 0 < window_m < float("inf"):
        raise ConfigError(f"window_m is {window_m}; give a positive number of metres")
    if stride_m is not None and (window_m is None or not 0 < stride_m <= window_m):
        raise ConfigError(f"stride_m is {stride_m} with windows of {window_m} m; give metres up to the window's size")
