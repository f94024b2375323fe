"""Geometries of shapely: from text and bytes that do not nest too deeply, and drawn on a grid of pixels."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError
from atomizer_io.io.crs import Transform

Objects = NDArray[np.object_]

POLYGONS = (3, 6)  # numbers of shapely's types
SIMPLE = re.compile(r"\s*(?:MULTI)?(?:POINT|LINESTRING|POLYGON)\s*(?:ZM?|M)?\b", re.IGNORECASE)
SHALLOW_BYTES = 9 * 1000  # so many bytes nest at most a thousand geometries


def from_texts(texts: Iterable[Any]) -> Objects:
    """Return the geometries of well-known texts; None where there is none, and for collections, which may nest."""
    import shapely

    simple = [text if isinstance(text, str) and SIMPLE.match(text) else None for text in texts]
    with np.errstate(over="ignore"):  # numbers beyond all measure become infinite
        geometries: Objects = shapely.from_wkt(np.array(simple, dtype=object), on_invalid="ignore")
    return geometries


def from_blobs(blobs: Iterable[bytes | None]) -> Objects:
    """Return the geometries of well-known binaries; None where there is none, and where large ones nest."""
    import shapely

    kept = [None if blob is None or (len(blob) > SHALLOW_BYTES and nests(blob)) else blob for blob in blobs]
    geometries: Objects = shapely.from_wkb(np.array(kept, dtype=object), on_invalid="ignore")
    return geometries


def nests(blob: bytes) -> bool:
    """Return whether parts of a geometry in well-known binary have parts of their own."""
    try:
        kind, _, order, at = wkb_head(blob, 0)
        if kind <= 3:
            return False
        (count,) = struct.unpack_from(f"{order}I", blob, at)
        at += 4
        for _ in range(count):
            kind, width, order, at = wkb_head(blob, at)
            if kind > 3:
                return True
            rings = struct.unpack_from(f"{order}I", blob, at)[0] if kind == 3 else 1
            at += 4 if kind == 3 else 0
            for _ in range(rings):
                points = 1 if kind == 1 else struct.unpack_from(f"{order}I", blob, at)[0]
                at += (0 if kind == 1 else 4) + 8 * width * points
    except struct.error:  # cut off: the reader ends there, too
        pass
    return False


def wkb_head(blob: bytes, at: int) -> tuple[int, int, str, int]:
    """Return type, numbers per position and byte order of a geometry in well-known binary, and where its content is."""
    order = "<" if blob[at : at + 1] == b"\1" else ">"
    (code,) = struct.unpack_from(f"{order}I", blob, at + 1)
    iso, kind = divmod(code & 0x1FFFFFFF, 1000)
    width = 2 + max(bool(code & 0x80000000) + bool(code & 0x40000000), (0, 1, 1, 2)[min(iso, 3)])
    return kind, width, order, at + (9 if code & 0x20000000 else 5)


def from_wkt(wkt: Any, path: Path) -> Any:
    """Return the polygon, or several, of a text in the file ``path``."""
    import shapely

    (geometry,) = from_texts([wkt])
    if shapely.get_type_id(geometry) not in POLYGONS or geometry.is_empty:
        raise DataError(path, f"has a geometry that is not a POLYGON of x y, x y, …: {str(wkt)[:60]!r}")
    if not np.isfinite(shapely.get_coordinates(geometry)).all():
        raise DataError(path, f"has a polygon with a corner at infinity: {str(wkt)[:60]!r}")
    return geometry


def rasterised(
    numbered: Sequence[tuple[Any, int]], shape: tuple[int, int], transform: Transform, fill: int = 0
) -> NDArray[np.int64]:
    """Return the number (H, W) of the last polygon around the centre of each pixel; ``fill`` where there is none."""
    from rasterio.features import rasterize
    from rasterio.transform import Affine

    if not numbered:
        return np.full(shape, fill, dtype=np.int64)
    drawn = rasterize(numbered, shape, fill=fill, transform=Affine(*transform), dtype=np.int16)
    return np.asarray(drawn, dtype=np.int64)
