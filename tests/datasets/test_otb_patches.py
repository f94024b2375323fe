"""Stacked patches: read one by one, split by a checksum, and refused where they do not fit their labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio

import atomizer_io as aio
from atomizer_io.errors import ConfigError, DataError
from atomizer_lab.synthetic.rasters import write_raster
from scenes import data_folder

OPTIONS = {"images": "a.tif", "labels": "l.tif", "sensor": "sentinel2_l2a", "bands": ["B04", "B08"], "gsd_m": 10.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    write_raster(tmp_path / "a.tif", rng.integers(1, 4000, (2, 40 * 4, 4), np.int16))
    write_raster(tmp_path / "l.tif", rng.integers(0, 3, (40, 1), np.uint8))
    return tmp_path


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_each_patch_and_its_label(folder: Path) -> None:
    dataset = aio.datasets.create("otb-patches", folder, "all", classes=3, **OPTIONS)
    with rasterio.open(folder / "a.tif") as images, rasterio.open(folder / "l.tif") as labels:
        values, targets = images.read(), labels.read(1)[:, 0]
    assert len(dataset) == 40 and dataset.info.extent_m == 40.0
    for i in (0, 7, 39):
        sample = dataset[i]
        pixels = sample.atoms.acquisitions[0].values.T.reshape(2, 4, 4).numpy()
        np.testing.assert_array_equal(pixels, values[:, 4 * i : 4 * i + 4])
        assert sample.target.item() == targets[i] and sample.queries is None


def test_a_band_that_is_left_out(folder: Path) -> None:
    both, one = (
        aio.datasets.create("otb-patches", folder, "all", classes=3, **{**OPTIONS, "bands": names})
        for names in (["B04", "B08"], ["-", "B08"])
    )
    assert [c.name for c in one.channels] == ["B08"]
    first, second = (dataset[7].atoms.acquisitions[0].values.numpy() for dataset in (both, one))
    np.testing.assert_array_equal(second[:, 0], first[:, 1])


def test_splits_share_nothing(folder: Path) -> None:
    train, test = (aio.datasets.create("otb-patches", folder, s, classes=3, **OPTIONS).items for s in ("train", "test"))
    assert sorted(train + test) == list(range(40)) and len(train) > 2 * len(test)


def test_what_does_not_fit(folder: Path) -> None:
    with pytest.raises(DataError, match=r"l\.tif: label 2"):
        aio.datasets.create("otb-patches", folder, classes=2, **OPTIONS)
    with pytest.raises(ConfigError, match="classes is empty"):
        aio.datasets.create("otb-patches", folder, classes=[], **OPTIONS)
    write_raster(folder / "l.tif", np.zeros((39, 1), np.uint8))
    with pytest.raises(DataError, match=r"l\.tif: has 39 labels for 40 patches"):
        aio.datasets.create("otb-patches", folder, classes=3, **OPTIONS)
    write_raster(folder / "a.tif", np.ones((2, 41, 4), np.int16))
    with pytest.raises(DataError, match=r"a\.tif: is 1 rows higher than 10 square patches"):
        aio.datasets.create("otb-patches", folder, classes=3, **OPTIONS)


@pytest.mark.realdata
def test_real_patches() -> None:
    options = {**OPTIONS, "images": "s2_20m_patches_A.tif", "labels": "s2_labels_A.tif", "gsd_m": 20.0}
    options["bands"] = ["B8A", "B12", "B07", "B05", "B11", "B06"]
    dataset = aio.datasets.create("otb-patches", data_folder("s2-patches"), "all", classes=6, **options)
    assert len(dataset) == 5957 and dataset[5956].atoms.num_atoms == 6 * 8 * 8
