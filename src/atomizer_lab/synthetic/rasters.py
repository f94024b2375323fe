"""Synthetic scenes as GeoTIFFs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray


def write_raster(path: Path, values: NDArray[Any], *, descriptions: Iterable[str] = (), **profile: Any) -> None:
    """Write a GeoTIFF of ``values`` (C, H, W) or (H, W); ``profile`` is rasterio's: crs, transform, nodata …"""
    import warnings

    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    layers = values[None] if values.ndim == 2 else values
    path.parent.mkdir(parents=True, exist_ok=True)
    count, height, width = layers.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(
            path, "w", count=count, height=height, width=width, dtype=layers.dtype, **{"driver": "GTiff", **profile}
        ) as target:
            target.write(layers)
            for band, text in enumerate(descriptions, start=1):
                target.set_band_description(band, text)
