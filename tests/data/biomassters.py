"""BioMassters in small: chips of 32 pixels with months without Sentinel-2, a missing orbit and edges of swaths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.biomassters import METADATA, NO_CLOUD_PROBABILITY, NO_RADAR, OPTICAL, RADAR
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches

SIZE = 32
CHIPS = {"train": ("000aa810", "0003d2eb", "0013b6a1", "00143a07"), "test": ("00a3b0c5",)}  # 00143a07 is for validation
MONTHS = (
    *("September", "October", "November", "December", "January", "February"),
    *("March", "April", "May", "June", "July", "August"),
)
WITHOUT_DESCENDING = range(2, 8)
WITHOUT_OPTICAL = {"000aa810": range(6), "0003d2eb": (3, 4), "00a3b0c5": (4,)}
COLUMNS = "filename,chip_id,satellite,split,month,size,cksum,s3path_us,s3path_eu,s3path_as,corresponding_agbm"
LEVELS = np.array([0.0, 40.0, 110.0, 230.0])  # t/ha: bare, young, grown, old


def write(folder: Path, seed: int = 0, size: int = SIZE) -> None:
    """Write features and biomass of both parts, and the table of features; real chips have 256 pixels."""
    rng = np.random.default_rng(seed)
    table = [COLUMNS]
    for part, chips in CHIPS.items():
        for chip in chips:
            forest = patches(rng, size, size, len(LEVELS))
            tonnes = np.maximum(LEVELS[forest] + 10 * rng.standard_normal(forest.shape), 0)
            write_raster(folder / f"{part}_agbm" / f"{chip}_agbm.tif", tonnes.astype(np.float32))
            for month, name in enumerate(MONTHS):
                images = {"S1": radar(rng, forest, month)}
                if month not in WITHOUT_OPTICAL.get(chip, ()):
                    images["S2"] = optical(rng, forest, month)
                for sensor, values in images.items():
                    file = f"{chip}_{sensor}_{month:02d}.tif"
                    path = folder / f"{part}_features" / file
                    write_raster(path, values)
                    length = path.stat().st_size
                    table.append(f"{file},{chip},{sensor},{part},{name},{length},0,,,,{chip}_agbm.tif")
    (folder / METADATA[0]).write_text("\n".join(table) + "\n")


def radar(rng: np.random.Generator, forest: NDArray[np.int64], month: int) -> NDArray[Any]:
    """Return four bands in dB; some months have no descending orbit."""
    values = bands(rng, forest, RADAR, np.float32)
    if month in WITHOUT_DESCENDING:
        values[2:] = NO_RADAR
    return values


def optical(rng: np.random.Generator, forest: NDArray[np.int64], month: int) -> NDArray[Any]:
    """Return ten bands and cloud probability; June is seen through a corner of the swath only."""
    values = bands(rng, forest, OPTICAL, np.uint16)
    cloud = rng.integers(0, 101, (1, *forest.shape)).astype(np.uint16)
    if month == 9:
        values[:, 8:] = 0
        cloud[:, 9:] = NO_CLOUD_PROBABILITY  # one row of zeros has a probability all the same, as in the real files
        cloud[:, 0, 0] = NO_CLOUD_PROBABILITY
        values[[3, 4, 5, 7, 8, 9], 7] = 0  # the 20 m bands end earlier
    return np.concatenate([values, cloud])
