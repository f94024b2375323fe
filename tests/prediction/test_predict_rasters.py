"""Maps of small scenes: what is in them, on which grid, whatever the rasters are like."""

from __future__ import annotations

import datetime
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from hypothesis import given
from hypothesis import strategies as st
from rasterio._env import get_gdal_config
from rasterio.transform import Affine
from rasterio.warp import transform as warp

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.decoding.scene_decoder import SceneDecoder
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.raster_sources import LocalFrame, RasterInput, RasterSource
from atomizer_io.prediction import rasters as module
from atomizer_io.prediction.options import Decoding, Windows
from atomizer_io.prediction.raster_checks import sensor_hint, warn_unlike
from atomizer_io.prediction.raster_windows import WindowAxis, ramp
from atomizer_io.prediction.rasters import RasterScene, usual_window_m
from chips import CORNER, NAMES, UTM, model_folder, read, regression_folder, scene, values, without_crs, write
from predicting import predict_raster


def probabilities(product: module.RasterProduct) -> np.ndarray:
    return read(product.files["probabilities.tif"])


def test_one_window_is_what_the_model_predicts(tmp_path: Path) -> None:
    array = values(12, 12)
    rasters = {"path": write(tmp_path / "scene.tif", array), "sensor": "sentinel2", "date": "2021-07-04"}
    product = predict_raster(model_folder(), rasters, tmp_path / "map.tif", layers=["probabilities"])
    model = aio.AtomizerIO.from_pretrained(model_folder()).eval()
    channels = tuple(SENTINEL2.pick(*NAMES))
    atoms = aio.AtomSet.from_raster(array.astype(np.float32), channels, 10.0, datetime.date(2021, 7, 4))
    with torch.no_grad():
        latents = model.encode([atoms])
    expected = aio.decoding.dense(model, latents, aio.Grid(12, 12, 10.0))
    assert product.windows == 1
    np.testing.assert_allclose(probabilities(product), expected.outputs.permute(2, 0, 1).numpy(), atol=2e-3)
    assert len(np.unique(read(product.path))) > 1, "a map of one class would prove little"


def test_blending_is_the_weighted_mean_of_the_windows(tmp_path: Path) -> None:
    rasters = scene(tmp_path, 20, 30)
    product = predict_raster(model_folder(), rasters, tmp_path / "map.tif", layers=["probabilities"])
    plan = module.RasterScene.of(model_folder(), rasters, windows=Windows(120.0))
    assert product.windows == 6
    total, weight = np.zeros((20, 30, 3)), np.zeros((20, 30, 1))
    for window in plan.layout.windows(range(len(plan.layout.rows.starts))):
        here = np.s_[window.top : window.top + window.height, window.left : window.left + window.width]
        down, across = (ramp(np.arange(side) + 0.5, side) for side in (window.height, window.width))
        share = down[:, None, None] * across[:, None]
        total[here] += module.predict_window(plan, window).values[..., :3] * share
        weight[here] += share
    mean = total / weight
    mean /= mean.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(probabilities(product).transpose(1, 2, 0), mean, atol=1e-3)
    ahead = np.sort(mean, axis=-1)[..., -1] - np.sort(mean, axis=-1)[..., -2] > 2e-3
    np.testing.assert_array_equal(read(product.path)[0][ahead], mean.argmax(axis=-1)[ahead])


@pytest.mark.parametrize("shape", [(1, 25), (25, 1), (1, 1), (13, 29), (12, 12)])
def test_scenes_of_any_shape(tmp_path: Path, shape: tuple[int, int]) -> None:
    product = predict_raster(model_folder(), scene(tmp_path, *shape), tmp_path / "map.tif")
    result = read(product.path)[0]
    assert result.shape == shape
    assert (result < 3).all()
    assert sum(product.hectares.values()) == pytest.approx(shape[0] * shape[1] * 0.01)


