"""Outputs at all points of a point cloud from those at points that were decoded."""

from __future__ import annotations

import numpy as np
import pytest

from atomizer_io.io.point_atoms import one_per_cube
from atomizer_io.prediction.point_windows import interpolated


def test_one_point_of_each_cube_is_decoded() -> None:
    rng = np.random.default_rng(0)
    xyz = rng.uniform(-5, 5, (2000, 3)) + np.array([1e6, 6.6e6, 100.0])
    decoded = one_per_cube(xyz, 1.0)
    cubes = {tuple(cube) for cube in np.floor(xyz).astype(int)}
    assert len(decoded) == len(cubes) and (np.diff(decoded) > 0).all()
    first: dict[tuple[int, ...], int] = {}
    for number, cube in enumerate(map(tuple, np.floor(xyz).astype(int))):
        first.setdefault(cube, number)
    assert decoded.tolist() == sorted(first.values())


def test_cubes_are_the_same_in_any_window() -> None:
    xyz = np.random.default_rng(1).uniform(0, 20, (3000, 3))
    inside = np.flatnonzero((xyz[:, 0] >= 5) & (xyz[:, 0] < 15))  # cuts along the faces of cubes
    whole, part = one_per_cube(xyz, 0.5), inside[one_per_cube(xyz[inside], 0.5)]
    assert np.array_equal(np.intersect1d(whole, inside), part)


def test_decoded_points_keep_their_outputs_and_the_rest_take_the_nearest() -> None:
    decoded = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 10.0]])
    outputs = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    everywhere = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 10.0], [0.0, 0.0, 2.0], [1.0, 0.0, 10.0], [0.0, 0.0, 5.0]])
    result = interpolated(decoded, outputs, everywhere)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[:2], outputs)
    np.testing.assert_allclose(result[2], [0.8, 0.2], rtol=1e-5)
    assert result[3, 1] > 0.9  # a wire above the ground is near in x and y, not in z
    np.testing.assert_allclose(result[4], [0.5, 0.5])


@pytest.mark.parametrize("count", [1, 2, 9])
def test_probabilities_stay_probabilities(count: int) -> None:
    rng = np.random.default_rng(2)
    xyz, decoded = rng.uniform(0, 9, (300, 3)), rng.uniform(0, 9, (count, 3))
    result = interpolated(decoded, rng.dirichlet([1, 1, 1], count), xyz)
    assert result.shape == (300, 3) and result.min() >= 0
    np.testing.assert_allclose(result.sum(axis=1), 1)


def test_points_at_one_position() -> None:
    decoded = np.zeros((3, 3))
    outputs = np.array([[0.2], [0.4], [0.9]])
    result = interpolated(decoded, outputs, np.zeros((5, 3)))
    assert np.isfinite(result).all() and result.min() >= 0.2 and result.max() <= 0.9
    assert np.array_equal(interpolated(decoded, outputs, decoded), outputs)
