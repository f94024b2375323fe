"""Inputs that are wrong but plausible: each is warned about by ``atomizer predict``, and sound ones are not."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.control import GroundControlPoint

from atomizer_io.data.misfits import Image, misfits
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.prediction.options import Windows
from chips import CORNER, NAMES, UTM, model_folder, read, write
from predicting import command, predict_raster

TRAINED = tuple(SENTINEL2.pick(*NAMES))
SIDE = 40


def reflectances(seed: int = 0, side: int = SIDE) -> np.ndarray:
    """Vegetation beside water as Sentinel-2 sees it: values from about 100 on."""
    rng = np.random.default_rng(seed)
    water = np.add.outer(np.arange(side), np.arange(side)) < side * 0.6
    land, sea = np.array([1200, 1300, 3000]), np.array([600, 400, 150])
    ground = np.where(water, sea[:, None, None], land[:, None, None])
    return np.round(ground * np.exp(0.15 * rng.standard_normal(ground.shape))).astype(np.int32)


def noted(folder: Path, *rasters: Any, model: Path | None = None) -> list[str]:
    """The warnings of a prediction."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inputs = [raster if isinstance(raster, dict) else {"path": raster, "sensor": "sentinel2"} for raster in rasters]
        predict_raster(
            model or model_folder(channels=TRAINED), inputs, folder / "map.tif", overwrite=True, windows=Windows()
        )
    return [str(warning.message) for warning in caught if warning.category is UserWarning]


@pytest.mark.parametrize(
    ("value", "kind", "nodata"),
    [
        (65535, np.uint16, None),
        (65535, np.uint16, 0),
        (0, np.uint16, None),
        (0, np.uint16, 65535),
        (-9999, np.int16, 0),
        (-32768, np.int16, None),
        (1e20, np.float32, None),
        (-3.4028234663852886e38, np.float32, -9999),
    ],
)
def test_fill_values_without_a_tag(tmp_path: Path, value: float, kind: type, nodata: float | None) -> None:
    array = reflectances().astype(kind)
    array[:, :8] = value
    path = write(tmp_path / "a.tif", array, nodata=nodata)
    (text,) = noted(tmp_path, path)
    shown = np.float32(value) if kind is np.float32 else value
    assert text.startswith(f"a.tif is {shown!s} in 20 % of all bands, apart from all other values")
    assert "nodata= (--nodata)" in text
    assert noted(tmp_path, {"path": path, "sensor": "sentinel2", "nodata": value}) == []
    assert (read(tmp_path / "map.tif")[0, :8] == 255).all() and (read(tmp_path / "map.tif")[0, 8:] != 255).all()


def test_one_band_that_was_filled_up(tmp_path: Path) -> None:
    array = reflectances().astype(np.uint16)
    array[1] = 0
    (text,) = noted(tmp_path, write(tmp_path / "a.tif", array))
    assert text.startswith("a.tif is 0 everywhere in B03;")


def test_dark_pixels_are_no_fill_value(tmp_path: Path) -> None:
    """Values that were cut at zero: some bands are 0 over water, and values beside 0 are as common."""
    array = np.clip(reflectances() - 300, 0, None).astype(np.uint16)
    assert (array == 0).mean() > 0.05
    assert noted(tmp_path, write(tmp_path / "a.tif", array)) == []


def test_what_is_declared_in_a_list_and_beside_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = reflectances().astype(np.uint16)
    array[:, :8] = 65535
    write(tmp_path / "a.tif", array)
    (tmp_path / "list.csv").write_text("scene,path,sensor,nodata\nlake,a.tif,sentinel2,65535\n")
    model = model_folder(channels=TRAINED)
    assert command("--list", tmp_path / "list.csv", "-o", tmp_path / "maps", model=model) == 0
    assert (read(tmp_path / "maps/lake.tif")[0, :8] == 255).all()
    one = ("--raster", tmp_path / "a.tif", "--sensor", "sentinel2")
    assert command(*one, "--nodata", 65535, "-o", tmp_path / "one.tif", model=model) == 0
    (tmp_path / "a.bands.yaml").write_text("nodata: 65535\n")
    assert command(*one, "-o", tmp_path / "two.tif", model=model) == 0
    for name in ("one.tif", "two.tif"):
        np.testing.assert_array_equal(read(tmp_path / name), read(tmp_path / "maps/lake.tif"))
    capsys.readouterr()
    (tmp_path / "list.csv").write_text("scene,path,sensor,nodata\nlake,a.tif,sentinel2,much\n")
    assert command("--list", tmp_path / "list.csv", "-o", tmp_path / "maps", "--overwrite", model=model) == 2
    assert "row 1: nodata is 'much'; give a number" in capsys.readouterr().err


def test_unsigned_integers_that_became_negative(tmp_path: Path) -> None:
    bright = reflectances() * 12  # another scale, beyond 32767 on land
    (text, *_) = noted(tmp_path, write(tmp_path / "a.tif", bright.astype(np.uint16).view(np.int16)))
    assert text.startswith("a.tif is far below zero in ") and "% of B08, down to -3" in text
    assert "write the file as uint16" in text


