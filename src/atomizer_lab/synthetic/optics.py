"""A landscape as a passive sensor sees it: reflectance in any channel with a wavelength, on any day, below any sky.

Values come in the units in which the catalogue states its statistics: top of the atmosphere × 10⁴ for Sentinel-2,
surface × 10⁴ for Sentinel-2 L2A, 8 bit for aerial images; 0–1 for any other sensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from atomizer_io.data.channels import Channel
from atomizer_lab.synthetic.land_cover import WATERS, WOODS, Cover, composition, spectra
from atomizer_lab.synthetic.landscape import Landscape
from atomizer_lab.synthetic.random_maps import Canvas, Floats, Random, noise, share_above

SUN = (-0.45, 0.45, 0.77)  # towards the sun: west of south, as seen from above (x east, y south, z up)
SHADOWS_BELOW_M = 2.0  # pixels up to this size show the shadows of houses and trees
WEAVE = 0.22  # share of the ground that changes between leaf and soil within a row
# RGB images are stretched for the eye: this reflectance is white.
WHITE = {"R": 0.42, "G": 0.36, "B": 0.34, "NIR": 0.95}
# How much a cover's brightness varies from pixel to pixel where nothing stands on it.
ROUGHNESS = {Cover.ROAD: 0.04, Cover.MEADOW: 0.06, Cover.RUBBLE: 0.3, **dict.fromkeys(WATERS, 0.02)}
ROUGHNESS |= dict.fromkeys(WOODS, 0.1) | {Cover.TOWN: 0.2, Cover.INDUSTRY: 0.25}


@dataclass(frozen=True, slots=True, eq=False)
class Sky:
    """Light of a scene (1: usual), its haze (1: usual), and clouds: their thickness 0–1 (H, W) and their shadow.

    ``glint`` (H, W) is the reflectance that water adds where it mirrors the sun, the same at all wavelengths.
    """

    light: float = 1.0
    haze: float = 1.0
    cloud: Floats | None = None
    shadow: Floats | None = None
    glint: Floats | None = None


def draw_sky(rng: Random, canvas: Canvas, share: float = 0.0) -> Sky:
    """Draw a sky in which clouds cover about ``share``; clouds are hundreds of metres wide and throw shadows."""
    light, haze = float(rng.uniform(0.88, 1.12)), float(rng.uniform(0.6, 1.5))
    if share <= 0.01:
        return Sky(light, haze)
    longest = max(canvas.extent_m)
    field = noise(rng, canvas, min(500.0, 0.5 * longest), octaves=3)
    edge = np.quantile(field, 1 - min(share, 1.0))
    cloud = np.clip((field - edge) / 0.25, 0, 1).astype(np.float32)
    shift = max(2, round(min(250.0, 0.2 * longest) / canvas.gsd_m))
    shadow = ndimage.shift(cloud, (-shift, shift), order=0, mode="nearest")
    return Sky(light, haze, cloud, np.where(cloud > 0.5, 0, shadow))


def observe(
    rng: Random,
    land: Landscape,
    channels: Sequence[Channel],
    day: float,
    sky: Sky | None = None,
    *,
    veil: tuple[Floats, Cover] | None = None,
) -> Floats:
    """Return the values (C, H, W) of ``channels`` on a day of the year, in the sensor's units, float32.

    ``veil`` is a share (H, W) and a cover, such as char or crowns, that is laid over the scene by this share.
    """
    sky = sky or Sky()
    surface = ground(rng, land, channels, day, veil)
    um = np.array([c.wavelength_um or 0.55 for c in channels], dtype=np.float32)
    surface *= np.float32(sky.light) * shading(land)
    if sky.shadow is not None:
        surface *= 1 - sky.shadow * (1 - _skylight(um))[:, None, None]
    if sky.glint is not None:
        surface += sky.glint
    sensor = channels[0].sensor
    if sensor == "sentinel2":
        surface = surface * _transmission(um)[:, None, None] + (sky.haze * _scattered(um))[:, None, None]
    else:  # corrected for the atmosphere, but never perfectly
        surface += ((sky.haze - 1) * 0.1 * _scattered(um))[:, None, None]
    if sky.cloud is not None:
        white = 0.62 - 0.1 * np.clip(um - 1.0, 0, 1.5)
        if sensor == "sentinel2":  # clouds are above most of the vapour
            white *= _transmission(um) ** 0.35
        surface += sky.cloud * (white[:, None, None] - surface)
    return in_units(_blurred(rng, surface, channels, land.canvas.gsd_m), channels)


def ground(
    rng: Random, land: Landscape, channels: Sequence[Channel], day: float, veil: tuple[Floats, Cover] | None = None
) -> Floats:
    """Return the reflectance (C, H, W) of the ground itself: what each stand is made of on that day, rows and grain."""
    covers, parcels, index = land.stands
    curves = spectra(channels)
    mixed = composition(covers, day - land.later[parcels], land.ground)
    table = np.einsum("sm,mc->cs", mixed, curves) * np.clip(land.bright[parcels], 0.7, 1.3)
    result: Floats = np.take(table.astype(np.float32), index, axis=1)
    if veil is not None:
        share, cover = veil
        over = composition(np.array([cover]), np.array([float(day)]), land.ground)[0] @ curves
        result += share * (over.astype(np.float32)[:, None, None] - result)
    if land.weave.any():
        pair = composition(np.array([Cover.YOUNG_FOREST, Cover.SOIL]), np.full(2, float(day)), land.ground) @ curves
        result += (WEAVE * (pair[0] - pair[1])).astype(np.float32)[:, None, None] * land.weave
    roughness = np.full(len(Cover), 0.07, dtype=np.float32)
    roughness[list(ROUGHNESS)] = list(ROUGHNESS.values())
    grain = roughness[land.cover]
    result *= 1 + grain * rng.standard_normal(land.canvas.shape, dtype=np.float32)
    result *= 1 + grain * noise(rng, land.canvas, max(5 * land.canvas.gsd_m, 6.0))
    return np.maximum(result, 0.0, out=result)


def shading(land: Landscape) -> Floats:
    """Return the light (H, W) that the shape of terrain, roofs and crowns leaves, 1 on flat open ground."""
    canvas = land.canvas
    fine = canvas.gsd_m <= SHADOWS_BELOW_M
    surface = land.terrain_m + land.height_m if fine else land.terrain_m
    down, right = np.gradient(surface, canvas.gsd_m)
    facing = (SUN[2] - right * SUN[0] - down * SUN[1]) / np.sqrt(1 + right**2 + down**2)
    lit = np.clip(facing / SUN[2], 0.35, 1.35).astype(np.float32)
    if fine and land.height_m.any():
        lit = np.where(shadows(surface, canvas.gsd_m), 0.4, lit).astype(np.float32)
    return lit


def shadows(surface: Floats, gsd_m: float) -> np.ndarray:
    """Return where (H, W) something towards the sun stands in the light."""
    run = float(np.hypot(SUN[0], SUN[1]))
    dark = np.zeros(surface.shape, dtype=bool)
    step = max(1.0, 1.2 / gsd_m)  # pixels
    for n in range(1, 16):
        right, down = round(n * step * SUN[0] / run), round(n * step * SUN[1] / run)
        rise = np.hypot(right, down) * gsd_m * SUN[2] / run
        dark |= ndimage.shift(surface, (-down, -right), order=0, mode="nearest") - rise > surface + 0.3
    return dark


def in_units(reflectance: Floats, channels: Sequence[Channel]) -> Floats:
    """Return reflectance 0–1 (C, …) in the unit of the sensor's files."""
    sensor = channels[0].sensor
    if sensor in ("sentinel2", "sentinel2_l2a"):
        return np.clip(np.rint(reflectance * 1e4), 1, 32767)
    if sensor == "aerial":
        white = np.array([WHITE.get(c.name, 0.4) for c in channels], dtype=np.float32)
        bright = np.clip(reflectance / white.reshape(-1, *[1] * (reflectance.ndim - 1)), 0, 1) ** np.float32(0.6)
        return np.rint(bright * 255)
    return reflectance


