"""Predictions at the coordinates of a table, from rasters: the windows of a map, but only those with positions in them.

Shapes: M positions, C classes (or 1 regression target).
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.crs import moved_if_possible, nearest_turn, turn_of
from atomizer_io.io.raster_pixels import limited_cache
from atomizer_io.io.raster_sources import RasterInput
from atomizer_io.io.vector_files import SUFFIXES as VECTORS
from atomizer_io.io.vector_files import VectorFile
from atomizer_io.models.base import Model
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts_folder import PartsFolder, WindowOutputs
from atomizer_io.prediction.raster_windows import RasterWindow, WindowLayout, ramp
from atomizer_io.prediction.rasters import RasterScene, observed, outputs_at, paths_of
from atomizer_io.texts import csv_text, read_text

DEGREES = "EPSG:4326"
COLUMNS = (("x", "y", None), ("lon", "lat", DEGREES), ("longitude", "latitude", DEGREES))  # None: of the raster

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PositionsProduct:
    """The table that was written; ``predicted`` of its ``count`` positions lie where something was observed.

    ``decoded`` counts how often positions were decoded: each once in each of its windows.
    """

    path: Path
    count: int
    predicted: int
    windows: int
    decoded: int | None
    target: str | None
    unit: str | None
    seconds: float


def predict_at(
    model: Model | str | Path,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] | RasterInput | str | Path | dict[str, Any],
    positions: str | Path,
    output: str | Path,
    *,
    like: int = 0,
    fill: bool = False,
    windows: Windows = Windows(),
    decoding: Decoding = Decoding(),
    execution: Execution = Execution(),
) -> PositionsProduct:
    """Write the predictions at ``positions`` as a CSV file: their columns, the class, its code and all probabilities.

    ``positions`` is a CSV file with columns x and y (in the coordinate system of raster number ``like``) or lon and
    lat, or a vector file of points (GeoPackage, GeoJSON, Shapefile, …). At the centre of a pixel, the prediction is
    that of :func:`predict_raster`. Where nothing was observed, and outside of raster number ``like``, there is none.
    """
    began, output = time.monotonic(), Path(output)
    if output.suffix.casefold() != ".csv":
        raise ConfigError(f"{output}: predictions at positions are a table, so its name must end in .csv")
    decoding.check_no_grid("given positions")
    inputs = [Path(positions), *paths_of(rasters)]
    with PartsFolder(output, execution, inputs=inputs) as parts, limited_cache():
        table = PositionTable.read(Path(positions))
        scene = RasterScene.of(
            model, rasters, like=like, fill=fill, windows=windows, decoding=decoding, execution=execution
        )
        scene.model.decoding.check_no_grid("given positions")
        new = columns_of(scene.task_spec)
        doubled = sorted(set(new) & set(table.header))
        if doubled:
            raise DataError(positions, f"has a column {doubled[0]!r} already, which the predictions need: rename it")
        pixels_M2, mark = located(table, scene)

        def work() -> dict[str, Any]:
            windows = inside(scene.layout, pixels_M2)
            outputs_MC = compute(scene.stored(model, parts), parts, windows, pixels_M2, execution)
            text = csv_text([(*table.header, *new), *rows_of(table, outputs_MC, scene.task_spec)])
            (parts.folder / "positions.csv").write_text(text, encoding="utf-8")
            decoded = parts.decoded(window.name for window in windows)
            return {"predicted": int(np.isfinite(outputs_MC[:, 0]).sum()), "windows": len(windows), "decoded": decoded}

        room = 16 * len(table.rows) * (scene.task_spec.num_outputs + 1)
        done = parts.finish(scene.plan(inputs={"positions": mark}), {"positions.csv": output}, room, work)
    spec, seconds = scene.task_spec, round(time.monotonic() - began, 2)
    return PositionsProduct(
        output, len(table.rows), target=spec.target_name, unit=spec.target_unit, seconds=seconds, **done
    )


def located(table: PositionTable, scene: RasterScene) -> tuple[Floats, str]:
    """Return the (row, column) of each position in the grid of the map as (M, 2), with fractions, and a checksum."""
    x, y = table.xy_M2.T
    if table.crs is not None:
        if scene.map_grid.crs is None:
            raise ConfigError("the raster has no coordinate system: positions need columns x and y")
        x, y = moved_if_possible(table.crs, scene.map_grid.crs, x, y)
    a, _, west, _, e, north = scene.map_grid.transform
    x = nearest_turn(x, west + a * scene.map_grid.width / 2, turn_of(scene.map_grid.crs))
    pixels_M2 = np.stack([(y - north) / e, (x - west) / a], axis=1)
    return pixels_M2, hashlib.blake2b(repr(table).encode() + pixels_M2.tobytes(), digest_size=12).hexdigest()


def inside(layout: WindowLayout, pixels_M2: Floats) -> dict[RasterWindow, NDArray[np.int64]]:
    """Return the windows that contain positions, each with the indices of its positions."""
    windows: dict[RasterWindow, list[int]] = {}
    for number, (row, column) in enumerate(pixels_M2.tolist()):
        if not (0 <= row <= layout.rows.length and 0 <= column <= layout.columns.length):
            continue
        top, left = min(int(row), layout.rows.length - 1), min(int(column), layout.columns.length - 1)
        covering = layout.rows.covering((top, top + 1)), layout.columns.covering((left, left + 1))
        for at in itertools.product(*covering):
            windows.setdefault(layout.window(*at), []).append(number)
    return {window: np.array(windows[window]) for window in sorted(windows, key=lambda w: (w.row, w.column))}


@dataclass(frozen=True)
class PositionTask:
    """The work of one window: the positions in it as (row, column) of the grid of the map."""

    window: RasterWindow
    pixels_M2: Floats

    @property
    def name(self) -> str:
        """The name of the file of its outputs."""
        return self.window.name


def predict_window(job: RasterScene, task: PositionTask) -> WindowOutputs:
    """Return the outputs (M, C + 1) at the positions of one window, like those of a map."""
    frame, grid, atoms = observed(job, task.window)
    a, _, west, _, e, north = job.map_grid.transform
    x, y = frame.metres(west + a * task.pixels_M2[:, 1], north + e * task.pixels_M2[:, 0])
    seed = task.window.top * job.map_grid.width + task.window.left
    return outputs_at(job, atoms, torch.from_numpy(np.stack([x, y], axis=1)), seed, grid.pixel_m)


def compute(
    job: RasterScene,
    parts: PartsFolder,
    windows: Mapping[RasterWindow, NDArray[np.int64]],
    pixels_M2: Floats,
    execution: Execution,
) -> NDArray[np.float64]:
    """Return the outputs (M, C) at all positions: the mean of the windows of each, NaN where there is none."""
    tasks = [PositionTask(window, pixels_M2[at]) for window, at in windows.items() if window.name not in parts]
    for _ in parts.compute(functools.partial(predict_window, job), tasks, len(windows), execution):
        pass
    total, weight = np.zeros((len(pixels_M2), job.task_spec.num_outputs + 1)), np.zeros(len(pixels_M2))
    for window, numbers in windows.items():
        values = parts.load(window.name)
        if values.size:
            row, column = (pixels_M2[numbers] - (window.top, window.left)).T
            share = ramp(row, window.height) * ramp(column, window.width)
            total[numbers] += values * share[:, None]
            weight[numbers] += share
    total /= np.maximum(weight, 1e-12)[:, None]
    total[total[:, -1] <= 0.5] = np.nan
    return total[:, :-1]


def rows_of(table: PositionTable, outputs_MC: Floats, task_spec: TaskSpec) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the table with their predictions, which are empty where there is none."""
    empty = [""] * len(columns_of(task_spec))
    for row, outputs_C in zip(table.rows, outputs_MC, strict=True):
        yield (*row, *(cells_of(task_spec, outputs_C) if np.isfinite(outputs_C).all() else empty))


