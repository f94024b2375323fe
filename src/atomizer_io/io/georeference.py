"""Arithmetic that leads from the coordinates of a file to metres."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

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

    The same place may be written with any number of turns more or less: 180.5 and −179.5 degrees are one longitude.
    """
    if crs.is_geographic:
        return float(2 * math.pi / crs.units_factor[1])
    known = crs.to_dict()
    if known.get("proj") == "merc" and not known.get("lat_ts"):
        return 2 * math.pi * WGS84_RADIUS_M * float(known.get("k", 1)) / float(crs.linear_units_factor[1])
    return None


def nearest_turn(x: Any, around: Any, turn: float | None) -> Any:
    """Return ``x`` plus the number of full turns (see :func:`full_turn`) that brings it nearest to ``around``."""
    with np.errstate(invalid="ignore"):  # an infinite x, which no CRS can write, becomes NaN
        return x if turn is None else x + turn * np.round((around - x) / turn)


def as_gsd(across: float, down: float, tolerance: float = 1e-6) -> float | tuple[float, float]:
    """Return the size of a pixel as one number, to the micrometre, if x and y agree within ``tolerance``; else both."""
    return round(across, 6) if abs(across - down) < tolerance * across else (across, down)


def shifted(transform: Transform, row: float, column: float) -> Transform:
    """Return the transform of a window that begins at ``row`` and ``column``."""
    a, b, c, d, e, f = transform
    return (a, b, c + a * column + b * row, d, e, f + d * column + e * row)
