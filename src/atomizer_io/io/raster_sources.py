"""Rasters as users specify them and as they are read: their bands, their position, and the atoms of a window.

Each raster stays on its own grid, in its own resolution and coordinate system: positions are transformed, pixels are
never resampled.
"""

from __future__ import annotations

import datetime
import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel, plain_name
from atomizer_io.data.sensors import Sensor
from atomizer_io.data.sensors.catalogue import find
from atomizer_io.data.sensors.files import LEFT_OUT
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.io.crs import (
    Box,
    Floats,
    LocalFrame,
    Transform,
    crs_text,
    moved,
    north_up,
    outline,
    reaches,
    shifts_into,
    turn_of,
)
from atomizer_io.io.dates import as_day, date_of_file
from atomizer_io.io.raster_bands import Bands, RasterHeader, own_sensor, sidecar
from atomizer_io.io.raster_pixels import limited_cache, overview_values
from atomizer_io.io.rasters import Raster, read_raster
from atomizer_io.io.remote import RemoteRaster, address_of

__all__ = ["Box", "LocalFrame", "RasterInput", "RasterSource", "moved", "open_rasters", "overlap"]

Ints = NDArray[np.int64]

EDGE = 1e-6  # of a pixel: what reaches less into a box than this is outside of it


@dataclass(frozen=True, slots=True)
class RasterInput:
    """A raster as a user specifies it.

    ``bands`` are names of bands of ``sensor`` in the order of the file, ``-`` for one that is left out; without them
    the file's own descriptions count. ``date`` is that of the acquisition, by default the one in the file's name or
    tags. ``crs`` is the coordinate system of a file that states where its pixels lie but not in which system; ``gsd_m``
    is the pixel size of a file without a coordinate system, ``nodata`` a value that means that nothing was observed,
    beside the one that the file names itself. ``allow_vrt`` also takes a VRT, a mosaic of other files.
    """

    path: Path
    sensor: str | Sensor | None = None
    bands: tuple[str, ...] | None = None
    date: datetime.date | None = None
    gsd_m: float | None = None
    crs: str | None = None
    nodata: float | None = None
    allow_vrt: bool = False

    @classmethod
    def of(cls, raster: RasterInput | str | Path | dict[str, Any]) -> RasterInput:
        """Return a raster from a path or plain values, completed by ``NAME.bands.yaml`` beside it or its folder."""
        if isinstance(raster, cls):
            return raster
        values: dict[str, Any] = dict(raster) if isinstance(raster, dict) else {"path": raster}
        if "path" not in values:
            raise ConfigError(f"a raster needs a path: {values}")
        address = address_of(values["path"]) if isinstance(values["path"], str) else None
        path = values["path"] = Path(values["path"]) if address is None else RemoteRaster(address)
        if isinstance(raster, dict) and isinstance(raster["path"], RemoteRaster):
            path = values["path"] = raster["path"]
        beside: dict[str, Any] = {}
        if not isinstance(path, RemoteRaster):
            beside = {**sidecar(path.absolute().parent), **sidecar(path)}
        values = {**beside, **{key: value for key, value in values.items() if value is not None}}
        unknown = sorted(set(values) - {of_raster.name for of_raster in fields(cls)})
        if unknown:
            known = ", ".join(of_raster.name for of_raster in fields(cls))
            raise ConfigError(f"{values['path']}: {unknown[0]!r} is not an option of a raster; use {known}")
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
                raise ConfigError(f"{values['path']}: {date!r} is not a date: write it like 2021-07-04")
        if not isinstance(values.get("nodata"), int | float | None):
            raise ConfigError(f"{values['path']}: nodata is {values['nodata']!r}: write a number")
        return cls(**values)

    def known_by(self, channels: Sequence[Channel]) -> RasterInput:
        """Return the raster with its sensor described by ``channels``, where they have all bands that it names.

        A sensor of the catalogue that has these bands stays as it is.
        """
        if not isinstance(self.sensor, str) or self.bands is None:
            return self
        listed_sensor = find(self.sensor)
        if listed_sensor is not None and all(name in listed_sensor for name in self.bands if name != LEFT_OUT):
            return self
        own = tuple(channel for channel in channels if plain_name(channel.sensor) == plain_name(self.sensor))
        sensor = Sensor(own[0].sensor, own) if own else None
        known = sensor is not None and all(name in sensor for name in self.bands if name != LEFT_OUT)
        return replace(self, sensor=sensor) if known else self


