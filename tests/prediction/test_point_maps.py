"""Maps from point clouds: a target or classes at the centres of pixels, as aligned GeoTIFFs with gaps."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch

import atomizer_io as aio
from atomizer_io.data.sample import queries_at
from atomizer_io.data.sensors import LIDAR
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.io.point_clouds import PointCloudHeader
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.prediction.engines import Processes
from atomizer_io.prediction.options import PointCloudWindows
from atomizer_io.prediction.point_maps import check_pixels
from chips import read
from predicting import command, interrupted_at_every_step, predict_point_cloud_map, write_las
from scenes import SMALL

laspy = pytest.importorskip("laspy")

WEST, SOUTH = 700_003.0, 6_600_007.0
Trees = np.ndarray  # (trees, 4): x, y, radius, height in metres


def forest(rng: np.random.Generator, side_m: float) -> Trees:
    count = max(1, round(side_m**2 / 80))
    place, radius, height = rng.uniform(0, side_m, (count, 2)), rng.uniform(2.5, 5, count), rng.uniform(6, 18, count)
    return np.column_stack([place, radius, height])


def canopy(xy: np.ndarray, trees: Trees) -> np.ndarray:
    """How high the crowns of trees, flat domes, are above the ground."""
    distance = np.linalg.norm(xy[:, None] - trees[:, :2], axis=-1) / trees[:, 2]
    return np.where(distance < 1, trees[:, 3] * (1 - 0.3 * distance**2), 0).max(axis=1)


def returns(rng: np.random.Generator, side_m: float, trees: Trees) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four pulses a square metre; a third of those that meet a crown also reach the ground. Points, returns, echoes."""
    xy = rng.uniform(0, side_m, (round(4 * side_m**2), 2))
    top = canopy(xy, trees)
    below = (top > 0) & (rng.random(len(xy)) < 0.3)
    z = np.append(top, np.zeros(below.sum())) + rng.normal(0, 0.05, len(xy) + below.sum())
    xyz = np.column_stack([np.concatenate([xy, xy[below]]), z])
    number = np.repeat([1, 2], [len(xy), below.sum()])
    return xyz, number, np.append(1 + below, np.full(below.sum(), 2))


