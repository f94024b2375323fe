"""The cashew plantations of Benin and m-cashew-plant: windows, dates, clouds, polygons, and files that are wrong."""

from __future__ import annotations

import datetime
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
import rasterio.features
import torch
from rasterio.crs import CRS
from rasterio.transform import Affine
from rasterio.warp import transform_geom

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.datasets.cashew import OPTICAL, MCashewPlant, region, windows
from atomizer_io.errors import DataError
from atomizer_lab.synthetic.rasters import write_raster
from data.cashew import CLOUDY, CRS_CODE, DATES, HEIGHT, SWATH_EDGE, TRANSFORM, WIDTH
from data.content import edit_json

BANDS = [channel.name for channel in OPTICAL]
DAYS = tuple(datetime.datetime.strptime(date, "%Y%m%d").date() for date in DATES)
PROFILE = {"crs": CRS.from_epsg(CRS_CODE), "transform": Affine(*TRANSFORM)}
DATASET = "cashew"
GEOBENCH = "m-cashew-plant"


def tif(folder: Path, date: str = DATES[0], band: str = "B04") -> Path:
    return folder / f"imagery/00/00_{date}/00_{date}_{band}_10m.tif"


def stored(folder: Path, date: str, band: str) -> np.ndarray:
    with rasterio.open(tif(folder, date, band)) as source:
        return source.read(1)


def drawn(folder: Path) -> np.ndarray:
    """The polygons on the whole tile, 0 where there is none."""
    document = json.loads((folder / "labels/00.geojson").read_text())
    shapes = [(feature["geometry"], feature["properties"]["class"]) for feature in document["features"]]
    return rasterio.features.rasterize(shapes, (HEIGHT, WIDTH), transform=Affine(*TRANSFORM), dtype=np.int16)


