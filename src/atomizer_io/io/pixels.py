"""The pixels of an open raster file: values as stored, and which of them were observed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALL_BYTES = 256 << 20  # so much is taken without a look at the size of the file
MOST_PACKED = 2000  # bytes of pixels in a byte of a file; a uniform image is packed about a thousand times
CACHE_BYTES = 128 << 20  # for decoded blocks: several rows of blocks of a window, small enough for many workers


def limited_cache() -> Any:
    """Return a context that limits GDAL's cache, which would take 5 % of the machine's memory in each worker."""
    import rasterio

    return rasterio.Env(GDAL_CACHEMAX=CACHE_BYTES)  # rasterio takes a number as bytes, GDAL itself as megabytes


def check_plausible(source: Any, needed: int) -> None:
    """Refuse to take ``needed`` bytes for pixels of a file that is much too small to hold them."""
    there = os.path.getsize(source.name) if os.path.isfile(source.name) else needed
    if needed > SMALL_BYTES and needed > MOST_PACKED * there:
        raise OSError(f"{needed / 1e9:.1f} GB of pixels in a file of {there / 1e6:.2f} MB: its header is broken")


def check_blocks(source: Any) -> None:
    """Refuse a file whose blocks, which are read as a whole, are much larger than the file can hold."""
    bands = source.count if source.interleaving is not None and source.interleaving.value == "PIXEL" else 1
    for (height, width), kind in zip(source.block_shapes, source.dtypes, strict=True):
        check_plausible(source, height * width * bands * np.dtype(kind).itemsize)


def pixels(
    source: Any, numbers: Sequence[int], part: Any = None, shape: tuple[int, int] | None = None
) -> tuple[NDArray[Any], tuple[float | None, ...], NDArray[np.bool_] | None]:
    """Read values of some bands (numbers from 1) of an open file, the nodata of each, and the file's own mask (H, W).

    All bands and the alpha band come from one call: files often keep all bands of a place together, and each call
    would decode them again. ``shape`` (height, width) takes only some of the rows and columns of ``part``.
    """
    from rasterio.enums import ColorInterp, MaskFlags

    flags, listed = source.mask_flag_enums, list(numbers)
    alpha = None
    if any(MaskFlags.alpha in of_band for of_band in flags) and len(set(source.dtypes)) == 1:
        alpha = source.colorinterp.index(ColorInterp.alpha) + 1
        listed += [] if alpha in listed else [alpha]
    height, width = shape or ((source.height, source.width) if part is None else (int(part.height), int(part.width)))
    check_plausible(source, height * width * sum(np.dtype(source.dtypes[number - 1]).itemsize for number in listed))
    if len({source.dtypes[number - 1] for number in listed}) == 1:
        values = source.read(listed, window=part, out_shape=None if shape is None else (len(listed), *shape))
    else:  # a VRT may have bands of several types, which rasterio reads one by one
        values = np.stack([source.read(number, window=part, out_shape=shape) for number in listed])
    mask = None
    if alpha is not None:
        mask = values[listed.index(alpha)] > 0
    elif any(MaskFlags.per_dataset in of_band for of_band in flags):
        mask = source.dataset_mask(window=part, out_shape=shape) > 0
    marks = source.nodatavals
    shared = [MaskFlags.per_dataset in of_band and MaskFlags.nodata in of_band for of_band in flags]
    nodata = tuple(None if shared[number - 1] else marks[number - 1] for number in numbers)
    return values[: len(numbers)], nodata, mask


def observed(
    values: NDArray[Any],
    nodata: Sequence[float | None],
    mask: NDArray[np.bool_] | None,
    declared: float | None = None,
) -> NDArray[np.bool_] | None:
    """Return where values (C, H, W) are neither the nodata of their band nor masked (H, W); None means everywhere.

    ``declared`` is a further value without data, which a user names.
    """
    found: NDArray[np.bool_] | None = None
    marks = [None if mark is None else _as_stored(mark, values.dtype) for mark in nodata]
    if len(set(marks)) == 1 and marks[0] is not None:
        found = values != marks[0]
    elif any(mark is not None for mark in marks):
        found = np.ones(values.shape, dtype=bool)
        for band, number in enumerate(marks):
            if number is not None:
                found[band] = values[band] != number
    if mask is not None:
        found = np.broadcast_to(mask, values.shape) if found is None else found & mask
    if declared is not None and (mark := _as_stored(declared, values.dtype)) is not None:
        found = values != mark if found is None else found & (values != mark)
    return found


def _as_stored(mark: float, dtype: Any) -> Any:
    """Return a nodata value as a number of the file's type, None where it has no such number (NaN is absent anyway)."""
    if np.isnan(mark):
        return None
    if dtype.kind in "iu":
        return dtype.type(mark) if mark == int(mark) and np.can_cast(np.min_scalar_type(int(mark)), dtype) else None
    return dtype.type(mark)
