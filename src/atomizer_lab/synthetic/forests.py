"""Synthetic scenes of BioMassters and ForestNet: how much wood stands, and what replaced a forest."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import LANDSAT8, SENTINEL1, SENTINEL2_L2A
from atomizer_io.io.tables import evenly
from atomizer_lab.synthetic.land_cover import Cover
from atomizer_lab.synthetic.landscape import Landscape, Recipe, make_landscape, weave
from atomizer_lab.synthetic.optics import draw_sky, observe
from atomizer_lab.synthetic.radar import backscatter
from atomizer_lab.synthetic.random_maps import Bools, Canvas, Floats, Random, across, noise, polygons
from atomizer_lab.synthetic.simulated import Simulated, day_of, grid_of

BIOMASS_RADAR = SENTINEL1.pick("ASC_VV", "ASC_VH", "DSC_VV", "DSC_VH")
BIOMASS_BANDS = SENTINEL2_L2A.pick("B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12")
MONTHS = tuple(datetime.date(2020 + (month > 3), (month + 8) % 12 + 1, 15) for month in range(12))
LANDSAT = LANDSAT8.pick("B4", "B3", "B2", "B5", "B6", "B7")
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


@dataclass(frozen=True, slots=True)
class Driver:
    """What took the place of the forest: shares of covers, their size in metres, crookedness, size of the clearing."""

    covers: Mapping[Cover, float]
    field_m: float
    warp_m: float = 0.0
    reach: tuple[float, float] = (0.3, 0.45)  # radius of the clearing, as a share of the scene
    tracks_m: float = 0.0  # metres between straight tracks
    share: float = 1.0  # of the clearing that is cleared


C = Cover
DRIVERS: tuple[Driver, ...] = (  # in the order of ForestNet's classes
    Driver({C.PALM: 4, C.SOIL: 0.5}, 700.0, tracks_m=300.0),
    Driver({C.YOUNG_FOREST: 3, C.SOIL: 1, C.SHRUB: 0.3}, 600.0),
    Driver({C.ORCHARD: 4, C.SOIL: 0.5}, 700.0, tracks_m=450.0),
    Driver({C.DRY_GRASS: 2, C.SHRUB: 2, C.MEADOW: 1}, 300.0, 120.0),
    Driver({C.MAIZE: 1, C.SOIL: 1, C.VEGETABLES: 1, C.MEADOW: 1, C.RAINFOREST: 0.7}, 110.0, 15.0, (0.2, 0.38)),
    Driver({C.ORCHARD: 1, C.SHRUB: 1, C.YOUNG_FOREST: 1, C.RAINFOREST: 0.8}, 130.0, 20.0, (0.2, 0.38)),
    Driver({C.PALM: 2, C.SHRUB: 0.5, C.RAINFOREST: 1}, 160.0, 20.0, (0.2, 0.38)),
    Driver({C.SAND: 2, C.SOIL: 2, C.TURBID_WATER: 0.8}, 150.0, 60.0, (0.12, 0.3)),
    Driver({C.CLEAR_WATER: 2, C.TURBID_WATER: 2, C.SOIL: 0.2}, 160.0, 0.0, (0.15, 0.35), tracks_m=170.0),
    Driver({C.SOIL: 1, C.SHRUB: 1, C.YOUNG_FOREST: 1}, 120.0, 30.0, (0.3, 0.45), share=0.3),
    Driver({C.YOUNG_FOREST: 1}, 400.0, 100.0),
    Driver({C.BURNT: 2, C.TOWN: 1, C.WET_SOIL: 1}, 300.0, 80.0, (0.15, 0.35)),
)


def draw_drivers(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw rainforest with a clearing in its middle; the class is what is there now."""
    canvas = Canvas(size, size, 15.0)
    label = int(rng.integers(len(DRIVERS)))
    recipe = Recipe({Cover.RAINFOREST: 1.0}, 400.0, woods=0.0, river_m=float(rng.choice([0, 40.0])), ground="red_soil")
    recipe = replace(recipe, water=Cover.TURBID_WATER, relief_m=40.0)
    land = cleared(rng, make_landscape(rng, canvas, recipe), DRIVERS[label])
    sky = draw_sky(rng, canvas, float(rng.choice([0.0, 0.0, 0.05, 0.2])))
    date = datetime.date(int(rng.integers(2013, 2018)), 1, 1) + datetime.timedelta(days=int(rng.integers(0, 365)))
    values = observe(rng, land, LANDSAT, day_of(date), sky)
    return Simulated(AtomSet.from_raster(values, LANDSAT, canvas.gsd_m, date), label)


def cleared(rng: Random, land: Landscape, driver: Driver) -> Landscape:
    """Return the landscape with a clearing about its middle."""
    canvas = land.canvas
    longest = max(canvas.extent_m)
    field_m = min(driver.field_m, 0.3 * longest)
    parts = polygons(rng, canvas, field_m, min(driver.warp_m, 0.1 * longest))
    kinds, shares = list(driver.covers), np.array(list(driver.covers.values()), dtype=np.float64)
    kind = rng.choice(len(kinds), parts.count, p=shares / shares.sum())
    inside = _clearing(rng, canvas, driver)
    inside &= (rng.random(parts.count) < driver.share)[parts.ids] & ~land.water
    cover = np.where(inside, np.array(kinds)[kind][parts.ids], land.cover)
    if driver.tracks_m:
        angle, step = rng.uniform(0, np.pi), min(driver.tracks_m, 0.15 * longest)
        for turn in (0.0, np.pi / 2):
            along = canvas.x * np.cos(angle + turn) + canvas.y * np.sin(angle + turn)
            cover[inside & (np.abs(along - np.round(along / step) * step) < 0.6 * canvas.gsd_m)] = Cover.SOIL
    if driver.share < 1:  # the way the logs took
        for _ in range(3):
            cover[np.abs(across(rng, canvas, 0.03 * longest, 0.4 * longest)) < 0.7 * canvas.gsd_m] = Cover.SOIL
    later, bright = rng.normal(0, 10, parts.count), rng.normal(1, 0.08, parts.count)
    return replace(
        land, cover=cover, parcel=parts.ids, later=later, bright=bright, weave=weave(rng, canvas, cover, parts)
    )


def _clearing(rng: Random, canvas: Canvas, driver: Driver) -> Bools:
    """Return a blob about the middle (H, W), more crooked the smaller its fields."""
    x, y = canvas.x - canvas.extent_m[0] / 2, canvas.y - canvas.extent_m[1] / 2
    reach = rng.uniform(*driver.reach) * max(canvas.extent_m)
    crooked = 0.15 if driver.tracks_m else 0.4
    return np.hypot(x, y) < reach * (1 + crooked * noise(rng, canvas, 0.3 * max(canvas.extent_m), octaves=3))
