"""Write one page about everything in results/: tables beside the paper's, curves, confusion matrices, figures.

The page needs no other file and no network. Items that were not measured are named with the command that measures them.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``atomizer report``."""
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of result files (default: %(default)s)"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("runs"),
        help="folder of runs, with the figures of data that are not kept with the results (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, default=Path("report.html"), help="page to write (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    from atomizer_lab.report.report import write_report

    print(f"written: {write_report(args.results, args.work, args.output)}")
    if not any(args.results.glob("*.json")):
        print(f"note: {args.results} holds no results yet; the page lists the commands that make some")
    return 0