def edit_labels(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edit_json(folder / "labels/00.geojson", change)


def test_values_are_those_of_the_files(folder: Path) -> None:
    dataset = aio.datasets.create("cashew", folder, "all", size=32)
    item = (32, 48, 32, 32)
    sample = dataset[dataset.items.index(item)]
    assert [a.date for a in sample.atoms] == list(DAYS) and sample.meta.dates == DAYS
    for index, date in enumerate(DATES):
        names = [c.name for c in sample.atoms.acquisitions[index].channels]
        assert names == [b for b in BANDS if b != "B09" or date != DATES[-1]]
        values = np.stack([stored(folder, date, name)[32:64, 48:80] for name in names])
        np.testing.assert_array_equal(grid_values(sample.atoms, index, (32, 32)), values)
    assert sample.atoms.num_atoms == (4 * 12 - 1) * 32 * 32
    label = drawn(folder)[32:64, 48:80]
    np.testing.assert_array_equal(sample.target.reshape(32, 32), np.where(label == 0, -1, label))
    assert torch.equal(sample.queries.ignore, sample.target == -1)
    assert set(sample.target.tolist()) <= {-1, 1, 2, 3, 4, 5, 6} and int(sample.queries.ignore.sum()) > 0
    assert sample.meta.id == "00_0032_0048" and Path(sample.meta.files[-1]).name == "00.geojson"


def test_what_was_not_observed_is_absent(folder: Path) -> None:
    sample = aio.datasets.create("cashew", folder, "all")[0]
    edge = grid_values(sample.atoms, DATES.index(SWATH_EDGE), (HEIGHT, WIDTH))
    assert np.isnan(edge[:, :, :4]).all() and np.isfinite(edge[:, :, 4:]).all()
    dark = stored(folder, DATES[0], "B01")
    dark[5, 6] = 0  # one band at 0 is a dark pixel, all of them are none
    write_raster(tif(folder, DATES[0], "B01"), dark, **PROFILE)
    again = aio.datasets.create("cashew", folder, "all")[0]
    assert grid_values(again.atoms, 0, (HEIGHT, WIDTH))[0, 5, 6] == 0
    write_raster(tif(folder, DATES[0], "B01"), dark, nodata=0, **PROFILE)
    marked = aio.datasets.create("cashew", folder, "all")[0]
    assert marked.atoms.num_atoms == again.atoms.num_atoms - 1


def test_clouds_can_be_left_out(folder: Path) -> None:
    clouds = stored(folder, CLOUDY, "CLD")
    every = aio.datasets.create("cashew", folder, "all")[0]
    clear = aio.datasets.create("cashew", folder, "all", max_cloud=40)[0]
    index = DATES.index(CLOUDY)
    values = grid_values(clear.atoms, index, (HEIGHT, WIDTH))
    np.testing.assert_array_equal(np.isnan(values[0]), clouds > 40)
    assert 0 < (clouds > 40).sum() == (every.atoms.num_atoms - clear.atoms.num_atoms) / 12
    assert "CLD" not in {c.name for c in every.atoms.channels}
    tif(folder, CLOUDY, "CLD").unlink()
    assert aio.datasets.create("cashew", folder, "all")[0].atoms.num_atoms == every.atoms.num_atoms
    with pytest.raises(DataError, match=rf"00_{CLOUDY}_CLD_10m\.tif: no such file"):
        aio.datasets.create("cashew", folder, "all", max_cloud=40)[0]


@pytest.mark.parametrize(("size", "stride"), [(256, None), (256, 128), (64, None), (1000, None)])
def test_no_window_of_one_split_reaches_into_another(size: int, stride: int | None) -> None:
    height, width = 1186, 1122  # the real tile
    seen = {}
    for split in ("train", "val", "test"):
        seen[split] = np.zeros((height, width), bool)
        for row, column, h, w in windows(region(split, height, width), size, stride or size):
            assert (h, w) == (size, size) or size == 1000
            seen[split][row : row + h, column : column + w] = True
    assert (sum(mask.astype(int) for mask in seen.values()) == 1).all()  # nothing twice, nothing left out
    shares = {split: mask.mean() for split, mask in seen.items()}
    assert shares == pytest.approx({"train": 0.7, "val": 0.1, "test": 0.2}, abs=0.001)


def test_windows_at_the_edge_are_shifted_inwards(folder: Path) -> None:
    for length, stride, last in ((1122, 128, [768, 866]), (512, 256, [0, 256]), (90, 9, [0])):
        assert [row for row, *_ in windows((0, 0, length, 10), 256, stride)][-len(last) :] == last
    dataset = aio.datasets.create("cashew", folder, "all", size=40)
    assert {item[2:] for item in dataset.items} == {(40, 40)}
    assert [item[:2] for item in dataset.items] == [(0, 0), (0, 40), (40, 0), (40, 40), (56, 0), (56, 40)]
    sizes = {s: len(aio.datasets.create("cashew", folder, s, size=16, stride=8)) for s in ("train", "val", "test")}
    assert sizes == {"train": 11 * 6, "val": 3 * 2, "test": 7 * 2}


def test_metres_and_the_place_on_earth(folder: Path) -> None:
    dataset = aio.datasets.create("cashew", folder, "all", size=32)
    sample = dataset[dataset.items.index((32, 48, 32, 32))]
    across, down = sample.queries.grid.pixel_m
    assert (across, down) == pytest.approx((10.002549584, 9.998429894))
    assert sample.atoms.bounds == pytest.approx((-16 * across, -16 * down, 16 * across, 16 * down))
    a, _, west, _, e, north = TRANSFORM
    assert sample.meta.crs == "EPSG:32631"
    assert sample.meta.transform == pytest.approx((a, 0, west + 48 * a, 0, e, north + 32 * e))
    assert sample.meta.origin == pytest.approx((west + 64 * a, north + 48 * e))


@pytest.mark.parametrize("kind", ["degrees without crs", "degrees, CRS84", "metres without crs", "crs is null"])
def test_polygons_in_any_coordinates(folder: Path, kind: str) -> None:
    expected = aio.datasets.create("cashew", folder, "all")[0].target

    def rewrite(document: dict[str, Any]) -> None:
        if "degrees" in kind:
            for feature in document["features"]:
                feature["geometry"] = transform_geom(PROFILE["crs"], "EPSG:4326", feature["geometry"])
        if "CRS84" in kind:
            document["crs"]["properties"]["name"] = "urn:ogc:def:crs:OGC:1.3:CRS84"
        elif "null" in kind:
            document["crs"] = None
        else:
            del document["crs"]

    edit_labels(folder, rewrite)
    target = aio.datasets.create("cashew", folder, "all")[0].target
    assert (target == expected).float().mean() > 0.999  # but for pixels whose centre is on a rounded edge
    assert int((expected >= 0).sum()) > 1000


def small(path: Path) -> None:
    write_raster(path, np.ones((20, 20), np.uint16), **PROFILE)


def shifted(path: Path) -> None:
    moved = PROFILE | {"transform": Affine(*TRANSFORM) @ Affine.translation(1, 0)}
    write_raster(path, np.ones((HEIGHT, WIDTH), np.uint16), **moved)


def elsewhere(path: Path) -> None:
    write_raster(path, np.ones((HEIGHT, WIDTH), np.uint16), **(PROFILE | {"crs": CRS.from_epsg(32632)}))


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]), "cannot be read: truncated"),
        (lambda p: p.write_bytes(b""), "cannot be read"),
        (lambda p: write_raster(p, np.ones((2, HEIGHT, WIDTH), np.uint16), **PROFILE), "has 2 bands, expected 1"),
        (lambda p: write_raster(p, np.ones((HEIGHT, WIDTH), np.complex64), **PROFILE), "holds complex numbers"),
        (lambda p: write_raster(p, np.ones((HEIGHT, WIDTH), np.uint16)), "has no coordinate system"),
        (small, "lies outside of 20 × 20 pixels"),
        (shifted, "lies on another grid than"),
        (elsewhere, "lies on another grid than"),
    ],
)
@pytest.mark.parametrize("band", ["B04", "CLD"])
def test_broken_bands_are_named(folder: Path, band: str, damage: Callable[[Path], object], cause: str) -> None:
    damage(tif(folder, DATES[2], band))
    options = {"dates": 3, "max_cloud": 90}  # the first, third and last
    with pytest.raises(DataError, match=rf"00_{DATES[2]}_{band}_10m\.tif: .*{cause}"):
        aio.datasets.create("cashew", folder, **options)[0]
    skipping = aio.datasets.create("cashew", folder, on_error="skip", **options)
    assert list(skipping) == [] and [Path(s.path) for s in skipping.skipped] == [tif(folder, DATES[2], band)]


