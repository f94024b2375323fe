"""What synthetic landscapes are drawn from: random maps, polygons, winding lines, and where pixels lie in metres.

All sizes are metres on a :class:`Canvas`, so that the same seed shows the same place at any pixel size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]
Random = np.random.Generator

SPLINE_STD = 0.479  # of a cubic B-spline in two dimensions with standard normal nodes


@dataclass(frozen=True, slots=True)
class Canvas:
    """``height`` × ``width`` pixels of ``gsd_m`` metres; x runs east and y south from the north-west corner."""

    height: int
    width: int
    gsd_m: float

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return (self.height, self.width)

    @property
    def extent_m(self) -> tuple[float, float]:
        """Extent along x and y in metres."""
        return (self.width * self.gsd_m, self.height * self.gsd_m)

    @property
    def x(self) -> Floats:
        """Centres of the columns (1, W) in metres."""
        return ((np.arange(self.width, dtype=np.float32) + 0.5) * np.float32(self.gsd_m))[None, :]

    @property
    def y(self) -> Floats:
        """Centres of the rows (H, 1) in metres."""
        return ((np.arange(self.height, dtype=np.float32) + 0.5) * np.float32(self.gsd_m))[:, None]

    def pixels(self, x: Floats, y: Floats) -> tuple[Ints, Ints]:
        """Return the rows and columns of positions, those outside moved to the border."""
        row = np.clip((y / self.gsd_m).astype(np.int64), 0, self.height - 1)
        return row, np.clip((x / self.gsd_m).astype(np.int64), 0, self.width - 1)

    def contains(self, x: Floats, y: Floats) -> Bools:
        """Return which positions lie inside."""
        return (x >= 0) & (y >= 0) & (x < self.extent_m[0]) & (y < self.extent_m[1])


def share_above(field: Floats, share: float) -> Bools:
    """Return where ``field`` belongs to its highest ``share``."""
    return field > np.quantile(field, 1 - min(share, 1.0))


def noise(rng: Random, canvas: Canvas, scale_m: float, octaves: int = 1) -> Floats:
    """Return a random map (H, W) of mean 0 and standard deviation about 1 with features about ``scale_m`` across.

    It is drawn on a coarse lattice in metres and interpolated: its cost does not grow with the scale. Each further
    octave adds features half as wide and half as strong.
    """
    total = np.zeros(canvas.shape, dtype=np.float32)
    strength = 0.0
    for octave in range(octaves):
        total += _lattice(rng, canvas, scale_m / 2**octave) * np.float32(0.5**octave)
        strength += 0.25**octave
    return total / np.float32(np.sqrt(strength))


def _lattice(rng: Random, canvas: Canvas, scale_m: float) -> Floats:
    step = 0.87 * scale_m  # a cubic B-spline is as smooth as a Gaussian of 0.58 steps, and scale = 2 sigma
    rows, columns = (int(length / step) + 5 for length in (canvas.extent_m[1], canvas.extent_m[0]))
    nodes = rng.standard_normal((rows, columns), dtype=np.float32) / np.float32(SPLINE_STD)
    first_y, weights_y = _spline(canvas.y[:, 0] / step)
    first_x, weights_x = _spline(canvas.x[0] / step)
    lines = np.zeros((canvas.height, columns), dtype=np.float32)
    result: Floats = np.zeros(canvas.shape, dtype=np.float32)
    for k in range(4):
        lines += weights_y[k][:, None] * nodes[first_y + k]
    for k in range(4):
        result += weights_x[k] * lines[:, first_x + k]
    return result


def _spline(at: Floats) -> tuple[Ints, list[Floats]]:
    """Return the first node and the four weights of a cubic B-spline at positions in units of the lattice."""
    first = at.astype(np.int64)
    t = (at - first).astype(np.float32)
    return first, [(1 - t) ** 3 / 6, (3 * t**3 - 6 * t**2 + 4) / 6, (-3 * t**3 + 3 * t**2 + 3 * t + 1) / 6, t**3 / 6]


@dataclass(frozen=True, slots=True, eq=False)
class Polygons:
    """A Voronoi map: ``ids`` (H, W) from 0, ``border_m`` (H, W) roughly the distance to the nearest border."""

    ids: Ints
    border_m: Floats
    count: int


def polygons(rng: Random, canvas: Canvas, size_m: float, warp_m: float = 0.0) -> Polygons:
    """Return polygons about ``size_m`` across, somewhat elongated, all turned by one angle.

    Borders are straight, or as crooked as ``warp_m`` moves them. Sites lie on a jittered lattice, so that the nearest
    is one of nine.
    """
    angle, stretch = rng.uniform(0, np.pi), rng.uniform(1.0, 1.5)
    x, y = canvas.x - canvas.extent_m[0] / 2, canvas.y - canvas.extent_m[1] / 2
    if warp_m:
        x = x + warp_m * noise(rng, canvas, 2.5 * warp_m, octaves=2)
        y = y + warp_m * noise(rng, canvas, 2.5 * warp_m, octaves=2)
    long_m, short_m = size_m * stretch**0.5, size_m / stretch**0.5
    u = (x * np.cos(angle) + y * np.sin(angle)).astype(np.float32) / np.float32(long_m)
    v = (-x * np.sin(angle) + y * np.cos(angle)).astype(np.float32) / np.float32(short_m)
    # As many sites as the extent needs, whatever the pixels.
    wide, high = (length / 2 + 3 * warp_m for length in canvas.extent_m)
    cos, sin = abs(np.cos(angle)), abs(np.sin(angle))
    v0, u0 = -int((wide * sin + high * cos) / short_m) - 2, -int((wide * cos + high * sin) / long_m) - 2
    rows, columns = 1 - 2 * v0, 1 - 2 * u0
    jitter = rng.uniform(0.12, 0.88, (2, rows, columns)).astype(np.float32)
    cell_u, cell_v = np.floor(u).astype(np.int32) - u0, np.floor(v).astype(np.int32) - v0
    u, v = u - u0, v - v0
    nearest = np.full(canvas.shape, np.inf, dtype=np.float32)
    second, ids = nearest.copy(), np.zeros(canvas.shape, dtype=np.int32)
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            i, j = np.clip(cell_v + down, 0, rows - 1), np.clip(cell_u + right, 0, columns - 1)
            site = i * columns + j
            away = np.hypot(u - j - jitter[0].ravel()[site], v - i - jitter[1].ravel()[site])
            closer = away < nearest
            second = np.where(closer, nearest, np.minimum(second, np.where(ids == site, np.inf, away)))
            ids = np.where(closer, site, ids)
            nearest = np.minimum(nearest, away)
    return Polygons(ids, (second - nearest) * np.float32(size_m / 2), rows * columns)


def across(rng: Random, canvas: Canvas, wiggle_m: float, scale_m: float, *, through: float = 0.25) -> Floats:
    """Return the signed distance (H, W) in metres from a winding line that crosses the scene near its middle.

    The line passes within ``through`` (a share of the extent) of the middle and strays by about ``wiggle_m`` over
    ``scale_m``.
    """
    angle = rng.uniform(0, 2 * np.pi)
    middle = [length * (0.5 + through * rng.uniform(-1, 1)) for length in canvas.extent_m]
    x, y = canvas.x - np.float32(middle[0]), canvas.y - np.float32(middle[1])
    u = (x * np.cos(angle) + y * np.sin(angle)).astype(np.float32)
    v = (-x * np.sin(angle) + y * np.cos(angle)).astype(np.float32)
    reach = 1.5 * max(canvas.extent_m)
    step = scale_m / 8
    knots = np.arange(-reach, reach + step, step)
    strayed = ndimage.gaussian_filter1d(rng.standard_normal(len(knots)), 4.0) * wiggle_m * 3.5
    course = np.interp(v, knots, strayed).astype(np.float32)
    steepness = np.interp(v, knots, np.hypot(1.0, np.gradient(strayed, step))).astype(np.float32)
    return (u - course) / steepness
