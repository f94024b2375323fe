"""Local frames in metres, and coordinates of one system in another, across the antimeridian too."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.io.georeference import full_turn, metres_per_unit, nearest_turn

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
    found = transform(source, target, np.ravel(x), np.ravel(y))
    there_x, there_y = (np.asarray(axis, dtype=np.float64).reshape(shape) for axis in found)
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


def turns(low: float, high: float, west: float, east: float, turn: float | None) -> list[float]:
    """Return the whole turns to add to ``low`` and ``high`` so that they reach between ``west`` and ``east``.

    A map of the whole Earth has both sides of the antimeridian at opposite edges, so that a box there needs two.
    """
    if turn is None or not math.isfinite(low) or not math.isfinite(high):
        return [0.0]
    return [turn * n for n in range(math.ceil((west - high) / turn), math.floor((east - low) / turn) + 1)]


def reaches(box: Box, crs: str | None, other: Box, other_crs: str | None) -> bool:
    """Return whether ``box`` of ``crs`` overlaps the box ``other`` of ``other_crs``."""
    x, y = outline(box, crs, other_crs)
    known = np.isfinite(x) & np.isfinite(y)  # the others are places that the CRS cannot write
    if not known.any():
        return False
    west, south, east, north = x[known].min(), y[known].min(), x[known].max(), y[known].max()
    return bool(south < other[3] and north > other[1]) and any(
        west + add < other[2] and east + add > other[0]
        for add in turns(west, east, other[0], other[2], turn_of(other_crs))
    )


def box_of(positions: Floats, window_m: float) -> Box:
    """Return the bounds of a window of ``window_m`` around (0, 0), extended to all of its points (P, 2)."""
    low, high = np.minimum(positions.min(axis=0), -window_m / 2), np.maximum(positions.max(axis=0), window_m / 2)
    # the far edge of a box is outside of it, a point on it is not
    return (float(low[0]), float(low[1]), math.nextafter(high[0], math.inf), math.nextafter(high[1], math.inf))
