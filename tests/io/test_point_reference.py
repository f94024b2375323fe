"""The ground and the ranks of intensity of a whole point cloud, gathered in passes, for any part of it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io import point_clouds
from atomizer_io.io.ground import height_above_ground
from atomizer_io.io.point_atoms import point_cloud_atoms
from atomizer_io.io.point_clouds import PointCloud, read_point_cloud
from atomizer_io.io.point_reference import PointCloudReference
from data import fractal

write_laz = functools.partial(fractal.write_laz, standard_time=True)


def table(count: int = 3000, seed: int = 0, **more: Any) -> dict[str, np.ndarray]:
    """Points of a slope of 20 % with a flat-roofed house of 6 m."""
    rng = np.random.default_rng(seed)
    x, y = np.round(rng.uniform(0, 60, (2, count)), 2)
    house = (np.abs(x - 30) < 8) & (np.abs(y - 30) < 8)
    return {
        "x": 500_000 + x,
        "y": 4_000_000 + y,
        "z": np.round(100 + 0.2 * x + 6 * house, 2),
        "intensity": rng.integers(1, 3000, count).astype(np.uint16),
        "number_of_returns": np.ones(count, np.uint8),
        "return_number": np.ones(count, np.uint8),
        "classification": np.where(house, 6, 2).astype(np.uint8),
    } | more


def ranks(values: np.ndarray) -> np.ndarray:
    """The share of weaker returns and half of the equal ones, the slow way."""
    return np.array([(values < v).mean() + (values == v).mean() / 2 for v in values])


def write_ply(path: Path, intensity: np.ndarray) -> Path:
    kinds = {"f8": "double", "f4": "float", "i4": "int"}
    columns = {name: column for name, column in table().items() if name in "xyz"} | {"intensity": intensity}
    record = np.zeros(3000, [(name, "<" + column.dtype.str[1:]) for name, column in columns.items()])
    for name, column in columns.items():
        record[name] = column
    lines = ["ply", "format binary_little_endian 1.0", "element vertex 3000"]
    lines += [f"property {kinds[column.dtype.str[1:]]} {name}" for name, column in columns.items()]
    path.write_bytes("\n".join([*lines, "end_header", ""]).encode() + record.tobytes())
    return path


def assert_same(one: PointCloudReference, two: PointCloudReference) -> None:
    assert (one.ground.base_m, one.ground.origin, one.ground.cell_m) == (
        two.ground.base_m,
        two.ground.origin,
        two.ground.cell_m,
    )
    np.testing.assert_array_equal(one.ground.elevation, two.ground.elevation)
    assert one.ranks is not None and two.ranks is not None
    assert (one.ranks.low, one.ranks.high) == (two.ranks.low, two.ranks.high)
    np.testing.assert_array_equal(one.ranks.table, two.ranks.table)


def completed(path: Path) -> PointCloud:
    return PointCloudReference.of_file(path).complete(read_point_cloud(path))


def test_heights_and_ranks_are_those_of_the_whole_point_cloud(tmp_path: Path) -> None:
    write_laz(tmp_path / "a.laz", table(), epsg=32610)
    whole = read_point_cloud(tmp_path / "a.laz")
    part = read_point_cloud(tmp_path / "a.laz", bounds=(500_020, 4_000_020, 500_040, 4_000_040))
    assert part.height is None and part.intensity_rank is None
    done = PointCloudReference.of_file(tmp_path / "a.laz").complete(part)
    inside = point_clouds.within(whole.x, whole.y, (500_020, 4_000_020, 500_040, 4_000_040))
    heights = height_above_ground(np.stack([whole.x, whole.y, whole.z], axis=1))
    assert done.height is not None and done.intensity_rank is not None
    np.testing.assert_allclose(done.height, heights[inside], atol=1e-4)
    np.testing.assert_allclose(done.intensity_rank, ranks(whole.intensity)[inside], atol=1e-9)
    assert np.median(done.height[part.classification == 6]) > 5.5  # most of the window is roof
    assert done.where(np.arange(3)).height.shape == (3,)


def test_passes_over_chunks_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_laz(tmp_path / "a.laz", table())
    whole = PointCloudReference.of_file(tmp_path / "a.laz")
    monkeypatch.setattr(point_clouds, "CHUNK", 700)
    parts = PointCloudReference.of_file(tmp_path / "a.laz")
    assert_same(whole, parts)
    assert_same(whole, PointCloudReference.of_point_cloud(read_point_cloud(tmp_path / "a.laz")))


@pytest.mark.parametrize("factor", [8, 20])
def test_another_scale_of_intensity_has_the_same_ranks(tmp_path: Path, factor: int) -> None:
    points = table()
    write_laz(tmp_path / "a.laz", points)
    write_laz(tmp_path / "b.laz", points | {"intensity": points["intensity"] * np.uint16(factor)})
    np.testing.assert_allclose(
        completed(tmp_path / "a.laz").intensity_rank, completed(tmp_path / "b.laz").intensity_rank
    )


@pytest.mark.parametrize(
    "intensity",
    [
        np.linspace(-0.5, 0.7, 3000, dtype=np.float32) ** 3,
        np.arange(3000, dtype=np.int32) * 100_000,
    ],
    ids=["floats", "large numbers"],
)
def test_intensities_of_ply_are_levels_of_their_own_range(tmp_path: Path, intensity: np.ndarray) -> None:
    path = write_ply(tmp_path / "a.ply", intensity)
    point_cloud = completed(path)
    np.testing.assert_allclose(point_cloud.intensity_rank, ranks(intensity), atol=2e-2)
    assert_same(PointCloudReference.of_file(path), PointCloudReference.of_point_cloud(read_point_cloud(path)))


@pytest.mark.parametrize("unknown", [np.nan, np.inf, -np.inf])
def test_unknown_intensities_have_no_rank(tmp_path: Path, unknown: float) -> None:
    intensity = np.linspace(0, 1, 3000)
    intensity[::7] = unknown
    path = write_ply(tmp_path / "a.ply", intensity)
    done, known = completed(path), np.isfinite(intensity)
    np.testing.assert_array_equal(np.isfinite(done.intensity_rank), known)
    np.testing.assert_allclose(done.intensity_rank[known], ranks(intensity[known]), atol=2e-2)
    assert_same(PointCloudReference.of_file(path), PointCloudReference.of_point_cloud(read_point_cloud(path)))


def test_noise_never_sets_the_ground(tmp_path: Path) -> None:
    points = table()
    write_laz(tmp_path / "a.laz", points)
    low = points["x"] < 500_020
    write_laz(
        tmp_path / "b.laz",
        points | {"z": points["z"] - 4 * low, "classification": np.where(low, 65, 2).astype(np.uint8)},
    )
    write_laz(tmp_path / "c.laz", points | {"classification": np.full(3000, 7, np.uint8)})
    plain, below, noise = (completed(tmp_path / f"{name}.laz") for name in "abc")
    assert np.median(below.height[low]) < -3
    assert np.abs(below.height - plain.height)[points["x"] > 500_025].max() < 0.3
    np.testing.assert_array_equal(noise.height, plain.height)  # all is noise: then it counts


def test_what_atoms_know_of_heights(tmp_path: Path) -> None:
    write_laz(tmp_path / "a.laz", table())
    point_cloud = completed(tmp_path / "a.laz")
    positions = np.stack([point_cloud.x, point_cloud.y], axis=1)
    names = {"ground": ["height"], "elevation": ["elevation"], "both": ["elevation", "height"]}
    for heights, expected in names.items():
        (points,) = point_cloud_atoms(point_cloud, positions, 100.0, False, heights)  # type: ignore[arg-type]
        assert [channel.name for channel in points.channels] == expected
        heights = {"elevation": point_cloud.z - 100, "height": point_cloud.height}
        for column, name in enumerate(expected):
            np.testing.assert_allclose(points.values[:, column], heights[name], atol=1e-5)
        np.testing.assert_allclose(points.heights_m, heights[expected[-1]], atol=1e-5)  # above ground, if that is known
        np.testing.assert_allclose(points.site_fields["intensity_rank"], point_cloud.intensity_rank, atol=1e-6)
        assert "intensity" not in points.site_fields


def test_without_a_reference_atoms_are_as_recorded(tmp_path: Path) -> None:
    write_laz(tmp_path / "a.laz", table())
    point_cloud = read_point_cloud(tmp_path / "a.laz")
    positions = np.stack([point_cloud.x, point_cloud.y], axis=1)
    (points,) = point_cloud_atoms(point_cloud, positions, 100.0, False, "elevation")
    np.testing.assert_array_equal(points.site_fields["intensity"], point_cloud.intensity)
    np.testing.assert_allclose(points.heights_m, point_cloud.z - 100, atol=1e-5)
    with pytest.raises(DataError, match="no heights above ground"):
        point_cloud_atoms(point_cloud, positions, 100.0, False, "ground")
    with pytest.raises(ConfigError, match="heights is 'high'; use ground, elevation, both"):
        point_cloud_atoms(point_cloud, positions, 100.0, False, "high")  # type: ignore[arg-type]
