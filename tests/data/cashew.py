"""Cashew plantations in small: a tile of 96 × 80 pixels on four dates, one cloudy, one lacking a band; five chips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.cashew import IMAGERY, INFO, LABEL_FILE, OPTICAL, MCashewPlant
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches
from data.geobench import band_stats, write_folder_files, write_sample

HEIGHT, WIDTH = 96, 80
CRS_CODE = 32631
TRANSFORM = (10.002549584378608, 0.0, 440853.29890114715, 0.0, -9.99842989423825, 1012804.082877621)  # the real one
DATES = ("20191105", "20191220", "20200213", "20201030")
CLOUDY, SWATH_EDGE, WITHOUT_B09 = DATES[1], DATES[2], DATES[3]
CHIP = 48
CHIPS_OF = {
    "train": (("2019-11-15", "2019-12-05"), ("2020-02-13",)),
    "valid": (("2019-11-15",),),
    "test": (("2020-10-30",),),
}


def write(folder: Path, seed: int = 0) -> None:
    """Write the folder with ``imagery`` and ``labels``."""
    from rasterio.crs import CRS
    from rasterio.features import shapes
    from rasterio.transform import Affine

    rng = np.random.default_rng(seed)
    transform = Affine(*TRANSFORM)
    profile = {"crs": CRS.from_epsg(CRS_CODE), "transform": transform, "compress": "deflate"}
    use = patches(rng, HEIGHT, WIDTH, len(INFO.classes))
    for date in DATES:
        values = bands(rng, use, OPTICAL, np.uint16)
        clouds = np.zeros((HEIGHT, WIDTH), np.uint16)
        if date == CLOUDY:
            clouds[:20] = np.linspace(100, 5, 20).round()[:, None]
            values[:, clouds > 50] = 9000
        if date == SWATH_EDGE:
            values[:, :, :4] = 0
        layers = {channel.name: layer for channel, layer in zip(OPTICAL, values, strict=True)} | {"CLD": clouds}
        if date == WITHOUT_B09:
            del layers["B09"]
        for band, layer in layers.items():
            write_raster(folder / IMAGERY / f"00_{date}" / f"00_{date}_{band}_10m.tif", layer, **profile)
    features = [
        {"type": "Feature", "properties": {"class": int(label)}, "geometry": geometry}
        for geometry, label in shapes(use.astype(np.int16), use > 0, transform=transform)  # 0 is where no polygon is
    ]
    name = {"type": "name", "properties": {"name": f"urn:ogc:def:crs:EPSG::{CRS_CODE}"}}
    document = {"type": "FeatureCollection", "name": "00", "crs": name, "features": features}
    (folder / LABEL_FILE).parent.mkdir(parents=True)
    (folder / LABEL_FILE).write_text(json.dumps(document))


def write_geobench(folder: Path, seed: int = 0) -> None:
    """Write the folder ``m-cashew-plant``."""
    rng = np.random.default_rng(seed)
    partition: dict[str, list[str]] = {split: [] for split in CHIPS_OF}
    samples: list[dict[str, NDArray[Any]]] = []
    for split, places in CHIPS_OF.items():
        for dates in places:
            use = patches(rng, CHIP, CHIP, len(INFO.classes))
            for date in dates:
                values = bands(rng, use, MCashewPlant.known_bands.values(), np.float32)
                layers = {f"{key}_{date}": layer for key, layer in zip(MCashewPlant.known_bands, values, strict=True)}
                layers[f"Cloud Probability_{date}"] = np.zeros((CHIP, CHIP), np.float32)
                name = f"sample_{len(samples)}"
                write_sample(
                    folder / f"{name}.hdf5", layers, label=use.astype(np.uint8), gsd_m=0.5
                )  # as real files say
                samples.append(layers)
                partition[split].append(name)
    write_folder_files(folder, partition, band_stats(samples))
