"""Measure how fast heights above ground are computed, in points per second on one core, by the density of the points.

    .venv/bin/python tools/bench_ground.py [--points 1000000] [--repeats 5]

The points lie on rolling land with houses. Seconds are processor time; the shortest of the repeats counts.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # before numpy is imported

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from atomizer_io.io.ground import height_above_ground

DENSITIES = (1, 2, 5, 10)  # points per square metre


def village(points: int, density: float) -> NDArray[np.float64]:
    """Return points (P, 3) of a square area, in metres: waves of 5 m, and houses of 15 by 12 m that are 6 m high."""
    x, y = np.random.default_rng(0).uniform(0, (points / density) ** 0.5, (2, points))
    houses = (x % 60 < 15) & (y % 50 < 12)
    return np.stack([x, y, 5 * np.sin(x / 40) + np.where(houses, 6.0, 0.0)], axis=1)


def seconds_of(xyz: NDArray[np.float64]) -> float:
    """Return the processor time that the heights of some points take."""
    start = time.process_time()
    height_above_ground(xyz)
    return time.process_time() - start


def main() -> None:
    """Print a row for each density."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the shortest counts (default: 5)")
    args = parser.parse_args()
    print(f"{'points/m2':>9} {'side m':>7} {'seconds':>8} {'points/s':>10}")
    for density in DENSITIES:
        xyz = village(args.points, density)
        seconds = min(seconds_of(xyz) for _ in range(args.repeats))
        side = (args.points / density) ** 0.5
        print(f"{density:9} {side:7.0f} {seconds:8.2f} {args.points / seconds:10,.0f}", flush=True)


if __name__ == "__main__":
    main()
