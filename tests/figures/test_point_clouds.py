"""Figures of point clouds: looked at pixel by pixel, where points are known to lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread

import atomizer_io as aio
import data as fixtures
from atomizer_io.cli import main
from atomizer_io.data.sensors import LIDAR
from atomizer_io.datasets import Info, Meta, Sample
from atomizer_io.figures.class_colours import BLUES, BROWNS, GREENS, REDS, RIGHT, WRONG, class_colours, rgb
from atomizer_io.figures.point_clouds import (
    PointView,
    Strip,
    by_class,
    draw_beside,
)
from atomizer_io.figures.samples import SamplePoints, save_predictions
from atomizer_io.models.atomizer.geometry.partition import geometry_of
from scenes import SMALL

NAMES = ("ground", "power line", "building")
INFO = Info("a", "A", "segmentation", LIDAR.channels, 50.0, classes=NAMES)


def scene() -> tuple[np.ndarray, np.ndarray]:
    """Points on 40 × 20 m: ground, a wire 12 m above its middle, and a flat roof of 5 m in the east."""
    rng = np.random.default_rng(0)
    ground = np.column_stack([rng.uniform(0, 40, 4000), rng.uniform(0, 20, 4000), rng.normal(0, 0.05, 4000)])
    label = np.where(ground[:, 0] > 30, 2, 0)
    ground[label == 2, 2] += 5
    wire = np.column_stack([np.linspace(5, 25, 300), np.full(300, 10.0), np.full(300, 12.0)])
    return np.concatenate([ground, wire]), np.append(label, np.ones(300, int))


def pixels(draw: Any, view: PointView, layer: Any) -> tuple[np.ndarray, Any]:
    """The pixels of one view, and what maps positions to rows and columns of them."""
    figure = Figure(figsize=(8, 4), dpi=100)
    canvas, axis = FigureCanvasAgg(figure), figure.add_subplot()
    draw(axis, view, layer)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())[..., :3] / 255

    def at(x: float, y: float) -> tuple[int, int]:
        column, row = axis.transData.transform((x, y))
        return image.shape[0] - 1 - round(row), round(column)

    return image, at


def share(image: np.ndarray, at: tuple[int, int], colour: str | tuple[float, float, float], half: int = 6) -> float:
    """How much of the surroundings of a pixel has a colour."""
    row, column = at
    part = image[row - half : row + half + 1, column - half : column + half + 1]
    expected = rgb(colour) if isinstance(colour, str) else colour
    return float((np.abs(part - expected).max(axis=-1) < 0.02).mean())


def test_the_wire_is_above_the_ground_in_the_cross_section() -> None:
    xyz, label = scene()
    view = PointView.of(xyz)
    assert view.strip.axis == 0 and view.strip.middle == pytest.approx(10, abs=0.1)
    image, at = pixels(draw_beside, view, by_class("class", label, NAMES))
    wire = class_colours(NAMES)[1]
    rows, columns = np.nonzero(np.abs(image - wire).max(axis=-1) < 0.02)
    low, _ = np.nonzero(np.abs(image - rgb(BROWNS[0])).max(axis=-1) < 0.02)
    assert rows.max() < low.min(), "rows count from the top of the figure"
    assert abs(rows.mean() - at(15, 12)[0]) < 3 and abs(low.mean() - at(15, 0)[0]) < 3
    assert columns.min() >= at(5, 12)[1] - 4 and columns.max() <= at(25, 12)[1] + 4
    assert share(image, at(35, 5), REDS[0], 2) > 0.2


def test_class_colours_mean_something() -> None:
    names = ("Ground", "low_vegetation", "medium vegetation", "high vegetation", "buildings", "water", "car", "pole")
    colours = class_colours(names)
    expected = (BROWNS[0], GREENS["low"], GREENS["medium"], GREENS["high"], REDS[0], BLUES[0])
    assert colours[:6] == [rgb(colour) for colour in expected]
    assert len(set(colours)) == len(names)
    assert not set(class_colours(["car", "ground", "tram"], colours)) & set(colours), (
        "colours that others have are left to them"
    )
    assert len(set(class_colours([*names, "trees", "terrain", *(f"class {i}" for i in range(30))]))) == 40


def test_the_strip_leaves_an_empty_middle_and_grows_where_there_is_little() -> None:
    rng = np.random.default_rng(1)
    two = rng.uniform(0, (60, 8, 1), (5000, 3))
    two[::2, 1] += 30
    strip = Strip.through(two)
    assert strip.width == 2.0 and strip.inside(two).sum() > 400
    sparse = rng.uniform(0, (50, 50, 1), (600, 3))
    assert 200 <= Strip.through(sparse).inside(sparse).sum() < 600
    long = rng.uniform(0, (20, 1000, 1), (20000, 3))
    strip = Strip.through(long)
    assert strip.axis == 1 and strip.end - strip.start == 200


def sample() -> Sample:
    xyz, label = scene()
    count = len(xyz)
    atoms = aio.AtomSet.from_points(xyz, np.ones(count, int), np.ones(count, int))
    return Sample.of_points(atoms, xyz[:, :2], label, Meta("c"), {0: torch.arange(count)})


def test_points_are_coloured_by_the_cell_that_gathers_them() -> None:
    one = sample()
    point_cloud = SamplePoints.of(one)
    assert point_cloud is not None
    geometry = geometry_of(aio.AtomizerConfig(atoms_per_latent=400), one.atoms)
    layer = point_cloud.cell_layer(geometry)
    anchors = (geometry.anchors_L2 + geometry.center_2).numpy()
    nearest = np.linalg.norm(point_cloud.view.xyz[:, None, :2] - anchors, axis=-1).argmin(axis=1)
    assert len(np.unique(nearest)) > 5
    for cell in np.unique(nearest):
        assert len(np.unique(layer.colours[nearest == cell], axis=0)) == 1
    assert layer.marks is not None and len(layer.marks) == len(anchors)


def colours_in(path: Path) -> set[tuple[int, ...]]:
    """The colours of a figure that have more pixels than a legend."""
    image = (imread(path)[..., :3] * 255).round().astype(int)
    colours, count = np.unique(image @ (65536, 256, 1), return_counts=True)
    return {(code >> 16, code >> 8 & 255, code & 255) for code in colours[count > 300].tolist()}


def numbers(colour: str) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in rgb(colour))


def test_validation_figures_show_prediction_and_error(tmp_path: Path) -> None:
    one = sample()
    predictions = torch.nn.functional.one_hot(one.target, 3).float()
    model = aio.create_model("atomizer_io_tiny", **SMALL)
    right = colours_in(save_predictions([(one, predictions)], INFO, tmp_path / "right.png", model))
    assert numbers(RIGHT) in right and numbers(WRONG) not in right
    wrong = colours_in(save_predictions([(one, predictions.roll(1, dims=1))], INFO, tmp_path / "wrong.png", model))
    assert numbers(WRONG) in wrong and numbers(RIGHT) not in wrong


def test_show_draws_a_point_cloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("laspy")
    folder = fixtures.write("fractal", tmp_path / "data")
    figure = tmp_path / "figure.png"
    assert main(["data", "show", "fractal", str(folder), "0", "-o", str(figure)]) == 0
    assert {numbers(BROWNS[0]), numbers(REDS[0]), numbers(BLUES[0])} <= colours_in(figure)
