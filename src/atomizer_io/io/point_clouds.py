"""Point clouds through laspy (LAS, LAZ, COPC) and from PLY files: coordinates in metres, the rest as stored."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError, first_line
from atomizer_io.io.crs import parsed_crs, system_of, units_of
from atomizer_io.io.las_guard import Guarded, check_las
from atomizer_io.io.ply import read_ply

Bounds = tuple[float, float, float, float]  # x_min, y_min, x_max, y_max in metres
Columns = dict[str, NDArray[Any]]

SUFFIXES = (".las", ".laz", ".ply")
FARTHEST_M = 1e9  # a coordinate of any system, and of heights; more is a broken scale or offset
DEGREE_EXTENT, DEGREE_POINTS = 1.0, 100  # so many points on less than a unit are in degrees, not in metres
CHUNK = 2_000_000  # points read at once
COLOURS = ("red", "green", "blue", "nir")
FIELDS = ("return_number", "number_of_returns", "intensity", "classification", *COLOURS, "gps_time")
PLY_NAMES = {  # what PLY files call them
    "classification": ("sem_class", "classification", "scalar_classification", "class", "label"),
    "intensity": ("intensity", "scalar_intensity"),
    "nir": ("nir", "infrared"),
}
GPS_EPOCH = datetime.datetime(1980, 1, 6)
ADJUSTMENT_S = 1e9  # adjusted standard GPS time is the seconds since the epoch less these
FIRST_DAY = datetime.date(1990, 1, 1)


@dataclass(frozen=True, slots=True)
class PointCloudHeader:
    """The number of points of a file, their bounds in metres, and the metres in one unit of its CRS.

    ``crs`` is an authority code or WKT, None where the file has none; metres are assumed then, unless the file has at
    least a unit. ``unit_z_m`` is the unit of heights, the same as of x and y unless the file states another.
    """

    points: int
    bounds: Bounds
    crs: str | None = None
    unit_m: float = 1.0
    unit_z_m: float = 1.0
    standard_time: bool = False  # the header promises adjusted standard GPS time
    metres_assumed: bool = False  # the file does not state the unit of its coordinates


@dataclass(frozen=True, slots=True, eq=False)
class PointCloud:
    """P points in the order of the file: ``x``, ``y``, ``z`` in metres (float64), other columns (P,) as stored.

    A column is None where the format has none. ``number`` counts the points of the whole file from 0. ``colours`` are
    those of red, green, blue, nir that there are, 16-bit in LAS. ``gps_time`` is adjusted standard GPS time, None where
    the file has another clock. ``unit_m`` is one unit of the CRS in metres: x / unit_m is the coordinate in the file.
    ``height`` above the local ground, in metres, and ``intensity_rank`` (0 to 1, among all returns of the file) are
    there once a :class:`~atomizer_io.io.point_reference.PointCloudReference` has completed them.
    """

    path: Path
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    z: NDArray[np.float64]
    number: NDArray[np.int64] | None = None
    return_number: NDArray[Any] | None = None
    number_of_returns: NDArray[Any] | None = None
    intensity: NDArray[Any] | None = None
    classification: NDArray[Any] | None = None
    colours: Mapping[str, NDArray[Any]] | None = None
    gps_time: NDArray[np.float64] | None = None
    crs: str | None = None
    unit_m: float = 1.0
    height: NDArray[np.float64] | None = None
    intensity_rank: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def bounds(self) -> Bounds:
        """Bounds of the points in metres."""
        return (float(self.x.min()), float(self.y.min()), float(self.x.max()), float(self.y.max()))

    @property
    def date(self) -> datetime.date | None:
        """The day on which the median point was measured; None if it is unknown or not between 1990 and today."""
        if self.gps_time is None:
            return None
        seconds = float(np.median(self.gps_time)) if len(self.gps_time) else 0.0
        if not 0 < abs(seconds) < ADJUSTMENT_S:  # 0 was never written, more lies beyond 2043, NaN is neither
            return None
        day = (GPS_EPOCH + datetime.timedelta(seconds=seconds + ADJUSTMENT_S)).date()
        return day if FIRST_DAY <= day <= datetime.date.today() else None

    def where(self, keep: NDArray[Any]) -> PointCloud:
        """Return only the points ``keep``, a mask or indices."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        kept = {name: column[keep] for name, column in columns.items() if isinstance(column, np.ndarray)}
        colours = None if self.colours is None else {name: column[keep] for name, column in self.colours.items()}
        return replace(self, colours=colours, **kept)


