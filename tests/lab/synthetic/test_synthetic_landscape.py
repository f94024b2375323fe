"""Synthetic landscapes and what light, radar and laser see of them."""

from __future__ import annotations

import numpy as np
import pytest

from atomizer_io.data.sensors import HLS, SENTINEL2, SENTINEL2_L2A, Sensor
from atomizer_lab.synthetic.land_cover import NAMES, ROOFS, Cover, spectra
from atomizer_lab.synthetic.landscape import Landscape, Recipe, make_landscape
from atomizer_lab.synthetic.lidar import Point, Returns, furnish, scan
from atomizer_lab.synthetic.optics import observe
from atomizer_lab.synthetic.random_maps import Canvas

FARMLAND = Recipe(
    {Cover.WHEAT: 2.0, Cover.MAIZE: 2.0, Cover.MEADOW: 2.0, Cover.ORCHARD: 1.0, Cover.SHRUB: 1.0, Cover.SOIL: 1.0},
    river_m=30.0,
    roads=1,
    town=0.2,
)


def place(seed: int, size: int = 64, gsd_m: float = 10.0, recipe: Recipe = FARMLAND) -> Landscape:
    return make_landscape(np.random.default_rng(seed), Canvas(size, size, gsd_m), recipe)


def test_the_same_seed_is_the_same_place_at_any_pixel_size() -> None:
    for seed in range(4):
        fine, coarse = place(seed, 192, 10 / 3), place(seed, 64, 10.0)
        nature = ~(coarse.town | coarse.road)
        assert (fine.cover[1::3, 1::3] == coarse.cover)[nature].mean() > 0.93
        assert np.corrcoef(fine.terrain_m[1::3, 1::3].ravel(), coarse.terrain_m.ravel())[0, 1] > 0.99


def test_coarse_pixels_show_no_houses_and_fine_ones_show_trees() -> None:
    towns = Recipe(FARMLAND.fields, town=0.5)
    assert (place(0, 128, 0.5, towns).crown_m > 0).any()
    assert (place(0, 64, 10.0, towns).building > 0).any() and not place(0, 64, 10.0, towns).crown_m.any()
    coarse = place(0, 64, 30.0, towns)
    assert not coarse.building.any() and (coarse.cover == Cover.TOWN).mean() > 0.3


def test_spectra_have_the_shapes_that_are_known() -> None:
    names = ("B03", "B04", "B08", "B11")
    green, red, infrared, shortwave = spectra(SENTINEL2_L2A.pick(*names)).T
    leaf, soil, water = (NAMES.index(name) for name in ("leaf", "soil", "clear_water"))
    assert infrared[leaf] > 5 * red[leaf] and green[leaf] > red[leaf]  # the red edge, the green peak
    assert green[soil] < red[soil] < infrared[soil] < shortwave[soil]
    assert shortwave[water] < infrared[water] < green[water]
    # Any sensor with wavelengths will do; a hyperspectral one sees the absorption of water at 1.4 and 1.9 µm.
    fine = Sensor.define("fine", gsd_m=30.0, bands={f"{um:.2f}": (um, 0.01) for um in np.arange(0.42, 2.45, 0.01)})
    curve = spectra(fine.channels)[leaf]
    at = {round(c.wavelength_um or 0, 2): value for c, value in zip(fine.channels, curve, strict=True)}
    assert at[1.25] > at[1.4] < at[1.62] > at[1.92] < at[2.2]
    values = observe(np.random.default_rng(0), place(0, 24, 30.0), fine.channels, 150)
    assert values.shape == (len(fine.channels), 24, 24) and values.min() >= 0 and values.max() < 1.0


def test_units_are_those_of_the_sensor() -> None:
    land = place(1)
    surface = observe(np.random.default_rng(0), land, SENTINEL2_L2A.pick("B04", "B08"), 150)
    harmonised = observe(np.random.default_rng(0), land, HLS.pick("B04", "B8A"), 150)
    assert np.array_equal(surface, np.rint(surface)) and 500 < surface.mean() < 5000
    assert 0.02 < harmonised.mean() < 0.5
    above = observe(np.random.default_rng(0), land, SENTINEL2.pick("B01", "B09", "B10"), 150)
    below = observe(np.random.default_rng(0), land, SENTINEL2_L2A.pick("B01", "B09"), 150)
    assert above[0].mean() > below[0].mean() + 800  # the air shines in the blue
    assert above[1].mean() < 0.4 * below[1].mean() and above[2].mean() < 100  # vapour swallows


@pytest.fixture(scope="module")
def flights() -> list[tuple[Landscape, Returns]]:
    recipes = (
        Recipe({Cover.MEADOW: 1.0}, 30.0, woods=0.35, town=0.7, roads=1, road_m=6.0, relief_m=15.0),
        Recipe({Cover.MEADOW: 1.0}, 30.0, woods=0.2, river_m=10.0, roads=1, road_m=6.0, relief_m=15.0),
    )
    values = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        land = make_landscape(rng, Canvas(250, 250, 0.2), recipes[seed % 2])
        land, things = furnish(rng, land, line=seed == 0)
        values.append((land, scan(rng, land, things, 16.0)))
    return values


def test_several_returns_are_of_plants_and_the_last_of_the_ground(flights: list[tuple[Landscape, Returns]]) -> None:
    for land, cloud in flights:
        several = cloud.number_of_returns > 1
        wired = cloud.kind == Point.POWER_LINE
        first = several & (cloud.return_number == 1) & ~wired
        assert (cloud.kind[first] == Point.VEGETATION).mean() > 0.9
        solid = np.isin(cloud.kind, (Point.BUILDING, Point.CAR, Point.BRIDGE))
        assert several[solid].sum() < 0.15 * max(solid.sum(), 1)
        last = several & (cloud.return_number == cloud.number_of_returns)
        assert (cloud.kind[last] == Point.GROUND).mean() > 0.3
        # Ground is found below trees, and it is the ground.
        at = land.canvas.pixels(cloud.xyz[:, 0], cloud.xyz[:, 1])
        below = (land.crown_m[at] > 0) & (cloud.kind == Point.GROUND)
        assert below.sum() > 100
        assert np.abs(cloud.xyz[below, 2] - land.terrain_m[at][below]).max() < 0.4
        crowns = (land.crown_m[at] > 0) & (cloud.kind == Point.VEGETATION)
        assert np.median(cloud.xyz[crowns, 2] - land.terrain_m[at][crowns]) > 3


def test_roofs_water_bridges_and_wires_are_where_they_should_be(flights: list[tuple[Landscape, Returns]]) -> None:
    kinds = set(np.concatenate([cloud.kind for _, cloud in flights]).tolist())
    assert {Point.BUILDING, Point.WATER, Point.CAR, Point.POWER_LINE, Point.FENCE, Point.POLE} <= kinds
    for land, cloud in flights:
        at = land.canvas.pixels(cloud.xyz[:, 0], cloud.xyz[:, 1])
        above = cloud.xyz[:, 2] - land.terrain_m[at]
        roofs = cloud.kind == Point.BUILDING
        if roofs.sum() > 100:
            assert np.quantile(above[roofs], 0.05) > 1.5 and np.isin(land.cover[at][roofs], ROOFS).mean() > 0.9
        wet = land.water & ~land.bridge
        if wet.mean() > 0.02:
            density = (cloud.kind == Point.WATER).sum() / (wet.sum() * 0.04)
            assert density < 5  # of about 16 points/m²
        assert (above[cloud.kind == Point.POWER_LINE] > 8).all()
