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
from scenes import data_folder

pytestmark = pytest.mark.realdata
CONFIGS = Path(__file__).parents[2] / "configs" / "small"


def splits_of(name: str, *overrides: str) -> dict[str, Dataset]:
    """Return the splits of a set by their use; no sample is in two of them."""
    run = load(CONFIGS / f"{name}.yaml", [f"data.root={data_folder(name)}", *overrides])
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
