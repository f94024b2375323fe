"""Polygons: well-known text, and how they are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from atomizer_io.datasets.reading.polygons import from_wkt, rasterised
from atomizer_io.errors import DataError


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