def read_point_cloud(path: str | Path, *, bounds: Bounds | None = None, crs: str | None = None) -> PointCloud:
    """Read the points of a file; with ``bounds`` only those inside (far edges excluded), which saves memory.

    Feet become metres where the CRS is in feet, degrees are refused; ``crs`` is for a file that has none. GPS time is
    kept only if the header marks it as adjusted standard time: other clocks do not give the day.
    """
    path, header = Path(path), point_cloud_header(path, crs)
    parts = []
    for point_cloud in point_cloud_chunks(path, header):
        parts.append(point_cloud if bounds is None else point_cloud.where(within(point_cloud.x, point_cloud.y, bounds)))
    return joined(parts)


def point_cloud_chunks(path: Path, header: PointCloudHeader, most: int | None = None) -> Iterator[PointCloud]:
    """Yield the points of a file, ``most`` at a time; one with fewer points than its header states is an error."""
    count = 0
    for columns in column_chunks(path, header, (*FIELDS, "z"), most):
        check_finite(path, columns)
        number = np.arange(count, count + len(columns["x"]))
        count += len(number)
        colours = {name: columns.pop(name) for name in COLOURS if name in columns}
        time = columns.pop("gps_time", None)
        time = time if header.standard_time else None
        yield PointCloud(
            path, number=number, **columns, colours=colours or None, gps_time=time, crs=header.crs, unit_m=header.unit_m
        )
    if count < header.points:
        raise DataError(path, f"is truncated: it holds {count} of {header.points} points")


def joined(parts: Sequence[PointCloud]) -> PointCloud:
    """Return parts of one file as one point cloud."""
    first = parts[0]
    columns = {f.name for f in fields(first) if isinstance(getattr(first, f.name), np.ndarray)}
    whole: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    colours = {name: np.concatenate([(part.colours or {})[name] for part in parts]) for name in first.colours or ()}
    return replace(first, colours=colours or None, **whole)


def point_cloud_header(path: str | Path, crs: str | None = None) -> PointCloudHeader:
    """Read the header of a file; of a PLY file, whose header has no bounds, x and y are read.

    ``crs`` (an authority code or WKT) is the coordinate system of a file that has none.
    """
    path = Path(path)
    _check_file(path)
    if path.suffix.lower() == ".ply":
        points = read_ply(path)
        low_high = [(float(points[axis].min()), float(points[axis].max())) for axis in "xy"]
        text, unit, unit_z = (None, 1.0, 1.0) if crs is None else units_of(parsed_crs(crs), path)
        (x_min, x_max), (y_min, y_max) = ((low * unit, high * unit) for low, high in low_high)
        bounds = (x_min, y_min, x_max, y_max)
        check_degrees(path, bounds, len(points), crs is None)
        return PointCloudHeader(len(points), bounds, text, unit, unit_z or unit, metres_assumed=crs is None)
    with open_las(path) as reader:
        header = reader.header
        text, unit, unit_z, assumed = system_of(header, path, crs)
        (x_min, y_min), (x_max, y_max) = header.mins[:2] * unit, header.maxs[:2] * unit
        standard = int(header.global_encoding.gps_time_type) == 1
        bounds = (float(x_min), float(y_min), float(x_max), float(y_max))
        check_degrees(path, bounds, header.point_count, assumed)
        return PointCloudHeader(header.point_count, bounds, text, unit, unit_z, standard, assumed)


def check_degrees(path: Path, bounds: Bounds, points: int, assumed: bool) -> None:
    """Refuse a file without a coordinate system whose numbers are longitudes and latitudes rather than metres."""
    x_min, y_min, x_max, y_max = bounds
    on_earth = max(abs(x_min), abs(x_max)) <= 180 and max(abs(y_min), abs(y_max)) <= 90
    if assumed and on_earth and points >= DEGREE_POINTS and 0 < max(x_max - x_min, y_max - y_min) < DEGREE_EXTENT:
        raise DataError(
            path,
            f"has no coordinate system, and its coordinates (x {x_min:.6g} to {x_max:.6g}, y {y_min:.6g} to "
            f"{y_max:.6g}) look like longitude and latitude: project it to metres first (pdal translate ... "
            "reprojection --filters.reprojection.in_srs=EPSG:4326 --filters.reprojection.out_srs=EPSG:...), or, if "
            "they are none, name their coordinate system (--crs EPSG:..., in Python crs=EPSG:...)",
        )


