"""Floods that a single pixel cannot tell apart from dry ground, and neighbours can.

Wind roughens water: radar sees it as bright as a field, and waves mirror the sun into some pixels and not into others.
Crowns stand out of it. Dry ground is as dark as water in the shade of clouds, between the crowns of a wood, between
houses, and where a field is wet or burnt; after the rain it has puddles, which are no flood. What a pixel is follows
from what lies around it.

Bands come at the resolution at which they are acquired. Clouds are masked: what they hide is absent, but has targets.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_lab.synthetic.land_cover import MIXTURES, WATERS, Cover
from atomizer_lab.synthetic.landscape import Landscape, Recipe, make_landscape
from atomizer_lab.synthetic.optics import Sky, draw_sky, observe
from atomizer_lab.synthetic.radar import LOOKS, WIND_DB, backscatter
from atomizer_lab.synthetic.random_maps import Bools, Canvas, Floats, Random, noise, share_above
from atomizer_lab.synthetic.simulated import Simulated, day_of, grid_of, pooled

FINE_M = 5.0  # the place is made at this pixel size; sensors average over theirs
TARGET_M = 10.0  # pixel size of the target map
SHADE_M = 10.0  # size of the small shadows and of the waves that mirror the sun
RADAR = SENTINEL1.pick("VV", "VH")
SHARP, COARSE = SENTINEL2.pick("B02", "B03", "B04", "B08"), SENTINEL2.pick("B05", "B06", "B07", "B8A", "B11", "B12")
WET_PLAIN = MIXTURES["wet_plain"]
# Share of the places of SHADE_M that lie in shade, and how deep it is.
SHADE = {
    Cover.CONIFER: (0.4, 0.95),
    Cover.TOWN: (0.3, 0.9),
    Cover.CONCRETE: (0.3, 0.9),
    Cover.WET_SOIL: (0.5, 0.6),
    Cover.BURNT: (0.4, 0.6),
}
CLUMP_M = 20.0  # size of a clump of crowns and of a puddle
CROWNS, PUDDLES = 0.16, 0.06  # their shares of the water and of the land
GLINT = 0.10  # mean reflectance that a strong wind adds to water that mirrors the sun
# A sensor of no mission: none of its bands is one of Sentinel-2's. Statistics of 64 of its scenes.
STRANGER_GSD_M = 15.0
STRANGER = tuple(
    Channel("stranger", name, centre, width, STRANGER_GSD_M, mean, std)
    for name, centre, width, mean, std in (
        ("cyan", 0.520, 0.050, 0.085, 0.047),
        ("orange", 0.615, 0.070, 0.105, 0.060),
        ("far red", 0.720, 0.040, 0.150, 0.072),
        ("infrared", 0.900, 0.080, 0.197, 0.117),
        ("short wave", 1.680, 0.140, 0.154, 0.114),
        ("long wave", 2.110, 0.100, 0.127, 0.101),
    )
)


@dataclass(frozen=True, slots=True, eq=False)
class Flood:
    """A place under water in part, seen on a ``date`` below a ``sky``.

    ``water`` (H, W) is the flood as it is mapped; ``gusts`` (H, W) is the wind on it.
    """

    land: Landscape
    water: Bools
    sky: Sky
    gusts: Floats
    date: datetime.date


def draw_hard_floods(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw a flood as Sentinel-1 and Sentinel-2 see it, on ``size`` pixels of 10 m; bands of 20 m are of 20 m."""
    of_place, of_light, of_radar = rng.spawn(3)
    flood = make_flood(of_place, size)
    radar = pooled(10 ** (seen_by_radar(of_radar, flood) / 10), round(TARGET_M / FINE_M))
    atoms = raster(10 * np.log10(radar), RADAR, TARGET_M, flood)
    for bands, gsd_m in ((SHARP, 10.0), (COARSE, 20.0)):
        atoms += seen_by_light(of_light, flood, bands, gsd_m)
    return with_target(flood, atoms)


