"""The few lines that say what was understood of some samples, as ``train`` and ``data check`` print them."""

from __future__ import annotations

import datetime

import numpy as np

import atomizer_io as aio
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL1
from atomizer_io.datasets.summary import Summary
from scenes import points, raster


def sample(atoms: aio.AtomSet) -> Sample:
    return Sample.of_map(atoms, aio.Grid(9, 7, 10.0), np.zeros((9, 7), int), Meta("a"))


def summary(*samples: Sample) -> Summary:
    total = Summary()
    assert list(total.watch(samples)) == list(samples)
    return total


def test_one_line_for_each_sensor() -> None:
    radar = raster(3, SENTINEL1, ("VV", "VH"), day=101)
    total = summary(sample(raster(1) + radar), sample(raster(2, day=130) + raster(2, day=150)))
    assert total.lines() == [
        "Inspected 2 samples with 63 queries each",
        "sentinel2: 3 channels (B02, B03, B08), pixels of 10 m, 63 … 126 sites a sample, 1 … 2 dates a sample "
        "(day 100 … day 150), in 2 of 2 samples",
        "sentinel1: 2 channels (VV, VH), pixels of 10 m, 63 sites a sample, 1 dates a sample (day 101), "
        "in 1 of 2 samples",
    ]
    assert total.days == {100.0, 101.0, 130.0, 150.0} and total.several_days
    assert not summary(sample(raster(1) + radar)).several_days


def test_points_and_dates_with_a_year() -> None:
    (text,) = summary(Sample.of_scene(points(3), 1, Meta("p"))).sensor_lines()
    assert text.startswith("lidar: elevation, points, ") and text.endswith("in 1 of 1 samples")
    dated = [sample(raster(i, day=datetime.date(2021 + i, 7, 4))) for i in range(2)]
    assert "1 dates a sample (2021-07-04 … 2022-07-04)" in summary(*dated).lines()[1]
    assert "no dates" in summary(sample(raster(1, day=None))).lines()[1]