@pytest.fixture(scope="session")
def canopy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that has learnt, from synthetic forests of 20 m, how high the canopy is."""
    torch.manual_seed(0)
    settings = {**SMALL, "depth": 1, "atoms_per_latent": 20, "rope_scale_m": 20.0, "num_outputs": 1, "dates": False}
    target = {"target_name": "canopy height", "target_unit": "m", "target_mean": 4.0, "target_std": 5.0}
    channels = LIDAR.pick("elevation")
    model = aio.create_model("atomizer_io_tiny", **settings, **target, task="regression", channels=channels)
    prepare, rng, steps = model.preparer(), np.random.default_rng(0), 150
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    for _ in range(steps):
        inputs, targets = [], []
        for _ in range(2):
            trees = forest(rng, 20)
            xyz, number, echoes = returns(rng, 20, trees)
            queried = rng.uniform(0, 20, (200, 2))
            pixels = queries_at(queried - 10, footprint_m=torch.ones(2))
            inputs.append(prepare(aio.AtomSet.from_points(xyz - [10, 10, 0], number, echoes), pixels))
            targets.append(torch.from_numpy(canopy(queried, trees)).float())
        outputs = torch.cat(model.predict(inputs))[:, 0]
        loss = (outputs - torch.cat(targets)).square().mean() / 25
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    folder = tmp_path_factory.mktemp("canopy")
    model.eval().save_pretrained(folder)
    return folder


def write_cloud(path: Path, xyz: np.ndarray, number: Any = 1, echoes: Any = 1, epsg: int | None = 2154) -> Path:
    offsets = np.array([WEST, SOUTH, 100.0])
    more = {"return_number": number, "number_of_returns": echoes, "classification": 1}
    return write_las(path, xyz + offsets, epsg=epsg, offsets=offsets, **more)


def wood(folder: Path, side_m: float = 45.0, hole: bool = True, **how: Any) -> tuple[Path, Trees]:
    """A cloud of a forest, in the east of which a pond of 12 m has no returns."""
    rng = np.random.default_rng(5)
    trees = forest(rng, side_m)
    xyz, number, echoes = returns(rng, side_m, trees)
    kept = np.linalg.norm(xyz[:, :2] - [35, 20], axis=1) > 6 if hole else np.ones(len(xyz), bool)
    return write_cloud(folder / "wood.laz", xyz[kept], number[kept], echoes[kept], **how), trees


def random_model(**changes: Any) -> AtomizerIO:
    torch.manual_seed(0)
    names = ("ground", "tree", "water")
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "class_names": names, **changes})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def centres(path: Path) -> np.ndarray:
    """x and y of all pixels, in metres from the corner of the cloud."""
    with rasterio.open(path) as source:
        rows, columns = np.mgrid[: source.height, : source.width]
        x = source.transform.c + source.transform.a * (columns.ravel() + 0.5)
        y = source.transform.f + source.transform.e * (rows.ravel() + 0.5)
    return np.stack([x - WEST, y - SOUTH], axis=1)


def test_a_canopy_height_model(canopy_model: Path, tmp_path: Path) -> None:
    cloud, trees = wood(tmp_path)
    product = predict_point_cloud_map(canopy_model, cloud, tmp_path / "chm.tif")
    heights, where = read(product.path)[0].ravel(), centres(product.path)
    true = canopy(where, trees)
    pond = np.linalg.norm(where - [35, 20], axis=1)
    assert np.isnan(heights[pond < 4.5]).all(), "no return within reach"
    near = (pond > 6.5) & (where > 1).all(axis=1) & (where < 44).all(axis=1)
    assert np.isfinite(heights[near]).all()
    assert np.corrcoef(heights[near], true[near])[0, 1] > 0.85
    assert np.sqrt(np.mean((heights[near] - true[near]) ** 2)) < 0.55 * true[near].std()
    with rasterio.open(product.path) as source:
        assert source.crs.to_epsg() == 2154 and source.dtypes == ("float32",) and np.isnan(source.nodata)
        assert source.descriptions == ("canopy height",) and source.units == ("m",)
        assert source.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert source.res == (1, 1) and source.shape == (45, 45)
    assert product.mean == pytest.approx(np.nanmean(heights), rel=1e-4)
    assert (product.target, product.unit) == ("canopy height", "m")
    assert product.windows == 16 and product.decoded == product.positions
    assert set(product.files) == {"map.tif", "preview.png"} and not list(tmp_path.glob("*.parts"))


def test_a_return_at_the_centre_of_a_pixel_does_not_decide_it(canopy_model: Path, tmp_path: Path) -> None:
    """Maps were peppered: a pixel with a return within 5 cm of its centre took the height of that return."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(0, 20, (2000, 2))
    top = np.column_stack([xy, rng.normal(12, 0.1, len(xy))])  # a closed canopy of 12 m, and ground below
    column, row = np.divmod(np.arange(400), 20)
    maps = []
    for offset in (0.5, 0.75):  # on the centres of pixels, and beside them
        xyz = np.concatenate([top, np.column_stack([column + offset, row + offset, np.zeros(400)])])
        cloud = write_cloud(tmp_path / f"{offset}.laz", xyz)
        maps.append(read(predict_point_cloud_map(canopy_model, cloud, tmp_path / f"{offset}.tif").path)[0])
    assert np.abs(maps[0] - maps[1])[2:-2, 2:-2].max() < 2
    assert np.median(maps[0]) > 8


