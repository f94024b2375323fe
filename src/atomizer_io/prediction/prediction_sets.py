"""The prediction sets of a map as a GeoTIFF: how many classes each pixel may have, and which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io import __version__
from atomizer_io.durable import publish
from atomizer_io.io.raster_files import isolated, open_raster

Array = NDArray[Any]
Members = Callable[[Array], NDArray[np.bool_]]  # probabilities (..., C) to which classes are in the set
NODATA = 255


def write_sets(probabilities: Path, output: Path, names: Sequence[str], members: Members, stated: str) -> list[int]:
    """Write the sets of the map whose ``probabilities`` are in a file; return how many pixels have 0, 1, … classes.

    Band 1 is the size of the set, and each class has a band that is 1 where it belongs to the set. ``stated`` names
    what coverage the sets are, in the tags of the file.
    """
    import rasterio
    import rasterio.shutil

    counts = np.zeros(len(names) + 1, dtype=np.int64)
    dtype, nodata = ("uint8", NODATA) if len(names) < NODATA else ("uint16", 65535)
    plain, made = (output.with_name(f".{output.name}.{part}") for part in ("plain", "new"))
    try:
        with open_raster(probabilities) as source:
            profile = {key: source.profile[key] for key in ("height", "width", "crs", "transform", "tiled")}
            profile |= {"blockxsize": source.block_shapes[0][1], "blockysize": source.block_shapes[0][0]}
            profile |= {"driver": "GTiff", "count": len(names) + 1, "dtype": dtype, "nodata": nodata}
            with rasterio.open(plain, "w", compress="deflate", bigtiff="if_safer", **profile) as target:
                for _, window in source.block_windows(1):
                    values = source.read(window=window).transpose(1, 2, 0)
                    known = np.isfinite(values).all(axis=-1)
                    inside = members(np.where(known[..., None], values, 0.0))
                    size = inside.sum(axis=-1)
                    counts += np.bincount(size[known], minlength=len(counts))
                    layers = np.concatenate([size[..., None], inside], axis=-1).astype(dtype)
                    layers[~known] = nodata
                    target.write(np.ascontiguousarray(layers.transpose(2, 0, 1)), window=window)
                for number, name in enumerate(("size of the set", *names), 1):
                    target.set_band_description(number, name)
                target.update_tags(prediction_sets=stated, TIFFTAG_SOFTWARE=f"atomizer-io {__version__}")
        with isolated():
            how = {"compress": "deflate", "overview_resampling": "nearest", "bigtiff": "if_safer", "num_threads": "1"}
            rasterio.shutil.copy(plain, made, driver="COG", **how)
        publish({made: output})
    finally:
        for path in (plain, made):
            path.unlink(missing_ok=True)
    return counts.tolist()
