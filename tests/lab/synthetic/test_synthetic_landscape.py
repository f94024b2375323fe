"""Synthetic landscapes and what light, radar and laser see of them."""

from __future__ import annotations

import numpy as np
import pytest

from atomizer_io.data.sensors import HLS, SENTINEL2, SENTINEL2_L2A, Sensor
from atomizer_lab.synthetic.land_cover import NAMES, ROOFS, SEASONS, Cover, composition, seasonal, spectra
from atomizer_lab.synthetic.landscape import Landscape, Recipe, make_landscape
from atomizer_lab.synthetic.lidar import DALES, FRACTAL, Point, Returns, furnish, scan
from atomizer_lab.synthetic.lidar_scenes import BANDS
from atomizer_lab.synthetic.optics import Sky, draw_sky, observe
from atomizer_lab.synthetic.radar import BACKSCATTER_DB, backscatter
from atomizer_lab.synthetic.random_maps import Canvas, noise, polygons

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


def test_sizes_are_in_metres() -> None:
    for gsd_m in (2.0, 5.0, 10.0):
        canvas = Canvas(round(1200 / gsd_m), round(1200 / gsd_m), gsd_m)
        parcels = polygons(np.random.default_rng(1), canvas, 100.0)
        assert len(np.unique(parcels.ids)) == pytest.approx(1200**2 / 100**2, rel=0.35)
    areas = np.bincount(place(3, 200, 1.0, Recipe(FARMLAND.fields, town=0.8)).building.ravel())[1:]
    assert 5 < np.median(areas[areas > 0]) ** 0.5 < 18
    wide = Recipe({Cover.MEADOW: 1.0}, woods=0.0, river_m=60.0)
    across_m = [place(seed, 100, 10.0, wide).water.sum() * 100 / 1000 for seed in range(8)]  # area by length
    assert 45 < np.median(across_m) < 110


def test_fields_have_straight_borders() -> None:
    canvas = Canvas(200, 200, 1.0)
    straight, crooked = (polygons(np.random.default_rng(0), canvas, 60.0, warp).ids for warp in (0.0, 10.0))
    # The neighbours of a pixel inside a convex polygon that lie in the same polygon come in one run.
    for name, ids in (("straight", straight), ("crooked", crooked)):
        runs = [np.count_nonzero(np.diff((row == number).astype(int))) for row in ids[::7] for number in np.unique(row)]
        assert (max(runs) <= 2) == (name == "straight")


def test_noise_has_the_scale_that_was_requested() -> None:
    for gsd_m in (1.0, 4.0):
        field = noise(np.random.default_rng(0), Canvas(400, 400, gsd_m), 40.0)
        step = round(20 / gsd_m)
        near = np.corrcoef(field[:, :-step].ravel(), field[:, step:].ravel())[0, 1]
        far = np.corrcoef(field[:, : -4 * step].ravel(), field[:, 4 * step :].ravel())[0, 1]
        assert 0.5 < near < 0.95 and abs(far) < 0.25
        assert field.std() == pytest.approx(1.0, abs=0.15)


def test_pairs_that_light_cannot_tell_apart() -> None:
    days = np.arange(1.0, 366.0)
    for one, two in (
        (Cover.SHRUB, Cover.ORCHARD),
        (Cover.SOIL, Cover.SMOOTH_SOIL),
        (Cover.MEADOW, Cover.FLOODED_MEADOW),
    ):
        mixed = [composition(np.full(len(days), cover), days) for cover in (one, two)]
        np.testing.assert_array_equal(*mixed)
    soils = np.array([BACKSCATTER_DB[cover] for cover in (Cover.SOIL, Cover.SMOOTH_SOIL)])
    assert (np.diff(soils, axis=0) == -6).all()
    # Rows and the same leaves in no order: single pixels have the same distribution.
    grown = place(0, 256, 10.0, Recipe({Cover.ORCHARD: 1.0, Cover.SHRUB: 1.0}, woods=0.0))
    rows, shrubs = (np.sort(grown.weave[grown.cover == cover]) for cover in (Cover.ORCHARD, Cover.SHRUB))
    levels = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(np.quantile(rows, levels), np.quantile(shrubs, levels), atol=0.05)


def test_shares_of_materials_make_sense_on_every_day() -> None:
    days = np.arange(1.0, 366.0, 7.0)
    for cover in Cover:
        shares = composition(np.full(len(days), cover), days)
        assert (shares >= 0).all() and (shares.sum(axis=1) <= 1 + 1e-9).all() and (shares.sum(axis=1) > 0.5).all()
    reddened = composition(np.array([Cover.SOIL]), np.array([100.0]), "red_soil")[0]
    assert reddened[NAMES.index("soil")] == 0 and reddened[NAMES.index("red_soil")] > 0.9


