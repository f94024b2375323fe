"""Windows of rasters and of point clouds around labelled positions: which there are, and what was observed in one."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import AERIAL
from atomizer_io.datasets.spatial_folds import blocks_of
from atomizer_io.io.crs import Box, LocalFrame, box_of, outline
from atomizer_io.io.overlays import Overlay, frame_of
from atomizer_io.io.point_atoms import Heights, height_channels
from atomizer_io.io.point_clouds import point_cloud_header
from atomizer_io.io.point_scene import PointScene
from atomizer_io.io.point_windows import TileWindow, find_windows, read_window
from atomizer_io.io.raster_sources import RasterSource, alike, overlap
from atomizer_io.io.tile_cache import TileCache
from atomizer_io.io.vector_labels import mover

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DEGREES = "EPSG:4326"  # of labels on images in several coordinate systems
WINDOW_PIXELS, WINDOW_POINTS_M = 64, 50.0  # side of a window, where the user names none
WHOLE = 1.5  # a raster of no more than so many windows along its longer side is one


@dataclass(frozen=True, slots=True, eq=False)
class LabelWindow:
    """A sample before it is read: the labels (by index) whose positions (M, 2) lie in a part of the images.

    ``box`` is what is read, in units of ``crs``. ``sources`` are the images (by index) that are shown; a point cloud is
    a ``tile``.
    """

    id: str
    crs: str | None
    box: Box
    sources: tuple[int, ...]
    labels: Ints
    positions: Floats
    tile: TileWindow | None = None

    @property
    def frame(self) -> LocalFrame:
        """The frame in metres around the middle of the box."""
        west, south, east, north = self.box
        return LocalFrame.around(self.crs, (west + east) / 2, (south + north) / 2)


@dataclass(slots=True)
class RasterScenes:
    """Rasters in any coordinate systems; a label belongs to the first of them that it lies in.

    A small raster is one window. A larger one is cut into windows that overlap by half, whose labels are those in the
    middle, so that something was observed on all sides of a label.
    """

    sources: tuple[RasterSource, ...]
    window_m: float = 0.0
    crs: str | None = field(init=False)

    def __post_init__(self) -> None:
        first = self.sources[0].crs
        self.sources = tuple(alike(source, first) for source in self.sources)
        self.crs = first if all(source.crs == first for source in self.sources) else DEGREES
        if not self.window_m:
            self.window_m = WINDOW_PIXELS * min(max(source.pixel_m) for source in self.sources)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of all rasters."""
        return Overlay(self.sources).channels

    @property
    def footprint_m(self) -> float:
        """The side of a pixel of the first raster."""
        return max(self.sources[0].pixel_m)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the rasters."""
        return tuple(source.path for source in self.sources)

    @property
    def dates(self) -> tuple[datetime.date | None, ...]:
        """The date of each raster."""
        return tuple(source.date for source in self.sources)

    def windows(self, xy: Floats) -> Iterator[LabelWindow]:
        """Yield the windows with labels."""
        boxes = np.array([box_in(source, self.crs) for source in self.sources])
        free = np.ones(len(xy), dtype=bool)
        order = np.argsort(xy[:, 0], kind="stable")
        for number, source in enumerate(self.sources):
            west, south, east, north = boxes[number]
            first, last = np.searchsorted(xy[order, 0], (west, east), side="left")
            near = order[first : max(first, last) + 1]
            near = near[free[near] & (xy[near, 1] >= south) & (xy[near, 1] <= north)]
            if not len(near):
                continue
            own = mover(self.crs, source.crs)(xy[near])
            low_x, low_y, high_x, high_y = source.bounds
            inside = (own[:, 0] >= low_x) & (own[:, 0] < high_x) & (own[:, 1] > low_y) & (own[:, 1] <= high_y)
            labels, own = near[inside], own[inside]
            free[labels] = False
            if len(labels):
                yield from self._cut(source, labels, own, boxes)

    def _cut(self, source: RasterSource, labels: Ints, xy: Floats, boxes: Floats) -> Iterator[LabelWindow]:
        """Yield the windows of the labels of one raster."""
        height, width = source.shape
        order = np.argsort(labels)
        labels, xy = labels[order], xy[order]
        if max(width * source.pixel_m[0], height * source.pixel_m[1]) <= WHOLE * self.window_m:
            yield LabelWindow(
                source.path.stem, source.crs, source.bounds, self._over(source.crs, source.bounds, boxes), labels, xy
            )
            return
        cells, inverse = np.unique(blocks_of(xy, source.crs, self.window_m / 2), axis=0, return_inverse=True)
        for (column, row), own in zip(cells.tolist(), grouped(inverse.reshape(-1)), strict=True):
            middle = (xy[own].min(axis=0) + xy[own].max(axis=0)) / 2  # of the labels: at most half a window wide
            frame = LocalFrame.around(source.crs, *middle.tolist())
            half = self.window_m / 2
            (west, east), (south, north) = frame.coordinates(np.array([-half, half]), np.array([-half, half]))
            box = (float(west), float(south), float(east), float(north))
            name = f"{source.path.stem}_{column}_{row}"
            yield LabelWindow(name, source.crs, box, self._over(source.crs, box, boxes), labels[own], xy[own])

    def _over(self, crs: str | None, box: Box, boxes: Floats) -> tuple[int, ...]:
        """Return the rasters that overlap a box."""
        west, south, east, north = box if crs == self.crs else around(box, crs, self.crs)
        near = (boxes[:, 0] < east) & (boxes[:, 2] > west) & (boxes[:, 1] < north) & (boxes[:, 3] > south)
        return tuple(i for i in np.flatnonzero(near).tolist() if overlap(self.sources[i], crs, box))

    def read(self, window: LabelWindow) -> tuple[LocalFrame, AtomSet]:
        """Return what was observed in a window, and its frame."""
        frame = window.frame
        (west, east), (south, north) = frame.metres(np.array(window.box[::2]), np.array(window.box[1::2]))
        box = (float(west), float(south), float(east), float(north))
        return frame, Overlay(tuple(self.sources[i] for i in window.sources)).atoms(frame, box)

    def files(self, window: LabelWindow) -> tuple[Path, ...]:
        """Return the files of a window."""
        return tuple(self.sources[i].path for i in window.sources)


@dataclass(slots=True)
class CloudScenes:
    """Point clouds, with rasters over them where there are any; a label belongs to the first cloud that it lies in."""

    clouds: tuple[Path, ...]
    images: Overlay = field(default_factory=Overlay)
    window_m: float = 0.0
    heights: Heights = "ground"
    cache: TileCache | None = None
    skip_broken: bool = False
    footprint_m: float = 1.0
    crs: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.window_m = self.window_m or WINDOW_POINTS_M
        systems = {point_cloud_header(path).crs for path in self.clouds}
        self.crs = next(iter(systems)) if len(systems) == 1 else DEGREES

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of the points and of the rasters over them."""
        return (
            *height_channels(self.heights),
            *(() if self.images.sources else AERIAL.channels),
            *self.images.channels,
        )

    @property
    def paths(self) -> tuple[Path, ...]:
        """The point clouds and the rasters."""
        return (*self.clouds, *self.images.paths)

    @property
    def dates(self) -> tuple[datetime.date | None, ...]:
        """Point clouds have no dates by which labels are matched."""
        return ()

    def windows(self, xy: Floats) -> Iterator[LabelWindow]:
        """Yield the windows with labels."""
        free = np.ones(len(xy), dtype=bool)
        how: dict[str, Any] = {"skip_broken": self.skip_broken, "cache": self.cache}
        for path in self.clouds:
            header = point_cloud_header(path)
            own = mover(self.crs, header.crs)(xy) * header.unit_m
            low_x, low_y, high_x, high_y = header.bounds
            inside = (own[:, 0] >= low_x) & (own[:, 0] <= high_x) & (own[:, 1] >= low_y) & (own[:, 1] <= high_y)
            if not (free & inside).any():
                continue
            for tile in find_windows([path], self.window_m, **how):
                west, south, east, north = tile.bounds or header.bounds
                here = (own[:, 0] >= west) & (own[:, 0] < east) & (own[:, 1] >= south) & (own[:, 1] < north)
                labels = np.flatnonzero(free & inside & here)
                free[labels] = False
                if len(labels):
                    unit = header.unit_m
                    box = tuple(edge / unit for edge in (tile.bounds or header.bounds))
                    yield LabelWindow(tile.id, header.crs, box, (), labels, own[labels] / unit, tile)  # type: ignore[arg-type]

    def read(self, window: LabelWindow) -> tuple[LocalFrame, AtomSet]:
        """Return what was observed in a window, and its frame."""
        assert window.tile is not None
        points = read_window(window.tile, None, self.cache)
        low_x, low_y, high_x, high_y = points.bounds
        centre = window.tile.centre or ((low_x + high_x) / 2, (low_y + high_y) / 2)
        scene = PointScene.of(points, centre, colour=not self.images.sources, heights=self.heights)
        near = self.images.over(window.tile.path, point_cloud_header(window.tile.path))
        frame = frame_of(points, centre)
        return frame, scene.atoms + near.atoms(frame, box_of(scene.positions, self.window_m))

    def files(self, window: LabelWindow) -> tuple[Path, ...]:
        """Return the files of a window."""
        assert window.tile is not None
        return (window.tile.path,)


