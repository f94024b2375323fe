"""What the makers of scenes hand over."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np

from atomizer_io.atoms import AtomSet
from atomizer_io.formats.tables import evenly
from atomizer_io.grid import Grid
from atomizer_io.simulator.random_maps import Canvas, Floats, Ints, Random


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Observations and the truth: one number for the scene, (H, W) on ``grid``, or (P,) at ``positions`` (P, 2).

    At positions, the answer p is asked of site p of the first acquisition.
    """

    atoms: AtomSet
    target: int | Floats | Ints
    grid: Grid | None = None
    positions: Floats | None = None


def grid_of(canvas: Canvas) -> Grid:
    """The canvas's pixels around (0, 0)."""
    return Grid(canvas.height, canvas.width, gsd_m=canvas.gsd_m)


def season(rng: Random, first: datetime.date, days: int, count: int, most: int | None) -> list[datetime.date]:
    """``count`` dates over ``days`` days, about evenly spaced; only ``most`` of them, spread evenly, if given."""
    at = (np.arange(count) + rng.uniform(0.1, 0.9, count)) * days / count
    dates = [first + datetime.timedelta(days=int(day)) for day in at]
    return evenly(dates, most)


def day_of(date: datetime.date) -> float:
    """The day of the year."""
    return float(date.timetuple().tm_yday)
