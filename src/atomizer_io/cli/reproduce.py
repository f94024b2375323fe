"""Run an experiment again: every figure in results/ comes from one of these commands.

What is there already is not computed again, and an interrupted experiment goes on where it stopped.
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

SMALL_TASKS = (
    *("sen1floods11", "s2-patches", "rondonia", "biomassters", "enmap", "terramind-433D", "presto-series"),
    *("sen1floods11-channels", "rondonia-dates"),
)


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
    small = items.add_parser("small-data", help="seven small tasks with one recipe, beside a forest and a regression")
    small.add_argument("data", type=Path, help="folder with sen1floods11, s2-patches, rondonia-20llq, biomassters, ...")
    small.add_argument("--output", type=Path, default=Path("results/small-data.json"), help="(default: %(default)s)")
    small.add_argument(
        "--work",
        type=Path,
        default=Path("runs/small-data"),
        help="folder of data and runs (default: %(default)s)",
    )
    small.add_argument(
        "--minutes",
        type=float,
        default=8.0,
        help="how long each run trains at most (default: %(default)s)",
    )
    small.add_argument("--steps", type=int, help="train each run for so many steps instead")
    small.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(default: 0 1 2)")
    small.add_argument("--jobs", type=int, default=1, help="runs at once, one thread each (default: %(default)s)")
    small.add_argument("--only", nargs="+", choices=SMALL_TASKS, metavar="TASK", help=f"of {', '.join(SMALL_TASKS)}")
    small.set_defaults(reproduce=run_small_data)


def run(args: argparse.Namespace) -> int:
    """Run the experiment that was named."""
    return int(args.reproduce(args))


def run_lidar(args: argparse.Namespace) -> int:
    """Train and score all variants, and print the table."""
    from atomizer_io.experiments.lidar.lidar import lidar, table

    results = lidar(args.tiles, args.output, args.work, steps=args.steps, seeds=args.seeds, jobs=args.jobs)
    print(table(results))
    return 0


def run_small_data(args: argparse.Namespace) -> int:
    """Train and score all tasks, and print the table."""
    from atomizer_io.experiments.small_data.small_data import small_data, table

    limit = {"max_time": str(datetime.timedelta(seconds=round(60 * args.minutes)))}
    how = limit if args.steps is None else {"max_steps": args.steps}
    options = {"training": how, "seeds": args.seeds, "jobs": args.jobs, "only": args.only or SMALL_TASKS}
    print(table(small_data(args.data, args.output, args.work, **options)))
    return 0