@dataclass(frozen=True)
class PositionTable:
    """A table with a position in each row; where ``crs`` is None, coordinates are in that of the raster."""

    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    xy_M2: Floats
    crs: str | None

    @classmethod
    def read(cls, path: Path) -> PositionTable:
        """Read a CSV file, or a vector file of points."""
        if not path.is_file():
            raise DataError(path, "no such file")
        vector = VECTORS.get(path.suffix.casefold(), "CSV") != "CSV"
        table = _read_vector(path) if vector else _read_csv(path)
        if not table.rows:
            raise DataError(path, "has no rows")
        bad = np.flatnonzero(~np.isfinite(table.xy_M2).all(axis=1))
        if len(bad):
            raise DataError(path, f"row {bad[0] + 1} has no coordinates: {table.rows[bad[0]]}")
        bad = np.flatnonzero(np.abs(table.xy_M2[:, 1]) > 90) if table.crs == DEGREES else bad
        if len(bad):
            raise DataError(
                path,
                f"row {bad[0] + 1} has latitude {table.xy_M2[bad[0], 1]:g}: latitudes are degrees from -90 to 90; are "
                "longitude and latitude swapped, or are these metres (columns x and y)?",
            )
        return table


def _read_csv(path: Path) -> PositionTable:
    try:
        lines = list(csv.reader(io.StringIO(read_text(path, "utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise DataError(path, f"is not a CSV file: {error}") from error
    header = tuple(name.strip() for name in lines[0]) if lines else ()
    folded = [name.casefold() for name in header]
    rows = tuple(tuple(line) for line in lines[1:] if line)
    named = [(first, second, crs) for first, second, crs in COLUMNS if first in folded and second in folded]
    if not named:
        raise DataError(path, f"needs columns x and y, or lon and lat; it has {', '.join(header) or 'none'}")
    first, second, crs = named[0]
    at, positions = (folded.index(first), folded.index(second)), []
    for number, row in enumerate(rows, 1):
        try:
            positions.append([float(row[column]) for column in at])
        except (ValueError, IndexError) as error:
            raise DataError(path, f"row {number} has no coordinates: {row}") from error
    return PositionTable(header, rows, np.array(positions, np.float64).reshape(-1, 2), crs)


def _read_vector(path: Path) -> PositionTable:
    """Read a vector file of points: the number and the columns of each, and x and y as they are stored."""
    import shapely

    file = VectorFile.open(path)
    columns, points = {name: list[Any]() for name in ("fid", *file.fields)}, list[Any]()
    for batch in file.batches(file.fields):
        points += batch.geometry.tolist()
        for name, column in columns.items():
            column += batch.columns[name].to_pylist() if name in file.fields else batch.ids.tolist()
    kind = shapely.get_type_id(np.array(points, dtype=object))  # 0: a point, -1: nothing
    if (bad := np.flatnonzero(kind)).size:
        what = "no geometry" if kind[bad[0]] < 0 else "a geometry that is not a point"
        raise DataError(path, f"row {bad[0] + 1} has {what}")
    xy_M2 = np.stack([shapely.get_x(points), shapely.get_y(points)], axis=1)
    if not {"x", "y"} & columns.keys():
        columns |= {"x": xy_M2[:, 0].tolist(), "y": xy_M2[:, 1].tolist()}
    return PositionTable(tuple(columns), tuple(zip(*columns.values(), strict=True)), xy_M2, file.crs)


def columns_of(task_spec: TaskSpec) -> list[str]:
    """Return the names of the columns with predictions."""
    if task_spec.regression:
        return ["predicted_value"]
    return ["predicted_class", "predicted_code", *(f"p_{name}" for name in task_spec.names)]


def cells_of(task_spec: TaskSpec, outputs_C: NDArray[Any]) -> list[str]:
    """Return the cells of one prediction: its class, code and probabilities (made to sum to one), or its value."""
    if task_spec.regression:
        return [f"{outputs_C[0]:.7g}"]
    shares_C = outputs_C / max(outputs_C.sum(), 1e-9)
    first = int(shares_C.argmax())
    return [task_spec.names[first], str(task_spec.codes[first]), *(f"{share:.4f}" for share in shares_C)]
