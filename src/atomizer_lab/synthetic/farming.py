"""Synthetic scenes of PASTIS-R: fields through a year."""

from __future__ import annotations

import datetime

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2_L2A
from atomizer_io.data.task_spec import IGNORE
from atomizer_lab.synthetic.land_cover import MIXTURES, Cover
from atomizer_lab.synthetic.landscape import Recipe, make_landscape
from atomizer_lab.synthetic.optics import draw_sky, observe
from atomizer_lab.synthetic.radar import backscatter
from atomizer_lab.synthetic.random_maps import Canvas, Random
from atomizer_lab.synthetic.simulated import Simulated, day_of, grid_of, season

PASTIS_BANDS = SENTINEL2_L2A.pick("B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12")
ORBITS = {
    "ascending": SENTINEL1.pick("ASC_VV", "ASC_VH", "VV-VH"),
    "descending": SENTINEL1.pick("DSC_VV", "DSC_VH", "VV-VH"),
}
CROPS = MIXTURES["crops"]  # the cover of each class of PASTIS from 1 on, and how common it is


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
