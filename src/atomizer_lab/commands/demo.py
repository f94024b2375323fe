"""Make scenes, train a tiny model on them, compare, map one, and write a report: a few minutes on two cores.

Nothing is downloaded: the scenes are synthetic, what Sentinel-1 and Sentinel-2 would see of land and water. It predicts
with all channels and with some of them missing, beside a UNet and a logistic regression of single pixels. One
scene is mapped pixel by pixel and adaptively, and written as a GeoTIFF.
"""

from __future__ import annotations

import argparse
from pathlib import Path

STEPS = 2800


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``atomizer demo``."""
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), help="folder to write to (default: demo-output)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of scenes, weights and training (default: 0)")
    # Steps are too small to gain much from more threads, which wait for each other when the machine is shared.
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 if the saved model predicts as the trained one did."""
    from atomizer_lab.demo.demo import run_demo
    from atomizer_lab.demo.runs import Demo

    return 0 if run_demo(Demo(args.steps, args.output, args.seed, args.threads)) else 1
