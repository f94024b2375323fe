"""Answers at places that a user names, from rasters: the windows of a map, but only those with places in them.

Shapes: M places, C classes (or 1 quantity).
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.decoding.choice import check_no_grid
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.crs import moved_if_possible, nearest_turn, turn_of
from atomizer_io.io.raster_pixels import limited_cache
from atomizer_io.io.raster_sources import RasterInput
from atomizer_io.models.base import Model
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.prediction.place_table import PlaceTable
from atomizer_io.prediction.raster_scene import RasterJob, RasterScene, paths_of
from atomizer_io.prediction.raster_windows import RasterWindow, WindowLayout, ramp_at
from atomizer_io.prediction.rasters import answers_at, observed
from atomizer_io.prediction.read_out import WindowAnswers
from atomizer_io.progress import progress_bar
from atomizer_io.texts import csv_text

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlacesProduct:
    """The table that was written; ``answered`` of its ``count`` places lie where something was observed.

    ``asked`` is at how many positions the model was asked, a place once in each of its windows.
    """

    path: Path
    count: int
    answered: int
    windows: int
    asked: int | None
    quantity: str | None
    unit: str | None
    seconds: float


def predict_at(
    model: Model | str | Path,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] | RasterInput | str | Path | dict[str, Any],
    places: str | Path,
    output: str | Path,
    *,
    like: int = 0,
    fill: bool = False,
    windows: Windows = Windows(),
    decoding: Decoding = Decoding(),
    execution: Execution = Execution(),
) -> PlacesProduct:
    """Write the answers at ``places`` as a CSV file: their columns, the class, its code and all probabilities.

    ``places`` is a CSV file with columns x and y (in the coordinate system of raster number ``like``) or lon and lat,
    or a GeoPackage of points. At the centre of a pixel, the answer is that of :func:`predict_raster`. Where nothing was
    observed, and outside of raster number ``like``, there is none.
    """
    began, output = time.monotonic(), Path(output)
    if output.suffix.casefold() != ".csv":
        raise ConfigError(f"{output}: answers at places are a table, so its name must end in .csv")
    check_no_grid(decoding, "places")
    inputs = [Path(places), *paths_of(rasters)]
    with PartsFolder(output, execution, inputs=inputs) as parts, limited_cache():
        table = PlaceTable.read(Path(places))
        scene = RasterScene.of(model, rasters, like=like, windows=windows, decoding=decoding, execution=execution)
        check_no_grid(scene.read_out.decoding, "places")
        new = new_columns(scene)
        doubled = sorted(set(new) & set(table.header))
        if doubled:
            raise DataError(places, f"has a column {doubled[0]!r} already, which the answers need: rename it")
        pixels_M2 = pixels_of(table, scene)
        mark = hashlib.blake2b(repr(table).encode() + pixels_M2.tobytes(), digest_size=12).hexdigest()
        room = 16 * len(table.rows) * (scene.task_spec.num_outputs + 1)
        parts.begin(scene.plan(inputs={"places": mark}, fill=fill), {"places.csv": output}, needed=room)
        done = parts.summary()
        if done is None:
            job = scene.job(model, parts, fill=fill)
            tasks = inside(scene.layout, pixels_M2)
            answers_MC = compute(job, parts, tasks, pixels_M2, execution)
            done = {"answered": int(np.isfinite(answers_MC[:, 0]).sum()), "windows": len(tasks)}
            done["asked"] = parts.asked(window.name for window in tasks)
            parts.path("places.csv").write_text(as_csv(table, new, answers_MC, scene), encoding="utf-8")
            parts.publish(done)
    return PlacesProduct(
        output,
        len(table.rows),
        quantity=scene.task_spec.target_name,
        unit=scene.task_spec.target_unit,
        seconds=round(time.monotonic() - began, 2),
        **done,
    )


def pixels_of(table: PlaceTable, scene: RasterScene) -> Floats:
    """Return the (row, column) of each place in the grid of the map as (M, 2), with fractions."""
    x, y = table.xy_M2.T
    if table.crs is not None:
        if scene.map_grid.crs is None:
            raise ConfigError("the raster has no coordinate system: places need columns x and y")
        x, y = moved_if_possible(table.crs, scene.map_grid.crs, x, y)
    a, _, west, _, e, north = scene.map_grid.transform
    x = nearest_turn(x, west + a * scene.map_grid.width / 2, turn_of(scene.map_grid.crs))
    return np.stack([(y - north) / e, (x - west) / a], axis=1)


def inside(layout: WindowLayout, pixels_M2: Floats) -> dict[RasterWindow, NDArray[np.int64]]:
    """Return the windows that contain places, each with the numbers of its places."""
    found: dict[RasterWindow, list[int]] = {}
    for number, (row, column) in enumerate(pixels_M2.tolist()):
        if not (0 <= row <= layout.height and 0 <= column <= layout.width):
            continue
        top, left = min(int(row), layout.height - 1), min(int(column), layout.width - 1)
        for i in layout.covering(top, top + 1):
            for j in layout.covering_columns(left, left + 1):
                found.setdefault(layout.window(i, j), []).append(number)
    return {window: np.array(found[window]) for window in sorted(found, key=lambda w: (w.row, w.column))}


@dataclass(frozen=True)
class PlaceTask:
    """The work of one window: the places in it as (row, column) of the grid of the map."""

    window: RasterWindow
    pixels_M2: Floats


def answer(job: RasterJob, task: PlaceTask) -> WindowAnswers:
    """Return the answers (M, C + 1) at the places of one window, like those of a map."""
    frame, grid, atoms = observed(job, task.window)
    a, _, west, _, e, north = job.map_grid.transform
    x, y = frame.metres(west + a * task.pixels_M2[:, 1], north + e * task.pixels_M2[:, 0])
    seed = task.window.top * job.map_grid.width + task.window.left
    return answers_at(job, atoms, torch.from_numpy(np.stack([x, y], axis=1)), seed, grid.pixel_m)


def compute(
    job: RasterJob,
    parts: PartsFolder,
    places: Mapping[RasterWindow, NDArray[np.int64]],
    pixels_M2: Floats,
    execution: Execution,
) -> NDArray[np.float64]:
    """Return the answers (M, C) at all places: the mean of the windows of each place, NaN where there is none."""
    tasks = [PlaceTask(window, pixels_M2[numbers]) for window, numbers in places.items() if window.name not in parts]
    bar = progress_bar(len(places), initial=len(places) - len(tasks), unit=" windows", show=execution.progress)
    with bar:
        for task, answers in execution.runner.run(functools.partial(answer, job), tasks):
            parts.save(task.window.name, answers.values, answers.asked)
            bar.update()
    total = np.zeros((len(pixels_M2), job.depth))
    weight = np.zeros(len(pixels_M2))
    for window, numbers in places.items():
        values = parts.load(window.name)
        if values.size:
            row, column = (pixels_M2[numbers] - (window.top, window.left)).T
            share = ramp_at(row, window.height) * ramp_at(column, window.width)
            total[numbers] += values * share[:, None]
            weight[numbers] += share
    total /= np.maximum(weight, 1e-12)[:, None]
    total[total[:, -1] <= 0.5] = np.nan
    return total[:, :-1]


def new_columns(scene: RasterScene) -> list[str]:
    """Return the names of the columns that are added to the table."""
    if scene.task_spec.regression:
        return ["predicted_value"]
    return ["predicted_class", "predicted_code", *(f"p_{name}" for name in scene.task_spec.names)]


def as_csv(table: PlaceTable, new: Sequence[str], answers_MC: Floats, scene: RasterScene) -> str:
    """Return the table with its new columns as CSV text."""
    rows, names, codes = [(*table.header, *new)], scene.task_spec.names, scene.task_spec.codes
    for row, answers in zip(table.rows, answers_MC, strict=True):
        if not np.isfinite(answers).all():
            added: list[str] = [""] * len(new)
        elif scene.task_spec.regression:
            added = [f"{answers[0]:.7g}"]
        else:
            shares = answers / max(answers.sum(), 1e-9)
            first = int(shares.argmax())
            added = [names[first], str(codes[first]), *(f"{share:.4f}" for share in shares)]
        rows.append((*row, *added))
    return csv_text(rows)