def test_folders_that_are_wrong_are_named(folder: Path) -> None:
    empty = folder / "imagery/00/00_20200101"
    empty.mkdir()
    shutil.copy(tif(folder, DATES[0], "CLD"), empty / "00_20200101_CLD_10m.tif")
    with pytest.raises(DataError, match=r"00_20200101: has no band: expected 00_20200101_B01_10m\.tif"):
        aio.datasets.create("cashew", folder)
    empty.rename(empty.with_name("00_20201341"))
    with pytest.raises(DataError, match="00_20201341: has no date in its name"):
        aio.datasets.create("cashew", folder)
    shutil.rmtree(folder / "imagery/00")
    with pytest.raises(DataError, match="imagery/00: no such folder"):
        aio.datasets.create("cashew", folder)
    (folder / "imagery/00").mkdir()
    with pytest.raises(DataError, match="imagery/00: has no folder called 00_YYYYMMDD"):
        aio.datasets.create("cashew", folder)


def first(document: dict[str, Any]) -> dict[str, Any]:
    feature: dict[str, Any] = document["features"][0]
    return feature


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda d: d.update(features=[]), "has no (features|geometries|column)"),
        (lambda d: first(d)["properties"].pop("class"), "feature 0 has no number as 'class'"),
        (lambda d: first(d)["properties"].update({"class": "cashew"}), "feature 0 has no number as 'class'"),
        (lambda d: first(d)["properties"].update({"class": 9}), "label 9"),
        (lambda d: first(d)["properties"].update({"class": 1.5}), "not whole numbers"),
        (lambda d: first(d).update(geometry=None), "feature 0 is not a polygon"),
        (lambda d: first(d).update(geometry={"type": "Polygon", "coordinates": []}), "feature 0 is not a polygon"),
        (lambda d: first(d).update(geometry={"type": "Point", "coordinates": [1, 2]}), "feature 0 is not a polygon"),
        (lambda d: d["crs"]["properties"].update(name="the moon"), "a coordinate system that cannot be understood"),
        (lambda d: d["crs"]["properties"].update(name="EPSG:32633"), "no polygon lies on"),
    ],
)
def test_labels_that_are_wrong_are_named(folder: Path, change: Callable[[dict[str, Any]], object], cause: str) -> None:
    edit_labels(folder, change)
    with pytest.raises(DataError, match=rf"00\.geojson: .*{cause}"):
        aio.datasets.create("cashew", folder)[0]


def test_geobench_values_dates_and_labels(geobench: Path) -> None:
    sizes = {s: len(aio.datasets.create("m-cashew-plant", geobench, s)) for s in ("train", "val", "test")}
    assert sizes == {"train": 3, "val": 1, "test": 1}
    dataset = aio.datasets.create("m-cashew-plant", geobench)
    sample = dataset[1]
    with h5py.File(*dataset.files(dataset.items[1])) as source:
        assert "Cloud Probability_2019-12-05" in source
        values = np.stack([source[f"{key}_2019-12-05"][:] for key in MCashewPlant.known_bands])
        label = source["label"][:]
    np.testing.assert_array_equal(grid_values(sample.atoms, 0, label.shape), values)
    np.testing.assert_array_equal(sample.target.reshape(label.shape), label)
    assert set(sample.target.tolist()) == set(range(7)) and not bool(sample.queries.ignore.any())
    assert [c.name for c in sample.atoms.channels] == BANDS
    assert sample.meta.dates == (datetime.date(2019, 12, 5),)
    assert sample.queries.grid.gsd_m == 10.0 and sample.atoms.acquisitions[0].footprint_m == (10.0, 10.0)
    assert pickle.loads(pickle.dumps(dataset))[1].atoms.num_atoms == sample.atoms.num_atoms == 12 * label.size
