"""The sets of ``configs/small``, with many scenes each: shapes, classes and counts are those of their descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.training.config import load
from atomizer_io.training.splits import USES, open_split
from atomizer_lab.paper.staging import canopy_heights, series_tables, staged
from scenes import data_folder

pytestmark = pytest.mark.realdata
CONFIGS = Path(__file__).parents[2] / "configs" / "small"


def splits_of(name: str, root: Path | None = None) -> dict[str, Dataset]:
    """Return the splits of a set by their use; no sample is in two of them."""
    run = load(CONFIGS / f"{name}.yaml", [f"data.root={root or data_folder(name)}"])
    splits = {use: open_split(run, use) for use in USES}
    items = [item for split in splits.values() for item in split.items]
    assert len(set(items)) == len(items)
    return splits


def first(dataset: Dataset) -> Sample:
    sample = dataset[0]
    assert isinstance(sample, Sample)
    return sample


def counts_of(dataset: Dataset) -> Any:
    """Return how often each class is the target."""
    targets = np.concatenate([np.atleast_1d(sample.target.numpy()) for sample in dataset])
    return np.bincount(targets[targets >= 0], minlength=len(dataset.info.classes))


def test_marida() -> None:
    """Eleven classes of fifteen; official split by scene, with as many labelled pixels as published."""
    splits = splits_of("marida")
    assert {use: len(split) for use, split in splits.items()} == {"train": 576, "val": 118, "test": 328}
    scenes = [{item.rpartition("_")[0] for item in split.items} for split in splits.values()]
    assert [len(names) for names in scenes] == [30, 6, 12] and len(set.union(*scenes)) == 48
    sample = first(splits["train"])
    assert [acquisition.values.shape for acquisition in sample.atoms] == [(64 * 64, 11)]
    assert sample.queries is not None and sample.queries.grid is not None and sample.queries.grid.shape == (64, 64)
    train, val, test = (counts_of(split) for split in splits.values())
    assert (train + val).sum() == 231_873 and test.sum() == 100_207
    assert (len(test), (train + val)[0], test[0]) == (11, 965 + 206, 675) and (val > 0).all()


def test_hls_water() -> None:
    splits = splits_of("hls-water")
    assert [len(split) for split in splits.values()] == [78, 24, 54]
    sample = first(splits["train"])
    (acquisition,) = sample.atoms
    assert acquisition.values.shape == (128 * 128, 7)
    assert [channel.name for channel in acquisition.channels] == ["B1", "B2", "B3", "B4", "B5", "B6", "B7"]
    land, water = sum(counts_of(split) for split in splits.values())
    assert land + water == 156 * 128 * 128 and water / (land + water) == pytest.approx(0.278, abs=5e-3)


def test_eurosat_rgb() -> None:
    splits = splits_of("eurosat-rgb")
    assert [len(split) for split in splits.values()] == [2687, 900, 913]
    sample = first(splits["test"])
    assert [acquisition.values.shape for acquisition in sample.atoms] == [(64 * 64, 3)]
    labels = [[item.rpartition("_")[0] for item in split.items] for split in splits.values()]
    for name in splits["train"].info.classes:
        assert sum(own.count(name) for own in labels) == 450
        assert 250 <= labels[0].count(name) <= 280 and 80 <= labels[2].count(name) <= 100
    assert len(splits["train"].info.classes) == 10


def test_oscd() -> None:
    """Each band at its own resolution, on two dates; 47 694 pixels of change in the nine cities."""
    splits = splits_of("oscd")
    assert {use: len(split) for use, split in splits.items()} == {"train": 4, "val": 2, "test": 3}
    sample = next(sample for sample in splits["train"] if sample.meta.id == "paris")
    assert [a.values.shape for a in sample.atoms] == 2 * [(384**2, 4), (192**2, 6), (64**2, 3)]
    assert [str(date) for date in sample.meta.dates] == ["2016-11-30", "2017-11-07"]
    pixels = [a.footprint_m[1] for a in sample.atoms if a.footprint_m is not None]
    assert pixels[1:3] == pytest.approx([2 * pixels[0], 6 * pixels[0]], rel=1e-3)
    counts = sum(counts_of(split) for split in splits.values())
    assert counts[1] == 47_694 and counts.sum() == 8 * 384**2 + 384 * 360


@pytest.mark.parametrize(("name", "counts"), [("neon-plots", [20, 5, 13]), ("neon-sites", [24, 4, 10])])
def test_canopy_heights(name: str, counts: list[int], tmp_path: Path) -> None:
    root = staged("neon-plots", canopy_heights, data_folder("neon-plots"), tmp_path)
    splits = splits_of(name, root)
    assert [len(split) for split in splits.values()] == counts
    sample = first(splits["test"])
    assert [a.values.shape for a in sample.atoms] == [(400**2, 3), (40**2, 106)]
    assert sample.target.shape == (1600,) and float(sample.target.nan_to_num().min()) >= 0
    heights = np.concatenate([sample.target.numpy() for split in splits.values() for sample in split])
    assert float(np.nanmax(heights)) <= 60 and np.isnan(heights).mean() < 0.2
    sites = [{site_of(item) for item in split.items} for split in splits.values()]
    assert len(set.union(*sites)) == 14 and (name == "neon-plots" or not sites[0] & sites[2])


def site_of(plot: str) -> str:
    return "TEAK" if "TEAK" in plot else plot[:4]


@pytest.mark.parametrize(
    ("name", "series", "dates", "bands", "classes"), [("modis", 1892, 23, 6, 9), ("sentinel2", 750, 29, 10, 7)]
)
def test_series(name: str, series: int, dates: int, bands: int, classes: int, tmp_path: Path) -> None:
    pytest.importorskip("rdata")
    root = staged("sits-series", series_tables, data_folder("sits-series"), tmp_path)
    splits = splits_of(f"sits-{name}", root / name)
    assert sum(map(len, splits.values())) == series
    assert all(len(split) > 0.15 * series for split in splits.values())
    sample = first(splits["train"])
    assert [a.values.shape for a in sample.atoms] == dates * [(1, bands)] and len(
        splits["train"].info.classes
    ) == classes
    if name == "modis":
        assert sum(sample.target == 0 for split in splits.values() for sample in split) == 379  # Cerrado
