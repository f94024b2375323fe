"""Measure the speed and memory of this package on this machine."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from atomizer_io.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``atomizer bench``."""
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    core = benchmarks.add_parser("core", help="the folded network against the paper's formulation and a plain UNet")
    core.add_argument(
        "--sides",
        type=int,
        nargs="+",
        default=(128, 256, 512),
        metavar="PIXELS",
        help="square scenes of 15 channels to measure (default: 128 256 512, that is 0.25, 1 and 3.9 million atoms)",
    )
    core.add_argument(
        "--reference-up-to",
        type=int,
        default=256,
        metavar="PIXELS",
        help="largest scene that the slow reference computes too; 512 takes many minutes (default: %(default)s)",
    )
    core.add_argument(
        "--repeats", type=int, default=3, help="calls of which the shortest counts (default: %(default)s)"
    )
    core.add_argument("--threads", type=int, help="threads to use (default: torch's choice)")
    core.add_argument(
        "--output",
        type=Path,
        default=Path("benchmarks/results/core.json"),
        help="result file; a plot is written beside it (default: %(default)s)",
    )
    core.set_defaults(measure=run_core)
    data = benchmarks.add_parser("data", help="reading samples against reading the same files plainly")
    data.add_argument(
        "datasets",
        nargs="*",
        metavar="NAME=ROOT",
        help="datasets to read, such as sen1floods11=/data/sen1floods11 (default: made-up files of the real size)",
    )
    data.add_argument("--split", default="train", help="(default: train)")
    data.add_argument("--repeats", type=int, default=7, help="rounds of which the shortest counts (default: 7)")
    data.add_argument(
        "--output", type=Path, default=Path("benchmarks/results/data.json"), help="result file (default: %(default)s)"
    )
    data.set_defaults(measure=run_data)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark."""
    return int(args.measure(args))


def run_data(args: argparse.Namespace) -> int:
    """Reading."""
    from atomizer_io.bench.data import made_up, run
    from atomizer_io.datasets.registry import create

    if args.repeats < 1:
        raise ConfigError(f"--repeats must be at least 1, got {args.repeats}")
    pairs = [name_and_root(text) for text in args.datasets]
    with tempfile.TemporaryDirectory() as folder:
        if pairs:
            datasets = [create(name, root, args.split, on_error="skip") for name, root in pairs]
        else:
            datasets = made_up(Path(folder))
        run(datasets, args.output, args.repeats)
    print(f"written: {args.output}")
    return 0


def name_and_root(text: str) -> tuple[str, str]:
    """``sen1floods11=/data/sen1floods11`` in its two parts."""
    name, _, root = text.partition("=")
    if not name:
        raise ConfigError(f"{text!r} names no dataset: write NAME=ROOT")
    if not root:
        raise ConfigError(f"{text!r} has no folder: write {name}=ROOT")
    return name, root


def run_core(args: argparse.Namespace) -> int:
    """The network."""
    import torch

    from atomizer_io.bench.core import CoreBenchmark, plot

    if any(side < 32 or side % 16 for side in args.sides):
        raise ConfigError(f"--sides {args.sides}: the UNet beside it wants multiples of 16 pixels, at least 32")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    benchmark = CoreBenchmark(args.output, repeats=args.repeats, reference_up_to=args.reference_up_to)
    result = benchmark.run(tuple(args.sides))
    picture = args.output.with_suffix(".png")
    try:
        plot(result, picture)
    except ImportError:
        print("no plot: matplotlib is not installed (pip install 'atomizer-io[train]')")
        print(f"written: {args.output}")
        return 0
    print(f"written: {args.output} and {picture}")
    return 0
