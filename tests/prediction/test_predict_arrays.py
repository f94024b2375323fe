"""xarray in, xarray out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from atomizer_io.errors import AtomsError
from chips import CORNER, NAMES, UTM, model_folder, read, scene, values, write
from predicting import predict_raster, predict_xarray

xarray = pytest.importorskip("xarray")
pytest.importorskip("rioxarray")


def array(height: int = 20, width: int = 30, seed: int = 0):
    x = CORNER[0] + 10 * (np.arange(width) + 0.5)
    y = CORNER[1] - 10 * (np.arange(height) + 0.5)
    coords = {"band": list(NAMES), "y": y, "x": x}
    return xarray.DataArray(values(height, width, seed), coords, ("band", "y", "x")).rio.write_crs(UTM)


def test_the_same_as_from_files(tmp_path: Path) -> None:
    product = predict_raster(model_folder(), scene(tmp_path), tmp_path / "map.tif")
    data = array()
    result = predict_xarray(model_folder(), data, sensor="sentinel2")
    np.testing.assert_array_equal(result.values, read(product.path)[0])
    assert result.dims == ("y", "x")
    assert (result.attrs["classes"], result.attrs["codes"]) == (["dry", "wet", "bare"], [0, 1, 2])
    assert data.where(result == 1).sel(band="B02").shape == (20, 30), "the two have the same coordinates"


def test_upside_down(tmp_path: Path) -> None:
    data = array()
    turned = predict_xarray(model_folder(), data.isel(y=slice(None, None, -1)), sensor="sentinel2")
    expected = predict_xarray(model_folder(), data, sensor="sentinel2")
    assert turned.y[0] < turned.y[-1]
    np.testing.assert_array_equal(turned.sel(y=expected.y).values, expected.values)


def test_time_series_datasets_and_layers() -> None:
    dates = np.array(["2021-04-11", "2021-05-11"], dtype="datetime64[ns]")
    series = xarray.concat([array(14, 14, seed) for seed in (0, 1)], xarray.DataArray(dates, dims="time", name="time"))
    result = predict_xarray(
        model_folder(temporal=True), series, sensor="sentinel2", layers=["probabilities", "attention"]
    )
    assert set(result.data_vars) == {"map", "probabilities", "attention"}
    assert result["probabilities"].shape == (3, 14, 14)
    bands = array(14, 14).to_dataset("band")
    assert predict_xarray(model_folder(), bands, sensor="sentinel2").shape == (14, 14)
    coarse = predict_xarray(model_folder(), [bands], sensor=["sentinel2"], gsd_m=20)
    assert coarse.shape == (7, 7)


def test_arrays_that_lie_nowhere() -> None:
    data = array()
    with pytest.raises(AtomsError, match="coordinate system"):
        predict_xarray(model_folder(), data.drop_vars("spatial_ref"), sensor="sentinel2")
    with pytest.raises(AtomsError, match="one of each"):
        predict_xarray(model_folder(), [data, data], sensor=["sentinel2"])


def test_arrays_without_a_coordinate_system_have_a_pixel_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", values(14, 20), crs=None)
    raster = {"path": path, "sensor": "sentinel2", "gsd_m": 10}
    expected = read(predict_raster(model_folder(), raster, tmp_path / "map.tif").path)[0]
    bare = xarray.DataArray(values(14, 20), {"band": list(NAMES)}, ("band", "y", "x"))
    how = {"sensor": "sentinel2", "gsd": 10}
    result = predict_xarray(model_folder(), bare, **how)
    np.testing.assert_array_equal(result.values, expected)
    assert not {"y", "x"} & set(result.coords)
    up = bare.assign_coords(y=np.arange(14.0, 0.0, -1.0)).isel(y=slice(None, None, -1))
    np.testing.assert_array_equal(predict_xarray(model_folder(), up, **how).sortby("y", ascending=False), expected)
    with pytest.raises(AtomsError, match=r"ndarray is not an array of xarray: pass xarray\.DataArray.* and gsd="):
        predict_xarray(model_folder(), values(14, 20), **how)