@dataclass(frozen=True, slots=True)
class RasterSource:
    """A raster that was opened and understood; ``transform`` is north up."""

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
    given_crs: str | None = None  # by the user, for a file without
    scaled: bool = False  # the file has a scale or an offset, which are not applied
    nodata: float | None = None  # by the user, beside the file's own
    allow_vrt: bool = field(default=False, repr=False)

    @classmethod
    def open(cls, raster: RasterInput) -> RasterSource:
        """Open a file; whatever is wrong with it is raised here."""
        header = RasterHeader.of(raster.path, raster.gsd_m, raster.crs, raster.allow_vrt)
        bands = Bands.of(header, raster.sensor, raster.bands)
        height, width = header.grid.shape
        transform, flipped = north_up(header.transform, height, width)
        if header.crs is None:  # units are metres, from the lower left corner
            (across, down), (_, north) = header.grid.pixel_m, header.grid.size_m
            transform, flipped = (across, 0.0, 0.0, 0.0, -down, north), (False, False)
        return cls(
            raster.path.absolute(),  # workers may be elsewhere
            bands.channels,
            bands.numbers,
            None if header.crs is None else crs_text(header.crs),
            transform,
            height,
            width,
            header.grid.pixel_m,
            raster.date or date_of_file(raster.path, raster.allow_vrt),
            raster.gsd_m,
            flipped,
            raster.crs,
            header.scaled,
            raster.nodata,
            raster.allow_vrt,
        )

    def __str__(self) -> str:
        names = listed(f"{c.sensor} {c.name}" for c in self.channels)
        noted = "; its scale and offset are not applied" if self.scaled else ""
        return f"{self.path.name}: {names}, {self.date or 'no date'}, {self.pixel_m[0]:.3g} m{noted}"

    @property
    def shape(self) -> tuple[int, int]:
        """The height and width in pixels."""
        return (self.height, self.width)

    @property
    def bounds(self) -> Box:
        """West, south, east and north edge in units of the CRS."""
        a, _, west, _, e, north = self.transform
        return (west, north + e * self.height, west + a * self.width, north)

    def atoms(self, frame: LocalFrame, box: Box) -> AtomSet | None:
        """Return what the raster observed inside ``box`` (metres in the frame), or None where that is nothing.

        A pixel counts if it reaches into the box, so that the observations at a position do not depend on the box.
        """
        same = self.crs == frame.crs
        if not same and (self.crs is None or frame.crs is None):
            raise DataError(self.path, "either this raster or the map has no coordinate system: give both one, or none")
        west, south, east, north = box
        corners = frame.coordinates(np.array([west, east]), np.array([south, north]))
        (west, east), (south, north) = corners[0].tolist(), corners[1].tolist()
        x, y = outline((west, south, east, north), frame.crs, self.crs)
        pixel, (first, _, last, _) = self.transform[0], self.bounds
        parts = [
            self._part(frame, box, (x.min() + add, y.min(), x.max() + add, y.max()), add, same)
            for add in shifts_into(x.min() - pixel, x.max() + pixel, first, last, turn_of(self.crs))
        ]
        return functools.reduce(operator.add, (atoms for atoms in parts if atoms is not None), AtomSet()) or None

    def _part(self, frame: LocalFrame, box: Box, around: Box, add: float, same: bool) -> AtomSet | None:
        """Return the atoms within ``around``, which is ``box`` in units of the CRS, shifted along x by ``add``."""
        a, _, west, _, e, north = self.transform
        margin = 0 if same else 1
        left, right = _span((around[0] - west) / a, (around[2] - west) / a, self.width, margin)
        top, bottom = _span((around[3] - north) / e, (around[1] - north) / e, self.height, margin)
        if left >= right or top >= bottom:
            return None
        raster = self._read(top, left, bottom, right)
        valid = raster.valid()
        if valid is not None and not valid.any():
            return None
        if same:
            centre = frame.metres(west + a * (left + right) / 2 - add, north + e * (top + bottom) / 2)
            return _some(raster.atoms(self.channels, self.date, center_m=centre))
        rows, columns = np.mgrid[top:bottom, left:right] + 0.5
        px, py = frame.metres_from(self.crs, west + a * columns, north + e * rows)
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

    def centres(self, frame: LocalFrame, box: Box) -> tuple[Ints, Floats]:
        """Return the pixels with their centre in ``box`` (far edges excluded): numbers (M,) and positions (M, 2).

        The number of a pixel is row · width + column, its position is in metres in the frame.
        """
        (west, east), (south, north) = frame.coordinates(np.array(box[::2]), np.array(box[1::2]))
        x, y = outline((west, south, east, north), frame.crs, self.crs)
        a, _, first, _, e, top = self.transform
        across, down = (x - first) / a, (y - top) / e
        left, right = _span(across.min(), across.max(), self.width, 1)
        upper, lower = _span(down.min(), down.max(), self.height, 1)
        rows, columns = np.mgrid[upper : max(upper, lower), left : max(left, right)]
        px, py = frame.metres_from(self.crs, first + a * (columns + 0.5), top + e * (rows + 0.5))
        inside = (px >= box[0]) & (px < box[2]) & (py >= box[1]) & (py < box[3])
        return (rows * self.width + columns)[inside], np.stack([px[inside], py[inside]], axis=-1)

    def values(self, numbers: Ints, bands: Sequence[int] = (0,)) -> NDArray[np.float32]:
        """Return what bands (B,) hold in pixels with these ``numbers`` (M,) as (B, M), NaN where nothing is known."""
        rows, columns = np.divmod(numbers, self.width)
        top, left, bottom, right = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
        raster = self._read(int(top), int(left), int(bottom), int(right))
        values, known = raster.values[list(bands)].astype(np.float32), raster.valid()
        if known is not None:
            values[~known[list(bands)]] = np.nan
        return values[:, rows - top, columns - left]

    def _read(self, top: int, left: int, bottom: int, right: int) -> Raster:
        """Read some rows and columns, counted from the north and the west."""
        row = self.height - bottom if self.flipped[0] else top
        column = self.width - right if self.flipped[1] else left
        window = (row, column, bottom - top, right - left)
        how: dict[str, Any] = {"gsd_m": self.gsd_m, "crs": self.given_crs, "allow_vrt": self.allow_vrt}
        with limited_cache():
            raster = read_raster(self.path, indexes=self.numbers, window=window, **how)
        return replace(raster, declared=self.nodata)

    def overview(self) -> Floats:
        """Return values (C, P) of a sample of the file, NaN where nothing was observed."""
        with limited_cache():
            return overview_values(self.path, self.numbers, self.nodata, allow_vrt=self.allow_vrt)

    def _footprint(self, frame: LocalFrame, column: float, row: float) -> tuple[float, float]:
        """Return the extent of a pixel in the frame, which may be rotated: boxes of this size leave no gaps."""
        a, _, west, _, e, north = self.transform
        corners = np.array([(-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5)])
        x, y = frame.metres_from(self.crs, west + a * (column + corners[:, 0]), north + e * (row + corners[:, 1]))
        return float(np.ptp(x)), float(np.ptp(y))


