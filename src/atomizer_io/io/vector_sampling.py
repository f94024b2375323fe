"""Positions that stand for shapes: points as they are, lines and polygons sampled on a lattice inside their border.

The lattice is the same everywhere, so that polygons that overlap share positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from atomizer_io.io.crs import metres_per_unit, nearest_turn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Geometries = NDArray[np.object_]

LATTICE = 1 << 18  # most points of the lattice that are tried for a shape
BAND = 0.1  # degrees: metres per unit are those in the middle of a band so wide
POINTS, LINES, POLYGONS = (0, 4), (1, 2, 5), (3, 6)  # numbers of shapely's types, several parts last


@dataclass(frozen=True, slots=True)
class Sampling:
    """How lines and polygons become positions, in metres.

    Positions lie ``spacing_m`` apart and at least ``margin_m`` inside the border of a polygon; a line is the area
    within ``line_width_m`` / 2 of it. A feature has at most ``positions``. All of its positions together weigh 1
    (``once``), or its area as a multiple of ``spacing_m``² (``area``).
    """

    spacing_m: float = 10.0
    margin_m: float = 0.0
    line_width_m: float | None = None
    positions: int = 100
    counts: Literal["once", "area"] = "once"


@dataclass(frozen=True, slots=True, eq=False)
class Corners:
    """The corners ``xy`` (K, 2) of all geometries in another CRS, and the index of the geometry ``of`` each."""

    xy: Floats
    of_geometry: Ints

    @classmethod
    def of(cls, geometry: Geometries, move: Callable[[Floats], Floats], turn: float | None) -> Corners:
        """Convert the corners; a geometry is not cut at the antimeridian."""
        import shapely

        xy, index = shapely.get_coordinates(geometry, return_index=True)
        xy = move(xy)
        if turn is not None and len(xy):
            begins = np.searchsorted(index, index)  # the first corner of each geometry
            xy[:, 0] = nearest_turn(xy[:, 0], xy[begins, 0], turn)
        return cls(xy, index)

    def finite(self, count: int) -> NDArray[np.bool_]:
        """Return which of ``count`` geometries the CRS can express."""
        bad = ~np.isfinite(self.xy).all(axis=1)
        result: NDArray[np.bool_] = np.bincount(self.of_geometry[bad], minlength=count) == 0
        return result


def sampled(
    geometry: Geometries, corners: Corners, known: NDArray[np.bool_], crs: str | None, sampling: Sampling
) -> tuple[Floats, Ints, Floats, Ints]:
    """Return positions (M, 2) of the ``known`` geometries, the index and the share of the weight of each (M,).

    The last are the indices of geometries that have no position.
    """
    import shapely

    is_point = np.isin(shapely.get_type_id(geometry), POINTS)
    own = (known & is_point)[corners.of_geometry]
    xy, index = corners.xy[own], corners.of_geometry[own]
    parts = [(xy, index, 1.0 / np.bincount(index)[index] if len(index) else np.empty(0))]  # of one feature: 1 together
    areas = np.flatnonzero(known & ~is_point)
    gone = areas[:0]
    if len(areas):
        own = (known & ~is_point)[corners.of_geometry]
        rows = np.searchsorted(areas, corners.of_geometry[own])
        low, high = np.full(len(areas), np.inf), np.full(len(areas), -np.inf)
        np.minimum.at(low, rows, corners.xy[own, 1])
        np.maximum.at(high, rows, corners.xy[own, 1])
        scale = metres_at(crs, (low + high) / 2)
        shape = shapely.set_coordinates(geometry[areas].copy(), corners.xy[own] * scale[rows])
        inner, size = inside_margin(shape, sampling)
        for number in np.flatnonzero(size[1] > 0).tolist():
            at = lattice_points(inner[number], float(size[1, number]), sampling)
            weight = float(size[0, number]) / sampling.spacing_m**2 if sampling.counts == "area" else 1.0
            indices = np.full(len(at), areas[number])
            parts.append((at / scale[number], indices, np.full(len(at), weight / len(at))))
        gone = areas[~(size[1] > 0)]
    xy, index, share = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return xy, index, share, gone


def inside_margin(shape: Geometries, sampling: Sampling) -> tuple[Geometries, Floats]:
    """Return what lies inside the margin of each shape in metres, and the areas (2, N) of the whole and of that."""
    import shapely

    is_line = np.isin(shapely.get_type_id(shape), LINES)
    if is_line.any():
        shape[is_line] = shapely.buffer(shape[is_line], (sampling.line_width_m or 0.0) / 2, cap_style="flat")
    inner = shape.copy()
    if sampling.margin_m > 0:
        inner[~is_line] = shapely.buffer(shape[~is_line], -sampling.margin_m)
    shapely.prepare(inner)
    return inner, np.stack([shapely.area(shape), shapely.area(inner)])


def metres_at(crs: str | None, y: Floats) -> Floats:
    """Return the metres per unit of x and y (N, 2) at each ``y`` (N,), alike within bands a tenth of a degree wide."""
    if crs is None:
        return np.ones((len(y), 2))
    from rasterio.crs import CRS

    known = CRS.from_user_input(crs)
    band = BAND if known.is_geographic else BAND * 111_000 / float(known.linear_units_factor[1])
    rows, inverse = np.unique(np.round(y / band), return_inverse=True)
    most = math.floor(89.9 / BAND) if known.is_geographic else math.inf
    table = np.array([metres_per_unit(known, float(np.clip(row, -most, most)) * band) for row in rows.tolist()])
    return table.reshape(-1, 2)[inverse]


def lattice_points(shape: Any, area: float, sampling: Sampling) -> Floats:
    """Return points of the lattice inside a shape, in metres, at most ``sampling.positions``; at least one.

    Where there are more, the lattice is thinned to each second point, and so on, and of those that are left some are
    taken by a hash of where they lie: shapes that overlap then take the same ones.
    """
    import shapely

    west, south, east, north = shape.bounds
    step = sampling.spacing_m
    thinning = area / step**2 / (4 * sampling.positions)
    boxed = (east - west) * (north - south) / step**2 / LATTICE
    every = 2 ** max(0, math.ceil(math.log2(max(thinning, boxed, 1e-12)) / 2))
    step *= every
    columns = np.arange(math.ceil(west / step), math.floor(east / step) + 1, dtype=np.int64)
    rows = np.arange(math.ceil(south / step), math.floor(north / step) + 1, dtype=np.int64)
    column, row = (axis.ravel() for axis in np.meshgrid(columns, rows))
    inside = shapely.contains_xy(shape, column * step, row * step)
    column, row = column[inside], row[inside]
    if not len(column):
        return np.asarray(shapely.get_coordinates(shapely.point_on_surface(shape)), dtype=np.float64)
    if len(column) > sampling.positions:
        order = np.argsort(hashed(column * every, row * every), kind="stable")[: sampling.positions]
        order.sort()
        column, row = column[order], row[order]
    return np.stack([column * step, row * step], axis=1).astype(np.float64)


def hashed(column: Ints, row: Ints) -> NDArray[np.uint64]:
    """Return numbers that look random but are always the same for a point of the lattice."""
    mixed = column.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ row.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
