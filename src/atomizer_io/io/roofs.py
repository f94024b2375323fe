"""Roofs wider than any opening of the ground filter: large, calm parts of a surface that stand above all around them.

A roof ends in a jump down on nearly all sides. A terrace has a jump up as well, a hill none. What reaches the edge of
the points may go on: it is a roof if it is not too large, about half of its outline lies inside, and that jumps down.
Shapes: R rows and C columns of a grid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Grid = NDArray[np.float64]  # (R, C)
Mask = NDArray[np.bool_]  # (R, C)
Parts = NDArray[np.int64]  # (R, C) number of the part that a cell belongs to; 0: none

JUMP_M, JUMP_SLOPE = 1.0, 1.0  # a step between neighbours that is higher than this, and steeper, is an edge
LEAST_M2 = 100.0  # smaller parts are left to the openings
REACH_M = 8.0  # a part ends where the next ground is farther than this
DOWN = 0.65  # share of a roof's outline that jumps down, at least
CUT_DOWN, CUT_INSIDE, CUT_M2 = 0.8, 0.4, 2000.0  # of a roof that the edge of the points cuts: the share that jumps down
# of its outline inside, the share of the outline that is inside, and the largest area: land may go on beyond the edge
BESIDE_M = 36.0  # how far the objects beside a roof are taken as part of it
ROUNDS = 2  # a roof beside a higher one is found once that is gone


def on_roof(z: Grid, ground: Mask, cell_m: float) -> Mask:
    """Return which cells lie on large roofs, of those that a filter took for ground and of what stands on them."""
    jump = JUMP_M + JUMP_SLOPE * cell_m
    away, near = _nearest(ground)
    surface = z[near]
    parts = calm_parts(surface, away * cell_m <= REACH_M, jump, cell_m)
    roofs = np.zeros(int(parts.max()) + 1, np.bool_)
    owner = np.zeros_like(parts)
    for number in range(ROUNDS):
        left = (parts > 0) & ~roofs[parts]
        if not left.any() or len(roofs) < 3:
            break
        away, near = _nearest(left)
        of = np.where(away * cell_m <= REACH_M, parts[near], 0)
        owner = of if number == 0 else owner
        roofs |= stand_out(of, surface[near], jump, cell_m, len(roofs))
    roof: Mask = roofs[owner]
    if roof.any():  # beside a hole in a roof, what is left of it is too small for the filter, which took it for a house
        roof = ndimage.binary_dilation(roof, iterations=int(BESIDE_M / cell_m) + 1, mask=roof | ~ground)
    return roof


def calm_parts(surface: Grid, inside: Mask, jump: float, cell_m: float) -> Parts:
    """Return the connected parts without jumps between neighbours, numbered from 1; small ones count as none."""
    calm = inside.copy()
    for one, other in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        steep = np.abs(surface[one] - surface[other]) > jump
        calm[one] &= ~steep
        calm[other] &= ~steep
    parts, count = ndimage.label(calm)
    large = np.bincount(parts.ravel(), minlength=count + 1) * cell_m**2 >= LEAST_M2
    large[0] = False
    return (np.cumsum(large) * large)[parts]


def stand_out(parts: Parts, height: Grid, jump: float, cell_m: float, count: int) -> Mask:
    """Return for each part whether its outline jumps down nearly everywhere; the edge of the grid does not."""
    area = np.bincount(parts.ravel(), minlength=count) * cell_m**2
    parts, height = np.pad(parts, 1), np.pad(height, 1, constant_values=np.nan)
    outline, inside, down = np.zeros((3, count))
    for one, other in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        for here, there in ((one, other), (other, one)):
            edge = parts[here] != parts[there]
            of, beside = parts[here][edge], parts[there][edge]
            with np.errstate(invalid="ignore"):
                lower = (beside > 0) & (height[here][edge] - height[there][edge] > jump)
            outline += np.bincount(of, minlength=count)
            inside += np.bincount(of[~np.isnan(height[there][edge])], minlength=count)
            down += np.bincount(of[lower], minlength=count)
    outline[0] = inside[0] = np.inf
    cut = (area < CUT_M2) & (inside > CUT_INSIDE * outline) & (down > CUT_DOWN * inside)
    found: Mask = cut | (down > DOWN * np.maximum(outline, 1))
    return found


def _nearest(known: Mask) -> tuple[Grid, tuple[Parts, Parts]]:
    """Return how many cells away the nearest known cell is, and its row and column."""
    away, near = ndimage.distance_transform_edt(~known, return_indices=True)
    return away, (near[0], near[1])
