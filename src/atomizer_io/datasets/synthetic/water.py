"""The scenes of ``atomizer demo``: lakes and a river seen by Sentinel-1 and Sentinel-2, with the truth at every pixel.

A scene is a map of land covers; each sensor turns covers into values and spoils them in its own way. Clear water is
easy in the optical bands, but shadows and wet soil come close, the brightness of a whole scene varies and clouds hide
a part. To radar water is dark, but so is a smooth field, wind on the water makes it brighter, and speckle covers
everything. Neither sensor decides alone, and neither does a single pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from atomizer_io.atoms import AtomSet
from atomizer_io.datasets.sample import IGNORE
from atomizer_io.datasets.synthetic.fields import blocks, river, share_above, smooth_noise, swath_edge
from atomizer_io.grid import Grid
from atomizer_io.sensors import SENTINEL1, SENTINEL2

LAND, WATER = 0, 1
PASSES = range(150, 220, 10)  # days of Sentinel-2; so few that a date does not give a scene away

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Cover(IntEnum):
    """What the ground is, as a row of the tables below."""

    CLEAR_WATER = 0
    TURBID_WATER = 1
    SOIL = 2
    VEGETATION = 3
    WET_SOIL = 4
    SMOOTH_FIELD = 5
    ROOF = 6


# Sentinel-2 L1C: top-of-atmosphere reflectance × 10⁴ per cover (rows) and band (B01 … B12). Round numbers set by hand
# so that the shapes of the spectra are right: water is dark beyond the red, leaves rise at the red edge, soil peaks
# in SWIR.
REFLECTANCE = np.array(
    [
        # B01  B02   B03   B04   B05   B06   B07   B08   B8A   B09   B10 B11   B12
        [1250, 950, 700, 450, 400, 330, 320, 280, 250, 120, 12, 100, 60],
        [1500, 1450, 1700, 1800, 1750, 1350, 1300, 1200, 1000, 330, 13, 300, 180],
        [1500, 1400, 1500, 1750, 1950, 2150, 2300, 2400, 2550, 850, 20, 3100, 2500],
        [1250, 950, 950, 650, 1200, 2800, 3400, 3400, 3700, 1150, 18, 1800, 900],
        [1300, 1050, 950, 850, 850, 850, 850, 820, 800, 280, 14, 450, 250],
        [1500, 1450, 1600, 1850, 2050, 2300, 2450, 2550, 2700, 900, 20, 3200, 2500],
        [2200, 2300, 2500, 2700, 2800, 2900, 3000, 3100, 3150, 1100, 25, 3300, 3000],
    ],
    dtype=np.float64,
)
# Share of the sky's light that still reaches a shadow, by band: blue is scattered into it, the infrared is not.
SHADOW = np.array([0.85, 0.75, 0.6, 0.5, 0.42, 0.34, 0.3, 0.28, 0.25, 0.25, 0.9, 0.14, 0.12])

# Sentinel-1: backscatter in dB per cover (rows), VV and VH.
BACKSCATTER_DB = np.array(
    [[-20.0, -27.0], [-20.0, -27.0], [-11.0, -18.5], [-9.0, -15.0], [-8.5, -17.0], [-18.0, -25.0], [-3.0, -10.0]]
)
WIND_DB = np.array([8.0, 3.0])  # what a strong wind adds over water


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticScene:
    """Observations, the answer at each pixel of ``grid`` (0 land, 1 water, −1 not asked), and where the pixels lie."""

    atoms: AtomSet
    target: Tensor  # (H, W) long
    grid: Grid


def water_scene(
    seed: int, size: int = 64, gsd_m: float = 10.0, *, cloud_share: float = 0.15, looks: float = 3.0
) -> SyntheticScene:
    """Lakes and a river seen by Sentinel-2 (reflectance × 10⁴) and, days later, by Sentinel-1 (dB), in summer.

    About ``cloud_share`` of Sentinel-2 is missing under clouds, and every third scene or so lies at the edge of the
    radar's swath. ``looks`` is how many independent looks a radar pixel averages: fewer mean more speckle. The same
    seed and settings give the same scene.
    """
    rng = np.random.default_rng(seed)
    covers, is_water = draw_covers(rng, size)
    cloud = share_above(smooth_noise(rng, size, 9.0), cloud_share * rng.uniform(0.0, 2.0))
    optical = see_sentinel2(rng, covers, cloud, gsd_m)
    radar = see_sentinel1(rng, covers, is_water, looks)
    if rng.random() < 1 / 3:
        radar[:, swath_edge(rng, size)] = np.nan
    seen = np.isfinite(optical).any(axis=0) | np.isfinite(radar).any(axis=0)
    labelled = ~share_above(smooth_noise(rng, size, 6.0), 0.03)
    target = np.where(seen & labelled, np.where(is_water, WATER, LAND), IGNORE)

    day = int(rng.choice(PASSES))
    atoms = AtomSet.from_raster(optical.astype(np.float32), SENTINEL2.channels, gsd_m, day_of_year=day)
    day += int(rng.integers(1, 6))
    atoms += AtomSet.from_raster(radar.astype(np.float32), SENTINEL1.pick("VV", "VH"), gsd_m, day_of_year=day)
    return SyntheticScene(atoms, torch.from_numpy(target.astype(np.int64)), Grid(size, size, gsd_m=gsd_m))


def draw_covers(rng: np.random.Generator, size: int) -> tuple[NDArray[np.int64], Bools]:
    """A map of covers (H, W) and where it is water: a terrain whose hollows fill, a river, and patches of land use."""
    terrain = smooth_noise(rng, size, 11.0) + 0.3 * smooth_noise(rng, size, 3.0)
    is_water = share_above(-terrain, rng.uniform(0.05, 0.2)) | river(rng, size)
    turbid = smooth_noise(rng, size, 16.0) + rng.normal() > 0.5

    covers = np.full((size, size), Cover.SOIL, dtype=np.int64)
    covers[share_above(smooth_noise(rng, size, 6.0), rng.uniform(0.2, 0.6))] = Cover.VEGETATION
    covers[share_above(blocks(rng, size, side=6), 0.07)] = Cover.SMOOTH_FIELD
    covers[share_above(smooth_noise(rng, size, 3.0) - 0.5 * terrain, 0.1)] = Cover.WET_SOIL
    covers[share_above(blocks(rng, size, side=2), 0.25) & share_above(terrain, 0.2)] = Cover.ROOF
    covers[is_water] = np.where(turbid, Cover.TURBID_WATER, Cover.CLEAR_WATER)[is_water]
    return covers, is_water


def see_sentinel2(rng: np.random.Generator, covers: NDArray[np.int64], cloud: Bools, gsd_m: float) -> Floats:
    """Reflectances × 10⁴ (13, H, W), NaN under ``cloud``, darkened where the clouds throw their shadow."""
    size = len(covers)
    texture = 1 + 0.12 * smooth_noise(rng, size, 2.0) + 0.08 * rng.standard_normal((size, size))
    light = rng.uniform(0.75, 1.2)
    haze = rng.uniform(0.0, 500.0) * (np.linspace(1.0, 0.0, len(SHADOW)) ** 2)
    # Rolled around the border: clouds beyond it throw shadows too.
    shadow = np.roll(cloud, tuple(rng.integers(4, 10, 2) * rng.choice([-1, 1], 2)), axis=(0, 1))
    shade = np.where(shadow, SHADOW[:, None, None], 1.0)
    clean = REFLECTANCE[covers].transpose(2, 0, 1) * texture * shade * light + haze[:, None, None]
    # Each band is as sharp as it is acquired: 10, 20 or 60 m.
    sharpness = [0.4 * max(1.0, (channel.gsd_m or gsd_m) / gsd_m) for channel in SENTINEL2]
    blurred = np.stack([ndimage.gaussian_filter(b, s, mode="nearest") for b, s in zip(clean, sharpness, strict=True)])
    noisy = blurred * (1 + 0.03 * rng.standard_normal(blurred.shape)) + 40 * rng.standard_normal(blurred.shape)
    return np.where(cloud, np.nan, np.maximum(noisy, 1.0))


def see_sentinel1(rng: np.random.Generator, covers: NDArray[np.int64], is_water: Bools, looks: float) -> Floats:
    """Backscatter in dB (2, H, W): VV and VH with gamma-distributed speckle."""
    size = len(covers)
    mean_db = BACKSCATTER_DB[covers].transpose(2, 0, 1) + smooth_noise(rng, size, 3.0)
    mean_db += is_water * rng.uniform(0.0, 1.0) * WIND_DB[:, None, None]
    speckle = rng.gamma(looks, 1 / looks, mean_db.shape)
    return 10 * np.log10(10 ** (mean_db / 10) * speckle)
