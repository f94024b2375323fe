"""Measure the speed and memory of this package on this machine, and what ways to decode are worth."""

from __future__ import annotations

import argparse
from pathlib import Path

from atomizer_io.cli.decoding import add_split
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
    add_run(core, "core", "; a plot is written beside it")
    core.set_defaults(measure=run_core)
    add_decode(benchmarks.add_parser("decode", help="what ways to decode cost and are worth, from one checkpoint"))
    models = benchmarks.add_parser("models", help="all models on the same inputs: parameters, FLOPs, times, memory")
    models.add_argument("models", nargs="*", metavar="NAME", help="models to measure (default: those of the paper)")
    models.add_argument(
        "--input",
        nargs="+",
        default=["paper"],
        metavar="NAME|HxWxC[xT]",
        help="inputs: datasets of the paper's Table 1 (eurosat, sen1floods11, ...), 'paper' for all of them, or the "
        "height, width, channels and dates of a raster (default: paper)",
    )
    models.add_argument("--repeats", type=int, default=3, help="calls of which the shortest counts (default: 3)")
    models.add_argument(
        "--limit", type=float, default=300.0, metavar="SECONDS", help="of each cell of the table (default: %(default)s)"
    )
    models.add_argument(
        "--memory", type=float, default=16.0, metavar="GB", help="that a cell may take (default: %(default)s)"
    )
    models.add_argument(
        "--merge",
        action="store_true",
        help="keep the rows of the result file that are not measured again: those of other inputs and, where models "
        "are named, those of other models; every row has the date, machine and commit of its measurement",
    )
    add_run(models, "models")
    models.set_defaults(measure=run_models)


def add_run(parser: argparse.ArgumentParser, name: str, plots: str = "") -> None:
    """Arguments that every benchmark has: its threads and its result file."""
    parser.add_argument("--threads", type=int, help="threads to use (default: torch's choice)")
    path = Path(f"results/{name}.json")
    parser.add_argument("--output", type=Path, default=path, help=f"result file{plots} (default: %(default)s)")


