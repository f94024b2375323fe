"""EuroSAT in small: a few scenes per split as first released, and as GEO-Bench has them, bands mislabelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.eurosat import BANDS, CLASSES, FOLDERS, GSD_M, SIZE
from atomizer_io.datasets.geobench import SENTINEL2_KEYS
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches
from data.geobench import band_stats, write_folder_files, write_sample

COUNTS = {"train": 2, "val": 1, "test": 1}  # scenes of each class


def write(folder: Path, seed: int = 0) -> None:
    """Write the layout of TorchGeo, with the lists of the random and of the spatial split."""
    from rasterio.crs import CRS
    from rasterio.transform import Affine

    rng = np.random.default_rng(seed)
    listed: dict[str, list[str]] = {split: [] for split in COUNTS}
    for label, kind in enumerate(CLASSES):
        number = 0
        for split, count in COUNTS.items():
            for _ in range(count):
                number += 1
                listed[split].append(f"{kind}_{number}.jpg")
                corner = (399_960.0 + 1000 * label, 5_300_040.0 - 1000 * number)
                profile = {
                    "crs": CRS.from_epsg(32632),
                    "transform": Affine(GSD_M, 0, corner[0], 0, -GSD_M, corner[1]),
                    "compress": "deflate",
                }
                path = folder / FOLDERS[0] / kind / f"{kind}_{number}.tif"
                write_raster(path, scene(rng, label).astype(np.uint16), **profile)
    for split, names in listed.items():
        (folder / f"eurosat-{split}.txt").write_text("\n".join(names) + "\n")
        west = names[:-1] if split == "train" else names
        (folder / f"eurosat-spatial-{split}.txt").write_text("\n".join(west) + "\n")


def write_geobench(folder: Path, seed: int = 0) -> None:
    """Write the layout of GEO-Bench's m-eurosat: file order of EuroSAT under the names in ESA's order."""
    rng = np.random.default_rng(seed)
    partition: dict[str, list[str]] = {part: [] for part in ("train", "valid", "test")}
    samples: list[dict[str, NDArray[Any]]] = []
    for split, count in COUNTS.items():
        for label in range(len(CLASSES)):
            for _ in range(count):
                name = f"id_{len(samples):04d}"
                partition["valid" if split == "val" else split].append(name)
                samples.append(dict(zip(SENTINEL2_KEYS, scene(rng, label).astype(np.int16), strict=True)))
                write_sample(folder / f"{name}.hdf5", samples[-1], label=label, gsd_m=GSD_M)
    write_folder_files(folder, partition, band_stats(samples))


def scene(rng: np.random.Generator, label: int) -> NDArray[Any]:
    """Return thirteen bands (C, 64, 64) in file order: mostly the class ``label``, with patches of two others."""
    kinds = patches(rng, SIZE, SIZE, 4)
    mixed = np.where(kinds < 2, label, (label + kinds) % len(CLASSES))
    return bands(rng, mixed, BANDS, np.uint16)