Scenes: TypeAlias = RasterScenes | CloudScenes


def grouped(number: Ints) -> list[Ints]:
    """Return the indices at which each number 0, 1, … stands, in order; none may be missing."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.cumsum(np.bincount(number))[:-1]) if len(number) else []


def box_in(source: RasterSource, crs: str | None) -> Box:
    """Return a box of another coordinate system around a raster."""
    return source.bounds if source.crs == crs else around(source.bounds, source.crs, crs)


def around(box: Box, source: str | None, target: str | None) -> Box:
    """Return a box of another coordinate system around a box."""
    x, y = outline(box, source, target)
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return (math.inf, math.inf, -math.inf, -math.inf)
    return (float(x[known].min()), float(y[known].min()), float(x[known].max()), float(y[known].max()))


def by_date(
    window: LabelWindow, day: NDArray[np.datetime64], dates: Sequence[datetime.date | None], days: float
) -> Iterator[LabelWindow]:
    """Yield a window for each set of images that labels of one date match: those within ``days`` of it.

    Images without a date match all labels, and labels without a date all images. A label that no image of any date
    matches is in none.
    """
    dated = [i for i in window.sources if dates[i] is not None]
    if not dated or np.isnat(day[window.labels]).all():
        yield window
        return
    groups: dict[tuple[int, ...], list[int]] = {}
    when = np.array([dates[i] for i in dated], dtype="datetime64[D]")
    own, inverse = np.unique(day[window.labels], return_inverse=True)
    for date, here in zip(own, grouped(inverse.reshape(-1)), strict=True):
        match = np.ones(len(dated), dtype=bool) if np.isnat(date) else np.abs((when - date).astype(int)) <= days
        if match.any():
            out = {i for i, shown in zip(dated, match.tolist(), strict=True) if not shown}
            shown = tuple(i for i in window.sources if i not in out)
            groups.setdefault(shown, []).extend(here.tolist())
    firsts = [min(str(dates[i]) for i in sources if dates[i] is not None) for sources in groups]
    for number, (sources, members) in enumerate(groups.items()):
        index = np.sort(np.array(members))
        first = firsts[number]
        again = f"_{firsts[:number].count(first) + 1}" if first in firsts[:number] else ""
        name = window.id if len(groups) == 1 else f"{window.id}_{first}{again}"
        yield replace(window, id=name, sources=sources, labels=window.labels[index], positions=window.positions[index])
