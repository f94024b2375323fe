"""Synthetic scenes of DALES and FRACTAL, and of a village: laser returns and an aerial image."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import AERIAL
from atomizer_lab.synthetic.land_cover import Cover
from atomizer_lab.synthetic.landscape import Landscape, Recipe, make_landscape
from atomizer_lab.synthetic.lidar import DALES, FRACTAL, VILLAGE, Furniture, Point, Returns, furnish, scan
from atomizer_lab.synthetic.optics import draw_sky, observe
from atomizer_lab.synthetic.random_maps import Canvas, Random
from atomizer_lab.synthetic.simulated import Simulated, pooled

PIXEL_M = 0.2
VILLAGE_M = 0.5
BANDS = AERIAL.pick("NIR", "R", "G", "B")
SUBURB = {Cover.MEADOW: 3.0, Cover.CONCRETE: 0.3, Cover.DRY_GRASS: 0.5, Cover.SHRUB: 0.4}
COUNTRY = {Cover.MEADOW: 2.0, Cover.WHEAT: 1.0, Cover.SOIL: 0.7, Cover.SHRUB: 0.5, Cover.ORCHARD: 0.3}


def draw_dales(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw ``size`` metres of a Canadian suburb: 40 points/m², no image."""
    canvas = Canvas(round(size / PIXEL_M), round(size / PIXEL_M), PIXEL_M)
    land, things = _place(rng, canvas, town=0.75, line=rng.random() < 0.4)
    return _drawn(canvas, scan(rng, land, things, 40.0), DALES)


def draw_fractal(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw ``size`` metres of France: 37 points/m² and an image of 0.2 m."""
    canvas = Canvas(round(size / PIXEL_M), round(size / PIXEL_M), PIXEL_M)
    land, things = _place(rng, canvas, town=0.75 if rng.random() < 0.55 else 0.0, line=rng.random() < 0.2)
    drawn = _drawn(canvas, scan(rng, land, things, 37.0), FRACTAL)
    image = observe(rng, land, BANDS, 190.0, draw_sky(rng, canvas))
    return Simulated(drawn.atoms + AtomSet.from_raster(image, BANDS, PIXEL_M), drawn.target, positions=drawn.positions)


def draw_village(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw ``size`` metres of a village on a hillside: 2 points/m² and an image of 1 m.

    Heights are above the lowest point of a slope, so that a roof stands out only from the ground around it.
    """
    canvas = Canvas(round(size / VILLAGE_M), round(size / VILLAGE_M), VILLAGE_M)
    recipe = Recipe(
        SUBURB,
        field_m=25.0,
        woods=float(rng.uniform(0.05, 0.3)),
        roads=1,
        road_m=6.0,
        town=0.8,
        relief_m=100.0,
        trees=0.12,
    )
    land, things = furnish(rng, make_landscape(rng, canvas, recipe), line=False)
    drawn = _drawn(canvas, scan(rng, land, things, 2.0), VILLAGE)
    image = pooled(observe(rng, land, BANDS, 190.0, draw_sky(rng, canvas)), round(1.0 / VILLAGE_M))
    return Simulated(drawn.atoms + AtomSet.from_raster(image, BANDS, 1.0), drawn.target, positions=drawn.positions)


def _place(rng: Random, canvas: Canvas, *, town: float, line: bool) -> tuple[Landscape, Furniture]:
    wet = rng.random() < 0.25
    recipe = Recipe(
        fields=SUBURB if town else COUNTRY,
        field_m=30.0 if town else 45.0,
        woods=float(rng.choice([0.05, 0.15, 0.35] if town else [0.1, 0.4, 0.8])),
        river_m=8.0 if wet else 0.0,
        roads=1 if wet or rng.random() < 0.6 else 0,
        road_m=6.0,
        town=town,
        relief_m=18.0,
        trees=0.08,
    )
    return furnish(rng, make_landscape(rng, canvas, recipe), line=line)


def _drawn(canvas: Canvas, returns: Returns, classes: Mapping[Point, int]) -> Simulated:
    """Return the points and their classes around the middle of the canvas: x east, y north."""
    middle = np.array(canvas.extent_m) / 2
    xyz = np.column_stack([returns.xyz[:, 0] - middle[0], middle[1] - returns.xyz[:, 1], returns.xyz[:, 2]])
    table = np.array([classes[kind] for kind in sorted(classes)])
    atoms = AtomSet.from_points(xyz, returns.return_number, returns.number_of_returns, returns.intensity)
    return Simulated(atoms, table[returns.kind], positions=xyz[:, :2].copy())
