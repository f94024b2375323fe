"""Statistics of a stream are those of all numbers together, absent ones left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import atomizer_io as aio
import data as fixtures
from atomizer_io.data.sample import grid_values
from atomizer_io.datasets import Meta, Sample
from atomizer_io.datasets.dataset import read_items
from atomizer_io.datasets.statistics import Moments, Statistics, measure
from atomizer_io.errors import DataError
from atomizer_io.io.point_atoms import points_per_m2
from scenes import points


def test_moments_of_parts_are_those_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    numbers = 1e6 + rng.standard_normal(10_000)  # far from zero: a sum of plots would lose its digits
    moments = Moments()
    for part in np.split(numbers, [1, 1, 17, 4000]):
        moments.add(part.astype(np.float64))
    assert moments.count == 10_000
    assert moments.mean == pytest.approx(numbers.mean(), rel=1e-12)
    assert moments.std == pytest.approx(numbers.std(), rel=1e-9)
    assert (moments.low, moments.high) == (numbers.min(), numbers.max())


def test_channels_of_a_dataset(tmp_path: Path) -> None:
    dataset = aio.datasets.create("sen1floods11", fixtures.write("sen1floods11", tmp_path / "d"))
    measured = measure(read_items(dataset), classes=2)
    samples = list(dataset)
    stack = np.concatenate([grid_values(s.atoms, 1, (64, 64)).reshape(13, -1) for s in samples], axis=1)
    radar = np.concatenate([grid_values(s.atoms, 0, (64, 64)).reshape(2, -1) for s in samples], axis=1)
    everything = np.concatenate([radar, stack]).astype(np.float64)
    assert [c.name for c in measured.channels][:3] == ["VV", "VH", "B01"]
    for channel, count, row in zip(measured.channels, measured.counts, everything, strict=True):
        assert count == np.isfinite(row).sum()
        assert channel.mean == pytest.approx(np.nanmean(row), rel=1e-9)
        assert channel.std == pytest.approx(np.nanstd(row), rel=1e-9)
        assert (channel.min, channel.max) == (np.nanmin(row), np.nanmax(row))
    labels = np.concatenate([s.target.numpy() for s in samples])
    assert measured.classes == tuple(int((labels == k).sum()) for k in (0, 1, -1))
    assert measure(read_items(dataset, workers=2), classes=2) == measured


def test_they_go_through_a_file_into_a_checkpoint(tmp_path: Path) -> None:
    dataset = aio.datasets.create("sen1floods11", fixtures.write("sen1floods11", tmp_path / "d"))
    measured = measure(read_items(dataset), classes=2)
    measured.save(tmp_path / "stats.json")
    loaded = Statistics.load(tmp_path / "stats.json")
    assert loaded == measured
    aio.create_model("atomizer_io_tiny", channels=loaded.channels).save_pretrained(tmp_path / "model")
    assert aio.AtomizerIO.from_pretrained(tmp_path / "model").task_spec.channels == measured.channels
    (tmp_path / "stats.json").write_text("{}")
    with pytest.raises(DataError, match=r"stats\.json: is not a file of statistics"):
        Statistics.load(tmp_path / "stats.json")


def test_regression_targets_and_site_fields() -> None:
    atoms = points(1)
    target = np.array([1.0, np.nan, 3.0] * 50)
    sample = Sample.of_points(atoms, atoms.acquisitions[0].positions, target, Meta("a"))
    measured = measure([sample])
    assert measured.target == (2.0, 1.0) and measured.classes == ()
    logs = np.log1p(atoms.acquisitions[0].site_fields["intensity"].double().numpy())
    assert measured.fields["intensity"] == pytest.approx((logs.mean(), logs.std()), rel=1e-6)


def test_density_of_points(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    plots = rng.uniform(0, 20, (1600, 2)), rng.uniform(500, 520, (3200, 2))  # 4 and 8 a square metre
    assert points_per_m2(plots[0]) == 4 and points_per_m2(plots[1]) == 8
    assert points_per_m2(np.concatenate(plots)) == 6  # what lies between them does not count
    dataset = aio.datasets.create("dales", fixtures.write("dales", tmp_path / "d"))
    measured = measure(read_items(dataset), classes=8)
    densities = [points_per_m2(sample.atoms.acquisitions[0].positions.numpy()) for sample in dataset]
    assert measured.density == pytest.approx((np.mean(densities), np.std(densities)))
    measured.save(tmp_path / "stats.json")
    assert Statistics.load(tmp_path / "stats.json") == measured
