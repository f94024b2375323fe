"""PLY files are predicted as LAS: a copy in that format is made for the time of a prediction, and written with classes.

Coordinates are kept to the millimetre. Intensities that are no whole numbers of 16 bits are scaled to these, which
keeps their ranks. Properties that LAS does not know become extra dimensions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError
from atomizer_io.io.crs import parsed_crs
from atomizer_io.io.ply import read_ply
from atomizer_io.io.point_clouds import COLOURS, FIELDS, check_finite, ply_names, point_cloud_header
from atomizer_io.io.point_reference import known, levels, whole
from atomizer_io.prediction.las import NAME

PLY = ".ply"
SCALE = 0.001  # of coordinates
LARGEST = {"return_number": 15, "number_of_returns": 15, "classification": 255} | dict.fromkeys(COLOURS, 65535)


@contextmanager
def as_las(path: Path, output: Path, crs: str | None) -> Iterator[Path]:
    """Yield ``path``, or a copy of a PLY file as LAS, which is removed afterwards; it lies beside ``output``."""
    if path.suffix.lower() != PLY:
        yield path
        return
    point_cloud_header(path, crs)  # fails before anything is written if it cannot be read
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        copy = Path(folder, f"{path.name}.las")
        las_of(path, crs).write(copy)
        try:
            yield copy
        except DataError as error:
            if error.path != str(copy):
                raise
            raise DataError(path, error.cause) from error


def las_of(path: Path, crs: str | None) -> Any:
    """Return the points of a PLY file as laspy holds those of a LAS file."""
    import laspy

    table = read_ply(path)
    fields = ply_names(table, (*FIELDS, "x", "y", "z"))
    xyz = {axis: np.asarray(table[fields.pop(axis)], np.float64) for axis in "xyz"}
    check_finite(path, xyz)
    if max(np.ptp(column) for column in xyz.values()) > np.iinfo(np.int32).max * SCALE:
        raise DataError(path, "is too wide for coordinates to the millimetre: convert it to .las first")
    header = laspy.LasHeader(version="1.4", point_format=8 if "nir" in fields else 7 if {*COLOURS} & {*fields} else 6)
    header.scales, header.offsets = np.full(3, SCALE), np.floor([xyz[axis].min() for axis in "xyz"])
    if crs is not None:
        header.add_crs(parsed_crs(crs))
    # without those that LAS has no room or name for
    used, taken = {*fields.values(), *"xyz"}, {name.casefold() for name in header.point_format.dimension_names}
    others = [n for n in table.dtype.names or () if n not in used and n.casefold() not in taken]
    extras = {name: np.array(table[name]) for name in others if len(name.encode()) <= NAME}
    header.add_extra_dims([laspy.ExtraBytesParams(name, column.dtype.str[1:]) for name, column in extras.items()])
    points = laspy.LasData(header, laspy.ScaleAwarePointRecord.zeros(len(table), header=header))
    points.x, points.y, points.z = xyz["x"], xyz["y"], xyz["z"]
    for name, column in {**{name: stored(name, table[own]) for name, own in fields.items()}, **extras}.items():
        points[name] = column
    return points


def stored(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """Return a column as LAS holds it; a number that LAS cannot hold becomes 0, which means unknown."""
    column = np.array(column)
    if name == "intensity":
        return strengths(column)
    if name in LARGEST:
        return np.where((column >= 0) & (column <= LARGEST[name]), column, 0).astype(np.uint16)
    return column


def strengths(intensity: NDArray[Any]) -> NDArray[np.uint16]:
    """Return intensities as numbers of 16 bits: as they are where they fit, else between their least and largest."""
    numbers = known(intensity)
    rounded = np.rint(numbers)
    fit = bool(len(numbers)) and np.array_equal(numbers, rounded) and whole(rounded.astype(np.int64))
    low, high = (0.0, 65535.0) if fit or not len(numbers) else (float(numbers.min()), float(numbers.max()))
    return levels(np.where(np.isfinite(intensity), intensity, low), low, high).astype(np.uint16)
