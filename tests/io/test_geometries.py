"""Geometries from text and bytes, and how they are drawn."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import shapely

from atomizer_io.errors import DataError
from atomizer_io.io.geometries import SHALLOW_BYTES, from_blobs, from_texts, from_wkt, rasterised

SQUARE = "((0 0, 10 0, 10.5 -10, 0 0), (0 0, 1e1 0, 10.5 -10, 0 0))"


def test_polygons_of_well_known_text() -> None:
    path = Path("a.json")
    for text in (f"POLYGON {SQUARE}", f"POLYGON{SQUARE}", f"MULTIPOLYGON ({SQUARE}, {SQUARE})"):
        assert from_wkt(text, path) == shapely.from_wkt(text)
    wrong = (
        "POINT (1 1)",
        "POLYGON ((0 0, 1 0, 1 1, 0 0)",
        "POLYGON EMPTY",
        None,
        "",
        [1],
    )
    for text in wrong:
        with pytest.raises(DataError, match=r"a\.json: has a geometry that is not a POLYGON"):
            from_wkt(text, path)
    with pytest.raises(DataError, match="a corner at infinity"):
        from_wkt("POLYGON ((0 0, 1e999 0, 1 1, 0 0))", path)


def test_geometries_within_geometries_do_not_end_the_process() -> None:
    """GEOS reads what is nested by recursion, and has no limit for it."""
    deep = 200_000
    good = ["POINT Z (1 2 3)", "multilinestring ((0 0, 1 1))", "POINT EMPTY"]
    texts = [*good, None, "GEOMETRYCOLLECTION (" * deep + "POINT (1 1)" + ")" * deep]
    assert from_texts(texts).tolist() == [*shapely.from_wkt(good), None, None]
    point = shapely.to_wkb(shapely.Point(1, 1))
    for kind in (4, 5, 6, 7, 1007):
        heads = (b"\1" + struct.pack("<II", kind, 1)) * deep
        assert from_blobs([heads + point, point, None, b"\1"]).tolist() == [None, shapely.Point(1, 1), None, None]


@pytest.mark.parametrize("flavor", ["iso", "extended"])
@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("byte_order", [0, 1])
def test_large_geometries_of_several_parts_are_read(flavor: str, dimension: int, byte_order: int) -> None:
    xyz = np.random.default_rng(0).normal(size=(5 * SHALLOW_BYTES // 16, 3))[:, :dimension]
    ring = shapely.buffer(shapely.Point(0, 0), 1, quad_segs=400)
    holed = shapely.Polygon(
        shapely.force_3d(ring).exterior if dimension == 3 else ring.exterior, [ring.exterior.coords]
    )
    shapes = [shapely.MultiPoint(xyz), shapely.MultiLineString([xyz, xyz[:9]]), shapely.MultiPolygon([holed, holed])]
    blobs = shapely.to_wkb(shapes, output_dimension=dimension, byte_order=byte_order, flavor=flavor).tolist()
    assert min(map(len, blobs)) > SHALLOW_BYTES
    assert shapely.to_wkb(from_blobs(blobs)).tolist() == shapely.to_wkb(shapely.from_wkb(blobs)).tolist()


def test_a_pixel_is_in_the_last_polygon_around_its_centre() -> None:
    wide, narrow = shapely.box(0, 0, 3.6, 2), shapely.box(0, 0, 1.4, 1)
    drawn = rasterised([(wide, 1), (narrow, 2)], (3, 4), (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), fill=-1)
    np.testing.assert_array_equal(drawn, [[2, 1, 1, 1], [1, 1, 1, 1], [-1, -1, -1, -1]])
    np.testing.assert_array_equal(rasterised([], (1, 2), (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), fill=-1), [[-1, -1]])
