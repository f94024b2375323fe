"""A synthetic landscape: what covers the ground where, how high it lies, and what stands on it.

Sizes are metres: a field is about 100 m, a house 12 m, a road 8 m, a river 30 m. The same seed shows the same place at
any pixel size, less what the pixels are too coarse to show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from atomizer_lab.synthetic.houses_and_trees import (
    TOWNS,
    Houses,
    Streets,
    Trees,
    chosen,
    draw_houses,
    draw_trees,
    plant,
    together,
)
from atomizer_lab.synthetic.land_cover import WOODS, Cover
from atomizer_lab.synthetic.random_maps import (
    Bools,
    Canvas,
    Floats,
    Ints,
    Polygons,
    Random,
    across,
    noise,
    polygons,
    share_above,
)

SEE_TREES_M = 1.0  # pixels up to this size show single trees
# Where leaves and soil alternate: metres between rows. Pixels too coarse for them show rows this many pixels apart.
ROWS_M = {Cover.ORCHARD: 6.0, Cover.VINEYARD: 2.5, Cover.PALM: 9.0, Cover.CASHEW: 9.0}
ROWS_PIXELS = 2.5


@dataclass(frozen=True, slots=True)
class Recipe:
    """What kind of landscape to make: shares of covers, sizes in metres, number of roads."""

    fields: Mapping[Cover, float]  # shares of the polygons
    field_m: float = 100.0
    warp_m: float = 0.0  # how crooked the borders are: 0 for fields, tens of metres for nature
    woods: float = 0.1  # share of the place, and of what
    wood: Cover = Cover.FOREST
    lakes: float = 0.0  # share, in the hollows
    river_m: float = 0.0  # width
    water: Cover = Cover.CLEAR_WATER
    roads: int = 0
    road_m: float = 8.0
    town: float = 0.0  # share
    houses: Cover = Cover.TOWN  # what towns are made of: TOWN or INDUSTRY
    relief_m: float = 15.0  # standard deviation of the heights over 600 m
    trees: float = 0.04  # share of the possible places outside woods and fields of crops
    ground: str = "soil"


@dataclass(frozen=True, eq=False)
class Landscape:
    """A landscape on the pixels of ``canvas``. Per pixel (H, W):

    ``cover`` (a Cover), ``parcel`` (number of the polygon), ``border_m`` (distance to the polygon's border),
    ``terrain_m``, ``water``, ``road``, ``bridge`` and ``town`` (bool), ``building`` (number from 1; 0: none),
    ``height_m`` (of what stands on the ground), ``crown_m`` (lowest branches where a tree stands, else 0) and
    ``weave`` (leaves and soil alternating, mean 0, for covers that do). Per polygon: ``later`` (days its season lags)
    and ``bright``.
    """

    canvas: Canvas
    cover: Ints
    parcel: Ints
    border_m: Floats
    terrain_m: Floats
    water: Bools
    road: Bools
    bridge: Bools
    town: Bools
    building: Ints
    height_m: Floats
    crown_m: Floats
    weave: Floats
    later: Floats
    bright: Floats
    ground: str = "soil"
    wind: float = 0.0  # 0 … 1, on water

    @cached_property
    def stands(self) -> tuple[Ints, Ints, Ints]:
        """Return the covers (S,) and parcels (S,) of the pairs that occur, and which pair a pixel is (H, W)."""
        key = self.parcel.astype(np.int64) * len(Cover) + self.cover
        pairs, index = np.unique(key, return_inverse=True)
        return pairs % len(Cover), pairs // len(Cover), index.reshape(key.shape)


def make_landscape(rng: Random, canvas: Canvas, recipe: Recipe) -> Landscape:
    """Return a landscape of the kind that ``recipe`` describes."""
    # One generator to a feature: what a coarser pixel leaves out does not change the rest.
    of_terrain, of_fields, of_woods, of_river, of_roads, of_town, of_trees, of_rows = rng.spawn(8)
    longest = max(canvas.extent_m)
    hill_m = min(600.0, 0.6 * longest)
    terrain = noise(of_terrain, canvas, hill_m, octaves=3) * np.float32(recipe.relief_m * hill_m / 600.0)
    parcels = polygons(of_fields, canvas, recipe.field_m, recipe.warp_m)
    kinds, shares = list(recipe.fields), np.array(list(recipe.fields.values()))
    drawn = of_fields.choice(len(kinds), parcels.count, p=shares / shares.sum())
    cover = np.array(kinds)[drawn][parcels.ids]
    later, bright = of_fields.normal(0, 5.0, parcels.count), of_fields.normal(1, 0.07, parcels.count)

    if recipe.woods:
        thick = noise(of_woods, canvas, min(max(250.0, 0.06 * longest), 0.4 * longest), octaves=3)
        cover[share_above(thick, recipe.woods)] = recipe.wood
    river = np.zeros(canvas.shape, dtype=bool)
    if recipe.river_m >= 0.5 * canvas.gsd_m and recipe.river_m:
        away = np.abs(across(of_river, canvas, 0.05 * longest, 0.25 * longest))
        terrain = terrain - 6.0 * np.exp(-((away / (2 * recipe.river_m)) ** 2))
        river = away < recipe.river_m / 2
    wet = share_above(-terrain, recipe.lakes) | river if recipe.lakes else river
    cover, town, streets, houses = _build(of_town, canvas, recipe, cover, wet)
    road = _roads(of_roads, canvas, recipe) | streets
    cover[wet] = recipe.water
    cover[road] = Cover.ROAD

    building, height = np.zeros(canvas.shape, dtype=np.int64), np.zeros(canvas.shape, dtype=np.float64)
    if houses is not None:
        numbers, roofs = draw_houses(canvas, houses, terrain)
        building, height = np.where(wet | road, 0, numbers), np.where(wet | road, 0, roofs)
        cover = np.where(building > 0, houses.roof[building - 1], cover) if len(houses) else cover
    crown = np.zeros(canvas.shape)
    if canvas.gsd_m <= SEE_TREES_M:
        top, base = draw_trees(canvas, _trees(of_trees, canvas, recipe, cover, parcels))
        green = (building == 0) & ~wet & (top > 0)
        cover = np.where(green & ~np.isin(cover, WOODS), recipe.wood, cover)
        height, crown = np.where(green, top, height), np.where(green, base, crown)
    return Landscape(
        canvas=canvas,
        cover=cover,
        parcel=parcels.ids,
        border_m=parcels.border_m,
        terrain_m=terrain.astype(np.float32),
        water=wet,
        road=road,
        bridge=road & wet,
        town=town,
        building=building,
        height_m=height.astype(np.float32),
        crown_m=crown.astype(np.float32),
        weave=weave(of_rows, canvas, cover, parcels),
        later=later,
        bright=bright,
        ground=recipe.ground,
        wind=float(of_river.uniform(0, 1)) ** 2,
    )


def _roads(rng: Random, canvas: Canvas, recipe: Recipe) -> Bools:
    """Return the main roads: gently winding lines right across the landscape."""
    road = np.zeros(canvas.shape, dtype=bool)
    if recipe.road_m < 0.5 * canvas.gsd_m:
        return road
    longest = max(canvas.extent_m)
    for _ in range(recipe.roads):
        road |= np.abs(across(rng, canvas, 0.02 * longest, 0.7 * longest)) < max(recipe.road_m, 0.8 * canvas.gsd_m) / 2
    return road


def _build(
    rng: Random, canvas: Canvas, recipe: Recipe, cover: Ints, wet: Bools
) -> tuple[Ints, Bools, Bools, Houses | None]:
    """Return the cover with the town's ground, the town, its streets, and its houses where pixels can show them."""
    none = np.zeros(canvas.shape, dtype=bool)
    if not recipe.town:
        return cover, none, none, None
    lot_m, house_m = TOWNS[recipe.houses]
    longest = max(canvas.extent_m)
    town = share_above(noise(rng, canvas, min(700.0, 0.7 * longest), octaves=2), recipe.town) & ~wet
    cover = np.where(town, recipe.houses, cover)
    streets = Streets(rng.uniform(0, np.pi), lot_m, 6.5 if recipe.houses == Cover.TOWN else 12.0)
    houses = streets.houses(rng, canvas, house_m, industrial=recipe.houses == Cover.INDUSTRY)
    if house_m < 1.2 * canvas.gsd_m:
        return cover, town, none, None
    kept = town[canvas.pixels(houses.x, houses.y)]
    yards = noise(rng, canvas, lot_m) > (1.4 if recipe.houses == Cover.TOWN else -0.7)
    cover = np.where(town, np.where(yards, Cover.CONCRETE, Cover.MEADOW), cover)
    paved = streets.paved(canvas) & town if streets.street_m >= 0.6 * canvas.gsd_m else none
    return cover, town, paved, chosen(houses, kept)


def _trees(rng: Random, canvas: Canvas, recipe: Recipe, cover: Ints, parcels: Polygons) -> Trees:
    """Return the trees of woods, of hedges along some borders, of gardens and meadows, and of orchards."""
    wooded = np.isin(cover, WOODS)
    open_ground = np.isin(cover, (Cover.MEADOW, Cover.DRY_GRASS, Cover.SHRUB, Cover.CONCRETE))
    hedge = (parcels.border_m < 2.0) & (noise(rng, canvas, 150.0) > 0.3) & ~wooded & (cover != Cover.ROAD)
    return together(
        plant(rng, canvas, 5.5, wooded, 0.95, 14.0),
        plant(rng, canvas, 4.0, hedge, 0.8, 6.0),
        plant(rng, canvas, 7.0, open_ground, recipe.trees, 8.0),
        plant(rng, canvas, 6.0, cover == Cover.ORCHARD, 0.9, 4.5),
    )


def weave(rng: Random, canvas: Canvas, cover: Ints, parcels: Polygons) -> Floats:
    """Return how leaves and soil alternate (H, W): in rows, in no order for shrubs, 0 elsewhere.

    The wave is a sine whose phase is as likely at one value as at another; shrubs take the sine of a random phase, so
    a single pixel of either has the same distribution.
    """
    angle = rng.uniform(0, np.pi, parcels.count)
    start = rng.uniform(0, 1, parcels.count)
    woven = np.zeros(canvas.shape, dtype=np.float32)
    for kind, spacing_m in ROWS_M.items():
        here = cover == kind
        if not here.any():
            continue
        rows, columns = np.nonzero(here)
        parcel = parcels.ids[here]
        u = canvas.x[0, columns] * np.cos(angle[parcel]) + canvas.y[rows, 0] * np.sin(angle[parcel])
        spacing = max(spacing_m, ROWS_PIXELS * canvas.gsd_m)
        woven[here] = np.sin(2 * np.pi * (u / spacing + start[parcel]))
    shrubs = cover == Cover.SHRUB
    if shrubs.any():
        if canvas.gsd_m < 2.0:  # a shrub is wider than the pixel
            woven[shrubs] = np.clip(noise(rng, canvas, 3.0), -1.4, 1.4)[shrubs] / np.float32(1.3)
        else:
            woven[shrubs] = np.sin(2 * np.pi * rng.random(int(shrubs.sum())))
    return woven