def coordinates(path: Path, header: PointCloudHeader) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield x and y of all points in metres, some at a time."""
    for columns in column_chunks(path, header, ()):
        yield columns["x"], columns["y"]


def check_finite(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Refuse points that are nowhere, or farther away than anything on Earth."""
    for axis in "xyz":
        wrong = int((~(np.abs(columns[axis]) <= FARTHEST_M)).sum())
        if wrong:
            raise DataError(path, f"{wrong} points have no finite {axis}, or one beyond ±{FARTHEST_M:.0e} m")


def within(x: NDArray[Any], y: NDArray[Any], bounds: Bounds) -> NDArray[np.bool_]:
    """Return which points lie inside ``bounds``, the far edges excluded."""
    x_min, y_min, x_max, y_max = bounds
    inside: NDArray[np.bool_] = (x >= x_min) & (x < x_max) & (y >= y_min) & (y < y_max)
    return inside


def column_chunks(
    path: Path, header: PointCloudHeader, names: tuple[str, ...], most: int | None = None
) -> Iterator[Columns]:
    """Yield x, y and those of ``names`` that the file has, some points at a time; coordinates are in metres."""
    most = most or CHUNK
    if path.suffix.lower() == ".ply":
        yield from _ply_columns(read_ply(path), names, header, most)
        return
    import laspy

    selection = laspy.DecompressionSelection.all() if names else laspy.DecompressionSelection.base()
    with open_las(path, decompression_selection=selection) as reader:
        present = [name for name in names if name in reader.header.point_format.dimension_names]
        for points in reader.chunk_iterator(most):
            columns = {name: np.array(points[name]) for name in present}  # a copy: views would keep all bytes
            columns |= {axis: np.asarray(points[axis], dtype=np.float64) * header.unit_m for axis in "xy"}
            if "z" in names:
                columns["z"] = np.asarray(points["z"], dtype=np.float64) * header.unit_z_m
            yield columns


def _ply_columns(table: NDArray[Any], names: tuple[str, ...], header: PointCloudHeader, most: int) -> Iterator[Columns]:
    units = {"x": header.unit_m, "y": header.unit_m, "z": header.unit_z_m}
    called = ply_names(table, ("x", "y", *names))
    for start in range(0, len(table), most):
        rows = table[start : start + most]
        columns = {name: np.array(rows[field]) for name, field in called.items()}
        yield {name: c.astype(np.float64) * units[name] if name in units else c for name, c in columns.items()}


def ply_names(table: NDArray[Any], names: Sequence[str]) -> dict[str, str]:
    """Return which property of the points of a PLY file is each of ``names``, as far as there is one."""
    own = {name.casefold(): name for name in table.dtype.names or ()}
    matches = {name: [own[alias] for alias in PLY_NAMES.get(name, (name,)) if alias in own] for name in names}
    return {name: properties[0] for name, properties in matches.items() if properties}


@contextmanager
def open_las(path: Path, **options: Any) -> Iterator[Any]:
    """Open a file that has points in laspy; whatever laspy and its decompressor raise becomes a :class:`DataError`."""
    import laspy

    check_las(path)
    try:
        with laspy.open(path, laz_backend=Guarded(path), **options) as reader:
            if not reader.header.point_count:
                raise DataError(path, "has no points")
            yield reader
    except (DataError, ModuleNotFoundError):
        raise
    except Exception as error:  # of broken bytes: anything, from LaspyException and LazrsError to UnicodeDecodeError
        raise DataError(path, f"cannot be read: truncated or not a LAS or LAZ file ({first_line(error)})") from error


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise DataError(path, "no such file")
    if not path.stat().st_size:
        raise DataError(path, "is empty (0 bytes)")