def open_rasters(rasters: Sequence[Any], channels: Sequence[Channel] = ()) -> list[RasterSource]:
    """Open all rasters; equal coordinate systems are then written alike.

    ``channels``, those of a model, describe sensors that are not in the catalogue.
    """
    if not rasters:
        raise ConfigError("no raster was given: name at least one")
    sources = [RasterSource.open(RasterInput.of(raster).known_by(channels)) for raster in rasters]
    first = sources[0]
    if any((source.crs is None) != (first.crs is None) for source in sources):
        bare = next(source for source in sources if source.crs is None)
        raise DataError(
            bare.path,
            "has no coordinate system, but other rasters have one: pass crs=, the system that its transform is in",
        )
    return [alike(source, first.crs) for source in sources]


def alike(source: RasterSource, crs: str | None) -> RasterSource:
    """Return a raster with its coordinate system written as ``crs`` where that is the same one."""
    from rasterio.crs import CRS

    if source.crs is None or crs is None or source.crs == crs:
        return source
    return replace(source, crs=crs) if CRS.from_user_input(source.crs) == CRS.from_user_input(crs) else source


def overlap(source: RasterSource, crs: str | None, bounds: Box) -> bool:
    """Return whether a raster overlaps ``bounds`` of ``crs``.

    Either may be too large for the coordinate system of the other, so both directions are tried.
    """
    return reaches(bounds, crs, source.bounds, source.crs) or reaches(source.bounds, source.crs, bounds, crs)


def _some(atoms: AtomSet) -> AtomSet | None:
    return atoms if atoms.num_atoms else None


def _span(low: float, high: float, length: int, margin: int) -> tuple[int, int]:
    """Return the range of pixels between two positions along an axis, and ``margin`` more at both ends."""
    if not math.isfinite(low) or not math.isfinite(high):  # outside of the domain of the coordinate system
        return 0, 0
    return max(0, math.floor(low + EDGE) - margin), min(length, math.ceil(high - EDGE) + margin)
