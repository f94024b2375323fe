"""Make a training folder of the Rondônia scene of e-sensing/sitsdata (tile 20LLQ): one stack a date, and a mask.

    python examples/stack_rondonia.py SOURCE OUT

The mask is the class with the largest probability in the map that comes with the scene: another model's opinion, not
ground truth.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import rasterio

BANDS = ("B02", "B03", "B04", "B8A", "B11", "B12")
TILE = "SENTINEL-2_MSI_20LLQ"
NAME = "20LLQ.tif"


def stack(source: Path, out: Path) -> list[str]:
    """Write ``image_<date>/20LLQ.tif`` with its date as a tag, and ``mask/20LLQ.tif``; returns the dates."""
    dates = sorted(path.stem.rpartition("_")[2] for path in source.glob(f"{TILE}_B02_*.tif"))
    for date in dates:
        folder = out / f"image_{date.replace('-', '')}"
        folder.mkdir(parents=True, exist_ok=True)
        with rasterio.open(source / f"{TILE}_B02_{date}.tif") as first:
            profile = {**first.profile, "count": len(BANDS)}
        with rasterio.open(folder / NAME, "w", **profile) as target:
            target.update_tags(start_time=date)
            for number, band in enumerate(BANDS, 1):
                with rasterio.open(source / f"{TILE}_{band}_{date}.tif") as raster:
                    target.write(raster.read(1), number)
                target.set_band_description(number, band)
    (out / "mask").mkdir(exist_ok=True)
    with rasterio.open(next(source.glob(f"{TILE}_*_probs_*.tif"))) as raster:
        classes = raster.read().argmax(axis=0).astype(np.uint8)
        profile = {**raster.profile, "count": 1, "dtype": "uint8", "nodata": 255}
    with rasterio.open(out / "mask" / NAME, "w", **profile) as target:
        target.write(classes, 1)
    return dates


if __name__ == "__main__":
    print(*stack(Path(sys.argv[1]), Path(sys.argv[2])))
