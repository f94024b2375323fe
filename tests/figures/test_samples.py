"""Figures: every kind of sample can be drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.datasets import Info, Meta, Sample
from atomizer_io.figures.samples import draw_acquisition, save
from scenes import points, raster


def info(task: str, classes: tuple[str, ...] = (), **more) -> Info:
    return Info("a", "A", task, SENTINEL2.channels, 100.0, classes=classes, **more)


def sample_of(kind: str) -> tuple[Sample, Info]:
    rgb, grid = raster(1, names=("B02", "B03", "B04"), holes=0.2), aio.Grid(9, 7, gsd_m=10.0)
    rng = np.random.default_rng(0)
    classes = info("segmentation", ("a", "b", "c"), temporal=kind == "series")
    if kind == "regression":
        return Sample.of_map(rgb, grid, rng.random((9, 7)), Meta("q")), info("regression", unit="t/ha")
    if kind == "scene":
        return Sample.of_scene(rgb, 1, Meta("s")), info("classification", ("x", "y"))
    if kind == "points":
        point_cloud = points(1)
        positions = point_cloud.acquisitions[0].positions
        return Sample.of_points(point_cloud + rgb, positions, rng.integers(-1, 3, 150), Meta("c")), classes
    atoms = sum(raster(i, day=30 * i) for i in range(1, 12)) if kind == "series" else rgb
    return Sample.of_map(atoms, grid, rng.integers(-1, 3, (9, 7)), Meta("m")), classes


@pytest.mark.parametrize("kind", ["map", "regression", "scene", "series", "points"])
def test_each_kind_is_drawn(kind: str, tmp_path: Path) -> None:
    sample, about = sample_of(kind)
    path = save(sample, about, tmp_path / f"{kind}.png", atoms_per_latent=20)
    pixels = imread(path)[..., :3]
    assert min(pixels.shape[:2]) > 300
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20  # not blank


def test_pixels_whose_rows_are_level_up_to_rounding_are_drawn_in_place() -> None:
    """Pixels of an image in another coordinate system than the points beside it are moved by rounding."""
    values = np.random.default_rng(0).uniform(0, 3000, (3, 9, 7)).astype(np.float32)
    image = aio.AtomSet.from_raster(values, channels=SENTINEL2.pick("B02", "B03", "B04"), gsd=10.0).acquisitions[0]
    noise = np.random.default_rng(1).uniform(-1e-8, 1e-8, image.positions.shape)
    shown = []
    for acquisition in (image, replace(image, positions=image.positions + torch.from_numpy(noise))):
        axis = Figure().add_subplot()
        draw_acquisition(axis, acquisition)
        shown.append(np.asarray(axis.images[0].get_array()))
    np.testing.assert_array_equal(*shown)
