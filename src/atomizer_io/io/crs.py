"""Coordinate systems: metres per unit, local frames in metres, positions of one system in another, units of heights."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError, DataError, first_line

# a, b, c, d, e, f of x = a·column + b·row + c, y = d·column + e·row + f
Transform: TypeAlias = tuple[float, float, float, float, float, float]

WGS84_RADIUS_M, WGS84_FLATTENING = 6378137.0, 1 / 298.257223563


def metres_per_degree(latitude: float) -> tuple[float, float]:
    """Return the metres in a degree of longitude and of latitude at ``latitude`` on the WGS 84 ellipsoid."""
    e2 = WGS84_FLATTENING * (2 - WGS84_FLATTENING)
    phi = math.radians(latitude)
    w = 1 - e2 * math.sin(phi) ** 2
    per_degree = math.radians(WGS84_RADIUS_M)
    return per_degree * math.cos(phi) / math.sqrt(w), per_degree * (1 - e2) / w**1.5


def metres_per_unit(crs: Any, y: float) -> tuple[float, float]:
    """Return the metres on the ground per unit of x and y of a rasterio CRS near ``y``.

    Feet, degrees and Mercator projections are taken into account.
    """
    if crs.is_geographic:
        across, along = metres_per_degree(y)
        radians = crs.units_factor[1] / math.radians(1)  # some coordinate systems count in grads
        return across * radians, along * radians
    factor = float(crs.linear_units_factor[1])
    if crs.to_dict().get("proj") == "merc":  # web maps: twice as large at 60° as it is
        latitude = math.asin(math.tanh(y * factor / WGS84_RADIUS_M))
        across, along = metres_per_degree(math.degrees(latitude))
        per_degree = math.radians(WGS84_RADIUS_M)
        return factor * across / per_degree, factor * along / per_degree * math.cos(latitude)
    return factor, factor


def full_turn(crs: Any) -> float | None:
    """Return how far once around the Earth is along x in a rasterio CRS (360 in degrees), None if x does not wrap.

    The same position may be written with any multiple of it added: 180.5 and −179.5 degrees are one longitude.
    """
    if crs.is_geographic:
        return float(2 * math.pi / crs.units_factor[1])
    known = crs.to_dict()
    if known.get("proj") == "merc" and not known.get("lat_ts"):
        return 2 * math.pi * WGS84_RADIUS_M * float(known.get("k", 1)) / float(crs.linear_units_factor[1])
    return None


def nearest_turn(x: Any, around: Any, turn: float | None) -> Any:
    """Return ``x`` plus the multiple of a full turn (see :func:`full_turn`) that brings it nearest to ``around``."""
    with np.errstate(invalid="ignore"):  # an infinite x, which no CRS can write, becomes NaN
        return x if turn is None else x + turn * np.round((around - x) / turn)


def as_gsd(across: float, down: float, tolerance: float = 1e-6) -> float | tuple[float, float]:
    """Return the size of a pixel as one number, to the micrometre, if x and y agree within ``tolerance``; else both."""
    return round(across, 6) if abs(across - down) < tolerance * across else (across, down)


def north_up(transform: Transform, height: int, width: int) -> tuple[Transform, tuple[bool, bool]]:
    """Return the transform of a raster once it is north up, and whether its rows and its columns have to be flipped."""
    a, b, c, d, e, f = transform
    south_up, westward = e > 0, a < 0
    e, f = (-e, f + e * height) if south_up else (e, f)
    a, c = (-a, c + a * width) if westward else (a, c)
    return (a, b, c, d, e, f), (south_up, westward)


def shifted(transform: Transform, row: float, column: float) -> Transform:
    """Return the transform of a window that begins at ``row`` and ``column``."""
    a, b, c, d, e, f = transform
    return (a, b, c + a * column + b * row, d, e, f + d * column + e * row)


def crs_text(crs: Any) -> str:
    """Return ``EPSG:32720`` if the CRS has a code, else WKT."""
    code = crs.to_epsg()
    return f"EPSG:{code}" if code else crs.to_wkt()


Box = tuple[float, float, float, float]  # west, south, east, north
Floats = NDArray[np.float64]

ALONG = 21  # points along each side of a box that is seen from another coordinate system


@dataclass(frozen=True, slots=True)
class LocalFrame:
    """Metres around ``origin``, a position in units of ``crs``; ``unit_m`` are the metres per unit there."""

    crs: str | None
    origin: tuple[float, float]
    unit_m: tuple[float, float] = (1.0, 1.0)

    @classmethod
    def around(cls, crs: str | None, x: float, y: float) -> LocalFrame:
        """Return the frame around a position; without a CRS, units are metres."""
        if crs is None:
            return cls(None, (x, y))
        from rasterio.crs import CRS

        return cls(crs, (x, y), metres_per_unit(CRS.from_user_input(crs), y))

    def metres(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Convert coordinates of the CRS to metres in the frame."""
        return (x - self.origin[0]) * self.unit_m[0], (y - self.origin[1]) * self.unit_m[1]

    def metres_from(self, crs: str | None, x: Any, y: Any) -> tuple[Any, Any]:
        """Convert coordinates of another CRS to metres in the frame, the short way around the Earth."""
        there_x, there_y = moved(crs, self.crs, x, y)
        return self.metres(nearest_turn(there_x, self.origin[0], turn_of(self.crs)), there_y)

    def coordinates(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Convert metres in the frame to coordinates of the CRS."""
        return x / self.unit_m[0] + self.origin[0], y / self.unit_m[1] + self.origin[1]


def moved(source: str | None, target: str | None, x: Any, y: Any) -> tuple[Floats, Floats]:
    """Convert coordinates of any shape from one CRS to another; longitudes come out between −180 and 180 degrees."""
    from rasterio.warp import transform

    shape = np.shape(x)
    axes = transform(source, target, np.ravel(x), np.ravel(y))
    there_x, there_y = (np.asarray(axis, dtype=np.float64).reshape(shape) for axis in axes)
    return there_x, there_y


@functools.lru_cache(maxsize=64)
def turn_of(crs: str | None) -> float | None:
    """Return the length along x of one turn around the Earth, or None where x does not wrap around."""
    if crs is None:
        return None
    from rasterio.crs import CRS

    return full_turn(CRS.from_user_input(crs))


def outline(box: Box, source: str | None, target: str | None) -> tuple[Floats, Floats]:
    """Return points around a box of the CRS ``source`` in the CRS ``target``, not cut at the antimeridian."""
    west, south, east, north = box
    along = np.linspace(0, 1, 2 if source == target else ALONG)
    x, y = west + along * (east - west), south + along * (north - south)
    edge_x = np.concatenate([x, x, np.full_like(y, west), np.full_like(y, east)])
    edge_y = np.concatenate([np.full_like(x, south), np.full_like(x, north), y, y])
    if source == target:
        return edge_x, edge_y
    edge_x, edge_y = moved_if_possible(source, target, edge_x, edge_y)
    known = edge_x[np.isfinite(edge_x)]
    return nearest_turn(edge_x, known[0], turn_of(target)) if len(known) else edge_x, edge_y


def moved_if_possible(source: str | None, target: str | None, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Convert coordinates (P,) from one CRS to another; those that cannot be converted become infinite."""
    from rasterio._err import CPLE_BaseError  # one such point fails them all, and the error has no other name

    try:
        return moved(source, target, x, y)
    except CPLE_BaseError:
        if len(x) == 1:
            return np.full(1, np.inf), np.full(1, np.inf)
        half = len(x) // 2
        parts = [moved_if_possible(source, target, x[part], y[part]) for part in (slice(half), slice(half, None))]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def shifts_into(low: float, high: float, west: float, east: float, turn: float | None) -> list[float]:
    """Return the multiples of ``turn`` by which ``low`` to ``high`` has to be shifted to overlap ``west`` to ``east``.

    A map of the whole Earth has both sides of the antimeridian at opposite edges, so that a box there needs two shifts.
    """
    if turn is None or not math.isfinite(low) or not math.isfinite(high):
        return [0.0]
    return [turn * n for n in range(math.ceil((west - high) / turn), math.floor((east - low) / turn) + 1)]


def reaches(box: Box, crs: str | None, area: Box, area_crs: str | None) -> bool:
    """Return whether ``box`` of ``crs`` overlaps the box ``area`` of ``area_crs``."""
    x, y = outline(box, crs, area_crs)
    known = np.isfinite(x) & np.isfinite(y)  # the others cannot be written in the CRS
    if not known.any():
        return False
    west, south, east, north = x[known].min(), y[known].min(), x[known].max(), y[known].max()
    return bool(south < area[3] and north > area[1]) and any(
        west + add < area[2] and east + add > area[0]
        for add in shifts_into(west, east, area[0], area[2], turn_of(area_crs))
    )


def box_of(positions: Floats, window_m: float) -> Box:
    """Return the bounds of a window of ``window_m`` around (0, 0), extended to all of its points (P, 2)."""
    low, high = np.minimum(positions.min(axis=0), -window_m / 2), np.maximum(positions.max(axis=0), window_m / 2)
    # the far edge of a box is outside of it, a point on it is not
    return (float(low[0]), float(low[1]), math.nextafter(high[0], math.inf), math.nextafter(high[1], math.inf))


UNITS_M = {9001: 1.0, 9002: 0.3048, 9003: 1200 / 3937}  # GeoTIFF codes of metre, foot and US survey foot
HORIZONTAL_KEY, VERTICAL_KEY = 3076, 4099  # GeoTIFF keys of the units


def parsed_crs(text: str) -> Any:
    """Return a coordinate system as a user writes it: EPSG:2263, EPSG:2263+6360 (with the heights') or WKT."""
    from pyproj import CRS
    from pyproj.exceptions import ProjError

    try:
        return CRS.from_user_input(text)
    except ProjError as error:
        raise ConfigError(
            f"crs is {text!r}, which is no coordinate system ({first_line(error)}): give a code such as EPSG:2154"
        ) from error


def system_of(header: Any, path: Path, user_crs: str | None) -> tuple[str | None, float, float, bool]:
    """Return the CRS of x and y, metres per unit of x and y and of z, and whether metres are only assumed.

    ``user_crs`` is the user's, for a file without a coordinate system; one that differs from the file's own is refused.
    """
    named = None if user_crs is None else parsed_crs(user_crs)
    own = _own(header, path, named)
    keys = {key.id: key.value_offset for vlr in header.vlrs.get("GeoKeyDirectoryVlr") for key in vlr.geo_keys}
    height = UNITS_M.get(keys.get(VERTICAL_KEY, 0))
    if own is not None and named is not None and not _flat(own).equals(_flat(named), ignore_axis_order=True):
        raise DataError(
            path, f"has a coordinate system of its own ({own.name}), which is not {named.name}: leave crs out"
        )
    crs = own if named is None else named
    if crs is None:
        unit = UNITS_M.get(keys.get(HORIZONTAL_KEY, 0))
        return None, unit or 1.0, height or unit or 1.0, unit is None
    text, unit, own_height = units_of(crs, path)
    return text, unit, own_height or height or unit, False


def units_of(crs: Any, path: Path) -> tuple[str, float, float | None]:
    """Return the text of a CRS, metres per unit of x and y, and of z where the system has heights."""
    if not crs.is_projected and not crs.is_engineering:
        raise DataError(
            path,
            f"has coordinates in degrees or from the centre of the Earth ({crs.name}): project it to metres first "
            "(pdal translate ... reprojection --filters.reprojection.out_srs=EPSG:...)",
        )
    flat = _flat(crs)
    unit = float(flat.axis_info[0].unit_conversion_factor) if flat.axis_info else 1.0
    height = float(crs.axis_info[2].unit_conversion_factor) if len(crs.axis_info) > 2 else None
    return crs_text(flat), unit, height


def _own(header: Any, path: Path, named: Any) -> Any:
    """Return the coordinate system in the file, or None.

    One that cannot be understood is an error, unless the user names another.
    """
    from pyproj.exceptions import ProjError

    try:
        crs = header.parse_crs()
    except ProjError as error:
        if named is not None:
            return None
        raise DataError(
            path,
            f"has a coordinate system that cannot be understood ({first_line(error)}): name it with crs=EPSG:..., or "
            "write the file with its code (pdal translate --writers.las.a_srs=EPSG:...)",
        ) from error
    # where the projection is the user's own, only its geographic base has a code: those numbers are no degrees
    if crs is not None and crs.is_geographic and max(np.abs([header.mins[:2], header.maxs[:2]]).ravel()) > 360:
        return None
    return crs


def _flat(crs: Any) -> Any:
    return crs.sub_crs_list[0] if crs.sub_crs_list else crs
