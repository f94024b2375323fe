"""EuroSAT, as first released and in GEO-Bench's files, whose bands are mislabelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
import torch
from scipy.optimize import linear_sum_assignment

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.datasets.eurosat import BANDS, CLASSES, MEuroSAT
from atomizer_io.datasets.geobench import SENTINEL2_KEYS
from atomizer_io.errors import DataError
from atomizer_lab.synthetic.rasters import write_raster

TIF = "ds/images/remote_sensing/otherDatasets/sentinel_2/tif"
FILE_ORDER = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11", "B12", "B8A")
# Means of m-eurosat by the names in its files (01 … 08, 08A, 09 … 12), as PANGAEA-bench publishes them.
MEANS_BY_KEY = (
    *(1355.5426, 1113.8855, 1035.7394, 928.2619, 1188.2629, 2032.7325, 2416.5286, 2342.5396),
    *(748.9036, 12.0419, 1810.1284, 1101.3801, 2644.5996),
)

DATASET = "eurosat"
GEOBENCH = "m-eurosat"


# As first released


def test_the_splits_are_those_of_the_lists(written: Path) -> None:
    assert [len(aio.datasets.create("eurosat", written, s)) for s in ("train", "val", "test")] == [20, 10, 10]
    assert len(aio.datasets.create("eurosat", written, spatial=True)) == 19


def test_values_are_those_of_the_file_by_band(written: Path) -> None:
    dataset = aio.datasets.create("eurosat", written)
    sample = dataset[2]
    (path,) = dataset.files(dataset.items[2])
    assert path == written / TIF / "Forest" / "Forest_1.tif"
    with rasterio.open(path) as source:
        expected, transform = source.read(), source.transform
        assert source.dtypes == ("uint16",) * 13
    np.testing.assert_array_equal(grid_values(sample.atoms, 0, (64, 64)), expected)
    assert tuple(channel.name for channel in sample.atoms.channels) == FILE_ORDER
    assert sample.target == CLASSES.index("Forest") == 1 and sample.target.dtype == torch.int64
    assert sample.queries is None
    assert sample.atoms.num_atoms == 13 * 64 * 64
    assert sample.atoms.bounds == (-320.0, -320.0, 320.0, 320.0)
    assert sample.atoms.acquisitions[0].date is None and sample.meta.dates == ()
    assert (sample.meta.id, sample.meta.crs) == ("Forest_1", "EPSG:32632")
    assert sample.meta.transform == tuple(transform)[:6]
    assert sample.meta.origin == (transform.c + 320, transform.f - 320)


@pytest.mark.parametrize("layout", ["EuroSAT_MS", "EuroSATallBands", "."])
def test_other_releases_lie_elsewhere(folder: Path, layout: str) -> None:
    before = aio.datasets.create("eurosat", folder, "test")[3]
    for kind in CLASSES:
        (folder / layout).mkdir(exist_ok=True)
        (folder / TIF / kind).rename(folder / layout / kind)
    after = aio.datasets.create("eurosat", folder, "test")[3]
    assert after.meta.id == before.meta.id
    assert torch.equal(after.atoms.acquisitions[0].values, before.atoms.acquisitions[0].values)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3000])


def too_few_bands(path: Path) -> None:
    write_raster(path, np.ones((12, 64, 64), np.uint16))


def too_small(path: Path) -> None:
    write_raster(path, np.ones((13, 32, 64), np.uint16))


def not_numbers(path: Path) -> None:
    write_raster(path, np.ones((13, 64, 64), np.complex64))


def all_absent(path: Path) -> None:
    write_raster(path, np.zeros((13, 64, 64), np.uint16), nodata=0)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (Path.unlink, "no such file"),
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (truncate, "cannot be read"),
        (too_few_bands, "has 12 bands, expected 13"),
        (too_small, "has 32 × 64 pixels, expected 64 × 64"),
        (not_numbers, "holds complex numbers"),
        (all_absent, "has no valid measurement"),
    ],
)
def test_broken_files_are_named(folder: Path, damage: Callable[[Path], None], cause: str) -> None:
    damage(folder / TIF / "Pasture" / "Pasture_3.tif")
    dataset = aio.datasets.create("eurosat", folder, "val")
    with pytest.raises(DataError, match=rf"Pasture_3\.tif: {cause}"):
        dataset[5]
    skipping = aio.datasets.create("eurosat", folder, "val", on_error="skip")
    assert len(list(skipping)) == 9
    assert [Path(skipped.path).name for skipped in skipping.skipped] == ["Pasture_3.tif"]


# GEO-Bench


def test_the_published_means_show_which_band_lies_under_which_name() -> None:
    published = dict(zip(SENTINEL2_KEYS, MEANS_BY_KEY, strict=True))
    for key, channel in MEuroSAT.known_bands.items():
        assert published[key] == pytest.approx(channel.mean, rel=0.03), key
    keys = SENTINEL2_KEYS[8:]
    bands = [channel for channel in BANDS if channel.name in ("B8A", "B09", "B10", "B11", "B12")]
    cost = [[abs(np.log(band.mean / published[key])) for band in bands] for key in keys]
    best = dict(zip(keys, (bands[i].name for i in linear_sum_assignment(cost)[1]), strict=True))
    assert best == {key: MEuroSAT.known_bands[key].name for key in keys}
    moved = {
        key[:3].strip(): channel.name for key, channel in MEuroSAT.known_bands.items() if key[:2] != channel.name[1:]
    }
    assert moved == {"08A": "B09", "09": "B10", "10": "B11", "11": "B12", "12": "B8A"}
    # Taken by their names they would be far off.
    assert published["09 - Water vapour"] < 0.02 * BANDS["B09"].mean
    assert published["10 - SWIR - Cirrus"] > 100 * BANDS["B10"].mean


def test_bands_are_put_right(written_geobench: Path) -> None:
    dataset = aio.datasets.create("m-eurosat", written_geobench)
    assert [len(aio.datasets.create("m-eurosat", written_geobench, s)) for s in ("train", "valid", "test")] == [
        20,
        10,
        10,
    ]
    sample = dataset[4]
    with h5py.File(written_geobench / "id_0004.hdf5") as source:
        stored = {name: source[name][:] for name in source}
    values = dict(zip([c.name for c in sample.atoms.channels], grid_values(sample.atoms, 0, (64, 64)), strict=True))
    assert sorted(values) == sorted(FILE_ORDER)
    for key, band in (("04 - Red", "B04"), ("08A - Vegetation Red Edge", "B09"), ("09 - Water vapour", "B10")):
        np.testing.assert_array_equal(values[band], stored[key])
    for key, band in (("10 - SWIR - Cirrus", "B11"), ("11 - SWIR", "B12"), ("12 - SWIR", "B8A")):
        np.testing.assert_array_equal(values[band], stored[key])
    assert values["B10"].mean() < 40 < 1000 < values["B8A"].mean()
    assert sample.target == 2 and sample.queries is None
    assert sample.atoms.bounds == (-320.0, -320.0, 320.0, 320.0)
    assert sample.meta.dates == () and sample.meta.crs is None
