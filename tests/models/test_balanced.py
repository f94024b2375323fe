"""Balanced anchors: cells of about κ atoms whatever the density, in two and three dimensions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import atomizer_io as aio
from atomizer_io.models.atomizer.geometry.balanced import balanced_cells
from atomizer_io.models.atomizer.geometry.partition import build_geometry
from scenes import SMALL, points, raster

HIGH = {"layout": "balanced", "dimensions": 3}


def model_of(**changes: object) -> aio.AtomizerIO:
    torch.manual_seed(0)
    return aio.create_model("atomizer_io_tiny", **(SMALL | {"layout": "balanced"} | changes)).eval()


def uneven(axes: int, count: int = 20_000) -> np.ndarray:
    """Points whose density differs by many orders of magnitude."""
    return np.random.default_rng(axes).normal(size=(count, axes)) ** 5


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 64, 100])
def test_every_cell_has_its_share_however_uneven_the_density(axes: int, count: int) -> None:
    cell_S, anchors_LX = balanced_cells(uneven(axes), np.ones(20_000, dtype=np.int64), count)
    sizes = np.bincount(cell_S)
    assert anchors_LX.shape == (count, axes)
    assert 20_000 / count - 8 < sizes.min() <= sizes.max() < 20_000 / count + 8


def test_atoms_are_balanced_not_sites() -> None:
    positions = uneven(2)
    atoms_S = np.where(positions[:, 0] > 0, 13, 1)
    cell_S, _ = balanced_cells(positions, atoms_S, 80)
    sizes = np.bincount(cell_S, weights=atoms_S)
    share = atoms_S.sum() / 80
    assert 0.9 * share < sizes.min() <= sizes.max() < 1.1 * share


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(2, 3), st.integers(0, 10**6))
def test_cells_are_all_used_and_anchors_are_their_means(sites: int, count: int, axes: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    positions = generator.integers(0, 6, (sites, axes)) * 2.5  # many share a coordinate, or a place
    atoms_S = generator.integers(1, 5, sites)
    cell_S, anchors_LX = balanced_cells(positions, atoms_S, count)
    assert len(anchors_LX) <= min(count, sites)
    assert sorted(set(cell_S.tolist())) == list(range(len(anchors_LX)))
    for cell, anchor in enumerate(anchors_LX):
        mine = cell_S == cell
        np.testing.assert_allclose(anchor, np.average(positions[mine], axis=0, weights=atoms_S[mine]), atol=1e-9)


def test_cells_do_not_overlap() -> None:
    """Parts of a plane cut along its axes: boxes that meet at most at their borders, to a micrometre."""
    positions = uneven(2, 500)
    cell_S, anchors_LX = balanced_cells(positions, np.ones(500, dtype=np.int64), 20)
    boxes = [(positions[cell_S == cell].min(axis=0), positions[cell_S == cell].max(axis=0)) for cell in range(20)]
    for i, (low, high) in enumerate(boxes):
        assert not any(((low < top - 2e-6) & (bottom < high - 2e-6)).all() for bottom, top in boxes[i + 1 :])
        assert (low <= anchors_LX[i]).all() and (anchors_LX[i] <= high).all()


def test_the_order_of_sites_does_not_matter_on_a_grid() -> None:
    grid = aio.Grid(24, 24, 10.0).positions().numpy()  # every coordinate is shared by 24 sites
    mixed = np.random.default_rng(0).permutation(len(grid))
    cell_S, anchors_LX = balanced_cells(grid, np.ones(len(grid), dtype=np.int64), 30)
    other_S, others_LX = balanced_cells(grid[mixed], np.ones(len(grid), dtype=np.int64), 30)
    np.testing.assert_array_equal(other_S, cell_S[mixed])
    np.testing.assert_allclose(others_LX, anchors_LX, atol=1e-9)


def test_points_at_one_place_and_a_single_point() -> None:
    cell_S, anchors_LX = balanced_cells(np.full((90, 3), 4.0), np.ones(90, dtype=np.int64), 3)
    assert np.bincount(cell_S).tolist() == [30, 30, 30]
    np.testing.assert_allclose(anchors_LX, 4.0)
    model = model_of(**HIGH)
    for cloud in (points(1, count=1), points(1, count=200, extent=0.0)):
        where = cloud.acquisitions[0].positions
        answer = model([cloud], [where], sites=[{0: torch.arange(len(where))}])[0]
        assert answer.shape == (len(where), 3) and answer.isfinite().all()


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("shift", [(0.0, 0.0), (650_000.3, 6_860_000.7)])
def test_a_shifted_scene_has_the_same_cells(dimensions: int, shift: tuple[float, float]) -> None:
    cloud = points(3, count=800)
    moved = aio.AtomSet(tuple(replace(a, positions=a.positions + torch.tensor(shift)) for a in cloud))
    here, there = (
        build_geometry(atoms, atoms_per_latent=20, layout="balanced", dimensions=dimensions) for atoms in (cloud, moved)
    )
    torch.testing.assert_close(there.anchors_LX, here.anchors_LX, atol=1e-6, rtol=0)
    assert torch.equal(there.cells[0].order_N, here.cells[0].order_N)


def test_a_cloud_and_an_image_share_cells_of_kappa_atoms() -> None:
    atoms = points(3, count=1500) + raster(4, size=(20, 20), gsd=2.5)
    cells = model_of(atoms_per_latent=50).geometry(atoms).cells[0]
    assert len(cells) == -(-atoms.num_atoms // 50)
    assert int(cells.counts_L.min()) >= 25 and int(cells.counts_L.max()) <= 100


def test_time_steps_share_their_anchors() -> None:
    series = points(3, count=600, day_of_year=10) + points(4, count=600, day_of_year=50)
    geometry = model_of(temporal=True, atoms_per_latent=30).geometry(series)
    assert geometry.anchors_LX.shape == (20, 2)
    assert [len(cells) for cells in geometry.cells] == [20, 20]
    both = sum(cells.counts_L for cells in geometry.cells)
    assert 55 <= int(both.min()) <= int(both.max()) <= 65


@pytest.mark.parametrize("layout", [{}, {"dimensions": 3}])
def test_a_limit_on_points_keeps_cells_balanced(layout: dict[str, int]) -> None:
    model, cloud = model_of(atoms_per_latent=100, max_points=5000, **layout), points(3, count=20_000)
    cells = model.encode([cloud]).geometries[0].cells[0]
    assert len(cells) == 50 and int(cells.start_L1[-1]) == 5000
    assert 50 < int(cells.counts_L.min()) <= int(cells.counts_L.max()) < 150
