"""DALES in small: tiles of 100 m in the layout of DALES Objects, each with a corner that no pulse came back from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.content import patches

TILES = {
    "train": ("5080_54435", "5190_54400", "5145_54340"),  # the last is of the validation set
    "test": ("5080_54470",),
}
SIZE_M, POINTS = 100, 1600
HEIGHT_M = (0.0, 6.0, 1.2, 2.8, 14.0, 1.6, 9.0, 7.0)  # height of each class above the ground
INTENSITY = (9000, 5000, 14000, 17000, 3000, 11000, 21000, 26000)
FIELDS = (("x", "f4"), ("y", "f4"), ("z", "f4"), ("intensity", "i4"), ("sem_class", "i4"), ("ins_class", "i4"))
TYPES = {"f4": "float", "i4": "int"}


def write(folder: Path, seed: int = 0) -> None:
    """Write the folder ``DALESObjects``."""
    rng = np.random.default_rng(seed)
    for split, tiles in TILES.items():
        for tile in tiles:
            path = folder / "DALESObjects" / split / f"{tile}_new.ply"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_ply(path, points(rng))


def points(rng: np.random.Generator) -> NDArray[Any]:
    """Return a tile with the properties of DALES Objects; class 0 (unknown) in every hundredth point."""
    classes = patches(rng, SIZE_M // 2, SIZE_M // 2, len(HEIGHT_M))
    place = rng.uniform(0, SIZE_M, (POINTS, 2))
    place = place[(place < SIZE_M / 2).any(axis=1)]  # nothing in the north-east
    label = classes[(SIZE_M - place[:, 1]).astype(int) // 2 % len(classes), place[:, 0].astype(int) // 2]
    table = np.zeros(len(place), dtype=list(FIELDS))
    table["x"], table["y"] = place.T
    table["z"] = 30 + np.array(HEIGHT_M)[label] + rng.normal(0, 0.2, len(place))
    table["intensity"] = np.array(INTENSITY)[label] + rng.integers(0, 2000, len(place))
    table["sem_class"] = label + 1
    table["sem_class"][::100] = 0
    table["ins_class"] = label
    return table


def write_ply(path: Path, table: NDArray[Any]) -> None:
    """Write a binary PLY file whose one element is called ``testing``, as that of DALES Objects."""
    lines = ["ply", "format binary_little_endian 1.0", f"element testing {len(table)}"]
    lines += [f"property {TYPES[kind]} {name}" for name, kind in FIELDS]
    header = "\n".join([*lines, "end_header", ""])
    path.write_bytes(header.encode() + table.astype(list(FIELDS)).tobytes())
