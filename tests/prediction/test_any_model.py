"""Models that are known by their contract only: maps, predictions at positions and classes of points from baselines."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.sensors import LIDAR, SENTINEL1, SENTINEL2
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.models.base import Model
from chips import CORNER, NAMES, read, scene, values, write
from predicting import predict_at, predict_points, predict_raster, predict_xarray, write_las

CHANNELS = SENTINEL2.pick(*NAMES)


def made(name: str, **settings: Any) -> Model:
    """A model with drawn weights, large enough that predictions differ between positions."""
    torch.manual_seed(0)
    defaults = {"channels": CHANNELS, "num_outputs": 3, "class_names": ("dry", "wet", "bare"), **settings}
    model: Model = aio.create_model(name, **defaults)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


@pytest.fixture(params=["unet_small", "pixels"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made(request.param).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def expected(model: Model, array: np.ndarray) -> np.ndarray:
    """Probabilities (C, H, W) of a whole scene by the model itself."""
    atoms = aio.AtomSet.from_raster(array.astype(np.float32), CHANNELS, 10.0)
    grid = aio.Grid(*array.shape[1:], 10.0)
    with torch.no_grad():
        logits = model([atoms], [grid.positions()])[0]
    return logits.softmax(dim=-1).T.reshape(-1, *grid.shape).numpy()


def test_one_window_is_what_the_model_predicts(tmp_path: Path, folder: Path) -> None:
    array = values(12, 12)
    raster = {"path": write(tmp_path / "scene.tif", array), "sensor": "sentinel2"}
    product = predict_raster(folder, raster, tmp_path / "map.tif", layers=["probabilities"])
    target = expected(aio.load_model(folder).eval(), array)
    assert product.windows == 1 and product.decoded == 144
    np.testing.assert_allclose(read(product.files["probabilities.tif"]), target, atol=2e-3)
    assert len(np.unique(read(product.path))) > 1, "a map of one class would prove little"


def test_a_missing_channel_is_absent(tmp_path: Path, folder: Path) -> None:
    array = values(12, 12)
    two = {"path": write(tmp_path / "two.tif", array[:2], names=NAMES[:2]), "sensor": "sentinel2"}
    hollow = array.astype(np.float32)
    hollow[2] = np.nan
    three = {"path": write(tmp_path / "three.tif", hollow, nodata=np.nan), "sensor": "sentinel2"}
    one = predict_raster(folder, two, tmp_path / "a.tif")
    second = predict_raster(folder, three, tmp_path / "b.tif")
    np.testing.assert_array_equal(read(one.path), read(second.path))
    full = predict_raster(folder, {**two, "path": write(tmp_path / "full.tif", array)}, tmp_path / "c.tif")
    assert (read(full.path) != read(one.path)).any()


def test_predictions_at_positions_and_in_xarray_are_those_of_the_map(tmp_path: Path, folder: Path) -> None:
    xarray = pytest.importorskip("xarray")
    rioxarray = pytest.importorskip("rioxarray")
    raster = scene(tmp_path, 20, 30)
    product = predict_raster(folder, raster, tmp_path / "map.tif")
    cells = [(0, 0), (7, 21), (19, 29)]
    rows = "".join(f"{CORNER[0] + 10 * c + 5},{CORNER[1] - 10 * r - 5}\n" for r, c in cells)
    (tmp_path / "places.csv").write_text("x,y\n" + rows)
    result = predict_at(folder, raster, tmp_path / "places.csv", tmp_path / "predictions.csv")
    assert result.predicted == 3
    with (tmp_path / "predictions.csv").open() as file:
        named = [row["predicted_class"] for row in csv.DictReader(file)]
    classes = read(product.path)[0]
    assert named == [("dry", "wet", "bare")[classes[cell]] for cell in cells]
    with rioxarray.open_rasterio(raster["path"]) as opened:
        array = opened.load().assign_coords(band=list(NAMES))
    again = predict_xarray(folder, array, sensor="sentinel2")
    assert isinstance(again, xarray.DataArray)
    np.testing.assert_array_equal(again.values, classes)


def test_a_regression_target(tmp_path: Path) -> None:
    model = made("unet_small", task="regression", num_outputs=1, class_names=(), target_mean=100.0, target_std=20.0)
    product = predict_raster(model, scene(tmp_path, 16, 16), tmp_path / "map.tif")
    assert read(product.path).dtype == np.float32
    assert product.mean == pytest.approx(float(np.nanmean(read(product.path))), rel=1e-4)


def test_what_a_model_cannot_do_is_refused(tmp_path: Path, folder: Path) -> None:
    raster, name = scene(tmp_path, 12, 12), aio.load_model(folder).preset
    for message, how in (
        (f"{name} predicts at all positions at once: decode quadtree", {"decoding": aio.Decoding("quadtree")}),
        (f"{name} predicts at all.* decode sketch and alpha", {"decoding": aio.Decoding("sketch", 0.1)}),
        (f"{name} has a fixed cost: it has no atoms per lat", {"decoding": aio.Decoding(cost=aio.Cost(neighbors=3))}),
        (f"{name} cannot report how much attention", {"layers": ["attention"]}),
    ):
        with pytest.raises(ConfigError, match=message):
            predict_raster(folder, raster, tmp_path / "map.tif", **how)
    second = write(tmp_path / "s1.tif", values(12, 12)[:2].astype(np.float32) / -100, names=SENTINEL1.names[:2])
    with pytest.raises(
        DataError,
        match=rf"s1\.tif: {name} was trained without sentinel1 VV, and reads no other .*: leave this band out",
    ):
        predict_raster(folder, [raster, {"path": second, "sensor": "sentinel1"}], tmp_path / "map.tif")
    assert not list(tmp_path.glob("map*"))


def test_nothing_to_calibrate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(folder)]) != 0
    assert "predicts at all positions at once" in capsys.readouterr().err


def test_points_are_classified_by_what_reads_points(tmp_path: Path) -> None:
    laspy = pytest.importorskip("laspy")
    path = write_las(tmp_path / "in.las", np.random.default_rng(0).uniform(0, (60, 40, 20), (300, 3)))
    model = made("pixels", channels=LIDAR.with_statistics(np.linspace(0, 20, 99)[None, None]).channels)
    product = predict_points(model, path, tmp_path / "out.las")
    assert sum(product.counts.values()) == 300
    result = laspy.read(tmp_path / "out.las")
    total = result.dry + result.wet + result.bare
    np.testing.assert_allclose(total, 1, atol=3e-3)
    assert len(np.unique(result.PredictedClassification)) > 1
    with pytest.raises(ConfigError, match="unet_small reads rasters only: a point cloud"):
        predict_points(made("unet_small"), path, tmp_path / "b.las")
    assert not list(tmp_path.glob("b.*"))
