"""Tables, lists, JSON and arrays of numbers (.npy, never unpickled) that come with datasets."""

from __future__ import annotations

import contextlib
import csv
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError, first_line
from atomizer_io.texts import parse_json, read_text

T = TypeVar("T")


def first_existing(folder: Path, names: Sequence[str], what: str) -> Path:
    """Return the first of ``names`` that exists in ``folder``, as releases of one dataset differ."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        folder / names[0], f"no such file: {what}" + (f" (also tried {', '.join(names[1:])})" if names[1:] else "")
    )


def lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not empty."""
    return [line.strip() for line in _text(path).splitlines() if line.strip()]


def lists_in(folder: Path, known: Callable[[str], bool]) -> list[str]:
    """Return the names of the text files in a folder, without suffix, with at least one line that is ``known``."""
    names = []
    for path in sorted(folder.glob("*.txt")):
        with contextlib.suppress(DataError):  # what cannot be read is no list
            names += [path.stem] if any(map(known, lines(path))) else []
    return names


def rows(path: Path, columns: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return the rows of a csv file whose header has at least ``columns``, which no row may lack."""
    reader = csv.DictReader(_text(path).splitlines())
    try:
        header, table = list(reader.fieldnames or ()), list(reader)
    except csv.Error as error:
        raise DataError(path, f"is not a table: {error}") from error
    missing = [column for column in columns if column not in header]
    if missing:
        raise DataError(path, f"has no column {', '.join(missing)}; it has {', '.join(header or ['nothing'])}")
    for number, row in enumerate(table, start=1):
        short = [column for column in columns if row[column] is None]
        if short:
            raise DataError(path, f"row {number} has no {', '.join(short)}")
    return table


def from_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return parse_json(_text(path))
    except ValueError as error:  # also a number of thousands of digits, and brackets in brackets
        raise DataError(path, f"is not JSON: {error}") from error


def checksum(name: str) -> int:
    """Return a number that looks random but is always the same for a name, to divide names into splits."""
    return zlib.crc32(name.encode())


def evenly(items: Sequence[T], count: int | None) -> list[T]:
    """Return at most ``count`` items, evenly spaced from the first to the last (one: the middle); None: all."""
    if count is None or count >= len(items):
        return list(items)
    if count == 1:
        return [items[len(items) // 2]]
    return [items[i] for i in np.linspace(0, len(items) - 1, count).round().astype(int)]


def _text(path: Path) -> str:
    try:
        return read_text(path, "utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(path, "no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path, f"cannot be read: {error}") from error


NUMBERS = {"iu": "whole numbers", "f": "floating-point numbers"}


def read_array(path: Path, kinds: str, *, ndim: tuple[int, ...] = (), mapped: bool = False) -> NDArray[Any]:
    """Read an array of numbers of one of the numpy ``kinds`` (i, u, f), with ``ndim`` dimensions if given.

    With ``mapped`` it stays on disk until it is sliced, and cannot be written to.
    """
    if not path.is_file():
        raise DataError(path, "no such file")
    try:
        # mapped in any case: a header that promises more than the file holds is noticed before memory is allocated
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy has many ways to stumble over a broken header
        cause = "cannot be read: truncated, not a .npy array, or pickled, which is never opened"
        raise DataError(path, f"{cause} ({first_line(error)})") from error
    if array.dtype.kind not in "iuf":
        raise DataError(path, f"does not hold an array of numbers, but {array.dtype}")
    if array.dtype.kind not in kinds:
        raise DataError(path, f"holds {array.dtype}, expected {NUMBERS.get(kinds, 'numbers')}")
    if ndim and array.ndim not in ndim:
        raise DataError(path, f"has shape {array.shape}, expected {' or '.join(map(str, ndim))} dimensions")
    return array if mapped else np.array(array)
