"""Synthetic MNIST: ten digits as strokes, bent, slanted and drawn with thicker and thinner pens."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import GRAYSCALE
from atomizer_lab.synthetic.random_maps import Floats, Random
from atomizer_lab.synthetic.simulated import Simulated

Stroke = tuple[tuple[float, float], ...]


def _arc(x: float, y: float, across: float, down: float, start: float, end: float, count: int = 12) -> Stroke:
    """Return part of an ellipse around (x, y); angles are fractions of a full circle, clockwise from the east."""
    angle = 2 * np.pi * np.linspace(start, end, count)
    return tuple(zip((x + across * np.cos(angle)).tolist(), (y + down * np.sin(angle)).tolist(), strict=True))


# In a box of −1 … 1, x to the right and y down.
STROKES: tuple[tuple[Stroke, ...], ...] = (
    (_arc(0, 0, 0.55, 0.95, 0, 1, 20),),
    (((-0.3, -0.6), (0.1, -0.95), (0.1, 0.95)),),
    ((*_arc(0, -0.45, 0.55, 0.5, 0.5, 1.05), (0.35, 0.05), (-0.6, 0.9), (0.65, 0.9)),),
    (_arc(-0.05, -0.48, 0.5, 0.45, 0.55, 1.25), _arc(-0.05, 0.45, 0.6, 0.5, 0.75, 1.45)),
    (((0.3, 0.95), (0.3, -0.95), (-0.65, 0.35), (0.7, 0.35)),),
    (((0.55, -0.9), (-0.4, -0.9), (-0.48, -0.1)), _arc(-0.05, 0.38, 0.58, 0.54, 0.63, 1.4)),
    ((*_arc(0.35, 0.2, 0.9, 1.15, 0.78, 0.5, 10), *_arc(0, 0.42, 0.55, 0.5, 0.5, 1.5, 16)),),
    (((-0.6, -0.9), (0.6, -0.9), (-0.1, 0.95)),),
    (_arc(0, -0.47, 0.45, 0.44, 0, 1, 16), _arc(0, 0.46, 0.55, 0.48, 0, 1, 16)),
    (_arc(0.02, -0.42, 0.5, 0.5, 0, 1, 16), ((0.52, -0.42), (0.45, 0.3), (0.2, 0.95))),
)


def draw_digits(rng: Random, size: int, dates: int | None = None) -> Simulated:
    """Draw a digit with values 0 … 255 on black; a pixel counts as a metre."""
    label = int(rng.integers(10))
    values = drawn_digit(rng, label, size)
    return Simulated(AtomSet.from_raster(values[None], GRAYSCALE, 1.0), label)


def drawn_digit(rng: Random, label: int, size: int) -> Floats:
    """Return the image (size, size) of one digit: whole numbers in float32."""
    turn, slant = rng.normal(0, 0.12), rng.normal(0.1, 0.15)
    wide, high = rng.uniform(0.7, 1.1), rng.uniform(0.85, 1.05)
    turned = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    shape = turned @ np.array([[wide, -slant * high], [0.0, high]])
    unit = size / 28
    middle = size / 2 + rng.normal(0, 0.6, 2) * unit
    pen = rng.uniform(0.8, 1.7) * unit
    y, x = np.mgrid[:size, :size] + 0.5
    nearest = np.full((size, size), np.inf)
    for stroke in STROKES[label]:
        points = np.array(stroke) + rng.normal(0, 0.03, (len(stroke), 2))
        placed = points @ shape.T * 10.0 * unit + middle
        for start, end in pairwise(placed):
            nearest = np.minimum(nearest, _distance(x, y, start, end))
    ink = np.clip((pen - nearest) / (0.9 * unit) + 0.5, 0, 1)
    return np.rint(255 * ink * rng.uniform(0.9, 1.0)).astype(np.float32)


def _distance(x: Floats, y: Floats, start: Floats, end: Floats) -> Floats:
    """Return the distance of pixels from a piece of a line."""
    along = end - start
    share = ((x - start[0]) * along[0] + (y - start[1]) * along[1]) / max(float(along @ along), 1e-9)
    share = np.clip(share, 0, 1)
    return np.hypot(x - start[0] - share * along[0], y - start[1] - share * along[1])
