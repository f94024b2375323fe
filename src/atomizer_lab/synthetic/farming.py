"""Synthetic scenes of PASTIS-R and of the cashew plantations: fields through a year."""

from __future__ import annotations

import datetime

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2_L2A
from atomizer_io.data.task_spec import IGNORE
from atomizer_lab.synthetic.land_cover import Cover
from atomizer_lab.synthetic.landscape import Recipe, make_landscape
from atomizer_lab.synthetic.optics import beyond, draw_sky, observe
from atomizer_lab.synthetic.radar import backscatter
from atomizer_lab.synthetic.random_maps import Canvas, Random
from atomizer_lab.synthetic.simulated import Simulated, day_of, grid_of, season

PASTIS_BANDS = SENTINEL2_L2A.pick("B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12")
ORBITS = {
    "ascending": SENTINEL1.pick("ASC_VV", "ASC_VH", "VV-VH"),
    "descending": SENTINEL1.pick("DSC_VV", "DSC_VH", "VV-VH"),
}
# Cover of each class of PASTIS from 1 on, and how common it is; class 0 is everything else.
CROPS: dict[Cover, float] = {
    Cover.MEADOW: 3.0,
    Cover.WHEAT: 2.0,
    Cover.MAIZE: 2.0,
    Cover.WINTER_BARLEY: 1.0,
    Cover.RAPESEED: 1.0,
    Cover.SPRING_BARLEY: 0.5,
    Cover.SUNFLOWER: 0.5,
    Cover.VINEYARD: 0.6,
    Cover.BEET: 0.4,
    Cover.TRITICALE: 0.4,
    Cover.DURUM: 0.4,
    Cover.VEGETABLES: 0.4,
    Cover.POTATO: 0.4,
    Cover.FODDER: 0.5,
    Cover.SOY: 0.5,
    Cover.ORCHARD: 0.4,
    Cover.MIXED_CEREAL: 0.4,
    Cover.SORGHUM: 0.4,
}
CASHEW_BANDS = SENTINEL2_L2A.pick("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12")
SAVANNA = {
    Cover.CASHEW: 2.0,
    Cover.SPARSE_CASHEW: 1.2,
    Cover.MAIZE: 0.6,
    Cover.VEGETABLES: 0.4,
    Cover.SORGHUM: 0.4,
    Cover.DRY_GRASS: 1.5,
    Cover.SHRUB: 0.8,
}
WELL, POORLY, OTHER_PLANTS, RESIDENTIAL, BACKGROUND, UNCERTAIN = 1, 2, 3, 4, 5, 6
MANAGED = {Cover.CASHEW: WELL, Cover.SPARSE_CASHEW: POORLY} | dict.fromkeys(
    (Cover.MAIZE, Cover.VEGETABLES, Cover.SORGHUM), OTHER_PLANTS
)


def draw_pastis(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw French farmland from September to October of the next year: Sentinel-2 and two orbits of Sentinel-1."""
    canvas = Canvas(size, size, 10.0)
    # A region grows some of the crops.
    grown = {cover: share * rng.gamma(0.6) for cover, share in CROPS.items()}
    recipe = Recipe(
        {**grown, Cover.SOIL: 0.1},
        field_m=110.0,
        woods=float(rng.uniform(0.05, 0.3)),
        river_m=float(rng.choice([0.0, 0.0, 20.0])),
        roads=int(rng.integers(0, 3)),
        town=float(rng.choice([0.0, 0.05, 0.12])),
    )
    land = make_landscape(rng, canvas, recipe)
    first = datetime.date(2018, 9, 17)
    atoms = AtomSet()
    for date in season(rng, first, 400, int(rng.integers(38, 62)), dates):
        sky = draw_sky(rng, canvas, cloudiness(rng, day_of(date)))
        values = observe(rng, land, PASTIS_BANDS, day_of(date), sky)
        atoms += AtomSet.from_raster(values, PASTIS_BANDS, canvas.gsd_m, date)
    for orbit, channels in ORBITS.items():
        for date in season(rng, first, 400, int(rng.integers(62, 73)), dates):
            vv, vh = backscatter(rng, land, day_of(date), orbit)
            atoms += AtomSet.from_raster(np.stack([vv, vh, vv - vh]), channels, canvas.gsd_m, date)
    table = np.zeros(len(Cover), dtype=np.int64)
    for number, cover in enumerate(CROPS, start=1):
        table[cover] = number
    target = np.where(land.town, 0, table[land.cover])
    void = rng.random(len(land.later)) < 0.04  # parcels nobody could name
    target[void[land.parcel] & (target > 0)] = IGNORE
    return Simulated(atoms, target, grid_of(canvas))


def cloudiness(rng: Random, day: float) -> float:
    """Return the share of a scene under clouds: often none, sometimes all, more in winter."""
    winter = 0.5 + 0.5 * np.cos(2 * np.pi * day / 365)
    return 0.0 if rng.random() < 0.6 - 0.25 * winter else float(rng.beta(0.6, 1.2))


def draw_cashew(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw a village in Benin: plantations, in order or full of weeds, on 70 dates in dry and wet season."""
    canvas = Canvas(size, size, 10.0)
    recipe = Recipe(
        SAVANNA, field_m=150.0, warp_m=25.0, woods=0.12, roads=1, town=float(rng.uniform(0.02, 0.08)), ground="red_soil"
    )
    land = make_landscape(rng, canvas, recipe)
    atoms = AtomSet()
    for date in season(rng, datetime.date(2019, 11, 5), 360, 70, dates):
        day = day_of(date)
        rains = 100 < day < 300
        share = float(rng.beta(0.8, 1.0)) if rains and rng.random() < 0.7 else 0.0
        sky = draw_sky(rng, canvas, share)
        values = observe(rng, land, CASHEW_BANDS, day, sky)
        if sky.cloud is not None:
            values[:, sky.cloud > 0.1] = np.nan  # by the cloud mask that comes with the tile
        if rng.random() < 0.05:
            values[:, beyond(rng, canvas, float(rng.uniform(0.1, 0.5)))] = np.nan
        atoms += AtomSet.from_raster(values, CASHEW_BANDS, canvas.gsd_m, date)
    table = np.full(len(Cover), BACKGROUND)
    for cover, number in MANAGED.items():
        table[cover] = number
    target = np.where(land.town, RESIDENTIAL, table[land.cover])
    fate = rng.random(len(land.later))[land.parcel]
    target[(fate < 0.03) & np.isin(target, (WELL, POORLY))] = UNCERTAIN
    target[fate > 0.9] = IGNORE  # class 0 of the dataset: no polygon there
    return Simulated(atoms, target, grid_of(canvas))
