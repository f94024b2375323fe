"""Polygons: well-known text, and how they are drawn."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from atomizer_io.errors import DataError
from atomizer_io.io.polygons import crs_name, from_wkt, rasterised, read_geojson


def test_polygons_of_well_known_text() -> None:
    path = Path("a.json")
    square = [(0.0, 0.0), (1e1, 0.0), (10.5, -10.0), (0.0, 0.0)]
    assert from_wkt("POLYGON ((0 0, 1e1 0, 10.5 -10, 0 0))", path) == [[square]]
    assert from_wkt("POLYGON((0 0,10 0,10.5 -10,0 0),(0 0, 10 0, 10.5 -10, 0 0))", path) == [[square, square]]
    several = "MULTIPOLYGON (((0 0, 10 0, 10.5 -10, 0 0)), ((0 0, 10 0, 10.5 -10, 0 0), (0 0, 10 0, 10.5 -10, 0 0)))"
    assert from_wkt(several, path) == [[square], [square, square]]
    for wrong in ("POINT (1 1)", "POLYGON ((0 0, 1 0, 1 1, 0 0)", "POLYGON ((0 0 1, 1 0 1, 1 1 1, 0 0 1))", None, ""):
        with pytest.raises(DataError, match=r"a\.json: has a geometry that is not a POLYGON"):
            from_wkt(wrong, path)
    with pytest.raises(DataError, match="fewer than three corners"):
        from_wkt("POLYGON ((0 0, 1 1, 0 0))", path)


def test_a_pixel_is_in_the_last_polygon_around_its_centre() -> None:
    wide, narrow = (
        {"type": "Polygon", "coordinates": from_wkt(wkt, Path("a"))[0]}
        for wkt in ("POLYGON ((0 0, 3.6 0, 3.6 2, 0 2, 0 0))", "POLYGON ((0 0, 1.4 0, 1.4 1, 0 1, 0 0))")
    )
    drawn = rasterised([(wide, 1), (narrow, 2)], (3, 4), (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), fill=-1)
    np.testing.assert_array_equal(drawn, [[2, 1, 1, 1], [1, 1, 1, 1], [-1, -1, -1, -1]])
    np.testing.assert_array_equal(rasterised([], (1, 2), (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), fill=-1), [[-1, -1]])


SQUARE = [[1.0, 6.0], [1.1, 6.0], [1.1, 6.1], [1.0, 6.1], [1.0, 6.0]]
UTM, BOUNDS = "EPSG:32631", (0.0, 0.0, 1e6, 1e6)


def collection(path: Path, corner: list[float], number: float = 1, **more: object) -> Path:
    ring = [SQUARE[0], corner, *SQUARE[2:]]
    feature = {
        "type": "Feature",
        "properties": {"class": number},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature], **more}))
    return path


@pytest.mark.parametrize("crs", ["EPSG:4326", UTM, None])
@pytest.mark.parametrize("corner", [[math.inf, 6.0], [1.1, -math.inf], [math.nan, 6.0]])
def test_corners_at_infinity_are_named(tmp_path: Path, corner: list[float], crs: str | None) -> None:
    more = {} if crs is None else {"crs": {"properties": {"name": crs}}}
    with pytest.raises(DataError, match=r"a\.json: the geometry of feature 0 has a corner at infinity"):
        read_geojson(collection(tmp_path / "a.json", corner, **more), "class", UTM, BOUNDS)


@pytest.mark.parametrize("corner", [[1e300, 6.0], [1.1, 95.0], [1e308, 1e308]])
def test_corners_that_are_on_no_map_are_named(tmp_path: Path, corner: list[float]) -> None:
    more = {"crs": {"properties": {"name": "EPSG:4326"}}}
    with pytest.raises(DataError, match=r"a\.json: "):
        read_geojson(collection(tmp_path / "a.json", corner, **more), "class", UTM, (0.0, 0.0, 1.0, 1.0))


@pytest.mark.parametrize(
    "geometry",
    [
        *(None, 3, [], {}, {"type": "Polygon"}, {"type": "Polygon", "coordinates": 3}, {"type": 3, "coordinates": []}),
        {"type": "Polygon", "coordinates": [[["a", "b"], ["c", "d"], ["e", "f"], ["a", "b"]]]},
        {"type": "Polygon", "coordinates": [[[0, 0], [1], [1, 1], [0, 0]]]},
        {"type": "Polygon", "coordinates": [[[0, 0], [10**400, 0], [1, 1], [0, 0]]]},
        {"type": "LineString", "coordinates": [[0, 0], [1, 1]]},
    ],
)
def test_what_is_no_polygon_is_named(tmp_path: Path, geometry: object) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"features": [{"properties": {"class": 1}, "geometry": geometry}]}))
    with pytest.raises(DataError, match=r"a\.json: .*feature 0"):
        read_geojson(path, "class", UTM, BOUNDS)


def test_polygons_of_a_file(tmp_path: Path) -> None:
    path = collection(tmp_path / "a.json", SQUARE[1], 4)
    (geometry,), numbers = read_geojson(path, "class", UTM, BOUNDS)
    assert numbers.tolist() == [4] and geometry["coordinates"][0][0] == pytest.approx((278635, 663583), abs=500)
    (with_height,), _ = read_geojson(collection(path, [*SQUARE[1], 250.0]), "class", UTM, BOUNDS)
    assert with_height == geometry
    with pytest.raises(DataError, match="has no geometry or no number"):
        read_geojson(collection(path, SQUARE[1], 10**400), "class", UTM, BOUNDS)


def test_the_name_of_a_coordinate_system() -> None:
    path = Path("a.json")
    for name in ("EPSG:2154", "epsg:2154", "urn:ogc:def:crs:EPSG::2154"):
        assert crs_name({"crs": {"properties": {"name": name}}}, path) == "EPSG:2154"
    assert crs_name({"crs": {"properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}}, path).endswith("CRS84")
    assert crs_name({}, path) is crs_name({"crs": None}, path) is None
    for wrong in ("EPSG:2154", {}, {"properties": {"name": 3}}, [1]):
        with pytest.raises(DataError, match=r"a\.json: 'crs' names no known coordinate system"):
            crs_name({"crs": wrong}, path)
