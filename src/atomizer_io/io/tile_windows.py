"""Square windows of point clouds: found without keeping the points, then read one by one."""

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
from atomizer_io.io.cut_tile import CutTile, settled_bounds
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
from atomizer_io.io.tile_cache import LEAST_POINTS, TileCache

SLIVER = 0.02  # share of a window: a narrower strip at the far edge belongs to the last window
KEPT_POINTS = 30_000_000  # most points of a tile that stays in memory between two windows
KEPT_REFERENCES = 8  # such tiles whose ground and intensities stay in memory
MOST_WINDOWS = 1000  # along one axis; more are taken for stray points

Edges = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]  # near, far, centre of each window
Occupied = tuple[NDArray[np.bool_], Edges, Edges, Bounds]  # by row and column; edges of columns, rows; bounds of all


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
    cut: bool = False  # the tile is in a cache
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

    x and y of all points are read once, or, with a ``cache``, large tiles are cut into it. With ``skip_broken`` a file
    that cannot be read becomes one window; the error of reading it says what is wrong. ``crs`` is for files that have
    none.
    """
    step = window_m if stride_m is None else stride_m
    if cache is not None:
        large = list[Path]()
        for path in paths:
            with contextlib.suppress(DataError):  # what is wrong with a file is told by reading it
                large += [path] if is_large(point_cloud_header(path, crs), window_m) else []
        cache = cache if cache.prepare(large, crs, skip_broken=skip_broken) else None
    found: list[TileWindow] = []
    for path in paths:
        try:
            found += windows_of(path, window_m, step, crs, cache)
        except DataError:
            if not skip_broken:
                raise
            found.append(whole_file(path))
    return numbered(found)


def is_large(header: PointCloudHeader, window_m: float) -> bool:
    """Return whether a tile is worth cutting: it has many points and more than one window."""
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
    window: TileWindow, crs: str | None = None, cache: TileCache | None = None, *, coded: bool = True
) -> PointCloud:
    """Read the points of a window, with what only their whole tile tells: heights above ground and ranks of intensity.

    A tile that is in the ``cache`` is not read for that. Otherwise the last tile stays in memory, so that windows of
    one tile in a row are read once; one of more than 30 million points does not, and is read in pieces for each window.
    ``coded`` says whether classes are those of the LAS standard, of which some are noise.
    """
    bounds = window.bounds
    if cache is not None and window.cut and bounds is not None:
        cloud = cache.ask(window.path, crs, lambda tile: tile.read(bounds))
        if cloud is not None:
            return cloud
    try:
        state = window.path.stat()
    except OSError as error:
        raise DataError(window.path, "no such file") from error
    key = (window.path, crs, coded, state.st_mtime_ns, state.st_size)
    if bounds is None or window.keep:
        tile = _tile(*key)
        return tile if bounds is None else tile.where(np.flatnonzero(within(tile.x, tile.y, bounds)))
    return _reference(*key).complete(read_point_cloud(window.path, bounds=bounds, crs=crs))


# Both are of this process: nothing of them is pickled with a dataset.
@functools.lru_cache(maxsize=1)
def _tile(path: Path, crs: str | None, coded: bool, modified: int, size: int) -> PointCloud:
    cloud = read_point_cloud(path, crs=crs)
    return PointCloudReference.of_point_cloud(cloud, coded=coded).complete(cloud)


@functools.lru_cache(maxsize=KEPT_REFERENCES)
def _reference(path: Path, crs: str | None, coded: bool, modified: int, size: int) -> PointCloudReference:
    return PointCloudReference.of_file(path, crs, coded=coded)


def windows_of(
    path: Path, window_m: float, stride_m: float, crs: str | None = None, cache: TileCache | None = None
) -> list[TileWindow]:
    """Return the windows of one file that have points."""
    header = point_cloud_header(path, crs)
    cut, found = cache is not None and is_large(header, window_m), None
    if cache is not None and cut:
        found = cache.ask(path, crs, lambda tile: _occupied(tile, window_m, stride_m))
    occupied, columns, rows, bounds = found or _counted(path, header, window_m, stride_m)
    if not occupied.size:
        raise too_far(path, bounds, window_m)
    keep = header.points <= KEPT_POINTS
    windows = []
    for row, column in np.argwhere(occupied).tolist():
        near_x, far_x, x = (float(edge[column]) for edge in columns)
        near_y, far_y, y = (float(edge[row]) for edge in rows)
        name = f"{tile_name(path)}_r{row:02d}_c{column:02d}"
        windows.append(TileWindow(path, name, 0, (near_x, near_y, far_x, far_y), (x, y), keep, cut, bounds))
    return windows


def too_far(path: Path, bounds: Bounds, window_m: float) -> DataError:
    """Return the error about a file with so many windows that some of its points must be stray."""
    extent = " × ".join(f"{high - low:.0f} m" for low, high in zip(bounds[:2], bounds[2:], strict=True))
    return DataError(path, f"reaches over {extent}, too far for windows of {window_m:g} m: has it stray points?")


def _occupied(tile: CutTile, window_m: float, stride_m: float) -> Occupied:
    """Return which windows of a tile in the cache have points."""
    columns, rows = (edges(tile.bounds[i], tile.bounds[i + 2], window_m, stride_m) for i in (0, 1))
    spans = [list(zip(near.tolist(), far.tolist(), strict=True)) for near, far, _ in (columns, rows)]
    found = [[tile.has_points((west, south, east, north)) for west, east in spans[0]] for south, north in spans[1]]
    return np.array(found, dtype=bool), columns, rows, tile.bounds


def _counted(path: Path, header: PointCloudHeader, window_m: float, stride_m: float) -> Occupied:
    """Return which windows of a file have points, for which x and y of all points are read."""
    bounds = header.bounds
    counts, columns, rows, seen = _count(path, header, bounds, window_m, stride_m)
    if not counts.size or settled_bounds(bounds, seen) != bounds:
        bounds = seen
        counts, columns, rows, _ = _count(path, header, bounds, window_m, stride_m)
    return counts > 0, columns, rows, bounds


def _count(
    path: Path, header: PointCloudHeader, bounds: Bounds, window_m: float, stride_m: float
) -> tuple[NDArray[np.int64], Edges, Edges, Bounds]:
    """Return the points per window (rows, columns), the edges of columns and of rows, and the bounds of the points.

    The counts are empty if the windows are too many.
    """
    columns, rows = (edges(bounds[i], bounds[i + 2], window_m, stride_m) for i in (0, 1))
    shape = (len(rows[0]), len(columns[0]))
    counts = np.zeros(shape[0] * shape[1], dtype=np.int64)
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    for x, y in coordinates(path, header):
        low = np.minimum(low, (x.min(), y.min()))
        high = np.maximum(high, (x.max(), y.max()))
        for column, in_column in _members(x, columns) if len(counts) else ():
            for row, in_row in _members(y, rows):
                inside = in_column & in_row
                counts += np.bincount(row[inside] * shape[1] + column[inside], minlength=len(counts))
    return counts.reshape(shape), columns, rows, (float(low[0]), float(low[1]), float(high[0]), float(high[1]))


def edges(low: float, high: float, window_m: float, stride_m: float) -> Edges:
    """Return the near and far edge and the centre of the windows along one axis; the outermost edges are infinite.

    There are none where they would be so many that the points must be stray.
    """
    steps = (high - low - (1 + SLIVER) * window_m) / stride_m
    if not steps < MOST_WINDOWS:  # or NaN
        return np.empty(0), np.empty(0), np.empty(0)
    count = max(1, math.ceil(steps) + 1)
    start = low + stride_m * np.arange(count, dtype=np.float64)
    near, far = start.copy(), start + window_m
    near[0], far[-1] = -np.inf, np.inf
    return near, far, start + window_m / 2


def _members(x: NDArray[np.float64], axis: Edges) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Return the windows along an axis that each coordinate is in: the first, the second where they overlap, …"""
    near, far, _ = axis
    first = np.searchsorted(far, x, side="right")
    last = np.searchsorted(near, x, side="right") - 1
    return [(np.minimum(first + i, last), first + i <= last) for i in range(int((last - first).max(initial=0)) + 1)]


def check_window(window_m: float | None, stride_m: float | None) -> None:
    """Refuse windows without a size and strides that leave gaps."""
    if window_m is not None and not 0 < window_m < float("inf"):
        raise ConfigError(f"window_m is {window_m}; give a positive number of metres")
    if stride_m is not None and (window_m is None or not 0 < stride_m <= window_m):
        raise ConfigError(f"stride_m is {stride_m} with windows of {window_m} m; give metres up to the window's size")