def test_no_data_and_masks_are_honoured(tmp_path: Path) -> None:
    array = values(24, 24)
    array[:, 3:9, 4:20] = 0
    mask = np.full((24, 24), 255, np.uint8)
    mask[15:, :5] = 0
    absent = (array == 0).all(axis=0)
    by_value = write(tmp_path / "value.tif", array, nodata=0)
    by_mask = write(tmp_path / "mask.tif", values(24, 24), mask=mask)
    one = predict_raster(model_folder(), {"path": by_value, "sensor": "sentinel2"}, tmp_path / "a.tif")
    two = predict_raster(model_folder(), {"path": by_mask, "sensor": "sentinel2"}, tmp_path / "b.tif")
    np.testing.assert_array_equal(read(one.path)[0] == 255, absent)
    np.testing.assert_array_equal(read(two.path)[0] == 255, mask == 0)
    full = predict_raster(model_folder(), {"path": by_value, "sensor": "sentinel2"}, tmp_path / "c.tif", fill=True)
    assert (read(full.path) < 3).all()


def test_an_empty_window_does_not_pull_a_regression_target_down(tmp_path: Path) -> None:
    array = values(12, 40).astype(np.float32)
    array[:, :, 14:] = np.nan
    rasters = {"path": write(tmp_path / "half.tif", array, nodata=np.nan), "sensor": "sentinel2"}
    product = predict_raster(regression_folder(), rasters, tmp_path / "map.tif")
    whole = predict_raster(regression_folder(), rasters, tmp_path / "full.tif", fill=True)
    result, filled = read(product.path)[0], read(whole.path)[0]
    assert np.isnan(result[:, 14:]).all()
    np.testing.assert_array_equal(result[:, :14], filled[:, :14])
    assert product.mean == pytest.approx(np.nanmean(result), rel=1e-5)
    assert not product.hectares
    plan = module.RasterScene.of(regression_folder(), rasters, windows=Windows(120.0))
    assert plan.layout.columns.starts == (0, 7, 14, 21, 28)  # the last three see nothing
    job = replace(plan, fill=True)
    np.testing.assert_allclose(
        filled[:, 14:19], module.predict_window(job, plan.layout.window(0, 1)).values[:, 7:, 0], rtol=1e-5
    )
    assert np.isnan(filled[:, 19:]).all()


def test_all_no_data_is_a_map_without_data(tmp_path: Path) -> None:
    array = np.zeros((3, 15, 15), np.uint16)
    rasters = {"path": write(tmp_path / "empty.tif", array, nodata=0), "sensor": "sentinel2"}
    with pytest.warns(UserWarning, match="has no data: nothing was observed"):
        product = predict_raster(model_folder(), rasters, tmp_path / "map.tif")
    assert (read(product.path) == 255).all()
    assert sum(product.hectares.values()) == 0


def test_several_rasters_keep_their_grids(tmp_path: Path) -> None:
    fine = scene(tmp_path, 24, 24)
    coarse = write(
        tmp_path / "coarse.tif",
        values(7, 7, 3, ("B05", "B11")),
        names=("B05", "B11"),
        transform=Affine(60, 0, CORNER[0] - 60, 0, -60, CORNER[1] + 120),
    )
    product = predict_raster(model_folder(), [fine, {"path": coarse, "sensor": "sentinel2"}], tmp_path / "map.tif")
    with rasterio.open(product.path) as result, rasterio.open(fine["path"]) as first:
        assert result.transform == first.transform
        assert result.crs == first.crs
        assert result.shape == first.shape
    like = predict_raster(model_folder(), [fine, {"path": coarse, "sensor": "sentinel2"}], tmp_path / "b.tif", like=1)
    with rasterio.open(like.path) as result:
        assert result.shape == (7, 7)
        assert (result.read() < 3).all()


def test_pixels_larger_than_a_window_are_seen(tmp_path: Path) -> None:
    large = write(tmp_path / "large.tif", values(2, 2), transform=Affine(400, 0, CORNER[0], 0, -400, CORNER[1]))
    rasters = {"path": large, "sensor": "sentinel2"}
    product = predict_raster(model_folder(), rasters, tmp_path / "map.tif", gsd_m=20)
    assert read(product.path).shape == (1, 40, 40)
    assert (read(product.path) < 3).all()


