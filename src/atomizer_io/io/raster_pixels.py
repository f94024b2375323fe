"""The pixels of a raster file: values as stored, which of them were observed, and a sample from all over the file."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.inputs import LARGEST
from atomizer_io.errors import DataError, first_line
from atomizer_io.io.raster_files import open_raster

SMALL_BYTES = 256 << 20  # so much is taken without a look at the size of the file
MOST_PACKED = 2000  # bytes of pixels in a byte of a file; a uniform image is packed about a thousand times
SPARSE = ("GTiff", "JP2OpenJPEG")  # drivers of files that can leave out blocks without data, but for their index
MOST_SPARSE = 1_000_000  # bytes of pixels in a byte of such a file: a block of some MB has 8 to 16 bytes in the index
PNG_END = b"IEND\xaeB`\x82"
CACHE_BYTES = 128 << 20  # for decoded blocks: several rows of blocks of a window, small enough for many workers


def limited_cache() -> Any:
    """Return a context that limits GDAL's cache, which would take 5 % of the machine's memory in each worker."""
    import rasterio

    return rasterio.Env(GDAL_CACHEMAX=CACHE_BYTES)  # rasterio takes a number as bytes, GDAL itself as megabytes


def check_plausible(source: Any, needed: int, most: int = MOST_PACKED) -> None:
    """Refuse ``needed`` bytes of pixels of a file that is too small for them, at ``most`` so many in one of its own."""
    there = os.path.getsize(source.name) if os.path.isfile(source.name) else needed
    if needed > SMALL_BYTES and needed > most * there:
        raise OSError(f"{needed / 1e9:.1f} GB of pixels in a file of {there / 1e6:.2f} MB: its header is broken")


def check_size(source: Any) -> None:
    """Refuse a file that is much too small for its pixels or for one of its blocks, which are read as a whole."""
    sizes = [source.height * source.width * np.dtype(kind).itemsize for kind in source.dtypes]
    check_plausible(source, sum(sizes), MOST_SPARSE if source.driver in SPARSE else MOST_PACKED)
    bands = source.count if source.interleaving is not None and source.interleaving.value == "PIXEL" else 1
    for (height, width), kind in zip(source.block_shapes, source.dtypes, strict=True):
        check_plausible(source, height * width * bands * np.dtype(kind).itemsize)


def pixels(
    source: Any, numbers: Sequence[int], part: Any = None, shape: tuple[int, int] | None = None
) -> tuple[NDArray[Any], tuple[float | None, ...], NDArray[np.bool_] | None]:
    """Read values of some bands (numbers from 1) of an open file, the nodata of each, and the file's own mask (H, W).

    All bands and the alpha band come from one call: files often keep all bands of a pixel together, and each call
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
    present: NDArray[np.bool_] | None = None
    marks = [None if mark is None else _as_stored(mark, values.dtype) for mark in nodata]
    if len(set(marks)) == 1 and marks[0] is not None:
        present = values != marks[0]
    elif any(mark is not None for mark in marks):
        present = np.ones(values.shape, dtype=bool)
        for band, number in enumerate(marks):
            if number is not None:
                present[band] = values[band] != number
    if mask is not None:
        present = np.broadcast_to(mask, values.shape) if present is None else present & mask
    if declared is not None and (mark := _as_stored(declared, values.dtype)) is not None:
        present = values != mark if present is None else present & (values != mark)
    return present


def _as_stored(mark: float, dtype: Any) -> Any:
    """Return a nodata value as a number of the file's type, None where it has no such number (NaN is absent anyway)."""
    if np.isnan(mark):
        return None
    if dtype.kind in "iu":
        return dtype.type(mark) if mark == int(mark) and np.can_cast(np.min_scalar_type(int(mark)), dtype) else None
    return dtype.type(mark)


