"""Six small synthetic tasks, each of which needs one capability.

Everything that could give a class away by another route is the same for all classes by construction: the distribution
of single pixels (texture), of single dates (season), of the optical bands (radar), of places near and far (spatial), of
a whole series without its order (order), of all that lies around a pixel (detail).
"""

from __future__ import annotations

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2_L2A
from atomizer_io.data.task_spec import IGNORE
from atomizer_lab.synthetic.land_cover import BACKSCATTER_DB, Cover, composition, spectra
from atomizer_lab.synthetic.radar import LOOKS, speckled
from atomizer_lab.synthetic.random_maps import Canvas, Floats, Ints, Random, polygons
from atomizer_lab.synthetic.simulated import Simulated, grid_of

GSD_M = 10.0
FIELD_M = 110.0
PLOT = 4  # pixels
DAYS = (30, 90, 150, 210, 270, 330)
TREND = (-0.35, 0.0, 0.35)  # change of the share of leaves, step by step
LEAF, SOIL = composition(np.array([Cover.YOUNG_FOREST, Cover.SOIL]), np.full(2, 150.0))
RADAR = SENTINEL1.pick("VV", "VH")


def _bands() -> tuple[Channel, ...]:
    """Return red and near infrared with the statistics of an even mixture of leaves and soil."""
    chosen = SENTINEL2_L2A.subset("B04", "B08")
    ends = np.stack([LEAF, SOIL]) @ spectra(chosen.channels) * 1e4
    return chosen.with_statistics(mean=ends.mean(axis=0).tolist(), std=(ends.std(axis=0) / 2**0.5).tolist()).channels


BANDS = _bands()


def mixed(rng: Random, green: Floats) -> Floats:
    """Return reflectance × 10⁴ (2, H, W) of BANDS for shares of leaves 0–1 (H, W), the rest soil, with some noise."""
    leaf, soil = (1e4 * (part @ spectra(BANDS))[:, None, None] for part in (LEAF, SOIL))
    noise = rng.standard_normal((len(BANDS), *green.shape))
    return np.rint((soil + green * (leaf - soil)) * (1 + 0.03 * noise)).astype(np.float32)


def fields(rng: Random, canvas: Canvas) -> tuple[Ints, Ints, int]:
    """Return polygons (H, W), a class 0 or 1 of each polygon (equal areas of both), and their number."""
    parcels = polygons(rng, canvas, min(FIELD_M, 0.4 * canvas.extent_m[0]))
    areas = np.bincount(parcels.ids.ravel(), minlength=parcels.count)
    kinds = np.zeros(parcels.count, dtype=np.int64)
    covered = np.zeros(2)
    for polygon in np.argsort(-areas, kind="stable"):  # the largest first: small ones make up for the difference
        kinds[polygon] = covered.argmin()
        covered[kinds[polygon]] += areas[polygon]
    return parcels.ids, kinds ^ rng.integers(2), parcels.count


def draw_texture(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw leaves in rows (0), or the same leaves in no order (1)."""
    canvas = Canvas(size, size, GSD_M)
    ids, kinds, count = fields(rng, canvas)
    angle, start, spacing = rng.uniform(0, np.pi, count), rng.random(count), rng.uniform(2.5, 3.5, count) * GSD_M
    u = canvas.x * np.cos(angle[ids]) + canvas.y * np.sin(angle[ids])
    phase = np.where(kinds[ids] == 0, u / spacing[ids] + start[ids], rng.random(canvas.shape))
    values = mixed(rng, 0.5 + 0.5 * np.sin(2 * np.pi * phase))
    return Simulated(AtomSet.from_raster(values, BANDS, GSD_M, 150), kinds[ids], grid_of(canvas))


def draw_season(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw fields that turn green once (0) or twice (1) a year, each beginning on a day of its own."""
    canvas = Canvas(size, size, GSD_M)
    ids, kinds, count = fields(rng, canvas)
    start = rng.random(count)
    atoms = AtomSet()
    for day in DAYS[:dates]:
        phase = (1 + kinds) * day / 360 + start
        green = (0.5 + 0.5 * np.sin(2 * np.pi * phase))[ids]
        atoms += AtomSet.from_raster(mixed(rng, green), BANDS, GSD_M, day)
    return Simulated(atoms, kinds[ids], grid_of(canvas))


def draw_radar(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw bare fields, rough (0) or smooth (1): one soil to light, two to radar."""
    canvas = Canvas(size, size, GSD_M)
    ids, kinds, count = fields(rng, canvas)
    values = mixed(rng, np.clip(rng.normal(0.3, 0.15, count), 0, 1)[ids])
    table = np.array([BACKSCATTER_DB[Cover.SOIL], BACKSCATTER_DB[Cover.SMOOTH_SOIL]], dtype=np.float32)
    radar = speckled(rng, table[kinds[ids]].transpose(2, 0, 1), LOOKS)
    atoms = AtomSet.from_raster(values, BANDS, GSD_M, 150) + AtomSet.from_raster(radar, RADAR, GSD_M, 150)
    return Simulated(atoms, kinds[ids], grid_of(canvas))


def draw_spatial(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw a plain with a small wood and a small bare patch: is a place nearer to the wood (0) or the patch (1)?"""
    canvas = Canvas(size, size, GSD_M)
    middle, reach = size / 2, 0.42 * size
    while True:
        marks = middle + rng.uniform(-reach, reach, (2, 2))
        uneven = np.ptp(np.hypot(*(marks - middle).T))  # 0: the border runs through the middle, half of it is either's
        if np.hypot(*(marks[0] - marks[1])) > 0.4 * size and uneven < 0.05 * size:
            break
    row, column = np.mgrid[:size, :size] + 0.5
    away = np.stack([np.hypot(column - x, row - y) for x, y in marks])
    green = np.clip(rng.normal(0.5, 0.06, canvas.shape), 0, 1)
    for mark, share in zip(away < 2.0, (1.0, 0.0), strict=True):
        green[mark] = share
    target = away.argmin(axis=0)
    target[(np.abs(away[0] - away[1]) < 1.5) | (away.min(axis=0) < 2.0)] = IGNORE
    return Simulated(AtomSet.from_raster(mixed(rng, green), BANDS, GSD_M, 150), target, grid_of(canvas))


def draw_order(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw plots that turn green (0) or dry up (1), in a series of which the order is known, but no dates."""
    canvas = Canvas(size, size, GSD_M)
    row, column = np.mgrid[:size, :size] // PLOT
    ids = row * (column.max() + 1) + column
    kinds = rng.permutation(np.arange(ids.max() + 1) % 2)
    level = rng.uniform(0.35, 0.65, len(kinds))
    atoms = AtomSet()
    for step, change in enumerate(TREND[:dates]):
        green = level + np.where(kinds == 0, change, -change)
        atoms += AtomSet.from_raster(mixed(rng, green[ids]), BANDS, GSD_M, timestep=step)
    return Simulated(atoms, kinds[ids], grid_of(canvas))


def draw_detail(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw leaves (0) and soil (1), pixel by pixel in no order."""
    canvas = Canvas(size, size, GSD_M)
    target = rng.integers(0, 2, canvas.shape)
    green = np.clip(rng.normal(0.75, 0.08, canvas.shape), 0, 1)
    values = mixed(rng, np.where(target == 0, green, 1 - green))
    return Simulated(AtomSet.from_raster(values, BANDS, GSD_M, 150), target, grid_of(canvas))