def test_another_crs_is_seen_at_the_same_places(tmp_path: Path) -> None:
    """One raster in UTM, its twin in degrees with values by place: both are seen at every position."""
    here = scene(tmp_path, 24, 24)
    corners = warp(UTM, "EPSG:32630", [CORNER[0] - 200, CORNER[0] + 500], [CORNER[1] - 600, CORNER[1] + 300])
    west, north = min(corners[0]), max(corners[1])
    there = write(
        tmp_path / "zone30.tif", values(110, 110, 5), crs="EPSG:32630", transform=Affine(12, 0, west, 0, -12, north)
    )
    plan = module.RasterScene.of(model_folder(), [here, {"path": there, "sensor": "sentinel2"}], windows=Windows(120.0))
    frame, grid, atoms = module.observed(plan, plan.layout.window(0, 0))
    predictor = SceneDecoder(plan.model.model).predictor(atoms, grid)
    assert (predictor.seen[0][:, 1] >= 0).all(), "turned pixels leave no gaps"
    # the site that is seen is the pixel of the other grid that has the position in it
    x, y = frame.coordinates(*predictor.positions_M2.numpy().T)
    column, row = (~Affine(12, 0, west, 0, -12, north)) @ np.array(warp(UTM, "EPSG:32630", x, y))
    expected = read(there)[0][np.floor(row).astype(int), np.floor(column).astype(int)]
    seen = atoms.acquisitions[1].values[predictor.seen[0][:, 1], 0].numpy()
    assert (seen == expected).mean() > 0.98  # but for positions on the border of two pixels


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:2263", "EPSG:3857"])
def test_degrees_feet_and_web_maps(tmp_path: Path, crs: str) -> None:
    steps = {"EPSG:4326": (1.2e-4, 0.9e-4, -73.9, 40.7), "EPSG:2263": (32.8, 32.8, 9e5, 2e5)}
    dx, dy, west, north = steps.get(crs, (13.2, 13.2, -8.2e6, 4.97e6))
    rasters = scene(tmp_path, 20, 26, crs=crs, transform=Affine(dx, 0, west, 0, -dy, north))
    product = predict_raster(model_folder(), rasters, tmp_path / "map.tif")
    assert (read(product.path) < 3).all()
    assert sum(product.hectares.values()) == pytest.approx(20 * 26 * 0.01, rel=0.03)
    assert product.windows == 6, "windows are 120 m wide and high, whatever the units"


def test_stored_south_up(tmp_path: Path) -> None:
    array = values(20, 30)
    up = write(tmp_path / "up.tif", array)
    down = write(tmp_path / "down.tif", array[:, ::-1], transform=Affine(10, 0, CORNER[0], 0, 10, CORNER[1] - 200))
    one, two = (
        predict_raster(model_folder(), {"path": path, "sensor": "sentinel2"}, tmp_path / f"{name}.tif")
        for name, path in (("a", up), ("b", down))
    )
    np.testing.assert_array_equal(read(one.path), read(two.path))


@pytest.mark.parametrize(("gsd_m", "shape"), [(25, (8, 12)), (70, (3, 5))])
def test_a_grid_of_another_resolution(tmp_path: Path, gsd_m: float, shape: tuple[int, int]) -> None:
    """Its pixels cover all of the extent."""
    product = predict_raster(model_folder(), scene(tmp_path, 20, 30), tmp_path / "map.tif", gsd_m=gsd_m)
    with rasterio.open(product.path) as result:
        assert result.shape == shape
        assert result.transform.a == gsd_m


