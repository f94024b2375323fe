"""Series of single places: every value with its meaning and month, neighbours in one split, broken files named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.datasets.presto_series import is_validation
from atomizer_io.errors import DataError
from scenes import data_folder

SPLITS = ("train", "val", "test")
NAMES = [
    *("VV", "VH", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12"),
    *("temperature_2m", "total_precipitation", "elevation", "slope", "NDVI"),
]

DATASET = "presto-series"


def array(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / "algae_blooms" / f"{name}.npy")


def test_every_value_has_its_channel_and_its_month(folder: Path) -> None:
    dataset = aio.datasets.create("presto-series", folder)
    series, months = array(folder, "s1_s2_era5_srtm"), array(folder, "month")
    for number, sample in list(zip(dataset.items, dataset, strict=True))[:5]:
        assert sample.queries is None and sample.target == array(folder, "target")[number]
        assert sample.atoms.num_atoms == 12 * 16 + 2
        for acquisition in sample.atoms:
            assert acquisition.positions.tolist() == [[0.0, 0.0]] and acquisition.footprint_m == (10.0, 10.0)
            month = 0 if acquisition.day_of_year is None else acquisition.timestep
            columns = [NAMES.index(channel.name) for channel in acquisition.channels]
            np.testing.assert_allclose(acquisition.values[0], series[number, month, columns], rtol=1e-6)
        for acquisition in (a for a in sample.atoms if a.sensor == "sentinel2"):
            day = acquisition.day_of_year % 365
            assert int((day - 1) // 30.42) == months[number, acquisition.timestep]
    (terrain,) = (a for a in sample.atoms if a.sensor == "srtm")
    assert terrain.day_of_year is None


def test_neighbours_are_in_one_split(folder: Path) -> None:
    datasets = {split: aio.datasets.create("presto-series", folder, split) for split in SPLITS}
    numbers = [number for dataset in datasets.values() for number in dataset.items]
    assert sorted(numbers) == list(range(len(array(folder, "target"))))
    assert datasets["test"].items == np.flatnonzero(array(folder, "is_test")).tolist()
    places = array(folder, "latlon")
    cells = {split: {tuple(np.floor(places[i])) for i in datasets[split].items} for split in ("train", "val")}
    assert cells["train"] and cells["val"] and not cells["train"] & cells["val"]
    assert is_validation(38.1, -99.9) == is_validation(38.9, -99.1)


def test_what_is_nan_or_zero_reflectance_is_absent(folder: Path) -> None:
    number = aio.datasets.create("presto-series", folder).items[0]
    path = folder / "algae_blooms" / "s1_s2_era5_srtm.npy"
    series = np.load(path)
    series[number, 3, 0] = np.nan  # one polarisation
    series[number, 4, 2:13] = 0  # an image, and so the index computed from it
    series[number, :, 16] = 0  # flat ground is no gap
    np.save(path, series)
    sample = aio.datasets.create("presto-series", folder)[0]
    assert sample.atoms.num_atoms == 12 * 16 + 2 - 1 - 12
    assert all(acquisition.values.dtype == torch.float32 for acquisition in sample.atoms)


@pytest.mark.parametrize(
    ("name", "changed", "cause"),
    [
        ("s1_s2_era5_srtm", np.zeros((60, 12, 17)), r"has shape \(60, 12, 17\), expected \(points, months, 18\)"),
        ("s1_s2_era5_srtm", np.zeros((60, 12, 18), int), "holds int64, expected floating-point numbers"),
        ("month", np.full((60, 12), 12), "has months outside 0 … 11"),
        ("target", np.zeros(59, int), r"has shape \(59,\), expected \(60,\) as s1_s2_era5_srtm.npy has 60 series"),
    ],
)
def test_broken_files_are_named(folder: Path, name: str, changed: np.ndarray, cause: str) -> None:
    np.save(folder / "algae_blooms" / f"{name}.npy", changed)
    with pytest.raises(DataError, match=rf"{name}.npy: .*{cause}"):
        aio.datasets.create("presto-series", folder)


@pytest.mark.realdata
def test_the_real_series() -> None:
    root = data_folder("presto-series")
    datasets = {split: aio.datasets.create("presto-series", root, split) for split in SPLITS}
    assert {split: len(dataset) for split, dataset in datasets.items()} == {"train": 582, "val": 195, "test": 345}
    series = array(root, "s1_s2_era5_srtm")
    index = (series[..., 7] - series[..., 3]) / (series[..., 7] + series[..., 3])
    assert np.isclose(index, series[..., 17]).mean() > 0.998  # as the notes say
    known = {channel.name: channel for channel in datasets["train"].channels}
    values = series[datasets["train"].items].reshape(-1, len(NAMES))
    for name, mean, std in zip(NAMES, values.mean(axis=0), values.std(axis=0), strict=True):
        assert (known[name].mean, known[name].std) == pytest.approx((mean, std), rel=1e-4), name
    targets = {split: array(root, "target")[dataset.items] for split, dataset in datasets.items()}
    assert np.sqrt(np.mean((targets["test"] - targets["train"].mean()) ** 2)) == pytest.approx(0.868, abs=0.001)
    assert datasets["val"][0].atoms.num_atoms == 12 * 16 + 2