def _blurred(rng: Random, values: Floats, channels: Sequence[Channel], gsd_m: float) -> Floats:
    """Return each band as sharp as it is acquired, with the sensor's noise."""
    for band, channel in zip(values, channels, strict=True):
        sharpness = 0.4 * max(1.0, (channel.gsd_m or gsd_m) / gsd_m)
        ndimage.gaussian_filter(band, sharpness, mode="nearest", output=band)
    draws = rng.standard_normal(values.shape, dtype=np.float32)
    return np.maximum(values * (1 + 0.012 * draws) + 0.0012 * draws[:, ::-1], 0.0)


def _skylight(um: Floats) -> Floats:
    """Return the share of light that still reaches a shadow: blue is scattered into it, the infrared is not."""
    return np.clip(0.75 * (0.45 / um) ** 1.2, 0.12, 0.8)


def _scattered(um: Floats) -> Floats:
    """Return the light that the air itself sends up."""
    return 0.11 * (0.443 / um) ** 3.2


def _transmission(um: Floats) -> Floats:
    """Return the share of light that passes water vapour: little at 0.94, hardly any at 1.38 and 1.9 µm."""
    result = np.ones_like(um)
    for centre, width, depth in ((0.94, 0.04, 0.84), (1.13, 0.03, 0.6), (1.38, 0.06, 0.998), (1.88, 0.06, 0.98)):
        result *= 1 - depth * np.exp(-(((um - centre) / width) ** 2))
    return result


def covered(sky: Sky, canvas: Canvas) -> np.ndarray:
    """Return where (H, W) a cloud hides the ground."""
    return np.zeros(canvas.shape, dtype=bool) if sky.cloud is None else sky.cloud > 0.5


def beyond(rng: Random, canvas: Canvas, share: float) -> np.ndarray:
    """Return the pixels (H, W) beyond the slanted edge of a swath, about ``share`` of the scene."""
    slope = rng.uniform(-0.3, 0.3)
    ramp = (canvas.x - canvas.extent_m[0] / 2) + slope * (canvas.y - canvas.extent_m[1] / 2)
    return share_above(ramp if rng.random() < 0.5 else -ramp, share)
