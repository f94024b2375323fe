"""Polygons: from well-known text and GeoJSON, and drawn on a grid of pixels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError, first_line
from atomizer_io.io.crs import Transform
from atomizer_io.io.tables import from_json

Ring = list[tuple[float, float]]
Geometry = dict[str, Any]  # of GeoJSON: type and coordinates
Box = tuple[float, float, float, float]  # x_min, y_min, x_max, y_max

_NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_RING = rf"\(\s*{_NUMBER}\s+{_NUMBER}(?:\s*,\s*{_NUMBER}\s+{_NUMBER})*\s*\)"
_POLYGON = rf"\(\s*{_RING}(?:\s*,\s*{_RING})*\s*\)"
_WKT = re.compile(rf"\s*(?:POLYGON\s*{_POLYGON}|MULTIPOLYGON\s*\(\s*{_POLYGON}(?:\s*,\s*{_POLYGON})*\s*\))\s*")


def from_wkt(wkt: str, path: Path) -> list[list[Ring]]:
    """Return the polygons of a text in the file ``path``, each a list of rings: the outer one, then holes."""
    if not isinstance(wkt, str) or not _WKT.fullmatch(wkt):
        raise DataError(path, f"has a geometry that is not a POLYGON of x y, x y, …: {str(wkt)[:60]!r}")
    polygons = []
    for polygon in re.findall(_POLYGON, wkt):
        rings = []
        for ring in re.findall(_RING, polygon):
            numbers = [float(number) for number in re.findall(_NUMBER, ring)]
            if not all(map(math.isfinite, numbers)):
                raise DataError(path, f"has a polygon with a corner at infinity: {wkt[:60]!r}")
            rings.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
        if any(len(ring) < 4 for ring in rings):
            raise DataError(path, f"has a polygon with fewer than three corners: {wkt[:60]!r}")
        polygons.append(rings)
    return polygons


def read_geojson(path: Path, key: str, crs: str, bounds: Box) -> tuple[list[Geometry], NDArray[np.float64]]:
    """Read the polygons of a file in coordinates of ``crs``, and the number that each has as property ``key``.

    At least one of them must lie within ``bounds``. A file that names no CRS is in longitude and latitude, or in
    ``crs`` where its numbers cannot be degrees.
    """
    from rasterio.crs import CRS
    from rasterio.features import bounds as box_of
    from rasterio.warp import transform_geom

    document = from_json(path)
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or not features:
        raise DataError(path, "has no features: expected a GeoJSON collection of polygons")
    numbered = [_polygon(feature, key, f"feature {number}", path) for number, feature in enumerate(features)]
    geometries, numbers = [geometry for geometry, _ in numbered], np.array([number for _, number in numbered])
    own, target = _crs(document, path), CRS.from_user_input(crs)
    if own is None:
        degrees = max(abs(side) for geometry in geometries for side in box_of(geometry)) <= 180
        own = CRS.from_user_input("EPSG:4326") if degrees else target
    if own != target:
        try:
            geometries = transform_geom(own, target, geometries)
        except Exception as error:  # GDAL's own kinds, which rasterio does not publish
            raise DataError(
                path, f"its polygons cannot be turned from {own} into {crs}: {first_line(error)}"
            ) from error
    if not any(overlap(box_of(geometry), bounds) for geometry in geometries):
        raise DataError(path, f"no polygon lies on the map, {bounds} in {crs}: are they in {own}?")
    return geometries, numbers


def _polygon(feature: Any, key: str, name: str, path: Path) -> tuple[Geometry, float]:
    """Return the geometry and the number of a feature."""
    try:
        geometry, number = feature["geometry"], float(feature["properties"][key])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(path, f"{name} has no geometry or no number as property {key!r}") from error
    try:
        single = geometry["type"] == "Polygon"
        parts = {"Polygon": [geometry["coordinates"]], "MultiPolygon": geometry["coordinates"]}[geometry["type"]]
        polygons = [[_ring(ring) for ring in rings] for rings in parts]
    except (KeyError, TypeError, ValueError, OverflowError, IndexError) as error:
        raise DataError(path, f"the geometry of {name} is not a polygon") from error
    corners = [ring for rings in polygons for ring in rings]
    if not all(polygons) or not corners or any(len(ring) < 4 for ring in corners):
        raise DataError(path, f"the geometry of {name} is not a polygon")
    if not all(np.isfinite(ring).all() for ring in corners):
        raise DataError(path, f"the geometry of {name} has a corner at infinity")
    coordinates = [[ring.tolist() for ring in rings] for rings in polygons]
    return {"type": geometry["type"], "coordinates": coordinates[0] if single else coordinates}, number


def _ring(corners: Any) -> NDArray[np.float64]:
    """Return x and y (N, 2) of a ring, without the heights that some corners may have."""
    return np.array([corner[:2] for corner in corners], dtype=np.float64).reshape(len(corners), 2)


def crs_name(document: Mapping[str, Any], path: Path) -> str | None:
    """Return the name of the CRS in a GeoJSON document, ``EPSG:2154`` where it has a code; None if it has no name."""
    member = document.get("crs")
    if member is None:
        return None
    try:
        name = member["properties"]["name"]
        code = name.casefold().replace("::", ":").rpartition("epsg:")[2]
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(path, f"'crs' names no known coordinate system: {member!r}") from error
    return f"EPSG:{code}" if code.isdecimal() else name


def _crs(document: Mapping[str, Any], path: Path) -> Any:
    """Return the CRS that a GeoJSON document names, None if it names none."""
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    name = crs_name(document, path)
    try:
        return None if name is None else CRS.from_user_input(name)
    except CRSError as error:
        raise DataError(path, f"'crs' names no known coordinate system: {name!r}") from error


def overlap(box: Box, area: Box) -> bool:
    """Return whether two boxes share an area."""
    return box[0] < area[2] and box[2] > area[0] and box[1] < area[3] and box[3] > area[1]


def rasterised(
    numbered: Sequence[tuple[Geometry, int]], shape: tuple[int, int], transform: Transform, fill: int = 0
) -> NDArray[np.int64]:
    """Return the number (H, W) of the last polygon around the centre of each pixel; ``fill`` where there is none."""
    from rasterio.features import rasterize
    from rasterio.transform import Affine

    if not numbered:
        return np.full(shape, fill, dtype=np.int64)
    drawn = rasterize(numbered, shape, fill=fill, transform=Affine(*transform), dtype=np.int16)
    return np.asarray(drawn, dtype=np.int64)