def test_pixels_are_aligned_to_multiples_of_their_size(tmp_path: Path) -> None:
    cloud, _ = wood(tmp_path, 22.0)
    for gsd_m, shape in ((0.5, (44, 44)), (1.0, (22, 22)), (4.0, (7, 7))):
        path = tmp_path / f"{gsd_m}.tif"
        predict_point_cloud_map(random_model(), cloud, path, gsd_m=gsd_m)
        with rasterio.open(path) as source:
            west, south, east, north = source.bounds
            assert source.res == (gsd_m, gsd_m) and source.shape == shape
        assert all((edge / gsd_m).is_integer() for edge in (west, south, east, north))
        assert west <= WEST < west + gsd_m and south <= SOUTH < south + gsd_m
        assert north - gsd_m < SOUTH + 22 <= north and east - gsd_m < WEST + 22 <= east


def test_the_predictions_are_those_of_the_model_in_its_windows(tmp_path: Path) -> None:
    """One window, decoded by hand at the centres of the pixels."""
    cloud, _ = wood(tmp_path, 20.0, hole=False)
    elevation = LIDAR.pick("elevation")
    model = random_model(task="regression", num_outputs=1, class_names=(), channels=elevation)
    product = predict_point_cloud_map(model, cloud, tmp_path / "map.tif")
    assert product.windows == 1
    points = laspy.read(cloud)
    xyz = np.stack([points.x - WEST - 10, points.y - SOUTH - 10, points.z], axis=1)
    low = xyz[:, :2].min(axis=0) + 10
    xyz[:, :2] -= low  # windows begin at the first point
    atoms = aio.AtomSet.from_points(xyz, np.array(points.return_number), np.array(points.number_of_returns))
    with torch.no_grad():
        pixels = queries_at(torch.from_numpy(centres(product.path) - 10 - low), footprint_m=torch.ones(2))
        inputs = model.preparer()(atoms, pixels)
        expected = model.predict([inputs])[0][:, 0].numpy()
    np.testing.assert_allclose(read(product.path)[0].ravel(), expected, rtol=1e-3, atol=1e-3)


def test_classes_have_the_layers_of_a_raster(tmp_path: Path) -> None:
    cloud, _ = wood(tmp_path, 30.0, hole=False)
    layers = ["probabilities", "confidence"]
    product = predict_point_cloud_map(random_model(), cloud, tmp_path / "map.tif", layers=layers)
    classes, shares = read(product.path)[0], read(product.files["probabilities.tif"])
    assert classes.dtype == np.uint8 and (classes < 3).mean() > 0.99
    seen = classes < 255
    np.testing.assert_allclose(shares[:, seen].sum(axis=0), 1, atol=1e-5)
    assert np.array_equal(shares[:, seen].argmax(axis=0), classes[seen])
    assert read(product.files["confidence.tif"]).shape == (2, 30, 30)
    with rasterio.open(product.path) as source:
        assert json.loads(source.tags()["classes"]) == ["ground", "tree", "water"]
    assert sum(product.hectares.values()) == pytest.approx(seen.sum() / 1e4)
    assert {"areas.json", "areas.csv", "map.aux.xml", "preview.png"} < set(product.files)


@pytest.mark.usefixtures("forked")
def test_engines_and_interruptions_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud, _ = wood(tmp_path, 30.0)
    model = tmp_path / "model"
    random_model().save_pretrained(model)
    predict_point_cloud_map(model, cloud, tmp_path / "whole.tif")
    expected = read(tmp_path / "whole.tif")
    predict_point_cloud_map(model, cloud, tmp_path / "two.tif", engine=Processes(2))
    assert np.array_equal(read(tmp_path / "two.tif"), expected)
    output = tmp_path / "map.tif"
    again = functools.partial(predict_point_cloud_map, model, cloud, output, resume=True)
    assert interrupted_at_every_step(again, output, monkeypatch) > 5
    assert np.array_equal(read(output), expected)
    assert not list(tmp_path.glob("*.parts"))
    with pytest.raises(ConfigError, match="exists: --overwrite replaces it"):
        predict_point_cloud_map(model, cloud, output)
    predict_point_cloud_map(random_model(depth=1), cloud, output, overwrite=True)
    assert not np.array_equal(read(output), expected)


