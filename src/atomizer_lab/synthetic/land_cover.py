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
from enum import IntEnum, auto
from functools import lru_cache

import numpy as np

from atomizer_io.data.channels import Channel
from atomizer_lab.synthetic.random_maps import Floats, Ints


class Cover(IntEnum):
    """What covers the ground."""

    CLEAR_WATER = 0
    TURBID_WATER = auto()
    SOIL = auto()
    SMOOTH_SOIL = auto()
    WET_SOIL = auto()
    SAND = auto()
    BURNT = auto()
    MEADOW = auto()
    FLOODED_MEADOW = auto()  # water below the blades: light sees a meadow, radar a double bounce
    DRY_GRASS = auto()
    SHRUB = auto()
    FOREST = auto()
    CONIFER = auto()
    RAINFOREST = auto()
    YOUNG_FOREST = auto()
    ORCHARD = auto()
    VINEYARD = auto()
    PALM = auto()
    CASHEW = auto()
    SPARSE_CASHEW = auto()
    TILE_ROOF = auto()
    SLATE_ROOF = auto()
    METAL_ROOF = auto()
    ROAD = auto()
    CONCRETE = auto()
    RUBBLE = auto()
    TOWN = auto()  # houses too small for the pixels
    INDUSTRY = auto()
    WHEAT = auto()
    DURUM = auto()
    WINTER_BARLEY = auto()
    TRITICALE = auto()
    MIXED_CEREAL = auto()
    SPRING_BARLEY = auto()
    RAPESEED = auto()
    MAIZE = auto()
    SUNFLOWER = auto()
    BEET = auto()
    POTATO = auto()
    SOY = auto()
    SORGHUM = auto()
    FODDER = auto()
    VEGETABLES = auto()


WATERS = (Cover.CLEAR_WATER, Cover.TURBID_WATER)
ROOFS = (Cover.TILE_ROOF, Cover.SLATE_ROOF, Cover.METAL_ROOF)
WOODS = (Cover.FOREST, Cover.CONIFER, Cover.RAINFOREST)

# Reflectance × 100 of each material at these wavelengths (µm).
KNOTS_UM = (0.40, 0.45, 0.50, 0.55, 0.60, 0.67, 0.70, 0.74, 0.80, 0.90, 1.00, 1.20, 1.40, 1.60, 1.90, 2.10, 2.20, 2.50)
MATERIALS: dict[str, tuple[float, ...]] = {
    "leaf": (3, 3.5, 4.5, 9, 5.5, 3.5, 10, 33, 44, 46, 46, 42, 16, 24, 5, 11, 12, 5),
    "grass": (3.5, 4, 5, 10, 7, 4.5, 12, 33, 40, 42, 43, 40, 17, 26, 8, 14, 15, 7),
    "needle": (2, 2.2, 2.5, 4.5, 3, 2.2, 6, 19, 24, 25, 25, 21, 7, 11, 3, 5, 5.5, 2),
    "straw": (6, 9, 12, 17, 21, 25, 27, 30, 34, 39, 43, 46, 36, 46, 25, 36, 36, 22),
    "flower": (3, 5, 9, 30, 32, 26, 30, 42, 48, 48, 46, 42, 17, 28, 8, 15, 16, 7),
    "soil": (6, 8, 11, 14, 18, 21, 22, 23.5, 25.5, 28, 30, 34, 31, 38, 28, 33, 34, 27),
    "red_soil": (3, 4, 5.5, 9, 16, 22, 24, 26, 28, 30, 33, 38, 35, 43, 31, 36, 37, 28),
    "wet_soil": (4, 5, 6, 7, 8, 9, 9.5, 10, 10, 10, 9.5, 8.5, 4, 7, 2, 4, 4.5, 2),
    "sand": (15, 19, 24, 29, 33, 36, 37, 38, 40, 42, 44, 48, 44, 52, 42, 50, 50, 42),
    "clear_water": (5, 4.5, 4, 3, 1.8, 1.2, 1, 0.6, 0.5, 0.3, 0.2, 0.1, 0, 0, 0, 0, 0, 0),
    "turbid_water": (5, 7, 9, 13, 14, 13, 12.5, 7.5, 6.5, 4, 2, 0.8, 0.2, 0.2, 0, 0, 0, 0),
    "asphalt": (6, 6.5, 7.5, 8.5, 9, 9.5, 10, 10.5, 11, 12, 12.5, 14, 14, 16, 15, 17, 17, 17),
    "concrete": (17, 20, 23, 26, 28, 29, 30, 30, 31, 32, 33, 35, 33, 36, 30, 34, 34, 30),
    "tile": (4, 5, 6.5, 9, 18, 26, 28, 29, 30, 31, 33, 37, 38, 41, 40, 42, 41, 38),
    "slate": (7, 8, 9, 9.5, 10, 10, 10.5, 11, 11.5, 12, 12, 13, 13, 14, 13, 14, 14, 13),
    "metal": (28, 32, 34, 35, 35, 35, 35, 35, 35, 35, 35, 35, 34, 34, 33, 33, 32, 30),
    "char": (3, 3, 3.3, 3.7, 4.2, 5, 5.3, 6, 7, 8, 9, 12, 13, 16, 15, 17, 17.5, 17),
}
NAMES = tuple(MATERIALS)

