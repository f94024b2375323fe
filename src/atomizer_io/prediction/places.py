"""Answers at places that a user names, from rasters: the windows of a map, but only those with places in them.

Shapes: M places, C classes (or 1 quantity).
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import sqlite3
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.formats.pixels import limited_cache
from atomizer_io.georeference import nearest_turn
from atomizer_io.models.contract import Model
from atomizer_io.prediction.answering import WindowAnswers
from atomizer_io.prediction.frames import turn_of
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts import Parts
from atomizer_io.prediction.rasters import answers_at, observed
from atomizer_io.prediction.scene import Job, Scene, paths_of
from atomizer_io.prediction.sources import RasterInput, moved
from atomizer_io.prediction.windows import Layout, Window, ramp_at
from atomizer_io.progress import progress_bar

DEGREES = "EPSG:4326"
COLUMNS = (("x", "y", None), ("lon", "lat", DEGREES), ("longitude", "latitude", DEGREES))  # None: of the raster
ENVELOPE_BYTES = (0, 32, 48, 48, 64)  # of a geometry of a GeoPackage, by the number in its flags
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlacesProduct:
    """What was written: ``answered`` of ``count`` places lie where something was observed.

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


@dataclass(frozen=True)
class Places:
    """A table with a place in each row; ``crs`` None: that of the raster."""

    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    xy_M2: Floats
    crs: str | None

    @classmethod
    def read(cls, path: Path) -> Places:
        """From a CSV file or a GeoPackage."""
        if not path.is_file():
            raise DataError(path, "no such file")
        found = _read_geopackage(path) if path.suffix.casefold() == ".gpkg" else _read_csv(path)
        if not found.rows:
            raise DataError(path, "has no places")
        bad = np.flatnonzero(~np.isfinite(found.xy_M2).all(axis=1))
        if len(bad):
            raise DataError(path, f"row {bad[0] + 1} has no place: {found.rows[bad[0]]}")
        return found


def predict_at(
    model: Model | str | Path,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] | RasterInput | str | Path | dict[str, Any],
    places: str | Path,
    output: str | Path,
    *,
    like: int = 0,
    fill: bool = False,
    windows: Windows = Windows(),  # noqa: B008  (frozen)
    decoding: Decoding = Decoding(),  # noqa: B008
    execution: Execution = Execution(),  # noqa: B008
) -> PlacesProduct:
    """Write the answers at ``places`` as a CSV file: the columns that they have, the class, and its probabilities.

    ``places`` is a CSV file with columns x and y (in the coordinate system of raster number ``like``) or lon and lat,
    or a GeoPackage of points. At the centre of a pixel, the answer is that of :func:`predict_raster`. Where nothing was
    observed, and outside of raster number ``like``, there is none.
    """
    began, output = time.monotonic(), Path(output)
    if output.suffix.casefold() != ".csv":
        raise ConfigError(f"{output}: answers at places are a table, name it .csv")
    if decoding.strategy == "quadtree":
        raise ConfigError("a quadtree needs a grid, and places are none: use dense, zone-probe or sketch")
    inputs = [Path(places), *paths_of(rasters)]
    with Parts(output, execution, inputs=inputs) as parts, limited_cache():
        table = Places.read(Path(places))
        scene = Scene.of(model, rasters, like=like, windows=windows, decoding=decoding, execution=execution)
        new = new_columns(scene)
        doubled = sorted(set(new) & set(table.header))
        if doubled:
            raise DataError(places, f"has a column {doubled[0]!r} already, which is to be written: rename it")
        pixels_M2 = pixels_of(table, scene)
        mark = hashlib.blake2b(repr(table).encode() + pixels_M2.tobytes(), digest_size=12).hexdigest()
        room = 16 * len(table.rows) * (scene.problem.num_outputs + 1)
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
        quantity=scene.problem.target_name,
        unit=scene.problem.target_unit,
        seconds=round(time.monotonic() - began, 2),
        **done,
    )


def pixels_of(table: Places, scene: Scene) -> Floats:
    """(row, column) of each place (M, 2) in the grid of the scene, fractions included."""
    x, y = table.xy_M2.T
    if table.crs is not None:
        if scene.place.crs is None:
            raise ConfigError("the raster has no coordinate system: places need columns x and y")
        x, y = moved(table.crs, scene.place.crs, x, y)
    a, _, west, _, e, north = scene.place.transform
    x = nearest_turn(x, west + a * scene.place.width / 2, turn_of(scene.place.crs))
    return np.stack([(y - north) / e, (x - west) / a], axis=1)


def inside(layout: Layout, pixels_M2: Floats) -> dict[Window, NDArray[np.int64]]:
    """The windows that have places in them, with the numbers of those."""
    found: dict[Window, list[int]] = {}
    for number, (row, column) in enumerate(pixels_M2.tolist()):
        if not (0 <= row <= layout.height and 0 <= column <= layout.width):
            continue
        top, left = min(int(row), layout.height - 1), min(int(column), layout.width - 1)
        for i in layout.covering(top, top + 1):
            for j in layout.covering_columns(left, left + 1):
                found.setdefault(layout.window(i, j), []).append(number)
    return {window: np.array(found[window]) for window in sorted(found, key=lambda w: (w.row, w.column))}


