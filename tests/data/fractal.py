"""FRACTAL in small: sparse patches of 50 m with images of 1 m pixels, several returns a pulse and a point of noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.fractal import BANDS
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches

PATCHES = {
    "train": ("TRAIN-0436_6399-002955257", "TRAIN-0436_6399-002955258", "TRAIN-1016_6293-008537465"),
    "val": ("VAL-0472_6450-003100012",),
    "test": ("TEST-0570_6350-004412345",),
}
SIZE_M, PULSES = 50, 900
CODES = (1, 2, 5, 6, 9, 17, 64)
HEIGHT_M = (2.0, 0.0, 9.0, 6.0, -0.6, 4.0, 14.0)  # height of each class above the ground
INTENSITY = (900, 1500, 700, 1900, 150, 1200, 2500)
GPS_TIME_S = 306235307.0  # 28 May 2021 in adjusted standard time; the flag of the header is not set, as in IGN's files


def write(folder: Path, seed: int = 0) -> None:
    """Write the folders ``data`` and ``images``."""
    from rasterio.crs import CRS
    from rasterio.transform import Affine

    rng = np.random.default_rng(seed)
    for split, names in PATCHES.items():
        for number, name in enumerate(names):
            kilometres = name.split("-")[1].split("_")
            west, south = int(kilometres[0]) * 1000 + 50 * number, int(kilometres[1]) * 1000 - 50
            classes = patches(rng, SIZE_M, SIZE_M, len(CODES))
            image = bands(rng, classes, BANDS, np.uint8)
            write_raster(
                folder / "images" / split / "00" / f"{name}.tif",
                image,
                crs=CRS.from_epsg(2154),
                transform=Affine(1, 0, west, 0, -1, south + SIZE_M),
                compress="deflate",
            )
            path = folder / "data" / split / "00" / f"{name}.laz"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_laz(path, columns(rng, classes, image, west, south), epsg=2154)


def columns(
    rng: np.random.Generator, classes: NDArray[np.int64], image: NDArray[Any], west: float, south: float
) -> dict[str, NDArray[Any]]:
    """Return the columns of a patch: a return per pulse, ground below vegetation, and a point of noise far below."""
    place = np.round(rng.uniform(0, SIZE_M, (PULSES, 2)), 2)
    row, column = (np.clip(part.astype(int), 0, SIZE_M - 1) for part in (SIZE_M - place[:, 1], place[:, 0]))
    label = classes[row, column]
    below = np.flatnonzero(label == CODES.index(5))
    order = np.concatenate([np.arange(PULSES), below, [0]])
    later = np.arange(len(order)) >= PULSES
    label = np.where(later, CODES.index(2), label[order])
    table: dict[str, NDArray[Any]] = {
        "x": west + place[order, 0],
        "y": south + place[order, 1],
        "z": 120 + np.array(HEIGHT_M)[label] + rng.normal(0, 0.15, len(order)),
        "intensity": (np.array(INTENSITY)[label] + rng.integers(0, 120, len(order))).astype(np.uint16),
        "return_number": np.where(later, 2, 1).astype(np.uint8),
        "number_of_returns": np.where(np.isin(order, below), 2, 1).astype(np.uint8),
        "classification": np.array(CODES, dtype=np.uint8)[label],
        "gps_time": GPS_TIME_S + np.sort(rng.uniform(0, 5, len(order))),
    }
    painted = image[:, row, column][:, order].astype(np.uint16) * 256
    table |= dict(zip(("nir", "red", "green", "blue"), painted, strict=True))
    table["z"][-1], table["classification"][-1], table["return_number"][-1] = -80.0, 65, 1
    return table


def write_laz(
    path: Path,
    table: dict[str, NDArray[Any]],
    *,
    epsg: int | None = None,
    point_format: int = 8,
    standard_time: bool = False,
) -> None:
    """Write a LAS 1.4 file of some columns, compressed if it is called ``.laz``; coordinates to the centimetre.

    With ``standard_time`` the header marks GPS time as adjusted standard time.
    """
    import laspy
    import pyproj

    header = laspy.LasHeader(point_format=point_format, version="1.4")
    header.scales, header.offsets = np.full(3, 0.01), np.zeros(3)
    header.global_encoding.gps_time_type = laspy.header.GpsTimeType(int(standard_time))
    if epsg is not None:
        header.add_crs(pyproj.CRS.from_epsg(epsg))
    points = laspy.LasData(header)
    for name, column in table.items():
        points[name] = column
    points.write(path, laz_backend=laspy.LazBackend.Lazrs)
