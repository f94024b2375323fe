"""Reading what users pass: arrays of any kind, positions in metres, dates in any form, options by name."""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.errors import AtomsError

Array: TypeAlias = Tensor | NDArray[Any]

SHORT = (torch.uint8, torch.int8, torch.int16, torch.uint16)
LARGEST = float(np.finfo(np.float32).max)  # models compute in float32
FARTHEST = 1e6  # standard deviations from the mean: beyond it values are clipped, so that their square stays finite
FLOAT_STEP_M = 0.02  # coarsest rounding of positions that is let pass
LAST_DAY = 36600.0  # a day of year may run on through a century of a series, but not be a date written as a number


def tensor(array: Array, name: str) -> Tensor:
    """Return any array of numbers as a tensor; values that a masked array hides become NaN."""
    if isinstance(array, Tensor):
        return array.detach()
    if isinstance(array, np.ma.MaskedArray) and array.mask is not np.ma.nomask:
        kind = array.dtype if array.dtype.kind == "f" else np.float64
        array = np.ma.filled(array.astype(kind), np.nan)
    try:
        data = np.ascontiguousarray(array)
        if data.dtype.byteorder not in "=|":
            data = data.astype(data.dtype.newbyteorder("="))
        if data.dtype.kind == "c":
            raise TypeError("complex numbers; pass amplitude or intensity")
        if data.dtype in (np.uint16, np.uint32, np.uint64):  # torch can do little with unsigned types
            data = data.astype(np.int64)
        return torch.from_numpy(data if data.flags.writeable else data.copy())
    except (TypeError, ValueError) as error:
        raise AtomsError(f"{name} must be an array of numbers, got {type(array).__name__}: {error}") from None


def metres(array: Array, name: str) -> Tensor:
    """Return positions as float64 on the CPU; refuse numbers with too few digits to be metres."""
    values = tensor(array, name)
    if values.dtype in (torch.float16, torch.bfloat16, torch.float32) and values.numel():
        largest = float(values.abs().max())
        step = largest * torch.finfo(values.dtype).eps
        if 1e4 < largest < math.inf and step > FLOAT_STEP_M:
            raise AtomsError(
                f"{name} are {str(values.dtype).removeprefix('torch.')} and reach {largest:.0f} m, where neighbouring "
                f"numbers are {step:.2g} m apart: pass float64, or subtract an origin first"
            )
    return values.to("cpu", torch.float64)


def floating(array: Array, name: str) -> Tensor:
    """Return an array as a tensor of float64 if it is of that type, else of float32."""
    values = tensor(array, name)
    return values if values.dtype in (torch.float32, torch.float64) else values.to(torch.float32)


def measured(array: Array, name: str) -> Tensor:
    """Return raw values as a tensor: floats and whole numbers of 8 or 16 bits keep their type.

    Everything else becomes float32.
    """
    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray) and array.dtype.str[1:] == "u2":
        return torch.from_numpy(np.array(array, dtype=np.uint16, copy=None, order="C"))
    values = tensor(array, name)
    return values if values.dtype in SHORT else floating(values, name)


def finite(values: Tensor) -> Tensor:
    """Return which numbers are neither NaN nor infinite; numpy is several times faster at it than torch."""
    if not values.is_floating_point():
        return torch.ones(values.shape, dtype=torch.bool, device=values.device)
    return torch.from_numpy(np.isfinite(values.numpy())) if values.device.type == "cpu" else torch.isfinite(values)


def usable(values: Tensor) -> Tensor:
    """Return which numbers are finite and stay finite in float32."""
    return values.abs() <= LARGEST if values.dtype == torch.float64 else finite(values)


def all_true(mask: Tensor) -> bool:
    """Return ``mask.all()``, by numpy on the CPU, where it is faster and stops at the first value that is false."""
    return bool(mask.numpy().all()) if mask.device.type == "cpu" else bool(mask.all())


def day_number(day: float | datetime.date | None) -> float | None:
    """Return the day of the year of a number or a date, None for None."""
    if day is None:
        return None
    if isinstance(day, datetime.date):
        return float(day.timetuple().tm_yday)
    if not isinstance(day, int | float | np.number) or not abs(float(day)) <= LAST_DAY:
        raise AtomsError(
            f"day_of_year is {day!r}: pass a day number, a date (datetime.date, '2021-07-04', numpy.datetime64), or "
            "None where the date is unknown"
        )
    return float(day)


def as_date(day: object) -> object:
    """Return a date as ``datetime.date`` however it is written, and anything else as it is."""
    if isinstance(day, np.datetime64):
        return day.astype("datetime64[D]").item()
    if isinstance(day, datetime.datetime):
        return day.date()
    if isinstance(day, str):
        with contextlib.suppress(ValueError):
            return datetime.date.fromisoformat(day[:10])
    return day


def option(value: Any, name: str) -> Any:
    """Return an option for the image called ``name``: the option itself, or its entry if it is a dictionary by name."""
    return value.get(name) if isinstance(value, Mapping) else value
