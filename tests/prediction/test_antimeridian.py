"""Where longitudes begin anew: rasters on both sides of 180°, however their files count, next to others.

Each is compared with the same rasters in UTM zone 31, where the same pixels lie on the same metres.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rasterio.transform import Affine
from rasterio.warp import transform

from atomizer_io.io.raster_sources import LocalFrame, RasterInput, RasterSource, overlap
from atomizer_io.io.rasters import offset_m, read_raster
from atomizer_io.prediction.options import Windows
from chips import model_folder, read, values, write
from predicting import predict_at, predict_raster

STEP = 0.0002  # degrees, about 22 m
NORTH, WIDE, HIGH = 10.0, 40, 30
ZONES = {"EPSG:32660": 177.0, "EPSG:32601": -177.0, "EPSG:32631": 3.0}  # central meridians
PLAIN = "EPSG:32631"


def source(path: Path) -> RasterSource:
    return RasterSource.open(RasterInput.of({"path": path, "sensor": "sentinel2"}))


def degrees(path: Path, middle: float) -> RasterSource:
    """A raster in degrees around a longitude, 0.008° wide."""
    place = Affine(STEP, 0, middle - STEP * WIDE / 2, 0, -STEP, NORTH)
    return source(write(path, values(HIGH, WIDE), crs="EPSG:4326", transform=place))


def metres(path: Path, zone: str, middle: float) -> RasterSource:
    """A raster of 20 m pixels in a UTM zone around the same place."""
    (x,), (y,) = transform("EPSG:4326", zone, [middle], [NORTH - STEP * HIGH / 2])
    x, y = round(x, 3), round(y, 3)
    return source(write(path, values(20, 30, 1), crs=zone, transform=Affine(20, 0, x - 300, 0, -20, y + 200)))


def plain(zone: str, longitude: float) -> float:
    """The longitude in zone 31 that lies as a longitude lies in another zone."""
    away = (longitude - ZONES[zone] + 180) % 360 - 180
    return ZONES[PLAIN] + away


def seen(of: RasterSource, like: RasterSource) -> tuple[np.ndarray, np.ndarray]:
    """Positions and values that a raster has in the extent of another, from the south-west."""
    west, south, east, north = like.bounds
    frame = LocalFrame.around(like.crs, (west + east) / 2, (south + north) / 2)
    x, y = frame.metres(east, north)
    atoms = of.atoms(frame, (-x, -y, x, y))
    assert atoms is not None
    positions, measured = (
        np.concatenate([getattr(a, key).numpy() for a in atoms.acquisitions]) for key in ("positions", "values")
    )
    order = np.lexsort(np.round(positions, 1).T)
    return positions[order], measured[order]


@pytest.mark.parametrize("zone", ["EPSG:32660", "EPSG:32601"])
@pytest.mark.parametrize("middle", [180.0, -180.0, 180.5, -180.5, 179.5, -179.5, 180.001, -179.999])
def test_degrees_and_metres(tmp_path: Path, zone: str, middle: float) -> None:
    """Seen from each other, the two have as many pixels, at the same positions, as far from the antimeridian."""
    pair = degrees(tmp_path / "a.tif", middle), metres(tmp_path / "b.tif", zone, middle)
    there = plain(zone, middle)
    usual = degrees(tmp_path / "c.tif", there), metres(tmp_path / "d.tif", PLAIN, there)
    for one, second in ((0, 1), (1, 0)):
        assert overlap(pair[one], pair[second].crs, pair[second].bounds)
        positions, measured = seen(pair[one], pair[second])
        expected, numbers = seen(usual[one], usual[second])
        assert len(positions) == len(expected) and len(positions) > 500
        np.testing.assert_allclose(positions, expected, atol=0.01)
        np.testing.assert_array_equal(measured, numbers)


@pytest.mark.parametrize(("first", "second"), [(180.0, -180.0), (-180.0, 180.0), (180.002, -179.997), (0.0, 360.0)])
def test_two_in_degrees_that_count_differently(tmp_path: Path, first: float, second: float) -> None:
    pair = degrees(tmp_path / "a.tif", first), degrees(tmp_path / "b.tif", second)
    away = (second - first + 180) % 360 - 180
    usual = degrees(tmp_path / "c.tif", 3.0), degrees(tmp_path / "d.tif", 3.0 + away)
    assert overlap(pair[1], pair[0].crs, pair[0].bounds)
    np.testing.assert_allclose(seen(pair[1], pair[0])[0], seen(usual[1], usual[0])[0], atol=0.01)
    images = [read_raster(raster.path) for raster in (*pair, *usual)]
    assert offset_m(images[0], images[1]) == pytest.approx(offset_m(images[2], images[3]), abs=0.01)


@pytest.mark.parametrize("west", [-180.0, 0.0, 179.0])
def test_a_map_of_the_whole_earth_has_both_sides(tmp_path: Path, west: float) -> None:
    """Also where its edges are at the antimeridian."""
    globe = np.arange(3 * 40 * 720, dtype=np.int32).reshape(3, 40, 720)
    near = metres(tmp_path / "utm.tif", "EPSG:32660", 180.0)
    usual = metres(tmp_path / "usual.tif", PLAIN, 6.0)
    wide = [
        source(write(tmp_path / name, array, crs="EPSG:4326", transform=Affine(0.5, 0, edge, 0, -0.5, 20.0)))
        for name, array, edge in (("a.tif", globe, west), ("b.tif", globe, west - 174.0))
    ]
    assert overlap(wide[0], near.crs, near.bounds) and overlap(near, wide[0].crs, wide[0].bounds)
    whole, expected = seen(wide[0], near), seen(wide[1], usual)
    if west != 179.0:  # else the usual position is at the edge
        np.testing.assert_allclose(whole[0], expected[0], atol=0.5)
        np.testing.assert_array_equal(whole[1], expected[1])
    assert (whole[0][:, 0] < 0).any() and (whole[0][:, 0] > 0).any()


@pytest.mark.parametrize("like", [0, 1])
def test_a_map_and_predictions_at_positions(tmp_path: Path, like: int) -> None:
    """From files to files: the same map as elsewhere, and positions by their longitude, whichever way it is written."""
    maps, tables = [], []
    for name, zone, middle in (("there", "EPSG:32660", 180.0), ("usual", PLAIN, 6.0)):
        folder = tmp_path / name
        folder.mkdir()
        pair = degrees(folder / "a.tif", middle), metres(folder / "b.tif", zone, middle)
        rasters = [{"path": raster.path, "sensor": "sentinel2"} for raster in pair]
        product = predict_raster(model_folder(), rasters, folder / "map.tif", like=like, windows=Windows(300.0))
        maps.append(read(product.path))
        east = middle + 0.001 - 360 * (name == "there")
        (folder / "places.csv").write_text(f"lon,lat\n{middle - 0.001},{NORTH - 0.003}\n{east},{NORTH - 0.003}\n")
        places = predict_at(
            model_folder(), rasters, folder / "places.csv", folder / "out.csv", like=like, windows=Windows()
        )
        assert places.predicted == 2
        tables.append([line.split(",")[2:] for line in (folder / "out.csv").read_text().splitlines()[1:]])
    assert (maps[0] == maps[1]).mean() > 0.99 and (maps[0] < 3).all()
    np.testing.assert_allclose(*(np.array(rows)[:, 1:].astype(float) for rows in tables), atol=2e-3)
