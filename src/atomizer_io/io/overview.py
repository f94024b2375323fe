"""Values from all over a raster file, for their mean and spread, without reading all of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.inputs import LARGEST
from atomizer_io.io.pixels import observed, pixels
from atomizer_io.io.rasters import opened

SIDE = 256  # pixels of a sample from the file's own overviews
LARGEST_OVERVIEW = 1024  # a side: larger ones are not cheap
BLOCKS, MOST_BLOCKS = 36, 144  # with something observed, and that are looked at
BLOCK_PIXELS = 64 * 64  # that are read of each block
STEPS = (0.7548776662466927, 0.5698402909980532)  # multiples of these, without whole parts, spread over a square


def overview_values(
    path: Path, numbers: Sequence[int], declared: float | None = None, *, allow_vrt: bool = False
) -> NDArray[np.float64]:
    """Return values (C, P) of some bands (numbers from 1), NaN where nothing was observed or the value is ``declared``.

    They come from the file's own overviews, if those are small, else from some of the blocks in which the file is
    stored, spread over all of it. Blocks in which nothing was observed are replaced by others, up to a limit.
    """
    found: list[NDArray[np.float64]] = []
    with opened(path, allow_vrt=allow_vrt) as source:
        if _small_overview(source):
            return _values(source, numbers, None, (min(SIDE, source.height), min(SIDE, source.width)), declared)
        for block in itertools.islice(_blocks(source), MOST_BLOCKS):
            height = min(int(block.height), math.isqrt(BLOCK_PIXELS))
            shape = (height, min(int(block.width), BLOCK_PIXELS // height))
            values = _values(source, numbers, block, shape, declared)
            if np.isfinite(values).any():
                found.append(values)
            if len(found) == BLOCKS:
                break
    return np.concatenate(found, axis=1) if found else np.full((len(numbers), 1), np.nan)


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
    found = values.astype(np.float64)
    unknown = ~(np.abs(found) <= LARGEST)
    found[unknown if valid is None else unknown | ~valid] = np.nan
    return found.reshape(len(found), -1)
