"""A landscape as an airborne laser sees it: pulses from above, each with one return or several.

A pulse meets wires first, then crowns, which let a part of it through, and last something solid: a roof, a car, the
ground. Water swallows most pulses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from atomizer_io.data.channels import Channel
from atomizer_lab.synthetic.land_cover import ROOFS, WATERS, WOODS, Cover, composition, spectra
from atomizer_lab.synthetic.landscape import Landscape
from atomizer_lab.synthetic.random_maps import Bools, Canvas, Floats, Ints, Random, across, noise

LASER = Channel("laser", "1064 nm", 1.064, 0.01)
TILT = 0.03  # metres sideways per metre of height: the beam is not quite vertical
CROWN_HITS = 4  # at most, in one pulse
WIRES_M = (-2.2, 0.0, 2.2)  # beside the middle of a power line


# What a laser pulse was returned by.
Point = IntEnum(
    "Point",
    "GROUND VEGETATION BUILDING WATER BRIDGE CAR TRUCK POWER_LINE FENCE POLE",
    start=0,
)


# Classes of the published datasets, −1: ignored.
DALES = {
    Point.GROUND: 0,
    Point.VEGETATION: 1,
    Point.CAR: 2,
    Point.TRUCK: 3,
    Point.POWER_LINE: 4,
    Point.FENCE: 5,
    Point.POLE: 6,
    Point.BUILDING: 7,
    Point.WATER: -1,
    Point.BRIDGE: 0,
}
FRACTAL = {
    Point.CAR: 0,
    Point.TRUCK: 0,
    Point.FENCE: 0,
    Point.GROUND: 1,
    Point.VEGETATION: 2,
    Point.BUILDING: 3,
    Point.WATER: 4,
    Point.BRIDGE: 5,
    Point.POWER_LINE: 6,
    Point.POLE: 6,
}
VILLAGE = dict.fromkeys(Point, -1) | {Point.GROUND: 0, Point.BRIDGE: 0, Point.VEGETATION: 1, Point.BUILDING: 2}
BRIGHTNESS = {Point.CAR: 0.5, Point.TRUCK: 0.6, Point.POWER_LINE: 0.08, Point.FENCE: 0.2, Point.POLE: 0.25}
# Share of the pulses that low plants stop.
UNDERGROWTH = {Cover.MEADOW: 0.03, Cover.DRY_GRASS: 0.05, Cover.SHRUB: 0.35, **dict.fromkeys(WOODS, 0.15)}


@dataclass(frozen=True, slots=True, eq=False)
class Returns:
    """P returns: ``xyz`` (P, 3) in metres (x east, y south from the corner), echo, 16-bit intensity, kind of thing."""

    xyz: Floats
    return_number: Ints
    number_of_returns: Ints
    intensity: Floats
    kind: Ints  # Point

    def __len__(self) -> int:
        return len(self.xyz)


@dataclass(frozen=True, slots=True, eq=False)
class Furniture:
    """What stands or hangs in a landscape beside houses and trees.

    ``kind`` (H, W) is the Point of cars, trucks, fences and poles, −1 elsewhere; ``height_m`` (H, W) their height.
    ``line_m`` (H, W) is the distance across a power line (infinite without one), ``wire_m`` (H, W) the height of its
    wires above sea level.
    """

    kind: Ints
    height_m: Floats
    line_m: Floats
    wire_m: Floats


def furnish(rng: Random, land: Landscape, *, line: bool) -> tuple[Landscape, Furniture]:
    """Return the landscape with cars on its roads, and the rest of its furniture."""
    canvas = land.canvas
    kind, height = np.full(canvas.shape, -1), np.zeros(canvas.shape, dtype=np.float32)
    x, y = canvas.x, canvas.y
    cover = land.cover.copy()
    free = (land.height_m == 0) & ~land.water
    fence = (land.border_m < 0.2) & (noise(rng, canvas, 30.0) > 0.2) & free & ~land.road
    kind[fence], height[fence] = Point.FENCE, 1.6
    for px, py in _places(rng, land.road | (land.cover == Cover.CONCRETE), canvas, 1 / 120):
        truck = rng.random() < 0.15
        long, wide, tall = (8.5, 2.5, 3.4) if truck else (4.4, 1.8, 1.5)
        angle = rng.uniform(0, np.pi)
        u = np.abs((x - px) * np.cos(angle) + (y - py) * np.sin(angle))
        v = np.abs((y - py) * np.cos(angle) - (x - px) * np.sin(angle))
        body = (u < long / 2) & (v < wide / 2) & free
        kind[body], height[body] = (Point.TRUCK if truck else Point.CAR), tall * rng.uniform(0.9, 1.1)
        cover[body] = rng.choice(ROOFS)
    for px, py in _places(rng, free & ~land.road, canvas, 1 / 300):
        pole = ((x - px) ** 2 + (y - py) ** 2 < max(0.3, 0.8 * canvas.gsd_m) ** 2) & free
        kind[pole], height[pole] = Point.POLE, rng.uniform(5.0, 9.0)
    line_m, wire_m = np.full(canvas.shape, np.inf, dtype=np.float32), np.zeros(canvas.shape, dtype=np.float32)
    if line:
        line_m = across(rng, canvas, 0.0, 50.0)
        sag = 1.2 * np.cos(2 * np.pi * (canvas.x + canvas.y) / 45.0)
        wire_m = (np.quantile(land.terrain_m, 0.9) + rng.uniform(12.0, 20.0) + sag).astype(np.float32)
    low = np.isin(kind, (Point.CAR, Point.TRUCK))
    land = replace(land, cover=cover, height_m=np.where(low, height, land.height_m))
    return land, Furniture(kind, height, line_m, wire_m)


def _places(rng: Random, where: Bools, canvas: Canvas, per_m2: float) -> Floats:
    """Return some positions (N, 2) where ``where`` holds, about ``per_m2`` of them."""
    rows, columns = np.nonzero(where)
    count = rng.poisson(len(rows) * canvas.gsd_m**2 * per_m2) if len(rows) else 0
    chosen = rng.integers(0, max(len(rows), 1), count)
    return np.stack([(columns[chosen] + 0.5), (rows[chosen] + 0.5)], axis=1) * canvas.gsd_m


def scan(rng: Random, land: Landscape, things: Furniture, points_per_m2: float = 16.0) -> Returns:
    """Return the returns of a flight over ``land``, about ``points_per_m2`` of them."""
    canvas = land.canvas
    x, y = _pulses(rng, canvas, points_per_m2 / _echoes(land))
    at = canvas.pixels(x, y)
    count, columns = len(x), CROWN_HITS + 2
    # Candidates of each pulse from above: a wire, hits in the crown, something solid.
    z = np.full((count, columns), -np.inf, dtype=np.float32)
    kind = np.full((count, columns), int(Point.VEGETATION))
    there = np.zeros((count, columns), dtype=bool)

    beside = things.line_m[at]
    wire = np.min([np.abs(beside - off) for off in WIRES_M], axis=0)
    there[:, 0] = (wire < 0.15) & (rng.random(count) < 0.8)
    z[:, 0], kind[:, 0] = things.wire_m[at], Point.POWER_LINE

    terrain = land.terrain_m[at]
    top, base = land.height_m[at], land.crown_m[at]
    leafy = base > 0
    hits = np.where(leafy, 1 + rng.binomial(CROWN_HITS - 1, 0.4, count), 0)
    depth = np.sort(rng.beta(1.0, 2.2, (count, CROWN_HITS)), axis=1)
    depth[:, 0] *= 0.3  # the first return is near the top of the crown
    z[:, 1:-1] = terrain[:, None] + top[:, None] - depth * (top - 0.5 * base)[:, None]
    there[:, 1:-1] = np.arange(CROWN_HITS) < hits[:, None]

    z[:, -1], kind[:, -1], reached = _solid(rng, land, things, at)
    there[:, -1] = reached & (~leafy | (rng.random(count) < 0.75 - 0.12 * hits))
    order = np.cumsum(there, axis=1)
    total = np.broadcast_to(order[:, -1:], there.shape)
    pulse, column = np.nonzero(there)
    kinds = kind[pulse, column]
    above = z[pulse, column] - terrain[pulse]
    points = np.stack([x[pulse] + TILT * above, y[pulse], z[pulse, column]], axis=1).astype(np.float64)
    points[:, :2] = np.clip(points[:, :2], 0, np.array(canvas.extent_m) - 1e-3)
    points[:, 2] += rng.normal(0, 0.03, len(points))
    bright = _brightness(land)[at][pulse]
    for thing, value in BRIGHTNESS.items():
        bright[kinds == thing] = value
    returns = total[pulse, column]
    intensity = 6000 * bright * rng.lognormal(0, 0.2, len(points)) / returns**0.8
    return Returns(
        points, order[pulse, column], returns, np.clip(np.rint(intensity), 1, 65535).astype(np.float32), kinds
    )


def _pulses(rng: Random, canvas: Canvas, per_m2: float) -> tuple[Floats, Floats]:
    """Return where pulses go: along lines of a scan, a little unsteady."""
    step = 1 / np.sqrt(per_m2)
    columns, rows = (max(1, round(length / step)) for length in canvas.extent_m)
    x, y = (part.ravel() for part in np.meshgrid(np.arange(columns), np.arange(rows)))
    x = (x + 0.5 + rng.uniform(-0.45, 0.45, x.size)) * canvas.extent_m[0] / columns
    return x, (y + 0.5 + rng.uniform(-0.45, 0.45, y.size)) * canvas.extent_m[1] / rows


def _echoes(land: Landscape) -> float:
    """Return roughly the mean number of returns of a pulse."""
    return float(1 + 1.5 * (land.crown_m > 0).mean() - 0.85 * (land.water & ~land.bridge).mean())


def _solid(rng: Random, land: Landscape, things: Furniture, at: tuple[Ints, Ints]) -> tuple[Floats, Ints, Bools]:
    """Return height, kind and presence (N,) of the solid thing at the end of each pulse."""
    count = len(at[0])
    z = land.terrain_m[at].copy()
    kind = np.full(count, int(Point.GROUND))
    reached = np.ones(count, dtype=bool)
    roof = land.building[at] > 0
    z[roof] += land.height_m[at][roof]
    kind[roof] = Point.BUILDING
    thing = things.kind[at]
    stands = (thing >= 0) & (land.crown_m[at] == 0)
    tall = things.height_m[at]
    # A pulse meets the top of a car, but any part of a fence or a pole.
    partly = np.isin(thing, (Point.FENCE, Point.POLE))
    z[stands] += np.where(partly, tall * rng.uniform(0, 1, count), tall)[stands]
    kind[stands] = thing[stands]
    open_water = land.water[at] & ~land.bridge[at]
    kind[open_water] = Point.WATER
    z[open_water] = np.quantile(land.terrain_m[land.water], 0.3) if open_water.any() else 0.0
    reached[open_water] = rng.random(int(open_water.sum())) < 0.15
    deck = land.bridge[at] & (thing < 0)
    if deck.any():
        z[deck] = land.terrain_m[land.bridge].max() + 2.5
        kind[deck] = Point.BRIDGE
    chance = np.zeros(len(Cover))
    chance[list(UNDERGROWTH)] = list(UNDERGROWTH.values())
    low = (kind == Point.GROUND) & (rng.random(count) < chance[land.cover[at]])
    z[low] += np.minimum(rng.exponential(0.4, int(low.sum())) + 0.15, 0.9)
    kind[low] = Point.VEGETATION
    return z, kind, reached


def _brightness(land: Landscape) -> Floats:
    """Return the reflectance (H, W) at the laser's wavelength, in July; still water sends back little."""
    covers, _, index = land.stands
    mixed = composition(covers, np.full(len(covers), 190.0), land.ground)
    bright = (mixed @ spectra([LASER]))[:, 0]
    bright[np.isin(covers, WATERS)] = 0.03
    bright_HW: Floats = bright[index]
    return bright_HW
