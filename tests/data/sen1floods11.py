"""Sen1Floods11 in small: chips of 64 pixels with swath edges, an ignored corner, and the lists of all four splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.sen1floods11 import CHIPS, METADATA, OFFICIAL, OPTICAL, RADAR, SPLITS
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches

SIZE = 64
STEP = 8.983152841195215e-05  # degrees per pixel, of the real files
S2_NAMES = ("B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B8A", "B9", "B10", "B11", "B12")
EVENTS = (
    ("Ghana", "2018/09/18", "2018/09/19"),
    ("Cambodia", "2018/08/05", "2018/08/04"),
    ("Bolivia", "2018/02/15", "2018/02/15"),
)
CORNERS = {"Ghana": (-0.9, 9.6), "Mekong": (105.0, 12.3), "Bolivia": (-64.9, -13.5)}
CHIPS_OF = {
    "train": ("Ghana_103272", "Ghana_24858", "Mekong_16233"),
    "val": ("Ghana_5079",),
    "test": ("Mekong_1149855",),
    "bolivia": ("Bolivia_103757",),
}


def write(folder: Path, seed: int = 0, size: int = SIZE) -> None:
    """Write the folder ``v1.1``; real chips have 512 pixels."""
    from rasterio.crs import CRS
    from rasterio.transform import Affine

    rng = np.random.default_rng(seed)
    for split, chips in CHIPS_OF.items():
        names = [(f"{chip}_S1Hand.tif", f"{chip}_LabelHand.tif") for chip in chips]
        listed = folder / SPLITS / f"flood_{OFFICIAL[split]}_data.csv"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("".join(f"{radar},{label}\n" for radar, label in names))
        for chip in chips:
            west, north = CORNERS[chip.split("_")[0]]
            profile = {
                "crs": CRS.from_epsg(4326),
                "transform": Affine(STEP, 0, west, 0, -STEP, north),
                "compress": "deflate",
            }
            water = patches(rng, size, size, 2)
            radar = bands(rng, water, RADAR, np.float32)
            radar[:, :, :3] = np.nan  # beyond the swath
            optical = bands(rng, water, OPTICAL, np.int16)
            optical[:, -2:] = 0
            label = water.astype(np.int16)
            label[:6, :6] = -1
            layers: tuple[tuple[str, NDArray[Any], dict[str, Any]], ...] = (
                ("S1Hand", radar, {"nodata": np.nan, "descriptions": ("VV", "VH")}),
                ("S2Hand", optical, {"nodata": 0, "descriptions": S2_NAMES}),
                ("LabelHand", label, {}),
            )
            for kind, values, more in layers:
                write_raster(folder / CHIPS / kind / f"{chip}_{kind}.tif", values, **more, **profile)
    features = [
        {"type": "Feature", "properties": {"location": where, "s1_date": radar, "s2_date": optical}, "geometry": None}
        for where, radar, optical in EVENTS
    ]
    document = {"type": "FeatureCollection", "name": "Sen1Floods11_Metadata", "features": features}
    (folder / METADATA).write_text(json.dumps(document, indent=1))
