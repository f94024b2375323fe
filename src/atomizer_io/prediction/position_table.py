"""Tables: CSV files and GeoPackages of positions that are read, and the columns with predictions that are added."""

from __future__ import annotations

import csv
import io
import itertools
import sqlite3
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import DataError
from atomizer_io.texts import read_text

DEGREES = "EPSG:4326"
COLUMNS = (("x", "y", None), ("lon", "lat", DEGREES), ("longitude", "latitude", DEGREES))  # None: of the raster
ENVELOPE_BYTES = (0, 32, 48, 48, 64)  # of a geometry of a GeoPackage, by the number in its flags
LEAST_ROW = 16  # bytes that a row with a point takes in a file
STEP, ENOUGH_STEPS = 1_000_000, 100  # instructions of the database between two checks, and checks for a small file
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
    """Read the first table of points: its columns, and x and y as they are stored."""
    source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    most = path.stat().st_size
    steps = itertools.count()
    source.set_progress_handler(lambda: next(steps) > ENOUGH_STEPS + most // STEP, STEP)  # a view may never end
    try:
        tables = source.execute("SELECT table_name, column_name, srs_id FROM gpkg_geometry_columns").fetchall()
        if not tables:
            raise DataError(path, "has no table with geometries")
        table, geometry, srs = tables[0]
        system = source.execute(
            "SELECT organization, organization_coordsys_id, definition FROM gpkg_spatial_ref_sys WHERE srs_id = ?",
            [srs],
        ).fetchone()
        cursor = source.execute('SELECT * FROM "{}"'.format(str(table).replace('"', '""')))
        names = [column[0] for column in cursor.description]
        if geometry not in names:
            raise DataError(path, f"has no column {geometry!r} of geometries in its table {table!r}")
        at, stored = names.index(geometry), cursor.fetchmany(most // LEAST_ROW + 1)
        if len(stored) > most // LEAST_ROW:
            raise DataError(path, "has more rows than it has room for")
    except (sqlite3.Error, UnicodeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(path, f"is not a GeoPackage: {error}") from error
    finally:
        source.close()
    positions = [_point(path, row[at]) for row in stored]
    if "x" in names or "y" in names:
        header, kept = tuple(names), [row[:at] + row[at + 1 :] for row in stored]
        header = header[:at] + header[at + 1 :]
    else:
        header = (*names[:at], *names[at + 1 :], "x", "y")
        kept = [(*row[:at], *row[at + 1 :], *position) for row, position in zip(stored, positions, strict=True)]
    crs = None
    if system is not None and isinstance(srs, int) and srs > 0:
        crs = f"{system[0]}:{system[1]}" if str(system[0]).upper() == "EPSG" else str(system[2])
    return PositionTable(header, tuple(kept), np.array(positions, np.float64).reshape(-1, 2), crs)


def _point(path: Path, blob: bytes | None) -> tuple[float, float]:
    """Return the coordinates in a geometry: a header with an envelope, then a point as well-known binary."""
    if not isinstance(blob, bytes) or blob[:2] != b"GP":
        raise DataError(path, "has a row without a geometry")
    try:
        start = 8 + ENVELOPE_BYTES[(blob[3] >> 1) & 7]
        order = "<" if blob[start] else ">"
        (kind,) = struct.unpack_from(f"{order}I", blob, start + 1)
        if kind % 1000 != 1:  # 1001, 2001, 3001: with height or measure
            raise DataError(path, f"has a geometry that is not a point (type {kind})")
        x, y = struct.unpack_from(f"{order}2d", blob, start + 5)
    except (IndexError, struct.error) as error:
        raise DataError(path, "has a geometry that is cut off") from error
    return x, y


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
