"""Atoms on a grid: every value lies where its site lies, and what is absent is zero and marked."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import LIDAR
from atomizer_io.errors import AtomsError, ConfigError
from atomizer_lab.baselines import rasterise as module
from atomizer_lab.baselines.rasterise import grid_over, pixels_of, rasterise

PLAIN = {"mean": 0.0, "std": 1.0}


def channel(name: str, **more: float) -> Channel:
    return Channel("drone", name, **{**PLAIN, **more})


def test_values_lie_where_their_pixels_lie() -> None:
    values = np.arange(12.0).reshape(1, 3, 4)
    atoms = aio.AtomSet.from_raster(values, [channel("a")], 10.0, center_m=(500.0, -200.0))
    raster = rasterise(atoms, [channel("a")])
    assert raster.grid == aio.Grid(3, 4, (10.0, 10.0), (500.0, -200.0))
    assert torch.equal(raster.values_TCHW[0, 0], torch.from_numpy(values[0]).float())
    assert raster.present_TCHW.all()


def test_absent_values_are_zero_and_marked_and_others_standardised() -> None:
    values = np.array([[[10.0, np.nan], [14.0, 6.0]]])
    known = [channel("b"), channel("a", mean=10.0, std=2.0)]
    raster = rasterise(aio.AtomSet.from_raster(values, [channel("a")], 10.0), known)
    assert raster.values_TCHW[0, 1].tolist() == [[0.0, 0.0], [2.0, -2.0]]
    assert raster.present_TCHW[0, 1].tolist() == [[True, False], [True, True]]
    assert not raster.present_TCHW[0, 0].any() and not raster.values_TCHW[0, 0].any()


def test_coarse_pixels_are_repeated_on_the_finest_grid() -> None:
    fine = aio.AtomSet.from_raster(np.zeros((1, 4, 4)), [channel("a")], 10.0)
    coarse = aio.AtomSet.from_raster(np.array([[[1.0, 2.0], [3.0, 4.0]]]), [channel("b")], 20.0)
    raster = rasterise(coarse + fine, [channel("a"), channel("b")])
    assert raster.grid.shape == (4, 4)
    expected = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).repeat_interleave(2, 0).repeat_interleave(2, 1)
    assert torch.equal(raster.values_TCHW[0, 1], expected)


def test_fine_pixels_and_points_are_averaged_on_a_coarser_grid() -> None:
    values = np.arange(16.0).reshape(1, 4, 4)
    atoms = aio.AtomSet.from_raster(values, [channel("a")], 10.0)
    raster = rasterise(atoms, [channel("a")], gsd_m=20.0)
    assert raster.values_TCHW.tolist() == [[[[2.5, 4.5], [10.5, 12.5]]]]  # means of 2 × 2 pixels
    points = np.array([[0.1, 0.1, 5.0], [0.2, 0.3, 7.0], [1.6, 0.2, 1.0]])
    cloud = aio.AtomSet.from_points(points, datum_m=0.0)
    bare = [Channel(c.sensor, c.name, **PLAIN) for c in LIDAR.channels]
    result = rasterise(cloud, bare)
    assert result.grid.pixel_m == (1.0, 1.0)
    assert sorted(result.values_TCHW[result.present_TCHW].tolist()) == [1.0, 6.0]


def test_each_date_is_a_step() -> None:
    first = aio.AtomSet.from_raster(np.full((1, 2, 2), 1.0), [channel("a")], 10.0, 200)
    second = aio.AtomSet.from_raster(np.full((1, 2, 2), 2.0), [channel("a")], 10.0, 100)
    undated = aio.AtomSet.from_raster(np.full((1, 2, 2), 3.0), [channel("b")], 10.0)
    raster = rasterise(first + second + undated, [channel("a"), channel("b")])
    assert raster.day_T[:2].tolist() == [100.0, 200.0] and bool(raster.day_T[2].isnan())
    assert raster.values_TCHW[:, 0, 0, 0].tolist() == [2.0, 1.0, 0.0]
    assert raster.values_TCHW[:, 1, 0, 0].tolist() == [0.0, 0.0, 3.0]


def test_queries_find_their_pixel_and_the_grid_grows_for_them() -> None:
    atoms = aio.AtomSet.from_raster(np.arange(4.0).reshape(1, 2, 2), [channel("a")], 10.0)
    where = torch.tensor([[-5.0, 5.0], [4.9, -9.9], [25.0, 5.0]], dtype=torch.float64)
    raster = rasterise(atoms, [channel("a")], around=where)
    assert raster.grid.shape == (2, 4)
    values, present = raster.values_TCHW.flatten(), raster.present_TCHW.flatten()
    pixels = pixels_of(raster.grid, where)
    assert values[pixels].tolist() == [0.0, 3.0, 0.0] and present[pixels].tolist() == [True, True, False]


def test_the_same_day_of_two_years_is_two_steps_and_two_swaths_of_a_day_are_one() -> None:
    def on(value: float, day: str, x: float = 0.0) -> aio.AtomSet:
        return aio.AtomSet.from_raster(np.full((1, 2, 2), value), [channel("a")], 10.0, day, center_m=(x, 0.0))

    years = rasterise(on(1.0, "2019-07-04") + on(3.0, "2021-07-04"), [channel("a")])
    assert years.values_TCHW[:, 0, 0, 0].tolist() == [1.0, 3.0] and float(years.mean_over_time()[0, 0, 0]) == 2.0
    swaths = rasterise(on(1.0, "2021-07-04") + on(3.0, "2021-07-04", 10.0), [channel("a")])
    assert swaths.values_TCHW[0, 0, 0].tolist() == [1.0, 2.0, 3.0]  # both in the middle


def test_what_cannot_be_put_on_a_grid_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    atoms = aio.AtomSet.from_raster(np.zeros((1, 2, 2)), [channel("a")], 10.0)
    with pytest.raises(AtomsError, match="'a' of drone has no mean and std"):
        bare = Channel("drone", "a")
        rasterise(aio.AtomSet.from_raster(np.zeros((1, 2, 2)), [bare], 10.0), [bare])
    with pytest.raises(AtomsError, match="nothing to put on a grid"):
        grid_over(aio.AtomSet())
    monkeypatch.setattr(module, "MOST_NUMBERS", 3)
    with pytest.raises(ConfigError, match="give the model a larger gsd_m"):
        rasterise(atoms, [channel("a")])
