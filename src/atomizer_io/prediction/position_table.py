"""Tables: CSV files and GeoPackages of positions that are read, and the columns with predictions that are added."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import DataError
from atomizer_io.io.vector_files import VectorFile
from atomizer_io.texts import read_text

DEGREES = "EPSG:4326"
COLUMNS = (("x", "y", None), ("lon", "lat", DEGREES), ("longitude", "latitude", DEGREES))  # None: of the raster
POINT = 0  # number of shapely's type
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PositionTable:
    """A table with a position in each row; where ``crs`` is None, coordinates are in that of the raster."""

    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    xy_M2: Floats
    crs: str | None

    @classmethod
    def read(cls, path: Path) -> PositionTable:
        """Read a CSV file or a GeoPackage."""
        if not path.is_file():
            raise DataError(path, "no such file")
        table = _read_geopackage(path) if path.suffix.casefold() == ".gpkg" else _read_csv(path)
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


def _read_geopackage(path: Path) -> PositionTable:
    """Read a layer of points: its columns, and x and y as they are stored."""
    import shapely

    file = VectorFile.open(path)
    rows: list[tuple[Any, ...]] = []
    positions = [np.empty((0, 2))]
    named = {"x", "y"} & set(file.fields)
    for batch in file.batches(file.fields):
        kinds = shapely.get_type_id(batch.geometry)
        wrong = np.flatnonzero((kinds != POINT) & ~shapely.is_missing(batch.geometry))
        if len(wrong):
            raise DataError(path, f"feature {batch.ids[wrong[0]]} is not a point")
        xy = np.stack([shapely.get_x(batch.geometry), shapely.get_y(batch.geometry)], axis=1)
        columns = [column.to_pylist() for column in batch.columns.values()]
        rows += zip(batch.ids.tolist(), *columns, *(() if named else xy.T.tolist()), strict=True)
        positions.append(xy)
    header = ("fid", *file.fields, *(() if named else ("x", "y")))
    return PositionTable(header, tuple(rows), np.concatenate(positions), file.crs)


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
