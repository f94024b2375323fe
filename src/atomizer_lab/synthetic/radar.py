"""A landscape as Sentinel-1 sees it: backscatter in dB with speckle, from either orbit.

Water and roads are smooth and dark, roofs and walls are bright, leaves scatter into the cross-polarised channel. A
rough and a smooth bare field look alike to light and differ by 6 dB here.
"""

from __future__ import annotations

import numpy as np

from atomizer_lab.synthetic.land_cover import BACKSCATTER_DB, GROWTH_DB, LATER, SEASONS, Cover, seasonal
from atomizer_lab.synthetic.landscape import Landscape
from atomizer_lab.synthetic.random_maps import Floats, Random, noise

LOOKS = 4.4  # independent looks of a ground-range-detected pixel

BARE_DB = (-12.0, -20.5)
WIND_DB = (8.0, 3.0)  # what a strong wind adds over water
ORBITS = {"ascending": 1.0, "descending": -1.0}  # which way the slopes that face the radar look: west, east


def backscatter(
    rng: Random,
    land: Landscape,
    day: float,
    orbit: str = "ascending",
    *,
    more_db: Floats | None = None,
    looks: float = LOOKS,
) -> Floats:
    """Return VV and VH (2, H, W) in dB; ``more_db`` (2, H, W) is added before the speckle of ``looks`` looks."""
    covers, parcels, index = land.stands
    table = np.empty((2, len(covers)), dtype=np.float32)
    for number in np.unique(covers):
        cover, chosen = Cover(int(number)), covers == number
        green, _ = seasonal(cover, day - land.later[parcels[chosen]])
        base = LATER.get(cover, (cover, 0.0))[0]
        growth = GROWTH_DB.get(cover, GROWTH_DB.get(base, (2.5, 4.0) if base in SEASONS else (0.0, 0.0)))
        for band in range(2):
            table[band, chosen] = BACKSCATTER_DB.get(cover, BARE_DB)[band] + growth[band] * green
    # Fields differ a little from each other, rows and moisture being what they are.
    table += 6.0 * (land.bright[parcels] - 1.0).astype(np.float32)
    mean_db = np.take(table, index, axis=1)
    if more_db is not None:
        mean_db += more_db
    facing = -ORBITS[orbit] * np.gradient(land.terrain_m, land.canvas.gsd_m, axis=1)
    mean_db += np.clip(18.0 * facing, -5.0, 5.0).astype(np.float32)
    mean_db += 0.6 * noise(rng, land.canvas, 4 * land.canvas.gsd_m)
    still = np.isin(land.cover, (Cover.CLEAR_WATER, Cover.TURBID_WATER))
    mean_db += np.float32(land.wind) * still * np.array(WIND_DB, dtype=np.float32)[:, None, None]
    return speckled(rng, mean_db, looks)


def speckled(rng: Random, mean_db: Floats, looks: float) -> Floats:
    """Return ``mean_db`` with the grain of coherent light: gamma-distributed power of mean 1."""
    power = rng.standard_gamma(looks, mean_db.shape, dtype=np.float32) / np.float32(looks)
    return (mean_db + 10 * np.log10(np.maximum(power, 1e-4))).astype(np.float32)
