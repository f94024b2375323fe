"""Predictions at positions: those of the map where they meet, in the table that was given."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import shapely
from rasterio.warp import transform

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.prediction.at_positions import PositionTable
from atomizer_io.prediction.options import Decoding
from chips import CORNER, UTM, model_folder, read, regression_folder, scene, values, write
from data.vectors import moved, write_vector
from predicting import Breaks, Killed, predict_at, predict_raster

AT = [(0, 0), (5, 17), (11, 12), (19, 29), (8, 22)]  # rows and columns of pixels


def centre(row: float, column: float) -> tuple[float, float]:
    return CORNER[0] + 10 * (column + 0.5), CORNER[1] - 10 * (row + 0.5)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def listed(folder: Path, places: list[tuple[float, float]], names: str = "x,y") -> Path:
    path = folder / "places.csv"
    lines = [f"name,{names},note", *(f'p{i},{x!r},{y!r},"a, b"' for i, (x, y) in enumerate(places))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_at_the_centre_of_a_pixel_it_is_the_map(tmp_path: Path) -> None:
    rasters = scene(tmp_path, 20, 30)
    product = predict_raster(model_folder(), rasters, tmp_path / "map.tif", layers=["probabilities"])
    places = listed(tmp_path, [centre(*at) for at in AT])
    result = predict_at(model_folder(), rasters, places, tmp_path / "predictions.csv")
    rows, probabilities, classes = table(result.path), read(product.files["probabilities.tif"]), read(product.path)[0]
    assert result.count == result.predicted == len(rows) == len(AT)
    for (row, column), line in zip(AT, rows, strict=True):
        shares = [float(line[f"p_{name}"]) for name in ("dry", "wet", "bare")]
        np.testing.assert_allclose(shares, probabilities[:, row, column], atol=1e-3)
        assert line["predicted_class"] == ("dry", "wet", "bare")[classes[row, column]]
    assert rows[1]["name"] == "p1"
    assert rows[1]["note"] == "a, b", "what was there stays"


def test_a_latitude_beyond_the_poles_is_named(tmp_path: Path) -> None:
    rasters, places = scene(tmp_path, 14, 14), listed(tmp_path, [(3.0, 42.0), (3.0, 95.0)], "lon,lat")
    with pytest.raises(DataError, match=r"row 2 has latitude 95.* from -90 to 90"):
        predict_at(model_folder(), rasters, places, tmp_path / "out.csv")


def test_positions_that_the_raster_s_system_cannot_express_have_no_prediction(tmp_path: Path) -> None:
    degrees = transform(UTM, "EPSG:4326", *zip(centre(5, 5), strict=True))
    places = listed(tmp_path, [(-87.0, 0.0), (degrees[0][0], degrees[1][0])], "lon,lat")
    result = predict_at(model_folder(), scene(tmp_path, 14, 14), places, tmp_path / "out.csv")
    assert [bool(row["predicted_class"]) for row in table(result.path)] == [False, True]


def test_longitude_and_latitude(tmp_path: Path) -> None:
    rasters, places = scene(tmp_path, 20, 30), [centre(*at) for at in AT]
    one = predict_at(model_folder(), rasters, listed(tmp_path, places), tmp_path / "a.csv")
    degrees = transform(UTM, "EPSG:4326", *zip(*places, strict=True))
    two = predict_at(
        model_folder(), rasters, listed(tmp_path, list(zip(*degrees, strict=True)), "lon,lat"), tmp_path / "b.csv"
    )
    for a, b in zip(table(one.path), table(two.path), strict=True):
        assert float(a["p_wet"]) == pytest.approx(float(b["p_wet"]), abs=1e-3)


def test_outside_and_unobserved(tmp_path: Path) -> None:
    array = values(20, 30)
    array[:, 3:6, 3:6] = 0
    rasters = {"path": write(tmp_path / "scene.tif", array, nodata=0), "sensor": "sentinel2"}
    places = listed(tmp_path, [centre(4, 4), centre(100, 0), centre(10, 10), (CORNER[0] + 300, CORNER[1] - 200)])
    result = predict_at(model_folder(), rasters, places, tmp_path / "a.csv")
    assert [bool(row["predicted_class"]) for row in table(result.path)] == [False, False, True, True]
    assert result.predicted == 2
    filled = predict_at(model_folder(), rasters, places, tmp_path / "b.csv", fill=True)
    assert [bool(row["predicted_class"]) for row in table(filled.path)] == [True, False, True, True]


def test_a_regression_target(tmp_path: Path) -> None:
    rasters = scene(tmp_path, 20, 30)
    product = predict_raster(regression_folder(), rasters, tmp_path / "map.tif")
    result = predict_at(regression_folder(), rasters, listed(tmp_path, [centre(*at) for at in AT]), tmp_path / "a.csv")
    for (row, column), line in zip(AT, table(result.path), strict=True):
        assert float(line["predicted_value"]) == pytest.approx(read(product.path)[0, row, column], rel=1e-4)


@pytest.mark.parametrize("suffix", [".gpkg", ".geojson", ".parquet"])
def test_points_of_vector_files(tmp_path: Path, suffix: str) -> None:
    rasters, places = scene(tmp_path, 20, 30), [centre(*at) for at in AT]
    points, depth = moved(shapely.points(places), 32631, 4326), {"depth": [i / 2 for i in range(len(places))]}
    one = predict_at(model_folder(), rasters, listed(tmp_path, places), tmp_path / "a.csv")
    path = write_vector(tmp_path / f"wells{suffix}", points, depth, 4326)
    rows = table(predict_at(model_folder(), rasters, path, tmp_path / "b.csv").path)
    assert list(rows[0]) == ["fid", "depth", "x", "y", "predicted_class", "predicted_code", "p_dry", "p_wet", "p_bare"]
    for a, b in zip(table(one.path), rows, strict=True):
        assert [a[name] for name in ("p_dry", "p_wet")] == [b[name] for name in ("p_dry", "p_wet")]


def test_vector_files_without_points(tmp_path: Path) -> None:
    line = shapely.LineString([(0, 0), (1, 1)])
    with pytest.raises(DataError, match="row 2 has a geometry that is not a point"):
        PositionTable.read(write_vector(tmp_path / "a.gpkg", [shapely.Point(0, 0), line], {"a": [1, 2]}))
    (tmp_path / "no.gpkg").write_text("hello")
    with pytest.raises(DataError, match=r"no\.gpkg: is no GPKG, as its name promises"):
        PositionTable.read(tmp_path / "no.gpkg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has none"),
        ("x,y\n", "has no rows"),
        ("east,north\n1,2\n", "it has east, north"),
        ("x,y\n1,a\n", "row 1 has no coordinates"),
        ("x,y\n1,2\n3\n", "row 2 has no coordinates"),
        ("x,y\n1,nan\n", "row 1 has no coordinates"),
    ],
)
def test_tables_that_do_not_say_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "places.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        PositionTable.read(tmp_path / "places.csv")


def test_what_cannot_be_predicted(tmp_path: Path) -> None:
    rasters, places = scene(tmp_path, 12, 12), listed(tmp_path, [centre(2, 2)], "x,y")
    with pytest.raises(ConfigError, match="quadtree needs a grid"):
        predict_at(model_folder(), rasters, places, tmp_path / "a.csv", decoding=Decoding("quadtree"))
    (tmp_path / "b.csv").write_text("x,y,p_wet\n1,2,3\n")
    with pytest.raises(DataError, match="'p_wet' already"):
        predict_at(model_folder(), rasters, tmp_path / "b.csv", tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


def test_it_goes_on(tmp_path: Path) -> None:
    rasters, places = scene(tmp_path, 30, 30), listed(tmp_path, [centre(3 * i, 2 * i) for i in range(10)])
    whole = predict_at(model_folder(), rasters, places, tmp_path / "a.csv")
    with pytest.raises(Killed):
        predict_at(model_folder(), rasters, places, tmp_path / "b.csv", engine=Breaks(2))
    again = predict_at(model_folder(), rasters, places, tmp_path / "b.csv", resume=True)
    assert again.path.read_bytes() == whole.path.read_bytes()
