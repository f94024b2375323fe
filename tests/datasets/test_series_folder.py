"""One's own series of points: values and dates of the tables, splits by cells, and wrong tables."""

from __future__ import annotations

import csv
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomizer_io as aio
from atomizer_io.errors import ConfigError, DataError

OPTIONS: dict[str, Any] = {"sensor": "sentinel2", "bands": ["B04", "B08"], "gsd_m": 10.0}
DATES = ("2019-10-01", "2019-12-20", "2020-02-01", "2020-05-05")
COUNT = 40


def read_table(path: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Series of four dates in twenty cells of 0.1 degrees, two in each; the first observation has no B08."""
    rng = np.random.default_rng(0)
    labels = [
        {"series": f"s{n}", "label": ("field", "wood")[n % 2], "longitude": -60.05 + 0.1 * (n // 2), "latitude": -9.55}
        for n in range(COUNT)
    ]
    series = [
        {"series": f"s{n}", "date": date, "B08": "" if (n, date) == (0, DATES[0]) else f"{rng.uniform():.3f}", "B04": n}
        for n in range(COUNT)
        for date in DATES
    ]
    write_table(tmp_path / "labels.csv", labels)
    write_table(tmp_path / "series.csv", series)
    return tmp_path


def test_values_dates_and_classes_are_those_of_the_tables(folder: Path) -> None:
    dataset = aio.datasets.create("series-folder", folder, "all", **OPTIONS)
    assert len(dataset) == COUNT and dataset.info.classes == ("field", "wood")
    sample, last = dataset[0], dataset[COUNT - 1]
    assert [str(a.date) for a in sample.atoms] == list(DATES) and [a.timestep for a in sample.atoms] == [0, 1, 2, 3]
    assert [c.name for c in sample.atoms.acquisitions[0].channels] == ["B04", "B08"] and sample.atoms.num_atoms == 7
    assert [float(a.values[0, 0]) for a in last.atoms] == [COUNT - 1] * 4 and int(last.target) == 1
    assert sample.atoms.acquisitions[0].footprint_m == (10.0, 10.0) and sample.queries is None
    again = pickle.loads(pickle.dumps(dataset))[0]
    assert again.meta == sample.meta and again.atoms.num_atoms == 7
    few = aio.datasets.create("series-folder", folder, "all", dates=2, **OPTIONS)[0]
    assert [str(a.date) for a in few.atoms] == [DATES[0], DATES[-1]]


def test_points_of_one_cell_are_in_one_split(folder: Path) -> None:
    splits = {
        use: aio.datasets.create("series-folder", folder, use, **OPTIONS).items for use in ("train", "val", "test")
    }
    split_of = {item: use for use, items in splits.items() for item in items}
    assert len(split_of) == sum(map(len, splits.values())) == COUNT
    assert all(split_of[f"s{n}"] == split_of[f"s{n + 1}"] for n in range(0, COUNT, 2))
    assert 0.4 * COUNT < len(splits["train"]) < 0.8 * COUNT


def test_a_sensor_and_targets_of_ones_own(folder: Path) -> None:
    rows = read_table(folder / "labels.csv")
    write_table(folder / "labels.csv", [{**row, "label": 0.5 * n} for n, row in enumerate(rows)])
    own = {"sensor": "mine", "bands": {"B04": [0.66, 0.03], "B08": None}, "gsd_m": 250.0}
    dataset = aio.datasets.create("series-folder", folder, "all", task="regression", unit="t", **own)
    assert float(dataset[3].target) == 1.5 and dataset.info.unit == "t" and not dataset.info.classes
    assert [(c.sensor, c.wavelength_um) for c in dataset.channels] == [("mine", 0.66), ("mine", None)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "segmentation"}, "series have one target each"),
        ({"cell_deg": 0.0}, "cell_deg is 0"),
        ({"dates": 0}, "dates is 0"),
        ({"bands": ["B4x"]}, "B4x"),
    ],
)
def test_wrong_options_are_named(folder: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigError, aio.errors.UnknownChannelError), match=words):
        aio.datasets.create("series-folder", folder, "all", **{**OPTIONS, **options})


@pytest.mark.parametrize(
    ("table", "column", "value", "words"),
    [
        ("series.csv", "B04", "x", "series 's0' has a value that is no number"),
        ("series.csv", "date", "spring", "has date 'spring'; write 2021-07-04"),
        ("series.csv", "series", "t0", "has no row of series 's0'"),
        ("labels.csv", "latitude", "north", "series 's0' has no position"),
    ],
)
def test_wrong_tables_are_named(folder: Path, table: str, column: str, value: str, words: str) -> None:
    rows = read_table(folder / table)
    changed = [{**row, column: value} if row["series"] == "s0" else row for row in rows]
    write_table(folder / table, changed)
    with pytest.raises(DataError, match=words):
        splits = [aio.datasets.create("series-folder", folder, use, **OPTIONS) for use in ("train", "val", "test")]
        assert all(math.isfinite(float(sample.target)) for split in splits for sample in split)
