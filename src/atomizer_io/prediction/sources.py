"""The rasters that a user gives: what their bands are, where they lie, and the atoms of a window of them.

Each raster stays on its own grid, in its own resolution and coordinate system: positions are transformed, pixels are
never resampled.
"""

from __future__ import annotations

import datetime
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.atoms import Acquisition, AtomSet
from atomizer_io.channels import Channel
from atomizer_io.datasets.reading.bands import Bands, Header
from atomizer_io.datasets.reading.dates import as_day, date_of_file
from atomizer_io.datasets.reading.rasters import crs_text, opened, read_raster
from atomizer_io.datasets.reading.sidecar import own_sensor, sidecar
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.georeference import Transform, metres_per_unit
from atomizer_io.sensors import Sensor

Box = tuple[float, float, float, float]  # west, south, east, north
Floats = NDArray[np.float64]

EDGE = 1e-6  # of a pixel: what reaches less into a box than this is outside of it
OVERVIEW = 256
LEFT_OUT = "-"
ALONG = 21  # points along each side of a box that is seen from another coordinate system


@dataclass(frozen=True, slots=True)
class RasterInput:
    """A raster as a user names it.

    ``bands`` are names of bands of ``sensor`` in the order of the file, ``-`` for one that is left out; without them
    the file's own descriptions count. ``date`` is that of the acquisition, by default the one in the file's name or
    tags. ``gsd_m`` is the pixel size of a file without a coordinate system.
    """

    path: Path
    sensor: str | Sensor | None = None
    bands: tuple[str, ...] | None = None
    date: datetime.date | None = None
    gsd_m: float | None = None

    @classmethod
    def of(cls, given: RasterInput | str | Path | dict[str, Any]) -> RasterInput:
        """From a path, or from plain values by name; ``NAME.bands.yaml`` beside it or its folder says the rest."""
        if isinstance(given, cls):
            return given
        values: dict[str, Any] = dict(given) if isinstance(given, dict) else {"path": given}
        if "path" not in values:
            raise ConfigError(f"a raster needs a path: {values}")
        values["path"] = Path(values["path"])
        beside = {**sidecar(values["path"].absolute().parent), **sidecar(values["path"])}
        values = {**beside, **{key: value for key, value in values.items() if value is not None}}
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            known = ", ".join(field.name for field in fields(cls))
            raise ConfigError(f"{values['path']}: {unknown[0]!r} is not known of a raster; use {known}")
        bands, date = values.get("bands"), values.get("date")
        if isinstance(bands, Mapping):
            values |= {"sensor": own_sensor(values["path"], str(values.get("sensor") or "own"), bands), "bands": None}
        elif bands is not None:
            values["bands"] = tuple(
                str(name).strip() for name in (bands.split(",") if isinstance(bands, str) else bands)
            )
        if date is not None and not isinstance(date, datetime.date):
            values["date"] = as_day(str(date))
            if values["date"] is None:
                raise ConfigError(f"{values['path']}: {date!r} is no date: write 2021-07-04")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Frame:
    """Metres around a place: ``origin`` is that place in units of ``crs``, ``unit_m`` the metres per unit there."""

    crs: str | None
    origin: tuple[float, float]
    unit_m: tuple[float, float] = (1.0, 1.0)

    @classmethod
    def around(cls, crs: str | None, x: float, y: float) -> Frame:
        """A frame with the metres per unit of its place; without a CRS, units are metres."""
        if crs is None:
            return cls(None, (x, y))
        from rasterio.crs import CRS

        return cls(crs, (x, y), metres_per_unit(CRS.from_user_input(crs), y))

    def metres(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Coordinates of the CRS as metres in the frame."""
        return (x - self.origin[0]) * self.unit_m[0], (y - self.origin[1]) * self.unit_m[1]

    def coordinates(self, x: Any, y: Any) -> tuple[Any, Any]:
        """And back."""
        return x / self.unit_m[0] + self.origin[0], y / self.unit_m[1] + self.origin[1]


@dataclass(frozen=True, slots=True)
class Source:
    """A raster that is there and understood; ``transform`` is north up."""

    path: Path
    channels: tuple[Channel, ...]
    numbers: tuple[int, ...]  # of their bands in the file, from 1
    crs: str | None
    transform: Transform
    height: int
    width: int
    pixel_m: tuple[float, float]
    date: datetime.date | None
    gsd_m: float | None
    flipped: tuple[bool, bool]  # stored south up, east to west

    @classmethod
    def open(cls, given: RasterInput) -> Source:
        """Look at a file; what is wrong with it is said here."""
        header = Header.of(given.path, given.gsd_m)
        names, numbers = given.bands, tuple(range(1, len(header.descriptions) + 1))
        if names is not None and LEFT_OUT in names and len(names) == len(numbers):
            numbers = tuple(number for number, name in zip(numbers, names, strict=True) if name != LEFT_OUT)
            names = tuple(name for name in names if name != LEFT_OUT)
            if not names:
                raise DataError(given.path, "all its bands are left out")
            header = replace(header, descriptions=tuple(header.descriptions[number - 1] for number in numbers))
        bands = Bands.of(header, given.sensor, names)
        with opened(given.path) as file:
            height, width, crs = file.height, file.width, file.crs
            a, b, c, d, e, f = tuple(file.transform)[:6]
        flipped = (False, False)
        if crs is None:  # units are metres, from the lower left corner
            a, b, c, d, e, f = header.grid.pixel_m[0], 0.0, 0.0, 0.0, -header.grid.pixel_m[1], header.grid.size_m[1]
        else:
            flipped = (e > 0, a < 0)
            if flipped[0]:
                e, f = -e, f + e * height
            if flipped[1]:
                a, c = -a, c + a * width
        return cls(
            given.path.absolute(),  # workers may be elsewhere
            bands.channels,
            numbers,
            None if crs is None else crs_text(crs),
            (a, b, c, d, e, f),
            height,
            width,
            header.grid.pixel_m,
            given.date or date_of_file(given.path),
            given.gsd_m,
            flipped,
        )

    def __str__(self) -> str:
        names = listed(f"{c.sensor} {c.name}" for c in self.channels)
        return f"{self.path.name}: {names}, {self.date or 'no date'}, {self.pixel_m[0]:.3g} m"

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width)."""
        return (self.height, self.width)

    @property
    def bounds(self) -> Box:
        """In units of the CRS."""
        a, _, west, _, e, north = self.transform
        return (west, north + e * self.height, west + a * self.width, north)

    def atoms(self, frame: Frame, box: Box) -> AtomSet | None:
        """What the raster observed at the places of ``box`` (metres in the frame), None where that is nothing.

        A pixel counts if it reaches into the box, so that what is seen at a place does not depend on the box.
        """
        same = self.crs == frame.crs
        if not same and (self.crs is None or frame.crs is None):
            raise DataError(self.path, "has no coordinate system, or it is the only one that has")
        x, y = self._edge(frame, box, same)
        a, _, west, _, e, north = self.transform
        margin = 0 if same else 1
        left, right = _span((x.min() - west) / a, (x.max() - west) / a, self.width, margin)
        top, bottom = _span((y.max() - north) / e, (y.min() - north) / e, self.height, margin)
        if left >= right or top >= bottom:
            return None
        row = self.height - bottom if self.flipped[0] else top
        column = self.width - right if self.flipped[1] else left
        window = (row, column, bottom - top, right - left)
        raster = read_raster(self.path, indexes=self.numbers, gsd_m=self.gsd_m, window=window)
        valid = raster.valid()
        if valid is not None and not valid.any():
            return None
        if same:
            centre = frame.metres(west + a * (left + right) / 2, north + e * (top + bottom) / 2)
            return _some(raster.atoms(self.channels, self.date, center_m=centre))
        rows, columns = np.mgrid[top:bottom, left:right] + 0.5
        px, py = frame.metres(*moved(self.crs, frame.crs, west + a * columns, north + e * rows))
        wide, high = self._footprint(frame, (left + right) / 2, (top + bottom) / 2)
        reach_x, reach_y = wide / 2 * (1 - EDGE), high / 2 * (1 - EDGE)
        inside = (px > box[0] - reach_x) & (px < box[2] + reach_x) & (py > box[1] - reach_y) & (py < box[3] + reach_y)
        if not inside.any():
            return None
        sites = Acquisition(
            torch.from_numpy(np.ascontiguousarray(raster.values[:, inside].T)),
            torch.from_numpy(np.stack([px[inside], py[inside]], axis=-1)),
            self.channels,
            self.date,
            valid=None if valid is None else torch.from_numpy(np.ascontiguousarray(valid[:, inside].T)),
            footprint_m=(wide, high),
        )
        return _some(AtomSet((sites,)))

    def overview(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and spread of each channel over some hundred pixels a side, NaN where nothing was observed."""
        with opened(self.path) as file:
            shape = (len(self.numbers), min(OVERVIEW, file.height), min(OVERVIEW, file.width))
            values = file.read(list(self.numbers), out_shape=shape, masked=True).astype(np.float64).filled(np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a band without a value
            return np.nanmean(values, axis=(1, 2)), np.nanstd(values, axis=(1, 2))

    def _footprint(self, frame: Frame, column: float, row: float) -> tuple[float, float]:
        """Extent of a pixel in the frame, where it may be turned: boxes of this size leave no gaps between pixels."""
        a, _, west, _, e, north = self.transform
        corners = np.array([(-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5)])
        x, y = moved(self.crs, frame.crs, west + a * (column + corners[:, 0]), north + e * (row + corners[:, 1]))
        x, y = frame.metres(x, y)
        return float(np.ptp(x)), float(np.ptp(y))

    def _edge(self, frame: Frame, box: Box, same: bool) -> tuple[Floats, Floats]:
        """Points around ``box`` in units of this raster's CRS."""
        west, south, east, north = box
        along = np.linspace(0, 1, 2 if same else ALONG)
        x, y = west + along * (east - west), south + along * (north - south)
        edge_x = np.concatenate([x, x, np.full_like(y, west), np.full_like(y, east)])
        edge_y = np.concatenate([np.full_like(x, south), np.full_like(x, north), y, y])
        there = frame.coordinates(edge_x, edge_y)
        return there if same else moved(frame.crs, self.crs, *there)


def open_all(rasters: Sequence[Any]) -> list[Source]:
    """All rasters, the same coordinate system written in one way."""
    if not rasters:
        raise ConfigError("no raster was given")
    sources = [Source.open(RasterInput.of(raster)) for raster in rasters]
    first = sources[0]
    if any((source.crs is None) != (first.crs is None) for source in sources):
        bare = next(source for source in sources if source.crs is None)
        raise DataError(bare.path, "has no coordinate system, but others have: it cannot be placed among them")
    found = []
    for source in sources:
        if source.crs is not None and first.crs is not None and source.crs != first.crs:
            from rasterio.crs import CRS

            if CRS.from_user_input(source.crs) == CRS.from_user_input(first.crs):
                source = replace(source, crs=first.crs)
        found.append(source)
    return found


def overlap(source: Source, crs: str | None, bounds: Box) -> bool:
    """Whether a raster reaches into ``bounds`` of ``crs``."""
    west, south, east, north = source.bounds
    if source.crs != crs:
        from rasterio.warp import transform_bounds

        west, south, east, north = transform_bounds(source.crs, crs, west, south, east, north, densify_pts=ALONG)
    return west < bounds[2] and east > bounds[0] and south < bounds[3] and north > bounds[1]


def _some(atoms: AtomSet) -> AtomSet | None:
    return atoms if atoms.num_atoms else None


def _span(low: float, high: float, length: int, margin: int) -> tuple[int, int]:
    """Pixels that reach between two places along an axis, counted in pixels, and ``margin`` more at both ends."""
    if not math.isfinite(low) or not math.isfinite(high):  # outside of what the coordinate system can say
        return 0, 0
    return max(0, math.floor(low + EDGE) - margin), min(length, math.ceil(high - EDGE) + margin)


def moved(source: str | None, target: str | None, x: Any, y: Any) -> tuple[Floats, Floats]:
    """Coordinates of one CRS in another, of any shape."""
    from rasterio.warp import transform

    shape = np.shape(x)
    found = transform(source, target, np.ravel(x), np.ravel(y))
    there_x, there_y = (np.asarray(axis, dtype=np.float64).reshape(shape) for axis in found)
    return there_x, there_y