def test_feet(tmp_path: Path) -> None:
    """EPSG:2263 counts in US survey feet: a pixel of a metre is 3.28 of them, and predictions are those in metres."""
    unit = 1200 / 3937
    xyz, number, echoes = returns(np.random.default_rng(2), 60, forest(np.random.default_rng(2), 60))
    feet = write_cloud(tmp_path / "feet.laz", xyz, number, echoes, epsg=2263)  # 18 m
    product = predict_point_cloud_map(random_model(), feet, tmp_path / "map.tif")
    with rasterio.open(product.path) as source:
        assert source.crs.to_epsg() == 2263
        assert source.res == pytest.approx((1 / unit, 1 / unit))
        assert source.bounds.left <= WEST and source.bounds.right >= WEST + 59
        assert source.shape in ((19, 19), (20, 19), (19, 20), (20, 20))
    assert sum(product.hectares.values()) == pytest.approx((60 * unit) ** 2 / 1e4, rel=0.2)


def test_what_cannot_be(tmp_path: Path) -> None:
    cloud, _ = wood(tmp_path, 22.0)
    regression = {"task": "regression", "num_outputs": 1, "class_names": ()}
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("its name must end in .tif", {"output": tmp_path / "map.png"}),
        ("'attention' is not known; use probabilities, confidence", {"layers": ["attention"]}),
        ("must be a positive number of metres", {"gsd_m": 0.0}),
        ("larger than the step of 10 m", {"gsd_m": 12.0}),
        ("more than 4,194,304 pixels", {"gsd_m": 0.001}),
        ("neither probabilities nor confidence", {"model": random_model(**regression), "layers": ["confidence"]}),
        ("one prediction for a whole scene, and no maps", {"model": random_model(task="classification")}),
        ("without point clouds", {"model": random_model(channels=aio.sensors.SENTINEL2.pick("B02"))}),
        ("reads rasters only", {"model": aio.create_model("unet_small", channels=LIDAR.pick("elevation"))}),
        ("no such file", {"cloud": tmp_path / "none.laz"}),
    ]
    for message, changes in wrong:
        inputs = {"model": random_model(), "cloud": cloud, "output": tmp_path / "map.tif", **changes}
        with pytest.raises(AtomizerError, match=message):
            predict_point_cloud_map(inputs.pop("model"), inputs.pop("cloud"), inputs.pop("output"), **inputs)
    assert not list(tmp_path.glob("map*"))


def test_on_the_command_line(canopy_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cloud, _ = wood(tmp_path)
    one = functools.partial(command, "--window", 20, "--points", cloud, model=canopy_model)
    assert one("--output-gsd", 1, "-o", tmp_path / "chm.tif") == 0
    printed = capsys.readouterr().out
    assert "m (canopy height)" in printed and f"written: {tmp_path / 'chm.tif'}" in printed
    assert read(tmp_path / "chm.tif").shape == (1, 45, 45)
    for more, message in (
        (["-o", str(tmp_path / "b.tif")], "pixel size is missing: pass --output-gsd"),
        (["-o", str(tmp_path / "b.laz")], "the model is for regression"),
        (["-o", str(tmp_path / "b.laz"), "--output-gsd", "1"], "its name must end in .tif"),
        (["-o", str(tmp_path / "b.tif"), "--output-gsd", "1", "--overwrite-classification"], "for classified points"),
        (["-o", str(tmp_path / "b.laz"), "--layers", "confidence"], "'confidence' is for maps only"),
    ):
        assert one(*more) == 2
        assert message in capsys.readouterr().err


def test_a_unit_without_a_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no coordinate system"):
        check_pixels(1.0, PointCloudWindows(20), PointCloudHeader(1, (0, 0, 1, 1), None, 0.3048), "a.laz")
