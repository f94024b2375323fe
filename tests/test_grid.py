"""Grids: pixel centres row by row from the north-west corner, in metres."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from atomizer_io import AtomSet, Grid
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.errors import QueryError


def test_row_major_and_north_up() -> None:
    positions = Grid(2, 3, gsd_m=10.0).positions()
    assert positions.tolist() == [[-10.0, 5.0], [0.0, 5.0], [10.0, 5.0], [-10.0, -5.0], [0.0, -5.0], [10.0, -5.0]]
    assert positions.dtype == torch.float64


def test_an_odd_grid_has_a_pixel_at_its_centre() -> None:
    grid = Grid(3, 5, gsd_m=7.0, center_m=(100.0, -30.0))
    assert grid.positions().reshape(3, 5, 2)[1, 2].tolist() == [100.0, -30.0]


def test_pixels_need_not_be_square() -> None:
    grid = Grid(2, 2, gsd_m=(10.0, 30.0))
    assert grid.pixel_m == (10.0, 30.0)
    assert grid.positions().tolist() == [[-5.0, 15.0], [5.0, 15.0], [-5.0, -15.0], [5.0, -15.0]]


def test_shape_folds_positions_back_into_a_map() -> None:
    grid = Grid(4, 7, gsd_m=2.0)
    assert grid.shape == (4, 7)
    x, y = grid.positions().reshape(*grid.shape, 2).unbind(-1)
    assert bool((x.diff(dim=1) == 2.0).all()) and bool((x.diff(dim=0) == 0.0).all())
    assert bool((y.diff(dim=0) == -2.0).all()) and bool((y.diff(dim=1) == 0.0).all())


def test_far_frames_lose_no_precision() -> None:
    here = Grid(3, 3, gsd_m=0.25).positions()
    there = Grid(3, 3, gsd_m=0.25, center_m=(500_000.0, 5_000_000.0)).positions()
    assert torch.equal(there - torch.tensor([500_000.0, 5_000_000.0], dtype=torch.float64), here)


@pytest.mark.parametrize("gsd", [10.0, (5.0, 8.0)])
def test_same_frame_as_from_raster(gsd: float | tuple[float, float]) -> None:
    values = np.arange(12.0).reshape(1, 3, 4)
    (acquisition,) = AtomSet.from_raster(values, SENTINEL2.pick("B02"), gsd=gsd, center_m=(3.0, 4.0))
    grid = Grid(3, 4, gsd_m=gsd, center_m=(3.0, 4.0))
    assert torch.equal(acquisition.positions, grid.positions())
    assert acquisition.values.reshape(grid.shape).tolist() == values[0].tolist()


@pytest.mark.parametrize(("height", "width"), [(0, 3), (3, 0), (-1, 2)])
def test_a_grid_without_pixels(height: int, width: int) -> None:
    with pytest.raises(QueryError, match=f"at least one pixel, got height={height}, width={width}"):
        Grid(height, width)


WORDS = "gsd_m must be one positive number of metres, or two for x and y"


@pytest.mark.parametrize("gsd", [0.0, -10.0, (10.0, -10.0), (0.0, 1.0), float("nan"), (float("nan"), 1.0)])
def test_pixels_without_size(gsd: float | tuple[float, float]) -> None:
    with pytest.raises(QueryError, match=f"^{re.escape(f'{WORDS}; got {gsd}')}$"):
        Grid(2, 2, gsd_m=gsd)


@pytest.mark.parametrize("gsd", [(1.0, float("nan")), float("inf"), (1.0, float("inf"))])
def test_pixels_of_no_finite_size(gsd: float | tuple[float, float]) -> None:
    with pytest.raises(QueryError, match=f"^{re.escape(f'{WORDS}; got {gsd}')}$"):
        Grid(2, 2, gsd_m=gsd)


def test_positions_are_ones_own() -> None:
    grid = Grid(3, 4, gsd_m=10.0)
    before = grid.positions()
    grid.positions().add_(1)
    assert torch.equal(grid.positions(), before)
