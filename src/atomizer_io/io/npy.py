"""Arrays of numbers in .npy files, which are never unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError
from atomizer_io.io.rasters import first_line

NUMBERS = {"iu": "whole numbers", "f": "floating-point numbers"}


def read_array(path: Path, kinds: str, *, ndim: tuple[int, ...] = (), mapped: bool = False) -> NDArray[Any]:
    """Read an array of numbers of one of the numpy ``kinds`` (i, u, f), with ``ndim`` dimensions if given.

    With ``mapped`` it stays on disk until it is sliced, and cannot be written to.
    """
    if not path.is_file():
        raise DataError(path, "no such file")
    try:
        # mapped in any case: a header that promises more than the file holds is noticed before memory is asked for
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
