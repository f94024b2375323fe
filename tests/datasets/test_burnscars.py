"""HLS Burn Scars: the fixture, the real mask, and files that are not as they should be."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.errors import ConfigError, DataError
from atomizer_lab.synthetic.rasters import write_raster
from scenes import data_folder

CHIP = "subsetted_512x512_HLS.S30.T10SEH.2018190.v1.4"  # first of training/ by name
DATASET = "burnscars"


def rewrite(path: Path, values: np.ndarray, **changes: object) -> None:
    with rasterio.open(path) as source:
        profile = {key: source.profile[key] for key in ("crs", "transform", "nodata")}
    write_raster(path, values, **profile | changes)


def test_the_official_splits_are_the_folders(folder: Path) -> None:
    sizes = {split: len(aio.datasets.create("burnscars", folder, split)) for split in ("train", "val")}
    assert sizes == {"train": 5, "val": 2}
    assert aio.datasets.create("HLS Burn Scars", folder, "validation").info.splits == ("train", "val")
    with pytest.raises(ConfigError, match="no official split 'test': use 'val', or protocol='pangaea'"):
        aio.datasets.create("burnscars", folder, "test")


def test_the_pangaea_protocol_tests_on_the_validation_folder(folder: Path) -> None:
    parts = {s: aio.datasets.create("burnscars", folder, s, protocol="pangaea").items for s in ("train", "val", "test")}
    official = aio.datasets.create("burnscars", folder).items
    assert parts["test"] == aio.datasets.create("burnscars", folder, "val").items
    assert len(parts["val"]) == 1 and sorted(parts["train"] + parts["val"]) == official
    again = aio.datasets.create("burnscars", folder, "val", protocol="pangaea")
    assert again.items == parts["val"]
    with pytest.raises(ConfigError, match="protocol is 'geobench'; it has to be official or pangaea"):
        aio.datasets.create("burnscars", folder, protocol="geobench")


def test_values_are_those_of_the_files(folder: Path) -> None:
    dataset = aio.datasets.create("burnscars", folder)
    for item, sample in zip(dataset.items, dataset, strict=True):
        image_path, mask_path = dataset.files(item)
        with rasterio.open(image_path) as source:
            image = source.read()
        with rasterio.open(mask_path) as source:
            mask, crs, transform = source.read(1), source.crs, source.transform
        known = image != -9999
        shape = sample.queries.grid.shape
        np.testing.assert_array_equal(grid_values(sample.atoms, 0, shape), np.where(known, image, np.nan))
        assert not known[:, :, :2].any() and sample.atoms.num_atoms == known.sum()
        assert torch.equal(sample.target, torch.from_numpy(mask.astype(np.int64)).flatten())
        assert torch.equal(sample.queries.ignore, sample.target == -1) and bool(sample.queries.ignore.any())
        assert sample.meta.id == item and sample.meta.files == (str(image_path), str(mask_path))
        assert sample.meta.crs == crs.to_string() and sample.meta.transform == tuple(transform)[:6]


def test_bands_date_and_size(folder: Path) -> None:
    dataset = aio.datasets.create("burnscars", folder)
    sample = dataset[dataset.items.index(CHIP)]
    acquisition = sample.atoms.acquisitions[0]
    assert [c.name for c in acquisition.channels] == ["B02", "B03", "B04", "B8A", "B11", "B12"]
    assert acquisition.channels[3].wavelength_um == pytest.approx(0.8647)
    assert dataset.channels[0].mean == 0.033349706741586264 and dataset.channels[5].std == 0.07241979477437814
    assert acquisition.date == datetime.date(2018, 7, 9)  # day 190
    assert sample.meta.dates == (datetime.date(2018, 7, 9),)
    assert sample.queries.grid.pixel_m == (30.0, 30.0) and acquisition.footprint_m == (30.0, 30.0)
    x_min, y_min, x_max, y_max = sample.atoms.bounds
    assert (x_max - x_min, y_max - y_min) == (62 * 30, 64 * 30)  # two columns are absent


def break_image(path: Path, how: str) -> None:
    with rasterio.open(path) as source:
        values = source.read()
    if how == "truncated":
        path.write_bytes(path.read_bytes()[:9000])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "missing":
        path.unlink()
    elif how == "bands":
        rewrite(path, values[:5])
    elif how == "integers":
        rewrite(path, (values * 1e4).astype(np.int16))
    elif how == "nothing":
        rewrite(path, np.full_like(values, -9999))


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("truncated", "cannot be read"),
        ("empty", "cannot be read"),
        ("missing", "no such file"),
        ("bands", "has 5 bands, expected 6"),
        ("integers", "holds int16, expected reflectance"),
        ("nothing", "has no valid measurement"),
    ],
)
def test_a_broken_image_is_named(folder: Path, how: str, cause: str) -> None:
    dataset = aio.datasets.create("burnscars", folder)
    break_image(folder / "training" / f"{CHIP}_merged.tif", how)
    with pytest.raises(DataError, match=rf"{CHIP}_merged\.tif: {cause}"):
        dataset[dataset.items.index(CHIP)]
    skipping = aio.datasets.create("burnscars", folder, on_error="skip")
    skipped = 0 if how == "missing" else 1  # what is not there is not looked for
    assert len(list(skipping)) == 4 and len(skipping.skipped) == skipped


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda v: np.where(v == 1, 7, v), r"label 7 \(\d+ positions\) is not among"),
        (lambda v: v[:, :50], r"has \(64, 50\) pixels, .*_merged\.tif has \(64, 64\)"),
        (lambda v: np.stack([v, v]), "has 2 bands, expected 1"),
        (lambda v: v + 0.5, "labels are not whole numbers"),
    ],
)
def test_a_broken_mask_is_named(folder: Path, change, cause: str) -> None:
    path = folder / "training" / f"{CHIP}.mask.tif"
    with rasterio.open(path) as source:
        values = change(source.read(1))
    rewrite(path, values.astype(np.float32 if values.dtype.kind == "f" else np.int16))
    dataset = aio.datasets.create("burnscars", folder)
    with pytest.raises(DataError, match=rf"{CHIP}\.mask\.tif: {cause}"):
        dataset[dataset.items.index(CHIP)]


@pytest.mark.realdata
def test_the_real_mask(tmp_path: Path) -> None:
    """The published mask, with a synthetic image on its grid (the real one is not here)."""
    name = "subsetted_512x512_HLS.S30.T10TGS.2018285.v1.4"
    (tmp_path / "training").mkdir()
    shutil.copy(data_folder("hls") / f"{name}.mask.tif", tmp_path / "training")
    with rasterio.open(tmp_path / f"training/{name}.mask.tif") as source:
        mask, crs, transform = source.read(1), source.crs, source.transform
        assert source.dtypes == ("int16",) and source.nodata == -1
    image = np.random.default_rng(0).uniform(0, 0.5, (6, *mask.shape)).astype(np.float32)
    image[:, :100] = -9999
    write_raster(tmp_path / f"training/{name}_merged.tif", image, crs=crs, transform=transform, nodata=-9999)
    sample = aio.datasets.create("burnscars", tmp_path)[0]
    np.testing.assert_array_equal(sample.target.reshape(512, 512), mask)
    assert sorted(sample.target.unique().tolist()) == [0, 1]
    assert sample.queries.grid.pixel_m == (30.0, 30.0) and sample.meta.transform == (30, 0, 699960, 0, -30, 5200020)
    assert "UTM Zone 10" in sample.meta.crs
    assert sample.meta.origin == (699960 + 256 * 30, 5200020 - 256 * 30)
    assert sample.meta.dates == (datetime.date(2018, 10, 12),)  # day 285
    assert sample.atoms.num_atoms == 6 * 412 * 512
