"""HLS Burn Scars in small: chips of 64 pixels with missing reflectance and an ignored corner, in both folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atomizer_io.datasets.burnscars import CHANNELS, IMAGE, MASK, NODATA
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches

SIZE = 64
NAME = "subsetted_512x512_HLS.S30.{}.v1.4"  # the published name, whatever the size here
CHIPS = {
    "training": ("T10TGS.2018285", "T10SEH.2018190", "T11SKD.2020253", "T13TEF.2020212", "T12STH.2021180"),
    "validation": ("T10SFJ.2018325", "T11TLH.2019244"),
}
UNTAGGED = "T10SEH.2018190"  # -9999 without a nodata tag


def write(folder: Path, seed: int = 0, size: int = SIZE) -> None:
    """Write ``training`` and ``validation``, of ``size`` pixels (the real ones have 512)."""
    from rasterio.crs import CRS
    from rasterio.transform import Affine

    rng = np.random.default_rng(seed)
    for part, chips in CHIPS.items():
        for number, chip in enumerate(chips):
            place = {
                "crs": CRS.from_epsg(32600 + int(chip[1:3])),
                "transform": Affine(30, 0, 500000 + 15360 * number, 0, -30, 4500000),
                "compress": "deflate",
            }
            burnt = patches(rng, size, size, 2)
            image = bands(rng, burnt, CHANNELS, np.float32)
            image[:, :, :2] = NODATA  # beyond the swath
            image[4:, 20, 20] = NODATA
            mask = burnt.astype(np.int16)
            mask[-4:, -4:] = -1
            name = NAME.format(chip)
            tag = None if chip == UNTAGGED else NODATA
            write_raster(folder / part / f"{name}{IMAGE}", image, nodata=tag, **place)
            write_raster(folder / part / f"{name}{MASK}", mask, nodata=-1, **place)
