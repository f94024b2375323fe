"""Synthetic scenes of BioMassters: how much wood stands."""

from __future__ import annotations

import datetime

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2_L2A
from atomizer_io.io.tables import evenly
from atomizer_lab.synthetic.land_cover import Cover
from atomizer_lab.synthetic.landscape import Landscape, Recipe, make_landscape
from atomizer_lab.synthetic.optics import draw_sky, observe
from atomizer_lab.synthetic.radar import backscatter
from atomizer_lab.synthetic.random_maps import Canvas, Floats, Random, noise, polygons
from atomizer_lab.synthetic.simulated import Simulated, day_of, grid_of

BIOMASS_RADAR = SENTINEL1.pick("ASC_VV", "ASC_VH", "DSC_VV", "DSC_VH")
BIOMASS_BANDS = SENTINEL2_L2A.pick("B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12")
MONTHS = tuple(datetime.date(2020 + (month > 3), (month + 8) % 12 + 1, 15) for month in range(12))
COMPOSITE_LOOKS = 20.0  # a month of passes, averaged


def draw_biomass(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw boreal forest through twelve months: radar all year, light in the bright half, biomass in t/ha."""
    canvas = Canvas(size, size, 10.0)
    recipe = Recipe(
        {Cover.SHRUB: 3.0, Cover.DRY_GRASS: 1.0, Cover.MEADOW: 0.4, Cover.SOIL: 0.15},
        field_m=200.0,
        warp_m=70.0,
        woods=0.0,
        lakes=float(rng.choice([0.0, 0.03, 0.12])),
        roads=int(rng.integers(0, 3)),
    )
    land = make_landscape(rng, canvas, recipe)
    biomass = standing(rng, land)
    crowns = 0.92 * (1 - np.exp(-biomass / 55))
    scattering = 1 - np.exp(-biomass / 90)
    more_db = np.stack([2.5 * scattering, 6.0 * scattering]).astype(np.float32)

    atoms = AtomSet()
    gap = rng.integers(0, 12, 2)  # months without a descending orbit
    for date in evenly(MONTHS, dates):
        month = MONTHS.index(date)
        orbits = [
            backscatter(rng, land, day_of(date), orbit, more_db=more_db, looks=COMPOSITE_LOOKS)
            for orbit in ("ascending", "descending")
        ]
        radar = np.concatenate(orbits)
        if gap.min() <= month <= gap.max():
            radar[2:] = np.nan
        atoms += AtomSet.from_raster(radar, BIOMASS_RADAR, canvas.gsd_m, date)
        dark = 2 <= month <= 5
        if rng.random() < (0.25 if dark else 0.93):
            share = float(rng.beta(0.5, 1.3)) if rng.random() < 0.5 else 0.0
            sky = draw_sky(rng, canvas, share)
            values = observe(rng, land, BIOMASS_BANDS, day_of(date), sky, veil=(crowns, Cover.CONIFER))
            atoms += AtomSet.from_raster(values, BIOMASS_BANDS, canvas.gsd_m, date)
    return Simulated(atoms, biomass, grid_of(canvas))


def standing(rng: Random, land: Landscape) -> Floats:
    """Return the biomass (H, W) in t/ha: stands of one age each on richer and poorer soil, none on water and fields."""
    canvas = land.canvas
    stands = polygons(rng, canvas, 180.0, 70.0)
    age = rng.gamma(1.6, 32.0, stands.count)  # years
    height = 26.0 * (1 - np.exp(-age / 55)) ** 1.3  # metres
    site = np.clip(1 + 0.35 * noise(rng, canvas, 300.0) + 0.2 * noise(rng, canvas, 40.0), 0.3, 2.0)
    biomass = 0.42 * height[stands.ids] ** 2 * site
    bare = land.water | land.road | np.isin(land.cover, (Cover.MEADOW, Cover.SOIL))
    return np.where(bare, 0.0, biomass).astype(np.float32)