def test_time_series(tmp_path: Path) -> None:
    folder = model_folder(temporal=True)
    rasters = [scene(tmp_path, 15, 15, seed) | {"date": f"2021-0{4 + seed}-11"} for seed in range(3)]
    product = predict_raster(folder, rasters, tmp_path / "map.tif", layers=["attention"])
    assert read(product.files["attention.tif"]).shape == (3, 15, 15), "dates of one channel are added together"
    moved = predict_raster(folder, [*rasters[:2], rasters[2] | {"date": "2021-11-11"}], tmp_path / "b.tif")
    assert moved.path.exists()


@pytest.mark.parametrize("decode", ["quadtree", "zone-probe", "sketch"])
def test_cheaper_ways_to_decode(tmp_path: Path, decode: str) -> None:
    product = predict_raster(model_folder(), scene(tmp_path, 24, 24), tmp_path / "a.tif", decoding=Decoding(decode))
    assert (read(product.path) < 3).all()


def test_a_model_that_is_replaced_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder(), folder)
    rasters = scene(tmp_path, 14, 14)
    before = probabilities(predict_raster(folder, rasters, tmp_path / "a.tif", layers=["probabilities"]))
    model = aio.AtomizerIO.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(-1)
    model.save_pretrained(folder)
    after = probabilities(predict_raster(folder, rasters, tmp_path / "b.tif", layers=["probabilities"]))
    assert np.abs(after - before).max() > 0.05


def test_channels_that_the_model_never_saw(tmp_path: Path) -> None:
    folder = model_folder(channels=tuple(SENTINEL2.pick("B02", "B03")))
    with pytest.warns(UserWarning, match="trained without sentinel2 B08"):
        predict_raster(folder, scene(tmp_path, 12, 12), tmp_path / "map.tif")
    path = write(tmp_path / "soil.tif", np.ones((1, 9, 9), np.float32), names=None)
    soil = aio.sensors.Sensor.define("probe", gsd_m=10.0, bands={"moisture": None})
    with pytest.raises(DataError, match=r"soil\.tif.*without probe moisture.*unknown"):
        predict_raster(folder, {"path": path, "sensor": soil}, tmp_path / "b.tif")
    radar = {"path": path, "sensor": "sentinel1", "bands": "VV"}
    with pytest.raises(DataError, match=r"without sentinel1 VV"):  # it has a name for it, but has learned nothing of it
        predict_raster(folder, radar, tmp_path / "b.tif")


@pytest.mark.parametrize(("trained", "named"), [("sentinel2", "sentinel2_l2a"), ("sentinel2_l2a", "sentinel2")])
def test_another_product_of_the_same_sensor(tmp_path: Path, trained: str, named: str) -> None:
    """Their bands have the same names: the sensor that the model was trained with is suggested."""
    channels = tuple(aio.sensors.get(trained).pick(*NAMES))
    path = write(tmp_path / "a.tif", values(12, 12))
    with pytest.warns(UserWarning, match=rf"trained without {named} B02.* wavelengths; did you mean {trained}\?"):
        predict_raster(model_folder(channels=channels), {"path": path, "sensor": named}, tmp_path / "a.tiff")
    other_bands = aio.sensors.get(named).pick("B04", "B11")
    assert sensor_hint(aio.load_model(model_folder(channels=channels)).task_spec, other_bands) == ""


def test_channels_that_the_model_never_did_without(tmp_path: Path) -> None:
    """A sensor that no sample lacked is warned of, in a map; a model that was shown less predicts without a warning."""
    seen = (*SENTINEL2.pick(*NAMES), *aio.sensors.SENTINEL1.pick("VV"))
    rasters = scene(tmp_path, 12, 12)
    with pytest.warns(UserWarning, match="1 of the 4 channels that each training sample had are missing: sentinel1 VV"):
        predict_raster(model_folder(channels=seen, complete=True), rasters, tmp_path / "a.tif")
    predict_raster(model_folder(channels=seen), rasters, tmp_path / "b.tif")


