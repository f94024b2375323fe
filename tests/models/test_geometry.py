"""Geometry against brute force: lattices, cells, neighbours and what a query sees. Ties go to the lowest index."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import atomizer_io as aio
from atomizer_io import AtomSet, Grid
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.errors import ConfigError
from atomizer_io.models.atomizer.geometry.anchors import HexLattice
from atomizer_io.models.atomizer.geometry.cells import Cells
from atomizer_io.models.atomizer.geometry.neighbors import seen_sites
from atomizer_io.models.atomizer.geometry.partition import Geometry, build_geometry
from atomizer_io.models.sites import TIE_M, colocated_sites, nearest_anchor, nearest_anchors

steady = settings(deadline=None, derandomize=True)
Bounds = tuple[float, float, float, float]


def distances(positions: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    return np.hypot(*(positions[:, None] - anchors[None]).transpose(2, 0, 1))


def brute_nearest(positions: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """The lowest index among all anchors within a micrometre of the smallest distance."""
    distance = distances(positions, anchors)
    return (distance <= distance.min(axis=1, keepdims=True) + TIE_M).argmax(axis=1)


def brute_neighbors(positions: np.ndarray, anchors: np.ndarray, k: int) -> np.ndarray:
    """Anchors in order of distance; runs of equal distance in order of index."""
    ranked = []
    for row in distances(positions, anchors):
        group, groups = 0, {}
        order = np.argsort(row, kind="stable")
        for before, index in zip([order[0], *order], order, strict=False):
            group += row[index] - row[before] > TIE_M
            groups[int(index)] = group
        ranked.append(sorted(groups, key=lambda index: (groups[index], index))[:k])
    return np.array(ranked)


def grid(height: int, width: int, gsd: float) -> np.ndarray:
    return Grid(height, width, gsd).positions().numpy()


# --- lattice ---


@st.composite
def boxes(draw: st.DrawFn) -> Bounds:
    size, aspect = draw(st.floats(1.0, 5000.0)), draw(st.floats(1 / 20, 20))
    x, y = draw(st.floats(-1000.0, 1000.0)), draw(st.floats(-1000.0, 1000.0))
    return (x, y, x + size * math.sqrt(aspect), y + size / math.sqrt(aspect))


@settings(steady, max_examples=150)
@given(bounds=boxes(), count=st.one_of(st.integers(1, 12), st.integers(1, 400)), seed=st.integers(0, 2**31))
@example(bounds=(0.0, 0.0, 640.0, 640.0), count=8, seed=0)  # corners where the second row reaches further out
@example(bounds=(0.0, 0.0, 195.0, 457.0), count=5, seed=0)  # a single column
def test_closed_form_finds_the_nearest_anchor(bounds: Bounds, count: int, seed: int) -> None:
    lattice = HexLattice.over(bounds, count)
    low, high = np.array(bounds[:2]), np.array(bounds[2:])
    anywhere = np.random.default_rng(seed).uniform(low, high, (200, 2))
    border = np.clip(anywhere + np.random.default_rng(seed).choice([-1, 1], (200, 2)) * (high - low), low, high)
    positions = np.concatenate([anywhere, border, anywhere * [1, 0] + border * [0, 1], lattice.anchors_L2])
    np.testing.assert_array_equal(lattice.nearest(positions), brute_nearest(positions, lattice.anchors_L2))


@settings(steady, max_examples=80)
@given(rows=st.integers(1, 24), columns=st.integers(1, 24), count=st.integers(1, 60), half=st.booleans())
def test_closed_form_resolves_ties_on_aligned_grids(rows: int, columns: int, count: int, half: bool) -> None:
    bounds = (-5.0 * columns, -5.0 * rows, 5.0 * columns, 5.0 * rows)
    lattice = HexLattice.over(bounds, count)
    step = np.array([lattice.step_x, lattice.step_y]) / (4 if half else 8)
    on_anchors = np.stack(np.meshgrid(*(np.arange(33) * s for s in step)), axis=-1).reshape(-1, 2) + bounds[:2]
    on_anchors = on_anchors[(on_anchors <= np.array(bounds[2:])).all(axis=1)]
    positions = np.concatenate([grid(rows, columns, 10.0), on_anchors])
    np.testing.assert_array_equal(lattice.nearest(positions), brute_nearest(positions, lattice.anchors_L2))


def test_aligned_grids_do_tie() -> None:
    lattice = HexLattice.over((-300.0, -300.0, 300.0, 300.0), 120)
    distance = np.sort(distances(grid(60, 60, 10.0), lattice.anchors_L2), axis=1)
    assert (distance[:, 1] - distance[:, 0] < TIE_M).mean() > 0.1


def test_lattice_and_tree_agree() -> None:
    lattice = HexLattice.over((-300.0, -300.0, 300.0, 300.0), 120)
    positions = grid(60, 60, 10.0)
    np.testing.assert_array_equal(lattice.nearest(positions), nearest_anchor(positions, lattice.anchors_L2))


RATIOS = (1.0, 1.3, 2.0, 4.0, 8.0, 20.0)


@pytest.mark.parametrize(
    ("low", "high", "ratios", "tolerance", "distortion"),
    [
        (50, 999, RATIOS[:4], 0.059, 1.38),
        (50, 199, RATIOS, 0.081, 1.72),
        (200, 999, RATIOS, 0.031, 1.33),
        (1000, 4000, RATIOS, 0.0151, 1.15),
    ],
)
def test_as_many_anchors_as_requested_on_regular_hexagons(
    low: int, high: int, ratios: tuple[float, ...], tolerance: float, distortion: float
) -> None:
    for ratio in ratios:
        for width, height in ((100 * ratio, 100.0), (100.0, 100 * ratio)):
            for count in range(low, high, 1 if high < 500 else 7):
                lattice = HexLattice.over((0.0, 0.0, width, height), count)
                assert abs(lattice.rows * lattice.columns - count) <= tolerance * count, (width, height, count)
                aspect = lattice.step_x * math.sqrt(3) / 2 / lattice.step_y
                assert 1 / distortion < aspect < distortion, (width, height, count)


def test_few_anchors_miss_by_three_at_most() -> None:
    for ratio in (1.0, 1.3, 2.0, 4.0):
        for count in range(1, 50):
            lattice = HexLattice.over((0.0, 0.0, 100 * ratio, 100.0), count)
            assert abs(lattice.rows * lattice.columns - count) <= (2 if count < 39 else 3), (ratio, count)


@settings(steady, max_examples=60)
@given(bounds=boxes(), count=st.integers(1, 2000))
def test_anchors_lie_inside_the_bounds(bounds: Bounds, count: int) -> None:
    lattice = HexLattice.over(bounds, count)
    anchors = lattice.anchors_L2
    assert len(anchors) == lattice.rows * lattice.columns >= 1
    assert (anchors > np.array(bounds[:2])).all() and (anchors < np.array(bounds[2:])).all()
    np.testing.assert_allclose(anchors.mean(axis=0), np.array(bounds).reshape(2, 2).mean(axis=0), atol=lattice.step_x)


@pytest.mark.parametrize("count", [2000, 500, 120])
def test_anchors_are_a_hexagonal_lattice(count: int) -> None:
    anchors = HexLattice.over((-2560.0, -2560.0, 2560.0, 2560.0), count).anchors_L2
    ideal = math.sqrt(2 * 5120.0**2 / (math.sqrt(3) * len(anchors)))
    inner = (np.abs(anchors) < 2560.0 - 2 * ideal).all(axis=1)
    six = np.sort(distances(anchors[inner], anchors), axis=1)[:, 1:7]
    assert inner.sum() > 10
    assert 0.8 * ideal < six.min() and six.max() < 1.25 * ideal
    assert six[:, 5].max() < np.sort(distances(anchors[inner], anchors), axis=1)[:, 7].min()


@pytest.mark.parametrize("bounds", [(3.0, 4.0, 3.0, 4.0), (0.0, 0.0, 100.0, 0.0), (0.0, 0.0, 0.0, 100.0)])
def test_lattice_over_a_point_or_a_line(bounds: Bounds) -> None:
    lattice = HexLattice.over(bounds, 5)
    assert np.isfinite(lattice.anchors_L2).all()
    assert lattice.nearest(np.array([bounds[:2]])).tolist() == [
        int(brute_nearest(np.array([bounds[:2]]), lattice.anchors_L2)[0])
    ]


# --- neighbours ---


@settings(steady, max_examples=60)
@given(count=st.integers(1, 120), k=st.integers(1, 12), seed=st.integers(0, 2**31))
def test_neighbors_on_a_lattice(count: int, k: int, seed: int) -> None:
    anchors = HexLattice.over((-300.0, -200.0, 300.0, 200.0), count).anchors_L2
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, len(anchors), (30, 2))
    positions = np.concatenate([anchors, anchors[pairs].mean(axis=1), rng.uniform(-400, 400, (30, 2))])
    result = nearest_anchors(positions, anchors, k)
    assert result.shape == (len(positions), min(k, len(anchors)))
    np.testing.assert_array_equal(np.sort(result), np.sort(brute_neighbors(positions, anchors, k)))


def test_neighbors_on_a_square_lattice_tie_often() -> None:
    anchors = np.random.default_rng(0).permutation(grid(9, 9, 10.0))
    centres, corners, edges = grid(9, 9, 10.0), grid(8, 8, 10.0), grid(9, 8, 10.0)
    positions = np.concatenate([centres, corners, edges])
    for k in (1, 2, 4, 9, 81):
        result, expected = nearest_anchors(positions, anchors, k), brute_neighbors(positions, anchors, k)
        np.testing.assert_array_equal(np.sort(result), np.sort(expected))
    np.testing.assert_array_equal(nearest_anchor(positions, anchors), brute_nearest(positions, anchors))


def test_neighbors_come_nearest_first_and_an_anchor_is_its_own() -> None:
    anchors = HexLattice.over((0.0, 0.0, 1000.0, 1000.0), 150).anchors_L2
    result = nearest_anchors(anchors, anchors, 9)
    assert result[:, 0].tolist() == list(range(len(anchors)))
    assert (np.diff(np.take_along_axis(distances(anchors, anchors), result, axis=1), axis=1) > -TIE_M).all()


@pytest.mark.parametrize("many", [10, 30])
def test_neighbors_all_at_one_distance(many: int) -> None:
    angle = np.arange(many) * 2 * np.pi / many
    circle = 50.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert nearest_anchors(np.zeros((1, 2)), circle, 9).tolist() == [list(range(9))]


# --- shifts ---


def image(values: np.ndarray | torch.Tensor, names: tuple[str, ...] = ("B02",), **options: object) -> AtomSet:
    return AtomSet.from_raster(values, SENTINEL2.pick(*names), **({"gsd": 10.0} | options))


@pytest.mark.parametrize("layout", ["hexagonal", "sites"])
@pytest.mark.parametrize("shift", [(5e6, 5e6), (-5e6, 4_999_999.0), (123456.7, 5e6 + 0.1)])
def test_shift_changes_no_assignment(layout: str, shift: tuple[float, float]) -> None:
    values = np.ones((1, 60, 60))  # the grid of test_aligned_grids_do_tie
    here = build_geometry(image(values), atoms_per_latent=30, layout=layout)
    there = build_geometry(image(values, center_m=shift), atoms_per_latent=30, layout=layout)
    queries = grid(60, 60, 10.0)
    assert torch.equal(here.cells[0].start_L1, there.cells[0].start_L1)
    assert torch.equal(here.cells[0].order_N, there.cells[0].order_N)
    torch.testing.assert_close(there.anchors_L2, here.anchors_L2, atol=1e-8, rtol=0)
    shifted = (queries + shift) - there.center_2.numpy()
    np.testing.assert_array_equal(
        np.sort(nearest_anchors(queries, here.anchors_L2.numpy(), 9)),
        np.sort(nearest_anchors(shifted, there.anchors_L2.numpy(), 9)),
    )


# --- what a query sees ---


def test_a_query_sees_the_pixel_around_it() -> None:
    sites = grid(4, 5, 10.0)
    offsets = np.array([[0.0, 0.0], [4.9, 0.0], [0.0, -4.9], [-4.9, 4.9], [4.9, 4.9]])
    queries = (sites[:, None] + offsets).reshape(-1, 2)
    seen = colocated_sites(queries, sites, np.ones(20, bool), (10.0, 10.0))
    assert seen.tolist() == np.repeat(np.arange(20), 5).tolist()


def test_edges_and_corners_belong_to_the_pixel_with_the_smaller_y_then_x() -> None:
    sites = grid(2, 2, 10.0)  # 0 1 above 2 3
    queries = np.array([[0.0, 0.0], [0.0, 7.0], [-7.0, 0.0], [7.0, 0.0], [10.0, 10.0], [-10.0, -10.0], [0.0, 10.0]])
    assert colocated_sites(queries, sites, np.ones(4, bool), (10.0, 10.0)).tolist() == [2, 0, 2, 3, 1, 2, 0]


def test_beyond_the_raster_nothing_is_seen() -> None:
    queries = np.array([[10.001, 0.0], [0.0, -10.001], [-10.5, 10.5]])
    assert colocated_sites(queries, grid(2, 2, 10.0), np.ones(4, bool), (10.0, 10.0)).tolist() == [-1, -1, -1]


def test_a_missing_pixel_shows_nothing() -> None:
    sites = grid(3, 3, 10.0)
    occupied = np.ones(9, bool)
    occupied[4] = False
    inside = np.array([[0.0, 0.0], [4.9, 0.0], [-4.9, 4.9]])
    assert colocated_sites(inside, sites, occupied, (10.0, 10.0)).tolist() == [-1, -1, -1]
    assert colocated_sites(np.array([[5.1, 0.0]]), sites, occupied, (10.0, 10.0)).tolist() == [5]
    removed = colocated_sites(np.array([[5.1, 0.0]]), sites[occupied], np.ones(8, bool), (10.0, 10.0))
    assert removed.tolist() == [4]  # the same pixel, by its number among those left


def test_points_are_seen_within_five_centimetres() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [1.08, 0.0]])
    queries = np.array([[0.0, 0.05], [0.036, 0.036], [0.03, 0.03], [0.0, 0.051], [1.03, 0.0], [1.05, 0.0], [0.5, 0.0]])
    assert colocated_sites(queries, points, np.ones(3, bool), (0.0, 0.0)).tolist() == [0, -1, 0, -1, 1, 2, -1]


def test_points_that_share_a_place_show_the_first_that_is_there() -> None:
    points = np.zeros((5, 2))
    assert colocated_sites(np.zeros((1, 2)), points, np.ones(5, bool), (0.0, 0.0)).tolist() == [0]
    assert colocated_sites(np.zeros((1, 2)), points, np.array([0, 0, 1, 0, 1], bool), (0.0, 0.0)).tolist() == [2]


def test_nothing_occupied_shows_nothing() -> None:
    assert colocated_sites(np.zeros((2, 2)), np.zeros((3, 2)), np.zeros(3, bool), (10.0, 10.0)).tolist() == [-1, -1]


def brute_seen(queries: np.ndarray, sites: np.ndarray, occupied: np.ndarray, footprint: tuple[float, float]) -> list:
    """Of the occupied pixels that contain a query: the smallest y, then x, then index."""
    seen = []
    for query in queries:
        inside = (np.abs(query - sites) <= np.array(footprint) / 2 + TIE_M).all(axis=1) & occupied
        rank = sorted((round(sites[i, 1], 5), round(sites[i, 0], 5), i) for i in np.flatnonzero(inside))
        seen.append(rank[0][2] if rank else -1)
    return seen


@settings(steady, max_examples=60)
@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 7),
    footprint=st.sampled_from([(10.0, 10.0), (10.0, 20.0), (0.3, 0.1), (7.0, 1 / 3)]),
    share=st.sampled_from([0.1, 0.4, 0.8, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_pixels_seen_do_not_depend_on_the_order_of_sites(
    rows: int, columns: int, footprint: tuple[float, float], share: float, seed: int
) -> None:
    """Against brute force with queries in, on the edges of, at the corners of and beside pixels, some missing."""
    rng = np.random.default_rng(seed)
    sites = rng.permutation(Grid(rows, columns, footprint).positions().numpy())
    sites = np.concatenate([sites, sites[: len(sites) // 3]])  # some sites twice
    occupied = rng.random(len(sites)) < share
    steps = np.stack(np.meshgrid(*(np.arange(-1, 2 * n + 2) for n in (columns, rows))), axis=-1).reshape(-1, 2)
    queries = (steps - [columns, rows]) * np.array(footprint) / 2
    queries = np.concatenate([queries, queries + rng.uniform(-0.4, 0.4, queries.shape) * footprint])
    assert colocated_sites(queries, sites, occupied, footprint).tolist() == brute_seen(
        queries, sites, occupied, footprint
    )


def test_sparse_pixels_obey_the_same_border_rule() -> None:
    """Far too few sites for a lattice of rows and columns: they are searched for."""
    steps = np.arange(12) * 50.0
    diagonal = np.stack([steps, steps], axis=1)
    sites = np.concatenate([diagonal + offset for offset in ([0.0, 0.0], [10.0, 0.0], [0.0, 10.0])])[::-1]
    queries = np.concatenate([diagonal + offset for offset in ([5.0, 0.0], [0.0, 5.0], [5.0, 5.0], [5.0, 8.0])])
    everywhere, footprint = np.ones(len(sites), bool), (10.0, 10.0)
    seen = colocated_sites(queries, sites, everywhere, footprint)
    assert seen.tolist() == brute_seen(queries, sites, everywhere, footprint)
    np.testing.assert_array_equal(sites[seen][:36], np.concatenate([diagonal] * 3))


def test_pixels_that_are_not_square_are_seen_to_their_edges() -> None:
    sites = Grid(2, 2, (10.0, 40.0)).positions().numpy()  # 0 1 above 2 3
    queries = np.array([[-9.9, 39.9], [9.9, 0.1], [0.1, -39.9], [10.1, 0.0], [0.0, 40.1]])
    assert colocated_sites(queries, sites, np.ones(4, bool), (10.0, 40.0)).tolist() == [0, 1, 3, -1, -1]


def test_rounding_of_sites_hides_no_pixel() -> None:
    """Columns half a micrometre from a whole one, with the noise of a coordinate transform."""
    sites = grid(4, 2, 10.0) + np.array([5e-7, 0.0])
    sites[:, 0] += 2e-10 * np.array([1, -1, -1, -1, 1, -1, -1, -1])
    queries = sites + np.where(sites[:, :1] < 0, 3.0, -3.0) * np.array([1.0, 0.0])
    assert colocated_sites(queries, sites, np.ones(8, bool), (10.0, 10.0)).tolist() == list(range(8))


def test_sites_are_looked_up_per_acquisition() -> None:
    coarse = AtomSet.from_raster(np.ones((1, 2, 2)), SENTINEL1.pick("VV"), gsd=20.0)
    points = AtomSet.from_points(np.array([[15.0, 15.0, 1.0]]))
    atoms = image(np.ones((1, 4, 4)), center_m=(0.0, 0.0)) + coarse + points
    queries = np.array([[-15.0, 15.0], [15.0, 15.0], [6.0, -14.0]])
    geometry = build_geometry(atoms, atoms_per_latent=10)
    assert seen_sites(queries, atoms, geometry, None, None)[0].tolist() == [[0, 0, -1], [3, 1, 0], [14, 3, -1]]
    named = seen_sites(queries, atoms, geometry, {1: torch.tensor([-1, 2, 0])}, None)[0]
    assert named.tolist() == [[0, -1, -1], [3, 2, 0], [14, 0, -1]]


def test_a_missing_pixel_that_is_not_square_shows_nothing() -> None:
    values = np.ones((1, 1, 5))
    values[0, 0, 2] = np.nan
    atoms = image(values, gsd=(10.0, 20.0))
    geometry = build_geometry(atoms, atoms_per_latent=10)
    queries = np.array([[0.0, 0.0], [4.0, 9.0], [10.0, 9.0]])
    assert seen_sites(queries, atoms, geometry, None, None)[0][:, 0].tolist() == [-1, -1, 3]


# --- cells ---


def mixed_scene(seed: int) -> AtomSet:
    """Two rasters with holes and a point cloud, some sites wholly absent."""
    rng = np.random.default_rng(seed)
    fine, coarse = rng.normal(size=(3, 7, 9)), rng.normal(size=(2, 4, 3))
    fine[rng.random(fine.shape) < 0.3] = np.nan
    fine[:, 2, 3:6] = np.nan
    coarse[rng.random(coarse.shape) < 0.2] = np.nan
    xyz = rng.uniform(-40, 40, (25, 3))
    xyz[::6, 2] = np.nan
    return (
        image(fine, ("B02", "B03", "B08"))
        + AtomSet.from_raster(coarse, SENTINEL1.pick("VV", "VH"), gsd=20.0)
        + AtomSet.from_points(xyz)
    )


def brute_atoms(atoms: AtomSet) -> list[tuple[int, int, np.ndarray]]:
    """(site, kind, position) of every atom in the natural order."""
    listed, site, first_kind = [], 0, 0
    for acquisition in atoms:
        for row, present in enumerate(acquisition.valid_mask().tolist()):
            for column, there in enumerate(present):
                if there:
                    listed.append((site, first_kind + column, acquisition.positions[row].numpy()))
            site += 1
        first_kind += len(acquisition.channels)
    return listed


def check_cells(cells: Cells, expected: list[list[int]], listed: list[tuple[int, int, np.ndarray]]) -> None:
    """Cells own the ``expected`` atoms, with the right site and kind, atoms of a site together."""
    start = cells.start_L1.tolist()
    assert start[0] == 0 and start == sorted(start) and len(start) == len(cells) + 1
    assert start[-1] == cells.order_N.numel() == cells.site_N.numel() == cells.kind_N.numel()
    for cell, owned in enumerate(expected):
        part = slice(start[cell], start[cell + 1])
        assert sorted(cells.order_N[part].tolist()) == owned
        assert cells.site_N[part].tolist() == [listed[i][0] for i in cells.order_N[part].tolist()]
        assert cells.kind_N[part].tolist() == [listed[i][1] for i in cells.order_N[part].tolist()]
        visits = cells.site_N[part].unique_consecutive().tolist()
        assert len(visits) == len(set(visits))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("layout", "anchors"),
    [
        ("hexagonal", None),
        ("sites", None),
        ("hexagonal", torch.tensor([[0.0, 0.0], [30.0, 10.0], [-30.0, 10.0], [900.0, 900.0]])),
    ],
)
def test_cells_own_every_atom_once(seed: int, layout: str, anchors: torch.Tensor | None) -> None:
    atoms = mixed_scene(seed)
    geometry = build_geometry(atoms, atoms_per_latent=12, layout=layout, anchors=anchors)
    listed = brute_atoms(atoms)
    assert len(listed) == atoms.num_atoms
    positions = np.stack([position for _, _, position in listed]) - geometry.center_2.numpy()
    owner = brute_nearest(positions, geometry.anchors_L2.numpy())
    expected = [np.flatnonzero(owner == cell).tolist() for cell in range(len(geometry.anchors_L2))]
    (cells,) = geometry.cells
    check_cells(cells, expected, listed)
    assert sorted(cells.order_N.tolist()) == list(range(len(listed)))
    assert cells.counts_L.tolist() == [len(owned) for owned in expected]


def test_time_steps_share_anchors_and_split_atoms() -> None:
    atoms = mixed_scene(3)
    geometry = build_geometry(atoms, atoms_per_latent=12, steps=[(1,), (0, 2)])
    listed, kinds = brute_atoms(atoms), [{3, 4}, {0, 1, 2, 5}]
    positions = np.stack([position for _, _, position in listed]) - geometry.center_2.numpy()
    owner = brute_nearest(positions, geometry.anchors_L2.numpy())
    expected = math.ceil(len(listed) / (2 * 12))
    assert abs(len(geometry.anchors_L2) - expected) <= 1
    for cells, kept in zip(geometry.cells, kinds, strict=True):
        expected = [
            [i for i, (_, kind, _) in enumerate(listed) if owner[i] == cell and kind in kept]
            for cell in range(len(geometry.anchors_L2))
        ]
        check_cells(cells, expected, listed)


def test_center_and_extent_of_a_scene() -> None:
    geometry = build_geometry(image(np.ones((1, 4, 6)), center_m=(1000.0, -500.0)), atoms_per_latent=4)
    assert geometry.center_2.tolist() == [1000.0, -500.0]
    assert geometry.extent_m == 60.0
    assert float(geometry.anchors_L2.abs().max()) < 30.0


@pytest.mark.parametrize("kappa", [20, 40, 64, 100])
def test_number_of_latents_follows_kappa(kappa: int) -> None:
    geometry = build_geometry(image(np.ones((2, 64, 64)), ("B02", "B03")), atoms_per_latent=kappa)
    assert len(geometry.anchors_L2) == pytest.approx(math.ceil(2 * 64 * 64 / kappa), rel=0.055)


@pytest.mark.parametrize(("side", "latents"), [(1, 1), (3, 9), (8, 64), (20, 64)])
def test_a_small_scene_of_one_label_has_latents_of_its_own_for_its_places(side: int, latents: int) -> None:
    atoms = aio.AtomSet.from_raster(torch.rand(6, side, side), SENTINEL2.channels[:6], 20.0)
    scene = aio.create_model("atomizer_io_tiny", task="classification")
    assert abs(len(scene.geometry(atoms).anchors_L2) - latents) <= 0.1 * latents  # as nearly as a lattice allows
    named = scene.geometry(atoms, atoms_per_latent=6 * side**2)
    assert len(named.anchors_L2) == 1  # who names κ gets that many
    part_of_a_map = aio.create_model("atomizer_io_tiny", task="segmentation").geometry(atoms)
    assert len(part_of_a_map.anchors_L2) <= -(-6 * side**2 // scene.config.atoms_per_latent) + 1


def test_more_atoms_than_kappa_by_one_need_a_second_latent() -> None:
    assert len(build_geometry(image(np.ones((1, 1, 8))), atoms_per_latent=8).anchors_L2) == 1
    assert len(build_geometry(image(np.ones((1, 1, 9))), atoms_per_latent=8).anchors_L2) == 2


def test_one_latent_per_site() -> None:
    values = np.ones((2, 3, 4))
    values[:, 1, 1] = np.nan
    values[0, 0, 0] = np.nan
    atoms = image(values, ("B02", "B03"))
    geometry = build_geometry(atoms + atoms, atoms_per_latent=10**6, layout="sites")
    (cells,) = geometry.cells
    assert len(geometry.anchors_L2) == 11  # both acquisitions have the same sites; the empty one has no latent
    assert sorted(cells.counts_L.tolist()) == [2] + [4] * 10
    positions = torch.cat([acquisition.positions for acquisition in atoms + atoms])
    owner = torch.repeat_interleave(torch.arange(len(cells)), cells.counts_L)
    torch.testing.assert_close(geometry.anchors_L2[owner] + geometry.center_2, positions[cells.site_N.long()])


def test_anchors_of_the_user_are_in_the_frame_of_the_atoms() -> None:
    anchors = torch.tensor([[995.0, -500.0], [1005.0, -500.0], [1200.0, -500.0]])
    geometry = build_geometry(image(np.ones((1, 2, 2)), center_m=(1000.0, -500.0)), atoms_per_latent=1, anchors=anchors)
    assert geometry.anchors_L2.tolist() == [[-5.0, 0.0], [5.0, 0.0], [200.0, 0.0]]
    (cells,) = geometry.cells
    assert cells.start_L1.tolist() == [0, 2, 4, 4]
    assert cells.order_N.tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize(
    ("anchors", "words"),
    [
        (torch.zeros(3), r"anchors have shape \(3,\), expected \(latents, 2\) in metres"),
        (torch.zeros(3, 3), r"\(3, 3\), expected \(latents, 2\)"),
        (torch.zeros(0, 2), "at least one"),
        (torch.tensor([[0.0, 0.0], [0.0, math.nan]]), "anchor 1 is not finite"),
    ],
)
def test_anchors_that_cannot_be(anchors: torch.Tensor, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_geometry(image(np.ones((1, 2, 2))), atoms_per_latent=1, anchors=anchors)


def test_cells_of_several_scenes_as_one() -> None:
    parts = [build_geometry(mixed_scene(seed), atoms_per_latent=20).cells[0] for seed in (0, 1)]
    firsts = [100, 500], [10, 90], [0, 6]
    joined = Cells.concatenate(parts, *firsts)
    assert joined.counts_L.tolist() == [*parts[0].counts_L.tolist(), *parts[1].counts_L.tolist()]
    for name, (first, second) in zip(("order_N", "site_N", "kind_N"), firsts, strict=True):
        expected = [getattr(parts[0], name) + first, getattr(parts[1], name) + second]
        assert torch.equal(getattr(joined, name), torch.cat(expected))


# --- sampling ---


def uneven_cells(counts: tuple[int, ...] = (7, 0, 30, 5, 1, 12)) -> Cells:
    total = sum(counts)
    return Cells(
        start_L1=torch.tensor([0, *np.cumsum(counts)]),
        order_N=torch.randperm(total, generator=torch.Generator().manual_seed(0)),
        site_N=torch.arange(total) // 2,
        kind_N=torch.arange(total) % 2,
    )


def members(cells: Cells) -> list[list[tuple[int, int, int]]]:
    rows = list(zip(cells.order_N.tolist(), cells.site_N.tolist(), cells.kind_N.tolist(), strict=True))
    start = cells.start_L1.tolist()
    return [rows[a:b] for a, b in itertools.pairwise(start)]


@settings(steady, max_examples=60)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    budget=st.integers(1, 45),
    seed=st.integers(0, 2**31),
)
def test_sample_draws_the_budget_from_each_cell(counts: list[int], budget: int, seed: int) -> None:
    cells = uneven_cells(tuple(counts))
    sampled = cells.sample(budget, torch.Generator().manual_seed(seed))
    assert sampled.counts_L.tolist() == [min(budget, count) for count in counts]
    for kept, all_of_it in zip(members(sampled), members(cells), strict=True):
        assert len(set(kept)) == len(kept)
        assert set(kept) <= set(all_of_it)
        if len(all_of_it) <= budget:
            assert kept == all_of_it  # whole cells are untouched, order and all


@settings(steady, max_examples=30)
@given(
    counts=st.lists(st.integers(0, 300), min_size=1, max_size=8).filter(any),
    budget=st.integers(1, 60),
    seed=st.integers(0, 2**31),
)
def test_a_sample_keeps_the_lowest_draws_of_each_full_cell(counts: list[int], budget: int, seed: int) -> None:
    cells = uneven_cells(tuple(counts))
    sampled = cells.sample(budget, torch.Generator().manual_seed(seed))
    crowded = sum(count for count in counts if count > budget)
    draws = iter(torch.rand(crowded, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist())
    for kept, all_of_it in zip(members(sampled), members(cells), strict=True):
        if len(all_of_it) > budget:
            draw = {atom: next(draws) for atom in all_of_it}
            assert set(kept) == set(sorted(all_of_it, key=lambda atom: draw[atom])[:budget])


def test_same_seed_same_draw() -> None:
    cells = uneven_cells()
    draws = [cells.sample(5, torch.Generator().manual_seed(seed)).order_N for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_one_generator_draws_afresh_each_time() -> None:
    cells, generator = uneven_cells(), torch.Generator().manual_seed(1)
    assert not torch.equal(cells.sample(5, generator).order_N, cells.sample(5, generator).order_N)


def test_a_budget_that_suffices_changes_nothing() -> None:
    cells = uneven_cells()
    assert cells.sample(30) is cells


def test_every_atom_is_drawn_as_often() -> None:
    cells, generator, draws = uneven_cells((20, 8)), torch.Generator().manual_seed(3), 2000
    hits = torch.zeros(28)
    for _ in range(draws):
        hits[cells.sample(5, generator).order_N] += 1
    share = torch.tensor([5 / 20] * 20 + [5 / 8] * 8)
    deviation = (hits[cells.order_N] - draws * share) ** 2 / (draws * share * (1 - share))
    assert float(deviation.mean()) < 2.0  # about 1 for a uniform sample
    assert float(deviation.max()) < 16.0


# --- segments and blocks ---


@settings(steady, max_examples=60)
@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=10),
    longest=st.integers(1, 70),
    slots=st.integers(1, 300),
)
def test_segments_and_blocks_cover_each_atom_once(counts: list[int], longest: int, slots: int) -> None:
    cells = uneven_cells(tuple(counts))
    segments = cells.segments(longest)
    covered = []
    listed = torch.stack([segments.cell_G, segments.begin_G, segments.length_G], dim=1).tolist()
    for cell, begin, length in listed:
        assert 1 <= length <= longest
        assert cells.start_L1[cell] <= begin and begin + length <= cells.start_L1[cell + 1]
        covered += range(begin, begin + length)
    assert covered == list(range(sum(counts)))
    assert segments.cell_G.tolist() == sorted(segments.cell_G.tolist())

    visited, atoms = [], []
    for chosen, index, mask in segments.blocks(slots):
        assert index.shape == mask.shape == (len(chosen), int(segments.length_G[chosen].max()))
        assert mask.numel() <= slots or len(chosen) == 1
        assert mask.sum(dim=1).tolist() == segments.length_G[chosen].tolist()
        assert index.min() >= 0 and index.max() < sum(counts)  # padding points at atoms that exist
        for segment, row, present in zip(chosen.tolist(), index, mask, strict=True):
            begin = int(segments.begin_G[segment])
            assert row[present].tolist() == list(range(begin, begin + int(present.sum())))
        visited += chosen.tolist()
        atoms += index[mask].tolist()
    assert sorted(visited) == list(range(len(segments.cell_G)))
    assert sorted(atoms) == list(range(sum(counts)))


def test_segments_are_nearly_equal() -> None:
    segments = uneven_cells((25, 0, 10, 11)).segments(10)
    assert segments.cell_G.tolist() == [0, 0, 0, 2, 3, 3]
    assert sorted(segments.length_G.tolist()) == [5, 6, 8, 8, 9, 10]


def test_geometry_is_deterministic() -> None:
    def once() -> Geometry:
        return build_geometry(mixed_scene(5), atoms_per_latent=9)

    first, second = once(), once()
    assert torch.equal(first.anchors_L2, second.anchors_L2)
    assert torch.equal(first.cells[0].order_N, second.cells[0].order_N)


def test_sites_on_a_line() -> None:
    line = np.stack([np.linspace(0, 590, 60), np.zeros(60), np.linspace(0, 5, 60)], axis=1)
    transect = AtomSet.from_points(line)
    geometry = build_geometry(transect, atoms_per_latent=10)
    assert len(geometry.anchors_L2) == 6
    assert geometry.cells[0].counts_L.tolist() == [10] * 6
