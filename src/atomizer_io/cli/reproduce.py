"""Run an experiment again: every figure in results/ comes from one of these commands.

What is there already is not computed again, and an interrupted experiment goes on where it stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``atomizer reproduce``."""
    items = parser.add_subparsers(dest="item", required=True, metavar="ITEM")
    lidar = items.add_parser("lidar", help="classes of points on other terrain, sensors and densities, beside a forest")
    lidar.add_argument("tiles", type=Path, help="folder with the six LiDAR HD tiles (test_data_77050_627755_... .laz)")
    lidar.add_argument("--output", type=Path, default=Path("results/lidar-hd.json"), help="(default: %(default)s)")
    lidar.add_argument("--work", type=Path, default=Path("runs/lidar-hd"), help="folder of runs (default: %(default)s)")
    lidar.add_argument("--steps", type=int, default=700, help="training steps of each run (default: %(default)s)")
    lidar.add_argument("--seeds", type=int, nargs="+", default=[0], help="(default: 0)")
    lidar.add_argument("--jobs", type=int, default=1, help="runs at once, one thread each (default: %(default)s)")
    lidar.set_defaults(reproduce=run_lidar)


def run(args: argparse.Namespace) -> int:
    """Run the experiment that was named."""
    return int(args.reproduce(args))


def run_lidar(args: argparse.Namespace) -> int:
    """Train and score all variants, and print the table."""
    from atomizer_io.experiments.lidar.lidar import lidar, table

    results = lidar(args.tiles, args.output, args.work, steps=args.steps, seeds=args.seeds, jobs=args.jobs)
    print(table(results))
    return 0
