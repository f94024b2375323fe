"""What counts as a time step, and when it was."""

from __future__ import annotations

import datetime

import pytest
import torch

import atomizer_io as aio
from atomizer_io.errors import AtomsError
from atomizer_io.models.atomizer.temporal import time_steps
from scenes import SMALL, points, raster


def test_dates_keep_their_year() -> None:
    dates = [datetime.date(2018, 12, 20), datetime.date(2019, 1, 5), datetime.date(2019, 12, 20)]
    series = sum((raster(i, day=date) for i, date in reversed(list(enumerate(dates)))), aio.AtomSet())
    steps, days = time_steps(series)
    assert steps == [(2,), (1,), (0,)]
    assert (days - days[0]).tolist() == [0.0, 16.0, 365.0]
    assert days[0] + days[-1] == 0
    assert series.acquisitions[0].day_of_year == series.acquisitions[2].day_of_year == 354


def test_sensors_of_one_day_are_one_step() -> None:
    series = raster(1, day=10) + raster(2, day=40) + raster(3, day=10)
    assert time_steps(series)[0] == [(0, 2), (1,)]


def test_numbered_steps_take_their_days_from_what_is_dated() -> None:
    series = raster(1, day=10, timestep=0) + raster(2, day=14, timestep=0) + raster(3, day=52, timestep=1)
    steps, days = time_steps(series)
    assert steps == [(0, 1), (2,)]
    assert days.tolist() == [-20.0, 20.0]


def test_what_has_no_date_stands_in_the_middle() -> None:
    steps, days = time_steps(raster(1, day=10) + points(2) + raster(3, day=70))
    assert steps == [(1,), (0,), (2,)]
    assert days.tolist() == [0.0, -30.0, 30.0]


def test_a_series_without_dates_follows_its_numbers() -> None:
    steps, days = time_steps(raster(1, day=None, timestep=7) + raster(2, day=None, timestep=3))
    assert steps == [(1,), (0,)]
    assert days.tolist() == [-15.0, 15.0]


def test_a_mixed_series_is_refused() -> None:
    with pytest.raises(AtomsError, match=r"acquisition 1 \(sentinel2\) has no timestep while others have"):
        time_steps(raster(1, timestep=0) + raster(2))
    with pytest.raises(AtomsError, match=r"acquisition 1 \(sentinel2\) has no date while others have"):
        time_steps(raster(1, day=datetime.date(2020, 5, 1)) + raster(2, day=130))


def test_every_parameter_takes_part_whatever_the_sensors() -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL, temporal=True)
    out = model([raster(1, holes=0.2)], [torch.zeros(2, 2)])[0]
    out.sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_with_the_residual_latents_are_counted_over_the_series_and_their_mean_passes() -> None:
    series = raster(1, day=100) + raster(2, day=150) + raster(3, day=200)
    plain, repaired = (
        aio.create_model("atomizer_io_tiny", **SMALL, temporal=True, temporal_residual=residual, least_latents=1).eval()
        for residual in (False, True)
    )
    kappa = series.num_atoms // 9
    assert len(repaired.geometry(series, atoms_per_latent=kappa).anchors_L2) >= 2 * len(
        plain.geometry(series, atoms_per_latent=kappa).anchors_L2
    )
    aggregator, h_TLD, days = repaired.temporal, torch.randn(3, 5, SMALL["width"]), torch.tensor([-50.0, 0.0, 50.0])
    for layer in (aggregator.attention.out, aggregator.feedforward.down):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    with torch.no_grad():
        torch.testing.assert_close(aggregator(h_TLD, days), h_TLD.mean(dim=0) + aggregator.token.expand(5, -1))
