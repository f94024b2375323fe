"""Features of neighbourhoods that tabular baselines read, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.training.neighbourhoods import surroundings

SHAPES = ("linearity", "planarity", "scattering", "verticality")


def cloud(xyz: np.ndarray) -> Acquisition:
    return aio.AtomSet.from_points(xyz, datum_m=0.0).acquisitions[0]


def image(values: np.ndarray) -> Acquisition:
    return aio.AtomSet.from_raster(values, SENTINEL2.pick("B02", "B08"), 10.0).acquisitions[0]


def plane(tilt: str) -> np.ndarray:
    side = np.arange(-3, 3, 0.25)
    a, b = (axis.ravel() for axis in np.meshgrid(side, side))
    return np.column_stack([a, b, 0 * a] if tilt == "flat" else [a, 0 * a, b])


@pytest.mark.parametrize(("tilt", "vertical"), [("flat", 0.0), ("upright", 1.0)])
def test_a_plane_is_planar_and_a_wall_is_vertical(tilt: str, vertical: float) -> None:
    xyz = plane(tilt)
    middle = np.flatnonzero(np.linalg.norm(xyz, axis=1) < 0.1)
    assert len(middle) == 1
    features = surroundings(cloud(xyz), middle)
    for radius in (1, 2):
        assert features[f"planarity within {radius} m"] == pytest.approx(
            1.0, abs=0.15
        )  # one point in each cube of a fifth
        assert features[f"scattering within {radius} m"] == pytest.approx(0.0, abs=1e-6)
        assert features[f"verticality within {radius} m"] == pytest.approx(vertical, abs=1e-6)


def test_a_wire_is_linear_and_a_bush_scatters() -> None:
    draw = np.random.default_rng(0)
    wire = np.column_stack([np.arange(-3, 3, 0.2), np.zeros(30), np.full(30, 8.0)])
    bush = draw.uniform(-1, 1, (400, 3)) + np.array([20, 0, 1])
    features = surroundings(cloud(np.concatenate([wire, bush])), np.array([15, 30]))
    assert features["linearity within 1 m"][0] == pytest.approx(1.0, abs=1e-6)
    assert features["scattering within 1 m"][1] > 0.3


def test_shapes_are_those_of_a_plain_covariance() -> None:
    xyz = np.random.default_rng(1).uniform(0, 5, (60, 3))  # sparse: hardly two in a cube
    features = surroundings(cloud(xyz), np.arange(60))
    checked = 0
    for number, point in enumerate(xyz):
        near = xyz[np.linalg.norm(xyz - point, axis=1) <= 2.0]
        if len(near) < 3:
            continue
        values, vectors = np.linalg.eigh(np.cov(near.T, bias=True))
        low, middle, high = values
        expected = [(high - middle) / high, (middle - low) / high, low / high, 1 - abs(vectors[2, 0])]
        got = [features[f"{name} within 2 m"][number] for name in SHAPES]
        checked += np.allclose(got, expected, atol=1e-4)
    assert checked >= 45  # of 60; where two points share a cube of 40 cm one of them counts


def test_heights_are_those_of_all_points_above_and_below() -> None:
    ground, roof = plane("flat"), plane("flat") + np.array([0, 0, 7.0])
    xyz = np.concatenate([ground, roof])
    features = surroundings(cloud(xyz), np.array([300, 300 + len(ground)]))
    np.testing.assert_allclose(features["height above lowest within 1 m"], [0, 7], atol=1e-5)
    np.testing.assert_allclose(features["height below highest within 2 m"], [7, 0], atol=1e-5)
    np.testing.assert_allclose(features["height deviation within 2 m"], 3.5, atol=1e-5)


def test_a_lonely_point_and_one_without_height_have_no_shape() -> None:
    xyz = np.array([[0.0, 0, 0], [100, 0, 0], [101, 0, 0], [100, 1, 0]])
    features = surroundings(cloud(xyz), np.array([0, 1]))
    assert np.isnan(features["planarity within 2 m"][0]) and features["height deviation within 2 m"][0] == 0
    assert np.isfinite(features["planarity within 2 m"][1])
    xyz[0, 2] = np.nan
    assert all(np.isnan(values[0]) for values in surroundings(cloud(xyz), np.array([0])).values())


def test_windows_leave_absent_pixels_out() -> None:
    draw = np.random.default_rng(2)
    values = draw.normal(1000, 50, (2, 12, 9))
    values[:, draw.random((12, 9)) < 0.4] = np.nan
    values[1, :8, :8] = np.nan
    sites = np.array([0, 8, 50, 58, 107])
    features = surroundings(image(values), sites)
    for band, name in enumerate(("B02", "B08")):
        for place, site in enumerate(sites):
            row, column = divmod(int(site), 9)
            near = values[band, max(0, row - 3) : row + 4, max(0, column - 3) : column + 4]
            known = near[np.isfinite(near)]
            expected = (known.mean(), known.std()) if len(known) else (np.nan, np.nan)
            got = features[f"{name} mean 7×7"][place], features[f"{name} deviation 7×7"][place]
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-3)


def test_a_single_pixel_has_no_surroundings() -> None:
    assert surroundings(image(np.ones((2, 1, 1))), np.array([0])) == {}


def test_part_of_an_image_is_a_grid_with_gaps() -> None:
    values = np.arange(2 * 36.0).reshape(2, 6, 6)
    keep = torch.ones(36, dtype=torch.bool)
    keep[7] = False
    features = surroundings(image(values).with_sites(keep), np.array([0]))
    near = np.delete(values[0, :4, :4].ravel(), 5)
    assert features["B02 mean 7×7"][0] == pytest.approx(near.mean())