def test_crops_differ_in_when_they_are_green() -> None:
    green = {cover: seasonal(cover, np.arange(365.0))[0] for cover in SEASONS}
    assert green[Cover.WHEAT].argmax() < 165 < 185 < green[Cover.MAIZE].argmax()
    day = np.array([150.0])
    winter, spring = (seasonal(cover, day)[0] for cover in (Cover.WHEAT, Cover.SPRING_BARLEY))
    assert abs(winter - spring) < 0.05  # the same in May …
    winter, spring = (seasonal(cover, day - 90)[0] for cover in (Cover.WHEAT, Cover.SPRING_BARLEY))
    assert winter - spring > 0.25  # … but not in March


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


def test_clouds_are_bright_and_their_shadows_dark() -> None:
    land = place(2)
    sky = draw_sky(np.random.default_rng(3), land.canvas, 0.25)
    assert sky.cloud is not None and sky.shadow is not None
    assert 0.15 < (sky.cloud > 0).mean() < 0.35
    clear = observe(np.random.default_rng(0), land, SENTINEL2_L2A.pick("B02", "B08"), 150, Sky(sky.light, sky.haze))
    cloudy = observe(np.random.default_rng(0), land, SENTINEL2_L2A.pick("B02", "B08"), 150, sky)
    thick, shade = sky.cloud > 0.9, (sky.shadow > 0.9) & (sky.cloud == 0)
    assert (cloudy[0][thick] > 2 * clear[0][thick]).mean() > 0.9
    assert np.median(cloudy[1][shade] / clear[1][shade]) < 0.6


def test_bands_are_as_sharp_as_they_are_acquired() -> None:
    land = place(4)
    fine, coarse = observe(np.random.default_rng(0), land, SENTINEL2_L2A.pick("B08", "B09"), 150)
    blurred = np.abs(np.diff(coarse)).mean() / coarse.std()
    assert blurred < 0.5 * np.abs(np.diff(fine)).mean() / fine.std()


def test_radar_sees_roughness_leaves_and_slopes() -> None:
    plain = Recipe({Cover.SOIL: 1.0, Cover.SMOOTH_SOIL: 1.0, Cover.FOREST: 1.0}, woods=0.0, relief_m=0.0)
    land = place(0, 128, recipe=plain)
    vv, vh = backscatter(np.random.default_rng(0), land, 180)
    mean = {cover: (vv[land.cover == cover].mean(), vh[land.cover == cover].mean()) for cover in plain.fields}
    assert mean[Cover.SOIL][0] - mean[Cover.SMOOTH_SOIL][0] == pytest.approx(6, abs=1)
    assert mean[Cover.FOREST][1] > mean[Cover.SOIL][1] + 2
    grain = vv[land.cover == Cover.SOIL] - mean[Cover.SOIL][0]
    assert 1.5 < grain.std() < 3.5 and grain.mean() == pytest.approx(0, abs=0.01)
    hills = place(0, 128, recipe=Recipe({Cover.SOIL: 1.0}, woods=0.0, relief_m=60.0))
    up, down = (backscatter(np.random.default_rng(0), hills, 180, orbit)[0] for orbit in ("ascending", "descending"))
    eastward = np.gradient(hills.terrain_m, axis=1)
    assert np.corrcoef((up - down).ravel(), eastward.ravel())[0, 1] < -0.9


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


def test_echoes_are_well_formed(flights: list[tuple[Landscape, Returns]]) -> None:
    for _, cloud in flights:
        assert 12 < len(cloud) / 2500 < 20
        assert (cloud.return_number >= 1).all() and (cloud.return_number <= cloud.number_of_returns).all()
        assert cloud.number_of_returns.max() >= 4
        assert (cloud.xyz[:, :2] >= 0).all() and (cloud.xyz[:, :2] < 50).all()
        follows = cloud.return_number[1:] == cloud.return_number[:-1] + 1
        same_pulse = follows & (cloud.number_of_returns[1:] == cloud.number_of_returns[:-1])
        assert (np.diff(cloud.xyz[:, 2])[same_pulse] < 0.3).all()  # later is lower
        assert 6.0 < np.log1p(cloud.intensity).mean() < 8.0


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


def test_the_image_is_of_the_same_place(flights: list[tuple[Landscape, Returns]]) -> None:
    land, cloud = flights[0]
    infrared, red, *_ = observe(np.random.default_rng(0), land, BANDS, 190)
    at = land.canvas.pixels(cloud.xyz[:, 0], cloud.xyz[:, 1])
    index = ((infrared - red) / np.maximum(infrared + red, 1))[at]
    leaves = (cloud.kind == Point.VEGETATION) & (cloud.return_number == 1) & (cloud.number_of_returns > 1)
    assert np.median(index[leaves]) > np.median(index[cloud.kind == Point.BUILDING]) + 0.1


def test_every_kind_of_point_has_a_class_of_the_datasets() -> None:
    assert set(DALES) == set(FRACTAL) == set(Point)
    assert set(DALES.values()) == {-1, *range(8)} and set(FRACTAL.values()) == set(range(7))