def draw_stranger(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw the flood that :func:`draw_hard_floods` makes of the same generator, as seen by a sensor of no mission."""
    of_place, of_light, _ = rng.spawn(3)
    flood = make_flood(of_place, size)
    return with_target(flood, seen_by_light(of_light, flood, STRANGER, STRANGER_GSD_M))


def make_flood(rng: Random, size: int) -> Flood:
    """Return a flood on ``size`` pixels of 10 m, made at a finer pixel size."""
    fine = size * round(TARGET_M / FINE_M)
    canvas = Canvas(fine, fine, FINE_M)
    recipe = Recipe(
        WET_PLAIN,
        field_m=110.0,
        woods=float(rng.uniform(0.05, 0.3)),
        wood=Cover.CONIFER,
        river_m=float(rng.uniform(30, 80)),
        roads=int(rng.integers(0, 3)),
        town=float(rng.choice([0.0, 0.0, 0.08, 0.15])),
        relief_m=8.0,
    )
    land = replace(make_landscape(rng, canvas, recipe), wind=0.0)
    low = -land.terrain_m + 0.4 * noise(rng, canvas, 60.0)
    deep = share_above(low, float(rng.uniform(0.05, 0.35))) & (land.building == 0)
    wet = deep | (land.cover == Cover.CLEAR_WATER)
    land = littered(
        rng, replace(land, cover=np.where(wet, Cover.TURBID_WATER, land.cover), weave=np.where(wet, 0, land.weave)), wet
    )
    gusts = np.clip(rng.uniform(0, 1) + 0.35 * noise(rng, canvas, 120.0), 0.0, 1.2)
    clouds = draw_sky(rng, canvas, float(rng.choice([0.0, 0.0, 0.06, 0.12, 0.2])))
    light, haze = float(rng.uniform(0.95, 1.05)), float(rng.uniform(0.85, 1.15))
    sky = replace(clouds, light=light, haze=haze, shadow=shade(rng, land, clouds), glint=glint(rng, land, gusts))
    return Flood(
        land, wet, sky, gusts, datetime.date(2018, 1, 1) + datetime.timedelta(days=int(rng.integers(110, 290)))
    )


def littered(rng: Random, land: Landscape, wet: Bools) -> Landscape:
    """Return the landscape with what is too small to be mapped: crowns that stand out of the water, puddles on land."""
    small = patches(rng, land.canvas, CLUMP_M, rng.random)
    puddles = ~wet & (small < PUDDLES) & (land.building == 0) & (land.cover != Cover.ROAD)
    cover = np.where(puddles, Cover.TURBID_WATER, land.cover)
    return replace(land, cover=np.where(wet & (small < CROWNS), Cover.CONIFER, cover))


def shade(rng: Random, land: Landscape, sky: Sky) -> Floats:
    """Return the shadow (H, W) of clouds, and of crowns, houses and clods of earth where they stand close together."""
    share, depth = np.zeros(len(Cover)), np.zeros(len(Cover))
    for cover, (often, deep) in SHADE.items():
        share[cover], depth[cover] = often, deep
    dark = patches(rng, land.canvas, SHADE_M, rng.random) < share[land.cover]
    small = np.where(dark, depth[land.cover], 0.0).astype(np.float32)
    return small if sky.shadow is None else np.maximum(small, sky.shadow)


def glint(rng: Random, land: Landscape, gusts: Floats) -> Floats:
    """Return what waves mirror of the sun (H, W): a lot in a few places, little in most."""
    mirrored = patches(rng, land.canvas, SHADE_M, lambda shape: rng.standard_gamma(0.5, shape) / 0.5)
    return np.where(np.isin(land.cover, WATERS), GLINT * gusts * mirrored, 0.0).astype(np.float32)


def patches(rng: Random, canvas: Canvas, size_m: float, draw: Callable[[tuple[int, int]], Floats]) -> Floats:
    """Return a map (H, W) of patches of ``size_m`` that begin anywhere, with a value drawn for each."""
    step = round(size_m / canvas.gsd_m)
    values = draw((canvas.height // step + 2, canvas.width // step + 2))
    down, right = rng.integers(0, step, 2)
    return values.repeat(step, axis=0).repeat(step, axis=1)[down:, right:][: canvas.height, : canvas.width]


def seen_by_radar(rng: Random, flood: Flood) -> Floats:
    """Return VV and VH (2, H, W) in dB at the fine pixel size, with as much speckle as leaves the usual at 10 m."""
    wind_db = np.array(WIND_DB, dtype=np.float32)[:, None, None] * flood.gusts * flood.water
    orbit = str(rng.choice(["ascending", "descending"]))
    looks = LOOKS / round(TARGET_M / FINE_M) ** 2
    return backscatter(rng, flood.land, day_of(flood.date), orbit, more_db=wind_db, looks=looks)


def seen_by_light(rng: Random, flood: Flood, bands: Sequence[Channel], gsd_m: float) -> AtomSet:
    """Return what a passive sensor with pixels of ``gsd_m`` sees; below clouds nothing."""
    factor = round(gsd_m / FINE_M)
    values = pooled(observe(rng, flood.land, bands, day_of(flood.date), flood.sky), factor)
    if flood.sky.cloud is not None:
        hidden = pooled((flood.sky.cloud > 0.5)[None].astype(np.float32), factor)[0] > 0.25
        values[:, hidden] = np.nan
    return raster(values, bands, gsd_m, flood)


def raster(values: Floats, bands: Sequence[Channel], gsd_m: float, flood: Flood) -> AtomSet:
    """Return the atoms of a raster (C, h, w) whose north-west corner is that of the place."""
    width_m, height_m = flood.land.canvas.extent_m
    beyond_x, beyond_y = values.shape[2] * gsd_m - width_m, values.shape[1] * gsd_m - height_m
    return AtomSet.from_raster(
        values.astype(np.float32), bands, gsd_m, flood.date, center_m=(beyond_x / 2, -beyond_y / 2)
    )


def with_target(flood: Flood, atoms: AtomSet) -> Simulated:
    """Return the observations with the target at 10 m: water where it covers at least half of a pixel."""
    factor = round(TARGET_M / FINE_M)
    wet = pooled(flood.water[None].astype(np.float32), factor)[0] >= 0.5
    height, width = wet.shape
    return Simulated(atoms, wet.astype(np.int64), grid_of(Canvas(height, width, TARGET_M)))