@dataclass(frozen=True)
class Task:
    """A window and its places as (row, column) of the grid."""

    window: Window
    pixels_M2: Floats


def answer(job: Job, task: Task) -> WindowAnswers:
    """Answers (M, C + 1) at the places of a window, as those of a map."""
    frame, _, atoms = observed(job, task.window)
    a, _, west, _, e, north = job.place.transform
    x, y = frame.metres(west + a * task.pixels_M2[:, 1], north + e * task.pixels_M2[:, 0])
    seed = task.window.top * job.place.width + task.window.left
    return answers_at(job, atoms, torch.from_numpy(np.stack([x, y], axis=1)), seed)


def compute(
    job: Job,
    parts: Parts,
    places: Mapping[Window, NDArray[np.int64]],
    pixels_M2: Floats,
    execution: Execution,
) -> NDArray[np.float64]:
    """Answers (M, C), the mean of the windows of each place; NaN where there is none."""
    tasks = [Task(window, pixels_M2[numbers]) for window, numbers in places.items() if window.name not in parts]
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


def new_columns(scene: Scene) -> list[str]:
    """Names of what is added to the table."""
    if scene.problem.regression:
        return ["predicted_value"]
    return ["predicted_class", *(f"p_{name}" for name in scene.problem.names)]


def as_csv(table: Places, new: Sequence[str], answers_MC: Floats, scene: Scene) -> str:
    """The table with its new columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.header, *new])
    names = scene.problem.names
    for row, answers in zip(table.rows, answers_MC, strict=True):
        if not np.isfinite(answers).all():
            added: list[str] = [""] * len(new)
        elif scene.problem.regression:
            added = [f"{answers[0]:.7g}"]
        else:
            shares = answers / max(answers.sum(), 1e-9)
            added = [names[int(shares.argmax())], *(f"{share:.4f}" for share in shares)]
        writer.writerow([*row, *added])
    return text.getvalue()


def _read_csv(path: Path) -> Places:
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(path, f"is not a CSV file: {error}") from error
    header = tuple(name.strip() for name in lines[0]) if lines else ()
    folded = [name.casefold() for name in header]
    rows = tuple(tuple(line) for line in lines[1:] if line)
    named = [(first, second, crs) for first, second, crs in COLUMNS if first in folded and second in folded]
    if not named:
        raise DataError(path, f"needs columns x and y, or lon and lat; it has {', '.join(header) or 'none'}")
    first, second, crs = named[0]
    at, places = (folded.index(first), folded.index(second)), []
    for number, row in enumerate(rows, 1):
        try:
            places.append([float(row[column]) for column in at])
        except (ValueError, IndexError) as error:
            raise DataError(path, f"row {number} has no place: {row}") from error
    return Places(header, rows, np.array(places, np.float64).reshape(-1, 2), crs)


def _read_geopackage(path: Path) -> Places:
    """The first table of points; its columns, and x and y as they are stored."""
    source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        tables = source.execute("SELECT table_name, column_name, srs_id FROM gpkg_geometry_columns").fetchall()
        if not tables:
            raise DataError(path, "has no table with geometries")
        table, geometry, srs = tables[0]
        system = source.execute(
            "SELECT organization, organization_coordsys_id, definition FROM gpkg_spatial_ref_sys WHERE srs_id = ?",
            [srs],
        ).fetchone()
        cursor = source.execute(f'SELECT * FROM "{table}"')
        names = [column[0] for column in cursor.description]
        at, stored = names.index(geometry), cursor.fetchall()
    except sqlite3.Error as error:
        raise DataError(path, f"is not a GeoPackage: {error}") from error
    finally:
        source.close()
    places = [_point(path, row[at]) for row in stored]
    if "x" in names or "y" in names:
        header, kept = tuple(names), [row[:at] + row[at + 1 :] for row in stored]
        header = header[:at] + header[at + 1 :]
    else:
        header = (*names[:at], *names[at + 1 :], "x", "y")
        kept = [(*row[:at], *row[at + 1 :], *place) for row, place in zip(stored, places, strict=True)]
    crs = None
    if system is not None and srs > 0:
        crs = f"{system[0]}:{system[1]}" if system[0].upper() == "EPSG" else system[2]
    return Places(header, tuple(kept), np.array(places, np.float64).reshape(-1, 2), crs)


def _point(path: Path, blob: bytes | None) -> tuple[float, float]:
    """The place in a geometry: a header with an envelope, then a point as well-known binary."""
    if blob is None or blob[:2] != b"GP":
        raise DataError(path, "has a row without a geometry")
    start = 8 + ENVELOPE_BYTES[(blob[3] >> 1) & 7]
    order = "<" if blob[start] else ">"
    (kind,) = struct.unpack_from(f"{order}I", blob, start + 1)
    if kind % 1000 != 1:  # 1001, 2001, 3001: with height or measure
        raise DataError(path, f"has a geometry that is not a point (type {kind})")
    x, y = struct.unpack_from(f"{order}2d", blob, start + 5)
    return x, y