def add_decode(decode: argparse.ArgumentParser) -> None:
    """Arguments of ``atomizer bench decode``."""
    decode.add_argument("model", type=Path, metavar="CHECKPOINT", help="folder of a model, such as runs/NAME/best")
    decode.add_argument("--config", type=Path, help="YAML file of the data (default: the config.yaml of the run)")
    add_split(decode, "test")
    decode.add_argument("--crops", type=int, help="take so many crops from the samples (default: whole samples)")
    decode.add_argument("--crop-m", type=float, default=960.0, help="side of a crop in metres (default: 960)")
    decode.add_argument("--limit", type=int, help="at most so many samples or crops")
    decode.add_argument(
        "--atoms-per-latent",
        "--kappa",
        metavar="κ,...",
        help="atoms per latent, κ, beside the model's (default: the model's × 1/2, 2 and 4)",
    )
    decode.add_argument(
        "--budgets", default="256,128,64,32", metavar="m,...", help="beside none (default: %(default)s)"
    )
    decode.add_argument("--neighbors", default="1,4,9,16", metavar="k,...", help="(default: %(default)s)")
    decode.add_argument(
        "--starts", default="4,8,16,32,64", metavar="PIXELS,...", help="of quadtrees (default: %(default)s)"
    )
    decode.add_argument(
        "--spacings", default="4,5,6,8", metavar="PIXELS,...", help="of sketches (default: %(default)s)"
    )
    decode.add_argument("--margin", type=float, default=0.0, help="how far ahead a sure class is (default: 0)")
    decode.add_argument("--tolerance", type=float, help="of a regression: how far apart sure values may be")
    decode.add_argument(
        "--alpha", type=float, default=0.01, help="include stored calibrations up to this (default: %(default)s)"
    )
    decode.add_argument("--seed", type=int, default=0, help="of crops and of sampled cells (default: %(default)s)")
    add_run(decode, "decode", "; two plots are written beside it")
    decode.add_argument("options", nargs="*", metavar="key=value", help="settings to change, such as data.root=/data")
    decode.set_defaults(measure=run_decode)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark that the command line names."""
    import torch

    if args.threads is not None:
        if args.threads < 1:
            raise ConfigError(f"--threads must be positive, got {args.threads}")
        torch.set_num_threads(args.threads)
    return int(args.measure(args))


def run_models(args: argparse.Namespace) -> int:
    """Measure models on one or several inputs."""
    from atomizer_io.cli.info import raster_size
    from atomizer_io.models.registry import preset
    from atomizer_lab.bench.model_inputs import PAPER_INPUTS, raster_input
    from atomizer_lab.bench.models import Limits, run

    if args.repeats < 1:
        raise ConfigError(f"--repeats must be at least 1, got {args.repeats}")
    for name in args.models:
        preset(name)  # an unknown name is an error before anything is measured
    inputs = []
    for name in args.input:
        if name == "paper":
            inputs += list(PAPER_INPUTS.values())
        elif name in PAPER_INPUTS:
            inputs.append(PAPER_INPUTS[name])
        elif name[:1].isdigit():
            inputs.append(raster_input(*raster_size(name)))
        else:
            known = ", ".join(PAPER_INPUTS)
            raise ConfigError(f"--input {name!r} is not known; use paper, {known}, or a size such as 128x128x13")
    limits = Limits(args.limit, round(args.memory * 2**30), args.repeats)
    run(inputs, args.models, args.output, limits, merge=args.merge)
    print(f"written: {args.output}")
    return 0


def run_core(args: argparse.Namespace) -> int:
    """Measure the stages of the network."""
    from atomizer_lab.bench.core import CoreBenchmark, plot

    if any(side < 32 or side % 16 for side in args.sides):
        raise ConfigError(f"--sides {args.sides}: the UNet beside it wants multiples of 16 pixels, at least 32")
    benchmark = CoreBenchmark(args.output, repeats=args.repeats, reference_up_to=args.reference_up_to)
    result = benchmark.run(tuple(args.sides))
    figure = args.output.with_suffix(".png")
    try:
        plot(result, figure)
    except ImportError:
        print("no plot: matplotlib is not installed (pip install 'atomizer-io[train]')")
        print(f"written: {args.output}")
        return 0
    print(f"written: {args.output} and {figure}")
    return 0


def run_decode(args: argparse.Namespace) -> int:
    """Measure what ways to decode cost and what they are worth."""
    from atomizer_io.decoding.calibration import load_all
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.models.storage import fingerprint
    from atomizer_io.training.evaluate import compare
    from atomizer_io.training.splits import open_split, settings_of
    from atomizer_lab.bench.decode import DecodeBenchmark, scenes_of
    from atomizer_lab.bench.decode_plots import plot
    from atomizer_lab.bench.decode_ways import Sweep, operating_points, ways

    for name in ("limit", "crops", "crop_m"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be positive, got {value:g}")
    if not 0 < args.alpha < 1:
        raise ConfigError(f"--alpha must lie between 0 and 1, got {args.alpha:g}")
    sweep = Sweep(
        atoms_per_latent=counts("--atoms-per-latent", args.atoms_per_latent or ""),
        budgets=counts("--budgets", args.budgets),
        neighbors=counts("--neighbors", args.neighbors),
        starts=counts("--starts", args.starts),
        spacings=counts("--spacings", args.spacings),
        margin=args.margin,
        tolerance=args.tolerance or 0.0,
    )
    model = AtomizerIO.from_pretrained(args.model)
    if model.task_spec.task == "regression" and not sweep.tolerance:
        raise ConfigError("the model is a regression: say with --tolerance how far apart sure values may be")
    dataset = open_split(settings_of(args.model, args.config, args.options), args.split)
    compare(model, dataset)
    scenes = scenes_of(dataset, args.crops, args.crop_m, args.seed, args.limit)
    about: dict[str, object] = {"model": str(args.model), "data": dataset.info.name, "split": dataset.split}
    about["crop_m"] = None if args.crops is None else args.crop_m
    benchmark = DecodeBenchmark(model, scenes, args.output, seed=args.seed, about=about)
    stored = [point for point in load_all(args.model) if point.model == fingerprint(model)]
    points = operating_points(stored, args.alpha)
    if not points:
        advice = f"run `atomizer calibrate {args.model} --alpha {args.alpha:g}` to include operating points"
        print(f"no calibration is stored for alpha up to {args.alpha:g}: {advice}")
    result = benchmark.run(ways(model.config, sweep, points, benchmark.on_grids))
    figure = args.output.with_suffix(".png")
    try:
        second = plot(result, figure)
    except ImportError:
        print("no plots: matplotlib is not installed (pip install 'atomizer-io[train]')")
        print(f"written: {args.output}")
        return 0
    print(f"written: {args.output}, {figure} and {second}")
    return 0


def counts(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers in ``1,4,9``; an empty text has none."""
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ConfigError(f"{option} {text!r}: write whole numbers, separated by commas") from error
    if any(number < 1 for number in numbers):
        raise ConfigError(f"{option} {text!r}: all must be at least 1")
    return numbers
