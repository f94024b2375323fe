"""How rasters are read for a prediction: with room for GDAL's blocks, in one call a window, the same in any layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio._env import get_gdal_config

from atomizer_io.io.raster_sources import LocalFrame, RasterInput, RasterSource
from atomizer_io.prediction.options import Windows
from atomizer_io.prediction.rasters import RasterScene
from chips import CORNER, UTM, model_folder, scene, values, without_crs, write
from predicting import predict_raster

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


def test_alpha_comes_with_the_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.clip(values(12, 12), 1, 250).astype(np.uint8)
    alpha = np.full((1, 12, 12), 255, np.uint8)
    alpha[:, :2] = 0
    path = write(tmp_path / "a.tif", np.concatenate([array, alpha]), names=None)
    source = RasterSource.open(RasterInput.of({"path": path, "sensor": "aerial"}))
    assert [channel.name for channel in source.channels] == ["R", "G", "B"]
    spy = Spy(monkeypatch)
    atoms = source.atoms(LocalFrame.around(UTM, CORNER[0] + 60, CORNER[1] - 60), (-60.0, -60.0, 60.0, 60.0))
    assert spy.bands == [[1, 2, 3, 4]] and spy.masks == 0
    assert atoms.num_atoms == 3 * 10 * 12


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
