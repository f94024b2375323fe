"""Synthetic scenes of EuroSAT: one of ten land uses to a scene."""

from __future__ import annotations

from dataclasses import replace

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import SENTINEL2
from atomizer_lab.synthetic.farming import CROPS
from atomizer_lab.synthetic.land_cover import Cover
from atomizer_lab.synthetic.landscape import Recipe, make_landscape
from atomizer_lab.synthetic.optics import draw_sky, observe
from atomizer_lab.synthetic.random_maps import Canvas, Random
from atomizer_lab.synthetic.simulated import Simulated

LASTING = (Cover.MEADOW, Cover.VINEYARD, Cover.ORCHARD)
ANNUAL = {cover: share for cover, share in CROPS.items() if cover not in LASTING}
COUNTRY = {**ANNUAL, Cover.MEADOW: 4.0}
HERBS = {Cover.DRY_GRASS: 2.0, Cover.SHRUB: 2.0, Cover.MEADOW: 0.5}
LAND_USES: dict[str, Recipe] = {
    "AnnualCrop": Recipe({**ANNUAL, Cover.SOIL: 2.0}, 160.0, woods=0.02),
    "Forest": Recipe({Cover.FOREST: 1.0, Cover.CONIFER: 1.0}, 250.0, 100.0, woods=0.3, relief_m=40.0),
    "HerbaceousVegetation": Recipe(HERBS, 120.0, 70.0, woods=0.05, relief_m=30.0),
    "Highway": Recipe(COUNTRY, 120.0, woods=0.08, roads=1, road_m=26.0),
    "Industrial": Recipe({Cover.CONCRETE: 2.0, Cover.MEADOW: 1.0}, 120.0, woods=0.02, roads=1, town=0.85),
    "Pasture": Recipe({Cover.MEADOW: 6.0, Cover.FODDER: 1.0}, 180.0, woods=0.1, trees=0.1),
    "PermanentCrop": Recipe({Cover.ORCHARD: 2.0, Cover.VINEYARD: 2.0, Cover.SOIL: 0.3}, 130.0, woods=0.03),
    "Residential": Recipe({Cover.MEADOW: 2.0, Cover.VEGETABLES: 0.3}, 90.0, woods=0.06, roads=1, town=0.85),
    "River": Recipe(COUNTRY, 130.0, woods=0.15, river_m=70.0),
    "SeaLake": Recipe({Cover.CLEAR_WATER: 1.0}, 400.0, woods=0.0, relief_m=0.0),
}


def draw_land_use(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw a scene of one of the ten land uses, in the growing season, without its date, as in EuroSAT."""
    canvas = Canvas(size, size, 10.0)
    label = int(rng.integers(len(LAND_USES)))
    name = list(LAND_USES)[label]
    recipe = LAND_USES[name]
    if name == "Industrial":
        recipe = replace(recipe, houses=Cover.INDUSTRY)
    if name == "River":
        turbid = rng.random() < 0.5
        width = float(rng.uniform(40, 110))
        recipe = replace(recipe, river_m=width, water=Cover.TURBID_WATER if turbid else Cover.CLEAR_WATER)
    if name == "SeaLake" and rng.random() < 0.2:  # a strip of shore
        recipe = replace(recipe, woods=0.15)
    land = make_landscape(rng, canvas, recipe)
    values = observe(rng, land, SENTINEL2.channels, float(rng.uniform(90, 280)), draw_sky(rng, canvas))
    return Simulated(AtomSet.from_raster(values, SENTINEL2, canvas.gsd_m), label)
