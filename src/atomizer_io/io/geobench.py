"""GEO-Bench v1 samples: HDF5 files of bands, described by a pickle that is read but never unpickled.

The file attribute ``pickle`` is the text of a bytes literal that holds a pickled dict: per band its date, pixel size
and wavelength, and the class of the scene. See :mod:`~atomizer_io.io.inert_pickle` for how it is read.
"""

from __future__ import annotations

import ast
import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError, first_line
from atomizer_io.io.inert_pickle import Inert, Refused, decode

MAX_TEXT = 1 << 18  # characters of the attribute; real ones have some thousands
MAX_PIXELS = 1 << 24  # most pixels of a band; real ones have at most 1000 × 1000
LABEL = "label"
DATED = re.compile(r"(?P<name>.+)_(?P<date>\d{4}-\d\d-\d\d)")
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2})"
BYTES_LITERAL = re.compile(rf"b'(?:[ -&(-\[\]-~]|{_ESCAPE})*+'|b\"(?:[ !#-\[\]-~]|{_ESCAPE})*+\"")

Key = tuple[str, datetime.date | None]  # name of a band without the date, and the date in the name


@dataclass(frozen=True, slots=True)
class BandFacts:
    """What a file records of one of its bands; None where it records nothing. ``kind`` is its GEO-Bench class."""

    kind: str | None = None
    wavelength_um: float | None = None
    gsd_m: float | None = None  # of the pixels as stored
    date: datetime.date | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StoredSample:
    """The content of one file: ``bands`` (H, W) as stored, ``label`` (a class or a map (H, W)), and their facts.

    ``classes`` is how many classes the label map can have, or their names, where the file records it.
    """

    path: Path
    bands: Mapping[Key, NDArray[Any]]
    label: int | NDArray[Any]
    facts: Mapping[Key, BandFacts]
    classes: int | tuple[str, ...] | None = None


def read_sample(path: str | Path) -> StoredSample:
    """Read a GEO-Bench HDF5 file."""
    import h5py

    path = Path(path)
    if not path.is_file():
        raise DataError(path, "no such file")
    try:
        with h5py.File(path, "r") as source:
            arrays = {name: _array(path, name, source) for name in source}
            text = source.attrs.get("pickle")
    except DataError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise DataError(path, f"cannot be read: truncated or not HDF5 ({first_line(error)})") from error
    notes = {} if text is None else _notes(path, text)
    mapped = next((name for name in arrays if _key(path, name)[0] == LABEL), None)  # it may have a date, too
    label = _class_of(path, notes) if mapped is None else arrays.pop(mapped)
    if not arrays:
        raise DataError(path, "has no band")
    shapes = {array.shape for array in arrays.values()} | ({label.shape} if isinstance(label, np.ndarray) else set())
    if len(shapes) > 1:
        raise DataError(path, f"bands and label have different shapes: {', '.join(map(str, sorted(shapes)))}")
    keys = {_key(path, name): name for name in arrays}
    return StoredSample(
        path,
        {key: arrays[name] for key, name in keys.items()},
        label,
        {key: _facts(notes.get(name)) for key, name in keys.items()},
        _classes(notes.get(mapped)),
    )


def _array(path: Path, name: str, source: Any) -> NDArray[Any]:
    """Read one band or the label, which is checked before."""
    import h5py

    if not isinstance(source.get(name, getlink=True), h5py.HardLink) or not isinstance(source[name], h5py.Dataset):
        raise DataError(path, f"{name!r} is not an array in this file")
    dataset = source[name]
    if dataset.external or dataset.is_virtual:
        raise DataError(path, f"{name!r} lies in another file")
    if dataset.ndim != 2 or not 0 < dataset.size <= MAX_PIXELS:
        raise DataError(path, f"{name!r} has shape {dataset.shape}, expected (height, width)")
    if dataset.dtype.kind not in "iuf":
        raise DataError(path, f"{name!r} holds {dataset.dtype}, not numbers")
    array: NDArray[Any] = dataset[:]
    return array


def _key(path: Path, name: str) -> Key:
    match = DATED.fullmatch(name)
    if match is None:
        return name, None
    try:
        return match["name"], datetime.date.fromisoformat(match["date"])
    except ValueError as error:
        raise DataError(path, f"band {name!r} has no such date: {error}") from error


# What the file records, from inert values


def _notes(path: Path, text: Any) -> dict[Any, Any]:
    """Return the dictionary in the attribute ``pickle``, with notes instead of objects."""
    if not isinstance(text, str) or len(text) > MAX_TEXT or not BYTES_LITERAL.fullmatch(text):
        raise DataError(path, f"its attribute 'pickle' is not the text of at most {MAX_TEXT:,} characters of bytes")
    try:
        notes = decode(ast.literal_eval(text))
    except Refused as error:
        raise DataError(path, f"its attribute 'pickle' {error}") from error
    if not isinstance(notes, dict):
        raise DataError(path, f"its attribute 'pickle' holds no dict but {type(notes).__name__}")
    return notes


def _class_of(path: Path, notes: Mapping[Any, Any]) -> int:
    """Return the class of a scene from an int, or from the bytes of a numpy integer."""
    label = notes.get(LABEL)
    match label:
        case bool():
            pass
        case int() if abs(label) < 1 << 31:
            return label
        case Inert(name="scalar", args=(Inert(name="dtype") as dtype, bytes() as raw)):
            match dtype.args, dtype.state:
                case (str() as code, *_), (_, "<" | "|", *_) if re.fullmatch(f"[iu]{len(raw)}", code):
                    return int.from_bytes(raw, "little", signed=code[0] == "i")
    if LABEL not in notes:
        raise DataError(path, "has no label: neither a dataset 'label' nor one in the attribute 'pickle'")
    kind = label if isinstance(label, Inert) else type(label).__name__
    raise DataError(path, f"its label is not one whole number but {kind}")


def _facts(note: Any) -> BandFacts:
    if not isinstance(note, dict):
        return BandFacts()
    band = note.get("band_info")
    state = band.state if isinstance(band, Inert) and isinstance(band.state, dict) else {}
    return BandFacts(
        band.name if isinstance(band, Inert) else None,
        _positive(state.get("wavelength")),
        _positive(note.get("spatial_resolution")),
        _date(note.get("date")),
    )


def _classes(note: Any) -> int | tuple[str, ...] | None:
    band = note.get("band_info") if isinstance(note, dict) else None
    state = band.state if isinstance(band, Inert) and isinstance(band.state, dict) else {}
    names, count = state.get("_class_names"), state.get("n_classes")
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
        return tuple(names)
    return count if isinstance(count, int) and 0 < count < 1 << 16 else None


def _positive(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value < 1e6 else None


def _date(value: Any) -> datetime.date | None:
    """Return the date in a note of a ``datetime.date`` or ``datetime``: year, month and day are its first bytes."""
    match value:
        case Inert(module="datetime", args=(bytes() as raw, *_)) if len(raw) in (4, 10):
            try:
                return datetime.date(int.from_bytes(raw[:2], "big"), raw[2] & 0x7F, raw[3])
            except ValueError:
                return None
    return None
