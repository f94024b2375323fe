"""Run an experiment again: every table and figure of the paper, and every figure in results/, is one of these commands.

Scales: paper is the full protocol, for those who have the data and GPUs; small runs on two CPU cores; smoke takes
seconds on synthetic data. What is there already is not computed again, and an interrupted experiment goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from atomizer_io.errors import ConfigError
from atomizer_lab.paper.registry import ITEMS

if TYPE_CHECKING:
    from atomizer_lab.paper.item import Item, Where

SCALES = ("paper", "small", "smoke")
DATA = "ATOMIZER_DATA"  # variable that names the folder of all data
WORK, CONFIGS = Path("runs"), Path("configs")  # folders that are used where none are named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``atomizer reproduce``."""
    items = parser.add_subparsers(dest="item", required=True, metavar="ITEM")
    for name, (_, shows) in ITEMS.items():
        add_item(items.add_parser(name, help=shows, description=f"{name}: {shows}."))


def add_item(parser: argparse.ArgumentParser) -> None:
    """Arguments of an item of the paper."""
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="small",
        help="paper: hours to weeks of a GPU; small: minutes to three hours of two CPU cores; smoke: seconds (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=usual_data(),
        help=f"folder with a folder for each dataset (default: ${DATA}, or data)",
    )
    parser.add_argument("--work", type=Path, default=WORK, help="folder of runs (default: %(default)s)")
    parser.add_argument(
        "--configs", type=Path, default=CONFIGS, help="folder of the paper's settings (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, help="result file (default: results/ITEM-SCALE.json)")
    parser.add_argument("--seeds", type=int, nargs="+", help="(default: those of the scale)")
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at once, one thread each; 0: one, with all threads (default: 1)"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="print the commands of all runs, and of the paper's their GPU hours, and stop",
    )
    parser.add_argument(
        "--flops", type=float, default=4e13, help="FLOPs a second of a GPU, for its hours (default: %(default)g)"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="run only the runs with this text in their name")
    parser.add_argument("--cell", type=int, metavar="N", help="run only the run of this number, with all threads")
    parser.add_argument("--table", action="store_true", help="print the table of what is there, and stop")


def usual_data() -> Path:
    """Return the folder of all data that is used where none is named."""
    return Path(os.environ.get(DATA) or "data")


def run(args: argparse.Namespace) -> int:
    """Run an item of the paper, one of its runs, or list these, and print the table."""
    from atomizer_lab.paper.item import Where
    from atomizer_lab.paper.looks import write_looks
    from atomizer_lab.paper.registry import item

    if args.jobs < 0:
        raise ConfigError(f"--jobs must not be negative, got {args.jobs}")
    output = args.output or Path("results") / f"{args.item}-{args.scale}.json"
    chosen, where = item(args.item), Where(args.data, args.work, output.parent, args.configs)
    if args.list:
        for line in listed(chosen, where, args):  # hours are counted one by one, which takes a while
            print(line, flush=True)
    elif args.table:
        print(chosen.so_far(args.scale, where, output, args.seeds))
    elif args.cell is not None:
        print(chosen.run_cell(args.scale, where, output, args.cell, seeds=args.seeds))
    else:
        print(chosen.run(args.scale, where, output, seeds=args.seeds, jobs=args.jobs, only=args.only))
        print(f"written: {output}", flush=True)
        for line in write_looks(chosen, args.scale, where, output, args.seeds):
            print(line)
    return 0


def listed(item: Item, where: Where, args: argparse.Namespace) -> Iterator[str]:
    """Yield the commands of all runs, those of the paper's protocol with the hours of a GPU, and their sum."""
    from atomizer_lab.paper.networks import gpu_hours

    if not args.flops > 0:
        raise ConfigError(f"--flops must be positive, got {args.flops:g}")
    total, options = 0.0, given_options(args)
    for number, task in enumerate(item.runs(args.scale, where, args.seeds)):
        hours = gpu_hours(task, args.flops) if args.scale == "paper" else None
        about = task.name if hours is None else f"{task.name}: {figure(hours)} GPU hours"
        total += hours or 0.0
        yield f"atomizer reproduce {args.item} --scale {args.scale}{options} --cell {number}  # {about}"
    if total:
        yield f"about {figure(total)} GPU hours of training in all, at {args.flops:g} FLOPs a second"


def given_options(args: argparse.Namespace) -> str:
    """Return the options given by the user that choose runs, data and folders."""
    usual = {"data": usual_data(), "work": WORK, "configs": CONFIGS, "output": None}
    words = [f"--{name} {getattr(args, name)}" for name, value in usual.items() if getattr(args, name) != value]
    if args.seeds:
        words.append(f"--seeds {' '.join(map(str, args.seeds))}")
    return "".join(f" {word}" for word in words)


def figure(hours: float) -> str:
    """Return hours with two digits that count, or in whole hours."""
    return f"{hours:.2g}" if hours < 100 else f"{hours:,.0f}"
