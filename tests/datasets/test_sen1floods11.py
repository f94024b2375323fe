"""Sen1Floods11: the fixture, the real chip, and files that are not as they should be."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.errors import DataError
from scenes import data_folder

METADATA = "v1.1/Sen1Floods11_Metadata.geojson"
CHIPS = "v1.1/data/flood_events/HandLabeled"
DATASET = "sen1floods11"


def test_the_fixture_has_the_official_splits(folder: Path) -> None:
    sizes = {s: len(aio.datasets.create("sen1floods11", folder, s)) for s in ("train", "val", "test", "bolivia")}
    assert sizes == {"train": 3, "val": 1, "test": 1, "bolivia": 1}
    assert aio.datasets.create("Sen1Floods11", folder, split="valid").split == "val"


def test_values_are_those_of_the_files(folder: Path) -> None:
    dataset = aio.datasets.create("sen1floods11", folder)
    sample = dataset[0]
    radar_path, optical_path, label_path = dataset.files(dataset.items[0])
    with rasterio.open(radar_path) as source:
        radar = source.read()
    with rasterio.open(optical_path) as source:
        optical = source.read().astype(np.float32)
        optical[optical == 0] = np.nan
    with rasterio.open(label_path) as source:
        label = source.read(1)
    shape = sample.queries.grid.shape
    np.testing.assert_array_equal(grid_values(sample.atoms, 0, shape), radar)
    np.testing.assert_array_equal(grid_values(sample.atoms, 1, shape), optical)
    assert sample.atoms.num_atoms == np.isfinite(radar).sum() + np.isfinite(optical).sum()
    assert torch.equal(sample.target, torch.from_numpy(label.astype(np.int64)).flatten())
    assert torch.equal(sample.queries.ignore, sample.target == -1)


def test_dates_come_from_the_event(folder: Path) -> None:
    samples = {s.meta.id: s for s in aio.datasets.create("sen1floods11", folder)}
    mekong = samples["Mekong_16233"]  # called Cambodia in the metadata
    assert mekong.meta.dates == (datetime.date(2018, 8, 4), datetime.date(2018, 8, 5))
    assert [a.date for a in mekong.atoms] == [datetime.date(2018, 8, 5), datetime.date(2018, 8, 4)]


def test_pixels_in_degrees_become_metres(folder: Path) -> None:
    sample = aio.datasets.create("sen1floods11", folder)[2]
    across, down = sample.queries.grid.pixel_m
    latitude = sample.meta.origin[1]
    assert down == pytest.approx(9.94, abs=0.03)
    assert across == pytest.approx(8.983152841195215e-05 * 111319.49 * math.cos(math.radians(latitude)), rel=2e-3)
    assert sample.atoms.acquisitions[1].footprint_m == (across, down)


def test_broken_files_are_named(folder: Path) -> None:
    optical = folder / CHIPS / "S2Hand" / "Ghana_103272_S2Hand.tif"
    optical.write_bytes(optical.read_bytes()[:20000])
    label = folder / CHIPS / "LabelHand" / "Ghana_24858_LabelHand.tif"
    with rasterio.open(label, "r+") as target:
        values = target.read(1)
        values[9, 9] = 7
        target.write(values, 1)
    dataset = aio.datasets.create("sen1floods11", folder)
    with pytest.raises(DataError, match=r"Ghana_103272_S2Hand\.tif: cannot be read"):
        dataset[0]
    with pytest.raises(DataError, match=r"Ghana_24858_LabelHand\.tif: label 7 \(1 positions\) is not among"):
        dataset[1]
    skipping = aio.datasets.create("sen1floods11", folder, on_error="skip")
    assert [sample.meta.id for sample in skipping] == ["Mekong_16233"]
    assert [Path(s.path).name for s in skipping.skipped] == ["Ghana_103272_S2Hand.tif", "Ghana_24858_LabelHand.tif"]


@pytest.mark.realdata
def test_the_real_chip() -> None:
    dataset = aio.datasets.create("sen1floods11", data_folder("sen1floods11"), "test")
    assert len(dataset) == 90
    sample = dataset[dataset.items.index("Spain_7370579")]
    radar_path, optical_path, label_path = (rasterio.open(p) for p in dataset.files("Spain_7370579"))
    radar, optical, label = radar_path.read(), optical_path.read(), label_path.read(1)
    shape = sample.queries.grid.shape
    np.testing.assert_array_equal(grid_values(sample.atoms, 0, shape), radar)
    np.testing.assert_array_equal(grid_values(sample.atoms, 1, shape), np.where(optical == 0, np.nan, optical))
    np.testing.assert_array_equal(sample.target.reshape(shape), label)
    assert sample.meta.crs == "EPSG:4326"
    assert sample.meta.dates == (datetime.date(2019, 9, 17), datetime.date(2019, 9, 18))
    width, height = (p * 512 for p in sample.queries.grid.pixel_m)
    assert (width, height) == (pytest.approx(4032, abs=10), pytest.approx(5105, abs=10))
    for source in (radar_path, optical_path, label_path):
        source.close()


def test_without_metadata_chips_are_undated(folder: Path) -> None:
    dataset = aio.datasets.create("sen1floods11", folder)
    assert dataset.warnings() == []
    (folder / METADATA).unlink()
    dataset = aio.datasets.create("sen1floods11", folder)
    assert dataset[0].meta.dates == () and "no dates" in dataset.warnings()[0]


DATES = '{"features": [{"properties": {"location": "Ghana", "s1_date": "2018", "s2_date": "2018/09/19"}}]}'


@pytest.mark.parametrize("text", [DATES, "{}", '{"features": [{"properties": {"location": "Ghana"}}]}', "not json"])
def test_broken_metadata_are_named(folder: Path, text: str) -> None:
    (folder / "v1.1/Sen1Floods11_Metadata.geojson").write_text(text)
    with pytest.raises(DataError, match=r"Sen1Floods11_Metadata\.geojson: "):
        aio.datasets.create("sen1floods11", folder)[0]
