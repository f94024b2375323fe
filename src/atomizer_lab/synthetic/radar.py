"""A landscape as Sentinel-1 sees it: backscatter in dB with speckle, from either orbit.

Water and roads are smooth and dark, roofs and walls are bright, leaves scatter into the cross-polarised channel. A
rough and a smooth bare field look alike to light and differ by 6 dB here.
"""

from __future__ import annotations

import numpy as np

from atomizer_lab.synthetic.land_cover import LATER, ROOFS, SEASONS, Cover, seasonal
from atomizer_lab.synthetic.landscape import Landscape
from atomizer_lab.synthetic.random_maps import Floats, Random, noise

LOOKS = 4.4  # independent looks of a ground-range-detected pixel

# VV and VH in dB; covers with seasons: of bare ground, to which growing adds.
BACKSCATTER_DB: dict[Cover, tuple[float, float]] = {
    Cover.CLEAR_WATER: (-20.0, -27.0),
    Cover.TURBID_WATER: (-20.0, -27.0),
    Cover.SOIL: (-11.0, -19.0),
    Cover.SMOOTH_SOIL: (-17.0, -25.0),
    Cover.WET_SOIL: (-8.5, -17.5),
    Cover.SAND: (-16.0, -24.0),
    Cover.BURNT: (-12.5, -20.5),
    Cover.FLOODED_MEADOW: (-5.5, -15.5),
    Cover.FOREST: (-9.5, -15.0),
    Cover.CONIFER: (-8.5, -14.0),
    Cover.RAINFOREST: (-7.5, -12.5),
    Cover.YOUNG_FOREST: (-8.5, -14.0),
    Cover.PALM: (-8.0, -14.5),
    Cover.CASHEW: (-8.5, -14.5),
    Cover.SPARSE_CASHEW: (-9.5, -16.5),
    Cover.ROAD: (-15.0, -23.0),
    Cover.CONCRETE: (-11.0, -19.0),
    Cover.RUBBLE: (-6.0, -14.0),
    Cover.TOWN: (-5.0, -12.0),
    Cover.INDUSTRY: (-3.0, -11.0),
    **dict.fromkeys(ROOFS, (-2.5, -10.0)),
}
BARE_DB = (-12.0, -20.5)
GROWTH_DB: dict[Cover, tuple[float, float]] = {  # what a full cover of leaves adds
    Cover.MAIZE: (3.5, 6.5),
    Cover.SORGHUM: (3.5, 6.5),
    Cover.RAPESEED: (2.0, 7.0),
    Cover.SUNFLOWER: (3.5, 6.0),
    Cover.BEET: (4.0, 5.0),
    Cover.POTATO: (3.5, 4.5),
    Cover.WHEAT: (-3.5, 1.5),  # upright stems swallow VV
    Cover.SPRING_BARLEY: (-3.0, 2.5),
    Cover.FOREST: (1.0, 1.0),
    Cover.FLOODED_MEADOW: (0.0, 0.0),
}
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
