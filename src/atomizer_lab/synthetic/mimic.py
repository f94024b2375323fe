"""Scenes in the shape of a dataset: its sensors, size, dates, gaps and classes, filled with a synthetic landscape.

``size`` is in pixels, for point clouds in metres. The names of classes are those of the datasets; class numbers that a
dataset ignores are −1.
"""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Meta, Sample, dates_of
from atomizer_io.data.sensors import LIDAR, SENTINEL2
from atomizer_io.errors import ConfigError
from atomizer_lab.synthetic import probes
from atomizer_lab.synthetic.farming import ORBITS, PASTIS_BANDS, draw_pastis
from atomizer_lab.synthetic.floods import RADAR, draw_floods
from atomizer_lab.synthetic.forests import BIOMASS_BANDS, BIOMASS_RADAR, draw_biomass
from atomizer_lab.synthetic.hard_floods import COARSE, SHARP, STRANGER, draw_hard_floods, draw_stranger
from atomizer_lab.synthetic.land_use import LAND_USES, draw_land_use
from atomizer_lab.synthetic.lidar_scenes import BANDS as ORTHO
from atomizer_lab.synthetic.lidar_scenes import draw_dales, draw_fractal, draw_village
from atomizer_lab.synthetic.random_maps import Random
from atomizer_lab.synthetic.simulated import Simulated

SMALLEST = 16  # pixels or metres: below this there is no room for a landscape


@dataclass(frozen=True, slots=True)
class Shape:
    """What samples of a dataset look like. ``size`` is in pixels of ``gsd_m`` (0: points, and then in metres)."""

    task: str
    channels: tuple[Channel, ...]
    size: int
    gsd_m: float
    draw: Callable[[Random, int, int | None], Simulated]
    classes: tuple[str, ...] = ()
    unit: str | None = None
    temporal: bool = False
    places: str | None = None  # another shape, of which the same seed shows the same place

    @property
    def extent_m(self) -> float:
        """Width of a sample of the usual size."""
        return self.size * (self.gsd_m or 1.0)


def _each_once(*groups: tuple[Channel, ...]) -> tuple[Channel, ...]:
    return tuple(dict.fromkeys(channel for group in groups for channel in group))


SHAPES: dict[str, Shape] = {
    "eurosat": Shape("classification", SENTINEL2.channels, 64, 10.0, draw_land_use, tuple(LAND_USES)),
    "sen1floods11": Shape("segmentation", (*RADAR, *SENTINEL2.channels), 512, 10.0, draw_floods, ("dry", "water")),
    "biomassters": Shape(
        "regression", (*BIOMASS_RADAR, *BIOMASS_BANDS), 256, 10.0, draw_biomass, unit="t/ha", temporal=True
    ),
    "pastis-r": Shape(
        "segmentation",
        _each_once(PASTIS_BANDS, *ORBITS.values()),
        128,
        10.0,
        draw_pastis,
        (
            *("background", "meadow", "soft winter wheat", "corn", "winter barley", "winter rapeseed"),
            *("spring barley", "sunflower", "grapevine", "beet", "winter triticale", "winter durum wheat"),
            *("fruits, vegetables, flowers", "potatoes", "leguminous fodder", "soybeans", "orchard"),
            *("mixed cereal", "sorghum"),
        ),
        temporal=True,
    ),
    "dales": Shape(
        "segmentation",
        LIDAR.channels,
        50,
        0.0,
        draw_dales,
        ("ground", "vegetation", "cars", "trucks", "power lines", "fences", "poles", "buildings"),
    ),
    "fractal": Shape(
        "segmentation",
        (*LIDAR.channels, *ORTHO),
        50,
        0.0,
        draw_fractal,
        ("other", "ground", "vegetation", "building", "water", "bridge", "permanent structure"),
    ),
}
PROBES: dict[str, Shape] = {
    "texture": Shape("segmentation", probes.BANDS, 40, 10.0, probes.draw_texture, ("rows", "no order")),
    "season": Shape(
        "segmentation", probes.BANDS, 40, 10.0, probes.draw_season, ("one harvest", "two harvests"), temporal=True
    ),
    "radar": Shape("segmentation", (*probes.BANDS, *probes.RADAR), 40, 10.0, probes.draw_radar, ("rough", "smooth")),
    "spatial": Shape(
        "segmentation", probes.BANDS, 40, 10.0, probes.draw_spatial, ("nearer the wood", "nearer the bare patch")
    ),
    "order": Shape(
        "segmentation", probes.BANDS, 40, 10.0, probes.draw_order, ("turning green", "drying up"), temporal=True
    ),
    "detail": Shape("segmentation", probes.BANDS, 40, 10.0, probes.draw_detail, ("leaves", "soil")),
}

# What no published dataset has: scenes in which the neighbourhood decides.
STORIES: dict[str, Shape] = {
    "hard-floods": Shape("segmentation", (*RADAR, *SHARP, *COARSE), 48, 10.0, draw_hard_floods, ("dry", "water")),
    "hard-floods-stranger": Shape(
        "segmentation", STRANGER, 48, 10.0, draw_stranger, ("dry", "water"), places="hard-floods"
    ),
    "village": Shape(
        "segmentation", (*LIDAR.pick("elevation"), *ORTHO), 48, 0.0, draw_village, ("ground", "vegetation", "building")
    ),
}


def shape_of(name: str) -> Shape:
    """Return the shape of a dataset or probe by its name."""
    known = SHAPES | PROBES | STORIES
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"nothing synthetic is like {name!r}; {hint}Known are {', '.join(known)}")
    return known[name]


def scene(name: str, seed: int, size: int | None = None, dates: int | None = None) -> Sample:
    """Return a sample like those of the dataset ``name``; the same arguments give the same sample to the bit.

    ``dates`` is the most dates of each sensor that a time series has, spread over it; by default all.
    """
    shape = shape_of(name)
    if size is not None and (not isinstance(size, int | np.integer) or size < SMALLEST):
        raise ConfigError(f"size is {size}; give at least {SMALLEST} pixels (metres for point clouds)")
    if dates is not None and (not isinstance(dates, int | np.integer) or dates < 1):
        raise ConfigError(f"dates is {dates}; give at least 1, or None for all")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed is {seed}; give a whole number from 0")
    rng = np.random.default_rng([zlib.crc32((shape.places or name).encode()), int(seed)])
    drawn = shape.draw(rng, shape.size if size is None else int(size), dates)
    meta = Meta(f"synthetic-{name}-{seed:06d}", dates=dates_of(drawn.atoms), extra={"like": name, "seed": int(seed)})
    if drawn.grid is not None:
        return Sample.of_map(drawn.atoms, drawn.grid, np.asarray(drawn.target), meta)
    if drawn.positions is not None:
        target = np.asarray(drawn.target)
        return Sample.of_points(drawn.atoms, drawn.positions, target, meta, {0: torch.arange(len(target))})
    return Sample.of_scene(drawn.atoms, int(drawn.target), meta)


def task_scene(name: str, seed: int, size: int | None = None) -> Sample:
    """Return a sample of a probe, such as ``"texture"`` (all are in ``PROBES``); by default 40 × 40 pixels."""
    if name not in PROBES:
        raise ConfigError(f"{name!r} is not a probe; there are {', '.join(PROBES)}")
    return scene(name, seed, size)