# Covers that look the same all year: shares of materials; what is missing to 1 is shade.
CONSTANT: dict[Cover, dict[str, float]] = {
    Cover.CLEAR_WATER: {"clear_water": 1},
    Cover.TURBID_WATER: {"turbid_water": 1},
    Cover.SOIL: {"soil": 0.97, "straw": 0.03},
    Cover.SMOOTH_SOIL: {"soil": 0.97, "straw": 0.03},
    Cover.WET_SOIL: {"wet_soil": 0.9, "grass": 0.1},
    Cover.SAND: {"sand": 1},
    Cover.BURNT: {"char": 0.85, "soil": 0.1},
    Cover.CONIFER: {"needle": 0.9},
    Cover.RAINFOREST: {"leaf": 0.68},
    Cover.YOUNG_FOREST: {"leaf": 0.8, "grass": 0.15},
    Cover.PALM: {"leaf": 0.72, "soil": 0.1},
    Cover.CASHEW: {"leaf": 0.62, "soil": 0.22},
    Cover.SPARSE_CASHEW: {"leaf": 0.35, "straw": 0.15, "soil": 0.4},
    Cover.TILE_ROOF: {"tile": 1},
    Cover.SLATE_ROOF: {"slate": 1},
    Cover.METAL_ROOF: {"metal": 1},
    Cover.ROAD: {"asphalt": 1},
    Cover.CONCRETE: {"concrete": 0.8, "asphalt": 0.2},
    Cover.RUBBLE: {"concrete": 0.45, "soil": 0.2, "tile": 0.1},
    Cover.TOWN: {"tile": 0.2, "slate": 0.05, "concrete": 0.15, "asphalt": 0.2, "grass": 0.25, "leaf": 0.1},
    Cover.INDUSTRY: {"metal": 0.3, "concrete": 0.3, "asphalt": 0.3, "grass": 0.05},
}

# Covers with seasons: "day green straw" at some days, linear between them; the rest is soil.
SEASONS: dict[Cover, str] = {
    Cover.MEADOW: "0 .6 .05, 80 .7 0, 130 .92 0, 200 .75 .1, 280 .8 .05, 340 .62 .05",
    Cover.DRY_GRASS: "0 .5 .2, 100 .6 .1, 150 .3 .5, 240 .15 .7, 300 .3 .4",
    Cover.SHRUB: "0 .35 .1, 90 .4 .1, 130 .6 0, 250 .55 .05, 300 .4 .1",
    Cover.FOREST: "0 .15 .2, 95 .2 .2, 130 .97 0, 265 .92 0, 300 .6 .3, 320 .2 .25",
    Cover.VINEYARD: "0 .08 .1, 110 .1 .05, 150 .4 0, 180 .55 0, 260 .5 .05, 300 .3 .15, 320 .1 .1",
    Cover.WHEAT: "0 .3 0, 60 .38 0, 110 .9 0, 160 .88 .05, 185 .15 .75, 205 .05 .55, 225 .05 .15, 290 .05 0, 320 .18 0",
    Cover.SPRING_BARLEY: "0 .05 0, 75 .05 0, 100 .25 0, 135 .9 0, 165 .85 .05, 190 .15 .7, 210 .05 .4, 235 .05 .1",
    Cover.RAPESEED: "0 .55 0, 60 .6 0, 95 .85 0, 140 .9 0, 170 .5 .3, 190 .1 .7, 205 .05 .4, 235 .1 .05, 270 .35 0,"
    " 310 .55 0",
    Cover.MAIZE: "0 .05 0, 125 .05 0, 160 .4 0, 190 .92 0, 235 .9 0, 265 .5 .4, 285 .1 .4, 300 .05 .1",
    Cover.SUNFLOWER: "0 .05 0, 110 .05 0, 145 .35 0, 175 .85 0, 205 .85 0, 235 .3 .5, 255 .05 .5, 270 .05 .1",
    Cover.BEET: "0 .05 0, 100 .05 0, 140 .4 0, 170 .95 0, 280 .9 0, 310 .3 0, 330 .05 0",
    Cover.POTATO: "0 .05 0, 115 .05 0, 145 .45 0, 165 .9 0, 210 .85 0, 235 .3 .3, 255 .05 .1",
    Cover.SOY: "0 .05 0, 125 .05 0, 160 .35 0, 195 .9 0, 245 .85 0, 270 .3 .5, 285 .05 .3",
    Cover.SORGHUM: "0 .05 0, 135 .05 0, 170 .35 0, 205 .85 0, 255 .75 .1, 280 .2 .6, 295 .05 .2",
    Cover.FODDER: "0 .45 0, 80 .7 0, 125 .95 0, 130 .4 .1, 165 .95 0, 170 .4 .1, 210 .9 0, 215 .4 .1, 260 .85 0,"
    " 300 .7 0",
    Cover.VEGETABLES: "0 .1 0, 90 .1 0, 120 .5 0, 150 .2 0, 180 .6 0, 210 .25 .05, 250 .6 0, 300 .3 0",
}
# cover -> the cover whose seasons it has, and how many days later
LATER: dict[Cover, tuple[Cover, float]] = {
    Cover.ORCHARD: (Cover.SHRUB, 0.0),
    Cover.FLOODED_MEADOW: (Cover.MEADOW, 0.0),
    Cover.DURUM: (Cover.WHEAT, -9.0),
    Cover.WINTER_BARLEY: (Cover.WHEAT, -18.0),
    Cover.TRITICALE: (Cover.WHEAT, 8.0),
    Cover.MIXED_CEREAL: (Cover.WHEAT, 15.0),
}
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
