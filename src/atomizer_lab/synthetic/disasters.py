"""Synthetic scenes of Sen1Floods11, HLS Burn Scars and xView2: floods, fires, damaged houses."""

from __future__ import annotations

import datetime
from dataclasses import replace

import numpy as np
from scipy import ndimage

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import HLS, SENTINEL1, SENTINEL2, VHR
from atomizer_io.data.task_spec import IGNORE
from atomizer_lab.synthetic.land_cover import Cover
from atomizer_lab.synthetic.landscape import Landscape, Recipe, make_landscape
from atomizer_lab.synthetic.optics import beyond, covered, draw_sky, observe
from atomizer_lab.synthetic.radar import backscatter
from atomizer_lab.synthetic.random_maps import Canvas, Floats, Ints, Random, across, noise, share_above
from atomizer_lab.synthetic.simulated import Simulated, day_of, grid_of

RADAR = SENTINEL1.pick("VV", "VH")
BURN_BANDS = HLS.pick("B02", "B03", "B04", "B8A", "B11", "B12")
RGB = VHR.pick("R", "G", "B")
PLAIN = {
    Cover.SOIL: 1.0,
    Cover.SMOOTH_SOIL: 0.6,
    Cover.WET_SOIL: 0.4,
    Cover.MEADOW: 2.0,
    Cover.SHRUB: 0.6,
    Cover.MAIZE: 0.8,
    Cover.WHEAT: 0.8,
}
RANGE = {Cover.DRY_GRASS: 2.0, Cover.SHRUB: 2.0, Cover.CONIFER: 1.5, Cover.SOIL: 0.5, Cover.FOREST: 0.5}