@contextlib.contextmanager
def opened(path: Path, *, allow_vrt: bool = False) -> Iterator[Any]:
    """Open a raster file in rasterio; whatever is wrong with it, until it is closed, becomes a :class:`DataError`."""
    from rasterio.errors import RasterioError

    if path.suffix.casefold() == ".png" and path.is_file() and not _ends(path, PNG_END):
        raise DataError(path, "cannot be read: truncated or not a raster (its end is missing)")
    try:
        with open_raster(path, allow_vrt=allow_vrt) as source:
            _check_numbers(path, source)
            check_size(source)
            yield source
    except (RasterioError, OSError, MemoryError) as error:
        raise DataError(path, f"cannot be read: truncated or not a raster ({first_line(error)})") from error


def _check_numbers(path: Path, source: Any) -> None:
    """Refuse a file of complex numbers, as radar images before detection have them."""
    if any(kind.startswith("complex") for kind in source.dtypes):
        raise DataError(
            path,
            f"holds complex numbers ({source.dtypes[0]}), which no model reads: write their amplitude or their real "
            "and imaginary parts as bands (gdal_translate, derived bands)",
        )


def _ends(path: Path, mark: bytes) -> bool:
    """Return whether the last bytes of a file hold ``mark``."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        return mark in file.read()


SIDE = 256  # pixels of a sample from the file's own overviews
LARGEST_OVERVIEW = 1024  # a side: larger ones are not cheap
BLOCKS, MOST_BLOCKS = 36, 144  # with something observed, and that are looked at
BLOCK_PIXELS = 64 * 64  # that are read of each block
STEPS = (0.7548776662466927, 0.5698402909980532)  # multiples of these, without whole parts, cover a square evenly


def overview_values(
    path: Path, numbers: Sequence[int], declared: float | None = None, *, allow_vrt: bool = False
) -> NDArray[np.float64]:
    """Return values (C, P) of some bands (numbers from 1), NaN where nothing was observed or the value is ``declared``.

    They come from the file's own overviews, if those are small, else from some of the blocks in which the file is
    stored, from all over it. Blocks in which nothing was observed are replaced by others, up to a limit.
    """
    blocks: list[NDArray[np.float64]] = []
    with opened(path, allow_vrt=allow_vrt) as source:
        if _small_overview(source):
            return _values(source, numbers, None, (min(SIDE, source.height), min(SIDE, source.width)), declared)
        for block in itertools.islice(_blocks(source), MOST_BLOCKS):
            height = min(int(block.height), math.isqrt(BLOCK_PIXELS))
            shape = (height, min(int(block.width), BLOCK_PIXELS // height))
            values = _values(source, numbers, block, shape, declared)
            if np.isfinite(values).any():
                blocks.append(values)
            if len(blocks) == BLOCKS:
                break
    return np.concatenate(blocks, axis=1) if blocks else np.full((len(numbers), 1), np.nan)


def _small_overview(source: Any) -> bool:
    """Return whether the file has an overview that is small enough to read at once."""
    factor = max(source.overviews(1), default=1)
    return factor > 1 and max(source.height, source.width) / factor <= LARGEST_OVERVIEW


def _blocks(source: Any) -> Iterator[Any]:
    """Yield blocks of a file, each once, in an order that soon has been all over it; not all if they are many."""
    from rasterio.windows import Window

    high, wide = source.block_shapes[0]
    rows, columns = math.ceil(source.height / high), math.ceil(source.width / wide)
    seen: set[tuple[int, int]] = set()
    for number in range(1, 4 * MOST_BLOCKS):
        row, column = (int(number * step % 1 * count) for step, count in zip(STEPS, (rows, columns), strict=True))
        if (row, column) not in seen:
            seen.add((row, column))
            top, left = row * high, column * wide
            yield Window(left, top, min(wide, source.width - left), min(high, source.height - top))


def _values(
    source: Any, numbers: Sequence[int], part: Any, shape: tuple[int, int], declared: float | None
) -> NDArray[np.float64]:
    """Return the values (C, P) of a part of an open file, with about ``shape`` pixels."""
    values, nodata, mask = pixels(source, numbers, part, shape)
    valid = observed(values, nodata, mask, declared)
    floats = values.astype(np.float64)
    unknown = ~(np.abs(floats) <= LARGEST)
    floats[unknown if valid is None else unknown | ~valid] = np.nan
    return floats.reshape(len(floats), -1)
