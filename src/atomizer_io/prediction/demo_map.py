"""The map of a simulated scene as a GeoTIFF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from atomizer_io.decoding import Prediction
from atomizer_io.sample import Sample

COLOURS = {0: (222, 203, 164, 255), 1: (32, 96, 192, 255), 255: (0, 0, 0, 0)}
CORNER, EPSG = (500_000.0, 5_000_000.0), 32631  # made up, as the scene is


def write_map(prediction: Prediction, sample: Sample, classes: Sequence[str], path: Path) -> Path:
    """Write the classes as uint8 with colours and the names ``classes``, at a made-up place; return ``path``."""
    import rasterio
    from rasterio.crs import CRS
    from rasterio.transform import Affine

    assert sample.queries is not None and sample.queries.grid is not None
    labels = prediction.labels.numpy().astype(np.uint8)
    step_x, step_y = sample.queries.grid.pixel_m
    west, north = CORNER
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        count=1,
        height=labels.shape[0],
        width=labels.shape[1],
        dtype="uint8",
        nodata=255,
        crs=CRS.from_epsg(EPSG),
        transform=Affine(step_x, 0, west, 0, -step_y, north),
        compress="deflate",
    ) as target:
        target.write(labels, 1)
        target.write_colormap(1, COLOURS)
        target.set_band_description(1, "class")
        target.update_tags(classes=",".join(classes), scene=sample.meta.id)
    return path