def draw_floods(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw a plain after rain: hollows and banks under turbid water, some meadows flooded below their blades."""
    canvas = Canvas(size, size, 10.0)
    recipe = Recipe(
        PLAIN,
        field_m=120.0,
        woods=float(rng.uniform(0.05, 0.3)),
        river_m=float(rng.uniform(25, 70)),
        roads=int(rng.integers(0, 3)),
        town=float(rng.choice([0.0, 0.0, 0.05, 0.1])),
        relief_m=8.0,
        ground=str(rng.choice(["soil", "red_soil"])),
    )
    land = flooded(rng, make_landscape(rng, canvas, recipe), float(rng.uniform(0.0, 0.25)))
    wet = np.isin(land.cover, (Cover.CLEAR_WATER, Cover.TURBID_WATER, Cover.FLOODED_MEADOW))

    date = datetime.date(2018, 1, 1) + datetime.timedelta(days=int(rng.integers(110, 290)))
    sky = draw_sky(rng, canvas, float(rng.choice([0.0, 0.0, 0.05, 0.15, 0.35])))
    optical = observe(rng, land, SENTINEL2.channels, day_of(date), sky)
    radar = backscatter(rng, land, day_of(date), str(rng.choice(["ascending", "descending"])))
    if rng.random() < 0.25:
        radar[:, beyond(rng, canvas, float(rng.uniform(0.03, 0.3)))] = np.nan
    if rng.random() < 0.12:
        optical[:, beyond(rng, canvas, float(rng.uniform(0.03, 0.3)))] = np.nan
    blind = np.isnan(radar[0]) & np.isnan(optical[0])
    unclear = share_above(noise(rng, canvas, 80.0), 0.01) if rng.random() < 0.5 else blind
    target = np.where(blind | unclear | covered(sky, canvas), IGNORE, wet.astype(np.int64))
    later = date + datetime.timedelta(days=int(rng.integers(-2, 3)))
    atoms = AtomSet.from_raster(radar, RADAR, canvas.gsd_m, date)
    return Simulated(atoms + AtomSet.from_raster(optical, SENTINEL2, canvas.gsd_m, later), target, grid_of(canvas))


def flooded(rng: Random, land: Landscape, share: float) -> Landscape:
    """Return the landscape with its lowest ``share`` under water; at the rim, meadows stand in it."""
    cover = land.cover.copy()
    low = -land.terrain_m + 0.4 * noise(rng, land.canvas, 60.0)
    dry = ~land.water & (land.building == 0)
    rim = share_above(low, min(1.5 * share, 0.9)) & dry
    cover[rim & (cover == Cover.MEADOW)] = Cover.FLOODED_MEADOW
    deep = share_above(low, share) & dry
    cover[deep] = Cover.TURBID_WATER if rng.random() < 0.7 else Cover.CLEAR_WATER
    return replace(land, cover=cover, weave=np.where(deep, 0, land.weave))


def draw_burns(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw dry hills and forest, of which a fire took a part, more or less completely."""
    canvas = Canvas(size, size, 30.0)
    recipe = Recipe(
        RANGE,
        field_m=1200.0,
        warp_m=700.0,
        woods=float(rng.uniform(0.1, 0.5)),
        wood=Cover.CONIFER,
        lakes=0.01,
        roads=1,
        road_m=20.0,
        town=float(rng.choice([0.0, 0.03])),
        relief_m=90.0,
    )
    land = make_landscape(rng, canvas, recipe)
    shape = noise(rng, canvas, min(3000.0, 0.5 * canvas.extent_m[0]), octaves=5)
    burnt = share_above(shape, float(rng.uniform(0.02, 0.28))) & ~land.water & (land.cover != Cover.ROAD)
    severity = np.clip(0.78 + 0.25 * noise(rng, canvas, 400.0, octaves=2), 0.35, 0.98)
    date = datetime.date(2019, 1, 1) + datetime.timedelta(days=int(rng.integers(120, 300)))
    sky = draw_sky(rng, canvas, float(rng.choice([0.0, 0.0, 0.0, 0.02])))
    values = observe(rng, land, BURN_BANDS, day_of(date), sky, veil=(burnt * severity, Cover.BURNT))
    target = burnt.astype(np.int64)
    if rng.random() < 0.15:
        outside = beyond(rng, canvas, float(rng.uniform(0.02, 0.25)))
        values[:, outside], target[outside] = np.nan, IGNORE
    target[covered(sky, canvas)] = IGNORE
    return Simulated(AtomSet.from_raster(values, BURN_BANDS, canvas.gsd_m, date), target, grid_of(canvas))


def draw_damage(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw a suburb before and after a storm that crossed it along a line: roofs torn open, houses gone."""
    canvas = Canvas(size, size, 0.5)
    recipe = Recipe(
        {Cover.MEADOW: 3.0, Cover.DRY_GRASS: 1.0, Cover.SOIL: 0.4},
        field_m=60.0,
        woods=float(rng.uniform(0.02, 0.2)),
        roads=1,
        town=float(rng.uniform(0.5, 0.95)),
        trees=0.08,
    )
    before = make_landscape(rng, canvas, recipe)
    damage = house_damage(rng, before)
    after = ruined(rng, before, damage)
    date = datetime.date(2017, 1, 1) + datetime.timedelta(days=int(rng.integers(60, 330)))
    again = date + datetime.timedelta(days=int(rng.integers(15, 120)))
    atoms = AtomSet.from_raster(observe(rng, before, RGB, day_of(date), draw_sky(rng, canvas)), RGB, canvas.gsd_m, date)
    atoms += AtomSet.from_raster(
        observe(rng, after, RGB, day_of(again), draw_sky(rng, canvas)), RGB, canvas.gsd_m, again
    )
    return Simulated(atoms, damage[before.building], grid_of(canvas))


def house_damage(rng: Random, land: Landscape) -> Ints:
    """Return the damage 1 … 4 of every house by its number; entry 0 is the background's 0."""
    houses = land.houses
    if houses is None or not len(houses):
        return np.zeros(1, dtype=np.int64)
    longest = max(land.canvas.extent_m)
    away = across(rng, land.canvas, 0.05 * longest, 0.5 * longest)[land.canvas.pixels(houses.x, houses.y)]
    reach = longest * rng.uniform(0.08, 0.35)
    force = 3.6 * np.exp(-((away / reach) ** 2)) + rng.normal(0, 0.5, len(houses))
    grades = 1 + np.digitize(force, [0.8, 1.7, 2.7])
    return np.concatenate([[0], grades]).astype(np.int64)


def ruined(rng: Random, land: Landscape, damage: Ints) -> Landscape:
    """Return the landscape after the storm: rubble in place of roofs, and debris around what was destroyed."""
    grade = damage[land.building]
    holes: Floats = noise(rng, land.canvas, 3.0)
    # Quantiles of a normal distribution: the share of a roof that is gone is the class's.
    edge = np.array([np.inf, np.inf, 0.77, -0.25, -np.inf])
    gone = (grade > 1) & (holes > edge[grade])
    around = ndimage.binary_dilation(grade == 4, iterations=max(1, round(2.5 / land.canvas.gsd_m)))
    debris = around & (grade == 0) & (holes > 0.2)
    cover = np.where(gone | debris, Cover.RUBBLE, land.cover)
    height = np.where(gone, np.abs(holes) * np.where(grade == 4, 0.5, 1.5), land.height_m)
    return replace(land, cover=cover, height_m=height.astype(np.float32))
