"""What the ground can be, what it is made of on a day of the year, and how bright that is at each wavelength.

A cover is a mixture of materials (leaf, straw, soil, tile …), and a material is a curve of reflectance over 0.4–2.5 µm.
All numbers are round figures set by hand from general knowledge of spectra and of farming in temperate Europe: leaves
jump at 0.7 µm and soil rises steadily, water swallows the infrared, rapeseed flowers in April and maize is green in
August. They are made as separable as the real ones, not measured.

Two pairs are alike on purpose: SHRUB and ORCHARD differ only in how their leaves are arranged, SOIL and SMOOTH_SOIL
only in roughness, which radar sees and light does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from atomizer_io.data.channels import Channel
from atomizer_lab.synthetic.random_maps import Floats, Ints

# What covers the ground. FLOODED_MEADOW: water below the blades: light sees a meadow, radar a double bounce. TOWN:
# houses too small for the pixels.
Cover = IntEnum(
    "Cover",
    "CLEAR_WATER TURBID_WATER SOIL SMOOTH_SOIL WET_SOIL SAND BURNT MEADOW FLOODED_MEADOW DRY_GRASS SHRUB FOREST "
    "CONIFER RAINFOREST YOUNG_FOREST ORCHARD VINEYARD PALM CASHEW SPARSE_CASHEW TILE_ROOF SLATE_ROOF METAL_ROOF ROAD "
    "CONCRETE RUBBLE TOWN INDUSTRY WHEAT DURUM WINTER_BARLEY TRITICALE MIXED_CEREAL SPRING_BARLEY RAPESEED MAIZE "
    "SUNFLOWER BEET POTATO SOY SORGHUM FODDER VEGETABLES",
    start=0,
)


WATERS = (Cover.CLEAR_WATER, Cover.TURBID_WATER)
ROOFS = (Cover.TILE_ROOF, Cover.SLATE_ROOF, Cover.METAL_ROOF)
WOODS = (Cover.FOREST, Cover.CONIFER, Cover.RAINFOREST)

# Reflectance × 100 of materials at some wavelengths; covers that look the same all year, and those with seasons.
_DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("land_cover.yaml").read_text("utf-8"))
KNOTS_UM: tuple[float, ...] = tuple(_DATA["wavelengths_um"])
MATERIALS: dict[str, list[float]] = _DATA["materials"]
NAMES = tuple(MATERIALS)
CONSTANT: dict[Cover, dict[str, float]] = {Cover[name]: shares for name, shares in _DATA["constant"].items()}
SEASONS: dict[Cover, str] = {Cover[name]: days for name, days in _DATA["seasons"].items()}
LATER: dict[Cover, tuple[Cover, float]] = {
    Cover[name]: (Cover[of], days) for name, (of, days) in _DATA["later"].items()
}
MIXTURES: dict[str, dict[Cover, float]] = {
    mixture: {Cover[name]: share for name, share in shares.items()} for mixture, shares in _DATA["mixtures"].items()
}
BACKSCATTER_DB: dict[Cover, tuple[float, float]] = {Cover[n]: tuple(db) for n, db in _DATA["backscatter_db"].items()}
GROWTH_DB: dict[Cover, tuple[float, float]] = {Cover[name]: tuple(db) for name, db in _DATA["growth_db"].items()}
FLOWERS = {Cover.RAPESEED: (112.0, 12.0, 0.6), Cover.SUNFLOWER: (192.0, 9.0, 0.25)}  # day, width, share of the green
CANOPY = {Cover.FOREST: ("leaf", 0.28), Cover.SHRUB: ("leaf", 0.1), Cover.VINEYARD: ("leaf", 0.05)}  # and its shade


def seasonal(cover: Cover, day: Floats) -> tuple[Floats, Floats]:
    """Return the shares of green and of straw (…,) of a cover on days of the year; 0 for covers without seasons."""
    base, later = LATER.get(cover, (cover, 0.0))
    if base not in SEASONS:
        return np.zeros_like(day), np.zeros_like(day)
    days, green, straw = _year(base)
    at = (day - later) % 365.0
    return np.interp(at, days, green), np.interp(at, days, straw)


@lru_cache(maxsize=len(SEASONS))
def _year(cover: Cover) -> Floats:
    """Return days, green and straw (3, knots) from before New Year to after the next."""
    knots = np.array([row.split() for row in SEASONS[cover].split(",")], dtype=np.float64).T
    year = np.array([[365.0], [0.0], [0.0]])
    return np.concatenate([knots[:, -1:] - year, knots, knots[:, :1] + year], axis=1)


def composition(covers: Ints, day: Floats, ground: str = "soil") -> Floats:
    """Return the shares (S, materials) of S covers on their days of the year; ``ground`` is the local soil."""
    shares = np.zeros((len(covers), len(NAMES)))
    for number in np.unique(covers):
        cover, rows = Cover(int(number)), covers == number
        if cover in CONSTANT:
            for name, share in CONSTANT[cover].items():
                shares[rows, NAMES.index(ground if name == "soil" else name)] += share
            continue
        green, straw = seasonal(cover, day[rows])
        leaf, shade = CANOPY.get(LATER.get(cover, (cover, 0.0))[0], ("grass", 0.0))
        peak, width, most = FLOWERS.get(cover, (0.0, 1.0, 0.0))
        flowers = most * np.exp(-(((day[rows] - peak) / width) ** 2))
        shares[rows, NAMES.index(leaf)] = green * (1 - flowers) * (1 - shade)
        shares[rows, NAMES.index("flower")] = green * flowers * (1 - shade)
        shares[rows, NAMES.index("straw")] = straw * (1 - shade)
        shares[rows, NAMES.index(ground)] = (1 - green - straw) * (1 - shade)
    return shares


def spectra(channels: Sequence[Channel]) -> Floats:
    """Return the reflectance 0–1 (materials, C) of each material, averaged over the band of each channel."""
    return np.stack([_in_band(c.wavelength_um or 0.55, c.bandwidth_um or 0.0) for c in channels], axis=1)


@lru_cache(maxsize=1024)
def _in_band(centre_um: float, width_um: float) -> Floats:
    from scipy.interpolate import PchipInterpolator

    at = np.clip(centre_um + width_um * np.linspace(-0.5, 0.5, 9), KNOTS_UM[0], KNOTS_UM[-1])
    curves = PchipInterpolator(KNOTS_UM, np.array([MATERIALS[name] for name in NAMES]), axis=1)
    reflectance: Floats = curves(at).mean(axis=1) / 100
    return reflectance
