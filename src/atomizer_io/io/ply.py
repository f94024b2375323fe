"""Point clouds in PLY files: scalar properties of one element, as text or binary of either byte order."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError

TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"},
    **{"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"},
    **{"float": "f4", "double": "f8", "float32": "f4", "float64": "f8"},
}
BYTE_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": "="}
HEADER_LINES, LINE_BYTES = 500, 1000  # a longer header is not one


@dataclass
class Element:
    """One table of a PLY file: its name, its rows and (property, numpy type); ``lists`` if a property is a list."""

    name: str
    rows: int
    properties: list[tuple[str, str]] = field(default_factory=list)
    lists: bool = False

    def dtype(self, order: str) -> np.dtype[Any]:
        """Return the numpy type of one row."""
        return np.dtype([(name, order + kind) for name, kind in self.properties])


def read_ply(path: Path) -> NDArray[Any]:
    """Read the points as a structured array, a field per property; those of a binary file stay on disk until used.

    The points are the first element with x, y and z, whatever its name.
    """
    try:
        with path.open("rb") as file:
            kind, elements = _header(file, path)
            start, lines = file.tell(), 0
            for element in elements:
                if {"x", "y", "z"} <= {name for name, _ in element.properties}:
                    break
                if element.lists:
                    raise DataError(path, f"has lists (element {element.name!r}) before its points: not supported")
                start, lines = start + element.rows * element.dtype(BYTE_ORDERS[kind]).itemsize, lines + element.rows
            else:
                raise DataError(path, f"has no element with x, y and z; it has {_named(elements)}")
            if element.lists:
                raise DataError(path, f"has a list among the properties of its points ({element.name!r})")
            if not element.rows:
                raise DataError(path, "has no points")
            dtype = element.dtype(BYTE_ORDERS[kind])
            if kind == "ascii":
                if lines + 2 * len(element.properties) * element.rows > path.stat().st_size:  # a digit and a space each
                    raise DataError(path, f"is truncated: it has no room for the {element.rows} points of its header")
                return _text(file, path, dtype, lines, element.rows)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error}") from error
    there = path.stat().st_size - start
    if there < element.rows * dtype.itemsize:
        raise DataError(path, f"is truncated: it holds {max(there, 0) // dtype.itemsize} of {element.rows} points")
    return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=(element.rows,))


def _header(file: BinaryIO, path: Path) -> tuple[str, list[Element]]:
    """Read the encoding and the elements; the file is then at the first byte after them."""
    if file.readline(LINE_BYTES).strip() != b"ply":
        raise DataError(path, "is not a PLY file: it does not begin with the line 'ply'")
    kind, elements = "", list[Element]()
    for _ in range(HEADER_LINES):
        line = file.readline(LINE_BYTES)
        words = line.decode("latin-1").split()
        match words:
            case ["end_header"]:
                if not kind:
                    raise DataError(path, "has a header without format")
                return kind, elements
            case ["format", name, _] if name in BYTE_ORDERS:
                kind = name
            case ["element", name, rows] if rows.isdecimal():
                elements.append(Element(name, int(rows)))
            case ["property", "list", _, _, _] if elements:
                elements[-1].lists = True
            case ["property", type_, name] if elements and type_ in TYPES and name not in dict(elements[-1].properties):
                elements[-1].properties.append((name, TYPES[type_]))
            case ["comment" | "obj_info", *_]:
                pass
            case _ if line:
                raise DataError(path, f"has a header line that is not PLY: {line[:60]!r}")
            case _:
                break
    raise DataError(path, "is truncated or not a PLY file: its header has no end")


def _text(file: BinaryIO, path: Path, dtype: np.dtype[Any], skip: int, rows: int) -> NDArray[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of files without a line: that is what the check below is for
            table = np.loadtxt(file, dtype=dtype, skiprows=skip, max_rows=rows, ndmin=1, comments=None)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(path, f"has a point that does not fit its header ({error})") from error
    if len(table) < rows:
        raise DataError(path, f"is truncated: it holds {len(table)} of {rows} points")
    return table


def _named(elements: list[Element]) -> str:
    return "; ".join(f"{e.name}: {', '.join(name for name, _ in e.properties) or 'lists'}" for e in elements) or "none"
