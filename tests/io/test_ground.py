"""Heights above a ground that is estimated from points alone: on any slope, with noise below, dense or sparse."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import atomizer_io as aio
from atomizer_io.errors import AtomsError
from atomizer_io.io import ground as ground_module
from atomizer_io.io.ground import LowestPoints, ground_of
from atomizer_io.io.point_clouds import read_point_cloud
from scenes import data_folder

FAR = np.array([870_000.0, 6_618_000.0, 180.0])


def village(points: int = 40_000, side: float = 80.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points (P, 3) of rolling land with houses of 8 m and trees, far from the origin, and their true heights."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, side, (2, points))
    height = np.zeros(points)
    for west, south, width, depth in ((10, 10, 30, 18), (55, 5, 12, 12), (40, 55, 22, 20)):
        height[(x > west) & (x < west + width) & (y > south) & (y < south + depth)] = 8.0
    for east, north in ((15, 60), (25, 65), (70, 35), (60, 40)):
        near = (np.hypot(x - east, y - north) < 5) & (rng.random(points) < 0.7)
        height[near] = rng.uniform(2, 12, int(near.sum()))
    land = 1.5 * np.sin(x / 25) + np.cos(y / 30) + rng.normal(0, 0.03, points)
    return np.stack([x, y, land + height], axis=1) + FAR, height


def tilted(xyz: np.ndarray, slope: float) -> np.ndarray:
    rise = slope * (0.8 * (xyz[:, 0] - FAR[0]) + 0.6 * (xyz[:, 1] - FAR[1]))
    return xyz + np.stack([np.zeros_like(rise), np.zeros_like(rise), rise], axis=1)


def test_houses_and_trees_stand_on_the_ground() -> None:
    xyz, truth = village()
    found = aio.height_above_ground(xyz)
    error = np.abs(found - truth)
    assert found.shape == truth.shape
    assert np.quantile(error[truth == 0], 0.95) < 0.3
    assert np.quantile(error[truth > 0], 0.95) < 0.6


@pytest.mark.parametrize("slope", [0.05, 0.1, 0.3, 0.6])
def test_a_slope_changes_no_height(slope: float) -> None:
    xyz, _ = village()
    change = np.abs(aio.height_above_ground(tilted(xyz, slope)) - aio.height_above_ground(xyz))
    assert np.quantile(change, 0.95) < 0.3


@pytest.mark.parametrize("depth", [2.0, 20.0])
@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_stray_points_below_ground_change_nothing(depth: float, slope: float) -> None:
    xyz, truth = village()
    xyz = tilted(xyz, slope)
    on_ground = np.flatnonzero(truth == 0)[[5, 700, 9000]]
    stray = xyz[on_ground] - [0, 0, depth]
    found = aio.height_above_ground(np.concatenate([xyz, stray]))
    assert np.abs(found[: len(xyz)] - aio.height_above_ground(xyz)).max() < 0.3
    assert np.abs(found[len(xyz) :] + depth).max() < 0.3


@pytest.mark.parametrize("code", [7, 18, 65, 66])
def test_points_of_noise_classes_never_count(code: int) -> None:
    xyz, truth = village()
    codes = np.where(truth > 0, 6, 2)
    below = xyz[(xyz[:, 0] - FAR[0] < 40) & (truth == 0)] - [0, 0, 3.0]  # far too many to be lonely
    codes = np.concatenate([codes, np.full(len(below), code)])
    found = aio.height_above_ground(np.concatenate([xyz, below]), codes)
    assert np.array_equal(found[: len(xyz)], aio.height_above_ground(xyz))
    assert np.abs(np.median(found[len(xyz) :]) + 3.0) < 0.1


@pytest.mark.parametrize("share", [2, 10, 50])
def test_sparse_clouds_have_the_same_ground(share: int) -> None:
    xyz, truth = village(60_000)
    found = aio.height_above_ground(xyz[::share])
    assert np.quantile(np.abs(found - truth[::share])[truth[::share] == 0], 0.9) < 0.5
    assert found[truth[::share] == 8].mean() > 7


def test_a_ditch_is_ground() -> None:
    xyz, truth = village()
    ditch = (np.abs(xyz[:, 1] - FAR[1] - 45) < 2.5) & (truth == 0)
    xyz[ditch, 2] -= 2.0
    assert np.abs(np.median(aio.height_above_ground(xyz)[ditch])) < 0.3


@pytest.mark.parametrize("width", [40, 80])
def test_a_wide_hall_is_no_ground(width: float) -> None:
    x, y = np.random.default_rng(0).uniform(0, 160, (2, 60_000))
    hall = (np.abs(x - 80) < width / 2) & (np.abs(y - 80) < width / 2)
    found = aio.height_above_ground(np.stack([x, y, 0.03 * x + 8.0 * hall], axis=1))
    assert found[hall].min() > 7 and np.quantile(np.abs(found[~hall]), 0.99) < 0.3


def test_hills_are_ground() -> None:
    x, y = np.random.default_rng(0).uniform(0, 200, (2, 100_000))
    found = aio.height_above_ground(np.stack([x, y, 10 * np.sin(x / 20) * np.sin(y / 20)], axis=1))
    assert np.quantile(np.abs(found), 0.99) < 0.4


def test_order_and_chunks_do_not_matter() -> None:
    xyz, _ = village(8000)
    whole = ground_of(*xyz.T)
    mixed = xyz[np.random.default_rng(1).permutation(len(xyz))]
    parts = LowestPoints()
    for some in np.array_split(mixed, 7):
        parts.add(*some.T)
    found = parts.ground()
    assert found is not None
    assert np.allclose(found.at(xyz[:, 0], xyz[:, 1]), whole.at(xyz[:, 0], xyz[:, 1]), atol=1e-3)


def test_memory_depends_on_the_area_not_on_the_points() -> None:
    def peak(chunks: int) -> int:
        tracemalloc.start()
        found = LowestPoints()
        for seed in range(chunks):
            found.add(*village(5000, seed=seed)[0].T)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(30) < 1.2 * peak(6)


@pytest.mark.parametrize(
    "xyz",
    [
        FAR[None] + 0.5,
        np.repeat(FAR[None], 50, axis=0),
        FAR + np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [300.0, 0.0, 0.0]]),
        FAR + np.linspace(0, 100, 400)[:, None] * [1.0, 0.0, 0.0],
    ],
    ids=["one point", "one place", "duplicates", "a line"],
)
def test_clouds_that_are_hardly_any(xyz: np.ndarray) -> None:
    assert np.abs(aio.height_above_ground(xyz)).max() < 1e-3


def test_a_line_down_a_slope_lies_on_the_ground() -> None:
    along = np.linspace(0, 100, 400)
    xyz = FAR + np.stack([along, np.zeros(400), 0.2 * along], axis=1)
    assert np.abs(aio.height_above_ground(xyz)).max() < 0.3


def test_a_pole_stands_as_high_as_it_is() -> None:
    xyz = np.repeat(FAR[None], 30, axis=0)
    xyz[:, 2] += np.linspace(0, 29, 30)
    assert np.allclose(aio.height_above_ground(xyz), np.linspace(0, 29, 30), atol=1e-3)


def test_no_points_have_no_heights() -> None:
    assert aio.height_above_ground(np.empty((0, 3))).shape == (0,)


def test_points_far_away_cost_nothing() -> None:
    xyz, _ = village()
    far = xyz[:1] + np.array([2e6, -3e6, 500.0])
    ground = ground_of(*np.concatenate([xyz, far]).T)
    assert ground.elevation.size < 20_000
    assert np.abs(ground.at(*xyz[:, :2].T) - ground_of(*xyz.T).at(*xyz[:, :2].T)).max() < 1e-3


def test_a_large_area_gets_larger_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground_module, "MOST_CELLS", 2000)
    xyz, truth = village()
    ground = ground_of(*xyz.T)
    assert ground.cell_m == 2.0
    assert np.median(np.abs(xyz[:, 2] - ground.at(*xyz[:, :2].T))[truth == 0]) < 0.3


@pytest.mark.parametrize(
    ("xyz", "expected"),
    [
        (np.zeros((3, 2)), r"points have shape \(3, 2\)"),
        (np.array([[0.0, 0.0, np.nan], [0.0, 0.0, 0.0]]), "1 of 2 points are not finite"),
    ],
)
def test_points_that_are_none(xyz: np.ndarray, expected: str) -> None:
    with pytest.raises(AtomsError, match=expected):
        aio.height_above_ground(xyz)


def real_clouds() -> list[Path]:
    folder = data_folder("lidar-hd")
    return sorted(folder.glob("tiles/*.laz"))


@pytest.mark.realdata
@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_real_tiles(slope: float) -> None:
    for path in real_clouds():
        cloud = read_point_cloud(path)
        z = cloud.z + slope * (cloud.x - cloud.x.mean())
        found = aio.height_above_ground(np.stack([cloud.x, cloud.y, z], axis=1))
        assert cloud.classification is not None
        assert np.quantile(np.abs(found[cloud.classification == 2]), 0.9) < 0.3, path
        assert found[cloud.classification == 6].mean() > 2, path