def test_the_offset_of_sentinel_2(tmp_path: Path) -> None:
    array = reflectances() + 1000
    (text,) = noted(tmp_path, write(tmp_path / "a.tif", array.astype(np.uint16)))
    assert text.startswith("a.tif has hardly a value below 1") and "baseline 04.00" in text
    assert "subtract 1000 from all bands" in text
    bands = [
        write(tmp_path / f"{name}.tif", array[i : i + 1].astype(np.uint16), names=None) for i, name in enumerate(NAMES)
    ]
    inputs = [{"path": path, "sensor": "sentinel2", "bands": [path.stem]} for path in bands]
    (text,) = noted(tmp_path, *inputs)
    assert text.startswith("B08.tif has hardly a value below 1")


@pytest.mark.parametrize("names", [("B02", "B03", "B04", "B08"), ("B02", "B03", "B04", "B08", "B11", "B12")])
def test_a_desert_has_no_offset(names: tuple[str, ...]) -> None:
    """Bright sand with a few shadows and streets, as around Abu Dhabi, is no scene of a later processing baseline."""
    rng = np.random.default_rng(0)
    sand = {"B02": 2200, "B03": 2500, "B04": 3000, "B08": 3300, "B11": 3970, "B12": 3170}
    street = {"B02": 1250, "B03": 1090, "B04": 1000, "B08": 1500, "B11": 1300, "B12": 900}
    channels = [SENTINEL2[name] for name in names]
    paved = rng.random(40_000) < 0.02
    levels_CP = np.array([np.where(paved, street[name], sand[name]) for name in names])
    values_CP = levels_CP * np.exp(0.06 * rng.standard_normal(levels_CP.shape))
    known = {(channel.sensor, channel.name): channel for channel in channels}
    assert misfits([Image("desert.tif", values_CP, channels)], known) == {}
    assert "offset" in misfits([Image("coast.tif", values_CP * (1 - 0.9 * paved) / 3 + 1000, channels)], known)


def test_values_far_from_the_training_data(tmp_path: Path) -> None:
    array = reflectances() + 8000
    (text,) = noted(tmp_path, write(tmp_path / "a.tif", array.astype(np.uint16)))
    assert text.startswith("a.tif is unlike the training data in 3 of 3 channels of sentinel2: B02 has a median of 9")
    assert "standard deviations from 1396" in text


def test_names_of_bands_that_contradict_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", reflectances().astype(np.uint16))
    (text,) = noted(tmp_path, {"path": path, "sensor": "sentinel2", "bands": ["B03", "B02", "B08"]})
    assert text.startswith("a.tif: the bands are named B03 where the file has B02, B02 where the file has B03;")
    assert noted(tmp_path, {"path": path, "sensor": "sentinel2", "bands": ["blue", "green", "B8"]}) == []


def test_control_points_are_not_dropped_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.tif", reflectances().astype(np.uint16), crs=None)
    corners = [(0, 0), (0, SIDE), (SIDE, 0), (SIDE, SIDE)]
    points = [GroundControlPoint(r, c, CORNER[0] + 10 * c, CORNER[1] - 10 * r) for r, c in corners]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = rasterio.open(path, "r+")
    with file:
        file.gcps = (points, rasterio.crs.CRS.from_string(UTM))
    notes = noted(tmp_path, {"path": path, "sensor": "sentinel2", "gsd_m": 10.0})
    assert any("ground control points are not used" in text and "gdalwarp" in text for text in notes)
    words = ("--raster", path, "--sensor", "sentinel2", "-o", tmp_path / "b.tif")
    assert command(*words, model=model_folder(channels=TRAINED)) == 2
    assert "ground control points, which are not used: warp it by them first" in capsys.readouterr().err


def test_the_same_raster_twice_and_two_of_one_date(tmp_path: Path) -> None:
    one = write(tmp_path / "a.tif", reflectances().astype(np.uint16))
    assert noted(tmp_path, one, one) == ["a.tif is given twice: what it shows counts twice; leave one out"]
    copy = Path(shutil.copy(one, tmp_path / "b.tif"))
    (text,) = noted(tmp_path, one, copy)
    assert text.startswith("a.tif and b.tif hold the same values")
    later = write(tmp_path / "c.tif", reflectances(1).astype(np.uint16))
    dated = [{"path": path, "sensor": "sentinel2", "date": "2021-07-04"} for path in (one, later)]
    (text,) = noted(tmp_path, *dated)
    assert text.startswith("a.tif and c.tif are of the same sensor, area and date (2021-07-04)")
    assert noted(tmp_path, dated[0], {**dated[1], "date": "2021-07-05"}) == []
    parts = [{"path": one, "sensor": "sentinel2", "bands": names} for names in (["B02", "-", "-"], ["-", "B03", "B08"])]
    assert noted(tmp_path, *parts) == []
