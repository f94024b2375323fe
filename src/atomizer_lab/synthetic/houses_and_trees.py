"""Houses and trees: lists of shapes in metres, and what they look like on a pixel grid."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from atomizer_lab.synthetic.land_cover import ROOFS, Cover
from atomizer_lab.synthetic.random_maps import Bools, Canvas, Floats, Ints, Random


@dataclass(frozen=True, slots=True, eq=False)
class Things:
    """N things that stand around (x, y)."""

    x: Floats
    y: Floats

    def __len__(self) -> int:
        return len(self.x)

    def fields(self) -> list[Any]:
        """Return the values of all fields, in their order."""
        return [getattr(self, field.name) for field in fields(self)]


@dataclass(frozen=True, slots=True, eq=False)
class Houses(Things):
    """N rectangles around (x, y), turned by ``angle``: half sizes, height of the eaves, rise of the ridge, roof."""

    half_u: Floats
    half_v: Floats
    angle: Floats
    eaves_m: Floats
    ridge_m: Floats  # 0: a flat roof
    roof: Ints  # a Cover


@dataclass(frozen=True, slots=True, eq=False)
class Trees(Things):
    """N crowns around (x, y): radius, height of the top and of the lowest branches."""

    radius_m: Floats
    top_m: Floats
    base_m: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Streets:
    """A town's plan: lots of ``lot_m`` in a lattice turned by ``angle``, streets between every second row of lots."""

    angle: float
    lot_m: float
    street_m: float

    def along(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return the coordinates (u, v) of positions along and across the streets, in metres."""
        u = x * np.cos(self.angle) + y * np.sin(self.angle)
        return u.astype(np.float32), (-x * np.sin(self.angle) + y * np.cos(self.angle)).astype(np.float32)

    def paved(self, canvas: Canvas) -> Bools:
        """Return where the streets are (H, W), as if the town were everywhere."""
        u, v = self.along(canvas.x, canvas.y)
        half = self.street_m / 2
        return (_beside(v, 2 * self.lot_m) < half) | (_beside(u, 6 * self.lot_m) < half)

    def houses(self, rng: Random, canvas: Canvas, house_m: float, *, industrial: bool) -> Houses:
        """Return one house for each lot, wherever the canvas reaches."""
        reach = float(np.hypot(*canvas.extent_m)) / 2
        steps = np.arange(-int(reach / self.lot_m) - 1, int(reach / self.lot_m) + 2)
        middle = self.along(np.array(canvas.extent_m[0] / 2), np.array(canvas.extent_m[1] / 2))
        whole = [np.floor(float(at) / self.lot_m) for at in middle]
        u, v = (((steps + w) + 0.5) * self.lot_m for w in whole)
        u, v = (part.ravel() for part in np.meshgrid(u, v))
        count = len(u)
        free = self.lot_m - house_m - self.street_m
        u = u + rng.uniform(-0.5, 0.5, count) * max(free, 0.0) * 0.6
        v = v + rng.uniform(-0.5, 0.5, count) * max(free, 0.0) * 0.4
        size = house_m * rng.lognormal(0.0, 0.18, count)
        roofs = rng.choice([0, 1, 2], count, p=[0.05, 0.15, 0.8] if industrial else [0.7, 0.27, 0.03])
        flat = rng.random(count) < (0.9 if industrial else 0.15)
        houses = Houses(
            x=u * np.cos(self.angle) - v * np.sin(self.angle),
            y=u * np.sin(self.angle) + v * np.cos(self.angle),
            half_u=size / 2 * rng.uniform(0.85, 1.25, count),
            half_v=size / 2 * rng.uniform(0.6, 0.9, count),
            angle=np.full(count, self.angle),
            eaves_m=rng.uniform(5.0, 10.0, count) if industrial else rng.uniform(3.0, 6.5, count),
            ridge_m=np.where(flat, 0.0, rng.uniform(1.5, 3.5, count)),
            roof=np.array(ROOFS)[roofs],
        )
        inside = canvas.contains(houses.x, houses.y) & (rng.random(count) < 0.88)
        return chosen(houses, inside)


def _beside(at: Floats, period: float) -> Floats:
    """Return the distance from the nearest multiple of ``period``."""
    return np.abs(at - np.round(at / period) * np.float32(period))


def chosen(houses: Houses, keep: Bools) -> Houses:
    """Return the houses that ``keep`` marks."""
    return Houses(*(values[keep] for values in houses.fields()))


def draw_houses(canvas: Canvas, houses: Houses, terrain_m: Floats) -> tuple[Ints, Floats]:
    """Return the numbers of the houses (H, W) from 1, 0 where there is none, and the height of their roofs.

    Roofs are level whatever the slope: eaves and ridge count from the ground below the middle of the house.
    """
    ids = np.zeros(canvas.shape, dtype=np.int32)
    height = np.zeros(canvas.shape, dtype=np.float32)
    x, y = canvas.x[0], canvas.y[:, 0]
    cos, sin = np.cos(houses.angle), np.sin(houses.angle)
    reach = np.hypot(houses.half_u, houses.half_v)
    windows = _windows(canvas, houses.x, houses.y, reach)
    floor = terrain_m[canvas.pixels(houses.x, houses.y)]
    for n in range(len(houses)):
        rows, columns = windows[n]
        dx, dy = x[columns][None, :] - houses.x[n], y[rows][:, None] - houses.y[n]
        u, v = np.abs(dx * cos[n] + dy * sin[n]), np.abs(dy * cos[n] - dx * sin[n])
        inside = (u <= houses.half_u[n]) & (v <= houses.half_v[n])
        ids[rows, columns][inside] = n + 1
        roof = houses.eaves_m[n] + houses.ridge_m[n] * (1 - v / houses.half_v[n])
        above = roof + floor[n] - terrain_m[rows, columns]
        height[rows, columns][inside] = np.maximum(above, 1.0)[inside]
    return ids, height


def plant(rng: Random, canvas: Canvas, spacing_m: float, where: Bools, share: float, top_m: float) -> Trees:
    """Return trees about ``spacing_m`` apart on a ``share`` of the places where ``where`` (H, W) holds."""
    counts = [int(length / spacing_m) + 1 for length in canvas.extent_m]
    x, y = (part.ravel().astype(np.float64) for part in np.meshgrid(*(np.arange(c) for c in counts)))
    x, y = ((part + rng.uniform(0.1, 0.9, len(x))) * spacing_m for part in (x, y))
    top = top_m * rng.lognormal(0.0, 0.2, len(x))
    radius = np.minimum(0.55 * spacing_m, 0.2 * top + 0.8) * rng.uniform(0.75, 1.25, len(x))
    keep = canvas.contains(x, y) & (rng.random(len(x)) < share)
    keep &= where[canvas.pixels(x, y)]
    return Trees(x[keep], y[keep], radius[keep], top[keep], 0.35 * top[keep])


def together(*parts: Trees) -> Trees:
    """Return the trees of all parts as one list."""
    return Trees(*(np.concatenate(values) for values in zip(*(part.fields() for part in parts), strict=True)))


def draw_trees(canvas: Canvas, trees: Trees) -> tuple[Floats, Floats]:
    """Return the height (H, W) of the highest crown above each pixel, 0 where there is none, and where it begins."""
    top = np.zeros(canvas.shape, dtype=np.float32)
    base = np.zeros(canvas.shape, dtype=np.float32)
    x, y = canvas.x[0], canvas.y[:, 0]
    windows = _windows(canvas, trees.x, trees.y, trees.radius_m)
    for n in range(len(trees)):
        rows, columns = windows[n]
        away = ((x[columns] - trees.x[n]) ** 2)[None, :] + ((y[rows] - trees.y[n]) ** 2)[:, None]
        # The crown is half an egg: highest in the middle, down to the lowest branches at its rim.
        crown = trees.base_m[n] + (trees.top_m[n] - trees.base_m[n]) * (1 - away / trees.radius_m[n] ** 2)
        higher = (crown > trees.base_m[n]) & (crown > top[rows, columns])
        top[rows, columns][higher] = crown[higher]
        base[rows, columns][higher] = trees.base_m[n]
    return top, base


def _windows(canvas: Canvas, x: Floats, y: Floats, reach: Floats) -> list[tuple[slice, slice]]:
    low_y, low_x = canvas.pixels(x - reach, y - reach)
    high_y, high_x = canvas.pixels(x + reach, y + reach)
    return [
        (slice(a, b + 1), slice(c, d + 1))
        for a, b, c, d in zip(low_y.tolist(), high_y.tolist(), low_x.tolist(), high_x.tolist(), strict=True)
    ]


TOWNS = {Cover.TOWN: (26.0, 12.0), Cover.INDUSTRY: (85.0, 55.0)}  # metres between houses, size of a house
