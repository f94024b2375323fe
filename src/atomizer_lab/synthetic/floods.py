"""Synthetic scenes of Sen1Floods11."""

from __future__ import annotations

import datetime
from dataclasses import replace

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.data.task_spec import IGNORE
from atomizer_lab.synthetic.land_cover import MIXTURES, Cover
from atomizer_lab.synthetic.landscape import Landscape, Recipe, make_landscape
from atomizer_lab.synthetic.optics import beyond, covered, draw_sky, observe
from atomizer_lab.synthetic.radar import backscatter
from atomizer_lab.synthetic.random_maps import Canvas, Random, noise, share_above
from atomizer_lab.synthetic.simulated import Simulated, day_of, grid_of

RADAR = SENTINEL1.pick("VV", "VH")
PLAIN = MIXTURES["plain"]


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