def test_pixels_much_finer_than_in_training_make_smaller_windows_and_are_warned_about(tmp_path: Path) -> None:
    model, fine = aio.load_model(model_folder()), scene(tmp_path, 40, 40)
    source = RasterScene.of(model_folder(), fine).sources[0]
    finer = replace(source, pixel_m=(0.01, 0.01))
    assert usual_window_m(model, [finer]) ** 2 * len(finer.channels) / 1e-4 <= 6 << 20
    with pytest.warns(UserWarning, match=r"pixels of 0\.01 m; the model was trained on 10 m"):
        warn_unlike(model.task_spec.replace(channels=source.channels), [finer])


def test_what_cannot_be_predicted(tmp_path: Path) -> None:
    rasters = scene(tmp_path, 12, 12)
    wrong: list[tuple[str, Path, dict[str, Any]]] = [
        ("classification", model_folder(task="classification"), {}),
        ("neither probabilities", regression_folder(), {"layers": ["confidence"]}),
        ("layer 'colour'", model_folder(), {"layers": ["colour"]}),
        ("numbered from 0", model_folder(), {"like": 1}),
        ("gsd_m", model_folder(), {"gsd_m": 0}),
        ("smaller than a pixel", model_folder(), {"windows": Windows(2.0)}),
        ("calibrate", model_folder(), {"decoding": Decoding("quadtree", alpha=0.01)}),
        ("alpha", model_folder(), {"decoding": Decoding(alpha=0.01)}),
    ]
    for message, model, how in wrong:
        with pytest.raises(ConfigError, match=message):
            predict_raster(model, rasters, tmp_path / "a.tif", **how)
    assert not list(tmp_path.glob("a*")), "nothing is left of what cannot be done"


lengths = st.integers(1, 300)
sizes = st.integers(1, 80)
shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9])


@given(lengths, sizes, shares)
def test_windows_reach_from_end_to_end_and_overlap(length: int, size: int, share: float) -> None:
    begins = WindowAxis.over(length, size, share).starts
    assert begins[0] == 0
    assert list(begins) == sorted(set(begins))
    if length <= size:
        assert begins == (0,)
        return
    assert begins[-1] + size == length
    common = size - np.diff(begins)
    assert (common >= min(np.floor(share * size + 1e-6), size - 1)).all()


@given(lengths, sizes, shares, st.data())
def test_covering_finds_what_a_search_finds(length: int, size: int, share: float, data: st.DataObject) -> None:
    axis = WindowAxis.over(length, size, share)
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first + 1, length))
    spans = zip(axis.starts, axis.ends, strict=True)
    assert list(axis.covering((first, last))) == [i for i, (s, e) in enumerate(spans) if s < last and e > first]


LAYOUTS = {
    "pixel tiles": {"interleave": "pixel", "tiled": True, "blockxsize": 16, "blockysize": 16},
    "band tiles": {"interleave": "band", "tiled": True, "blockxsize": 16, "blockysize": 16},
    "pixel strips": {"interleave": "pixel", "blockysize": 1},
    "band strips": {"interleave": "band", "blockysize": 3},
}


class Spy:
    """What was requested of rasterio."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bands: list[list[int]] = []
        self.cache: list[int] = []
        self.masks = 0
        read, mask = rasterio.io.DatasetReader.read, rasterio.io.DatasetReader.dataset_mask

        def spied(source, indexes=None, **more):
            self.bands.append(np.atleast_1d(indexes).tolist())
            self.cache.append(get_gdal_config("GDAL_CACHEMAX"))
            return read(source, indexes, **more)

        def masked(source, **more):
            self.masks += 1
            return mask(source, **more)

        monkeypatch.setattr(rasterio.io.DatasetReader, "read", spied)
        monkeypatch.setattr(rasterio.io.DatasetReader, "dataset_mask", masked)


def test_blocks_have_room_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a file whose bands are stored together is decoded again for each band and row."""
    spy, before = Spy(monkeypatch), get_gdal_config("GDAL_CACHEMAX")
    predict_raster(model_folder(), scene(tmp_path), tmp_path / "map.tif", windows=Windows())
    assert spy.cache, "something was read"
    assert all(32 << 20 <= size <= 256 << 20 for size in spy.cache), "bytes: enough, and bounded for many workers"
    assert get_gdal_config("GDAL_CACHEMAX") == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_window_is_one_call_in_any_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    array = values(50, 60)
    path = write(tmp_path / "a.tif", array, compress="deflate", **LAYOUTS[layout])
    source = RasterSource.open(RasterInput.of({"path": path, "sensor": "sentinel2", "bands": "B02,-,B08"}))
    spy = Spy(monkeypatch)
    frame = LocalFrame.around(UTM, CORNER[0] + 300, CORNER[1] - 250)
    atoms = source.atoms(frame, (-100.0, -100.0, 100.0, 100.0))
    assert spy.bands == [[1, 3]] and spy.masks == 0
    result = atoms.acquisitions[0].values.numpy().T.reshape(2, 20, 20)
    np.testing.assert_array_equal(result, array[[0, 2], 15:35, 20:40])


