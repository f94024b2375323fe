"""Simulated scenes: observations with the target, as every maker of scenes returns them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.io.tables import evenly
from atomizer_lab.synthetic.random_maps import Canvas, Floats, Ints, Random


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Observations and the target: one number for the scene, (H, W) on ``grid``, or (P,) at ``positions`` (P, 2).

    With ``positions``, target p belongs to site p of the first acquisition.
    """

    atoms: AtomSet
    target: int | Floats | Ints
    grid: Grid | None = None
    positions: Floats | None = None


def grid_of(canvas: Canvas) -> Grid:
    """Return the pixels of the canvas as a grid around (0, 0)."""
    return Grid(canvas.height, canvas.width, gsd_m=canvas.gsd_m)


def pooled(values: Floats, factor: int) -> Floats:
    """Return the means (C, h, w) of blocks of ``factor`` × ``factor`` pixels; edges are repeated."""
    below, right = (-side % factor for side in values.shape[1:])
    filled = np.pad(values, ((0, 0), (0, below), (0, right)), mode="edge")
    count, height, width = filled.shape
    means: Floats = filled.reshape(count, height // factor, factor, width // factor, factor).mean(axis=(2, 4))
    return means


def season(rng: Random, first: datetime.date, days: int, count: int, most: int | None) -> list[datetime.date]:
    """Return ``count`` dates over ``days`` days, about evenly spaced; at most ``most`` of them, if given."""
    at = (np.arange(count) + rng.uniform(0.1, 0.9, count)) * days / count
    dates = [first + datetime.timedelta(days=int(day)) for day in at]
    return evenly(dates, most)


def day_of(date: datetime.date) -> float:
    """Return the day of the year of a date."""
    return float(date.timetuple().tm_yday)