def test_a_number_that_float32_cannot_hold_is_absent(tmp_path: Path) -> None:
    """As an infinite one is; the map has a prediction by the other bands of the pixel."""
    array = values(12, 12).astype(np.float64)
    array[1, 4, 5] = 1e300
    array[:, 7, 7] = -1e300
    raster = {"path": write(tmp_path / "a.tif", array), "sensor": "sentinel2"}
    with pytest.warns(UserWarning, match=r"a\.tif: 1 value beyond ±3\.4e\+38") as noted:
        product = predict_raster(model_folder(), raster, tmp_path / "map.tif", windows=Windows(60.0))
    assert sum(warning.category is UserWarning for warning in noted) == 1, "once, not for each window"
    array[np.abs(array) > 1e30] = np.inf
    write(tmp_path / "a.tif", array)
    second = predict_raster(model_folder(), raster, tmp_path / "inf.tif", windows=Windows(60.0))
    with rasterio.open(product.path) as result, rasterio.open(second.path) as expected:
        np.testing.assert_array_equal(result.read(), expected.read())
        assert (result.read(1) == 255).sum() == 1


def test_scale_and_offset_are_not_applied_but_mentioned(tmp_path: Path) -> None:
    """Reflectance as fractions, with a model that was trained on ten thousandths."""
    path = write(tmp_path / "a.tif", (values(12, 12) / 1e4).astype(np.float32))
    raster = {"path": path, "sensor": "sentinel2"}
    with pytest.warns(UserWarning, match="other units than the training data") as noted:
        predict_raster(model_folder(), raster, tmp_path / "map.tif", windows=Windows())
    assert "scale" not in str(noted[0].message)
    with rasterio.open(path, "r+") as target:
        target.scales, target.offsets = (1e-4,) * 3, (0.0,) * 3
    source = RasterSource.open(RasterInput.of(raster))
    assert str(source).endswith("10 m; its scale and offset are not applied")
    atoms = source.atoms(LocalFrame.around(UTM, CORNER[0] + 60, CORNER[1] - 60), (-60.0, -60.0, 60.0, 60.0))
    assert float(atoms.acquisitions[0].values.max()) < 1, "as they are stored"
    with pytest.warns(UserWarning, match=r"scale and offset in the file are not applied.*gdal_translate -unscale"):
        predict_raster(model_folder(), raster, tmp_path / "again.tif", windows=Windows())


def test_another_coordinate_system_or_choice_of_bands_is_another_plan(tmp_path: Path) -> None:
    """What was computed before cannot be gone on with."""
    first, bare = scene(tmp_path, 9, 9), without_crs(tmp_path / "bare.tif", values(9, 9))
    plans = [
        RasterScene.of(
            model_folder(), [first, {"path": bare, "sensor": "sentinel2", "crs": crs, "bands": bands}]
        ).plan()
        for crs, bands in ((UTM, "B02,-,B08"), (UTM, "-,B03,B08"), ("EPSG:25831", "B02,-,B08"))
    ]
    assert plans[0] != plans[1] and plans[0] != plans[2]
