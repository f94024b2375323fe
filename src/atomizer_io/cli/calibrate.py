"""Find how cheaply a model can predict: `atomizer calibrate runs/sen1floods11/best --alpha 0.01`.

On average, at most the share alpha of the positions will differ from the model's own answer: dense, from whole cells,
with its own κ and k. No labels are used. Atoms per latent κ, budget m, neighbors k, the strategy and its settings are
chosen together for the fewest FLOPs, on some scenes, and the choice is tested on blocks of others. The result is
stored with the model, for `atomizer predict --alpha 0.01`. With --promise classes alpha holds for the positions of
every class, so that a rare one is not lost.

The scenes are the samples of the run that the model belongs to, unless settings say otherwise; they should be like
those to be predicted. With --decode, --kappa, --budget or --neighbors that part is given, and the rest is chosen.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from atomizer_io.cli.decoding import add_split


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer calibrate``."""
    parser.add_argument("model", type=Path, metavar="CHECKPOINT", help="folder of a model, such as runs/NAME/best")
    parser.add_argument(
        "--alpha", type=float, default=0.01, help="share of positions that may differ (default: %(default)s)"
    )
    parser.add_argument(
        "--promise",
        choices=("pixels", "classes"),
        default="pixels",
        help="for which alpha holds: all positions together, which may lose a rare class, or those of every class "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--decode",
        metavar="STRATEGIES",
        help="strategies, separated by commas, of which each gets an operating point of its own: dense, quadtree, "
        "zone-probe, sketch (default: one operating point, with whichever is cheapest)",
    )
    parser.add_argument(
        "--precision", type=float, help="for a quantity: the distance from which two values differ, in its unit"
    )
    parser.add_argument("--config", type=Path, help="YAML file of the data (default: the config.yaml of the run)")
    add_split(parser, "val")
    parser.add_argument(
        "--scenes", type=int, default=60, help="scenes that are used at most, sampled at random (default: %(default)s)"
    )
    parser.add_argument(
        "--blocks",
        "--squares",
        type=int,
        help="blocks of the scenes that test the choice (default: 5 divided by alpha)",
    )
    parser.add_argument(
        "--window",
        type=float,
        metavar="METRES",
        help="cut windows of this side from anywhere in the samples and take them as scenes (default: whole samples)",
    )
    parser.add_argument(
        "--atoms-per-latent", "--kappa", type=int, metavar="κ", help="atoms per latent, κ (default: chosen)"
    )
    parser.add_argument("--budget", type=int, metavar="m", help="most atoms of a cell that are used (default: chosen)")
    parser.add_argument("--neighbors", type=int, metavar="k", help="latents that a position reads (default: chosen)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all that is drawn (default: %(default)s)")
    parser.add_argument("options", nargs="*", metavar="key=value", help="settings to change, such as data.root=/data")


def run(args: argparse.Namespace) -> int:
    """Calibrate, print the steps that were tested, store the results."""
    from atomizer_io.datasets.crop import random_crops
    from atomizer_io.decoding.blocks import Sampling
    from atomizer_io.decoding.risk_control import calibrate, strategies
    from atomizer_io.decoding.search import Choices
    from atomizer_io.errors import ConfigError
    from atomizer_io.models.base import Cost
    from atomizer_io.models.registry import load_model
    from atomizer_io.training.evaluate import compare
    from atomizer_io.training.splits import open_split, settings_of

    cost = Cost(args.atoms_per_latent, args.budget, args.neighbors)  # refuses what is not a count
    free = Choices(
        () if cost.atoms_per_latent is None else (cost.atoms_per_latent,),
        () if cost.budget is None else (cost.budget,),
        () if cost.neighbors is None else (cost.neighbors,),
    )
    names = [name.strip().replace("-", "_") for name in (args.decode or "").split(",") if name.strip()]
    wanted = [replace(free, strategies=strategies(name)) for name in names] or [free]
    sampling = Sampling(args.blocks, args.scenes, args.seed)
    model = load_model(args.model).eval()
    if not model.capabilities.anywhere:
        by_hand = " and ".join(f"--{name.replace('_', '-')}" for name in model.capabilities.cost)
        raise ConfigError(
            f"{model.preset or model.family} predicts at all positions at once, so there is nothing to calibrate"
            + (f": choose {by_hand} of evaluate and predict by hand" if by_hand else "")
        )
    dataset = open_split(settings_of(args.model, args.config, args.options), args.split)
    compare(model, dataset)
    windows = args.window is not None
    scenes = list(random_crops(dataset, args.scenes, args.window, args.seed)) if windows else dataset
    for choices in wanted:
        found = calibrate(
            model,
            scenes,
            args.alpha,
            choices=choices,
            precision=args.precision,
            promise=args.promise,
            sampling=sampling,
            progress=True,
        )
        found.save(args.model)
        print(found)
    print(f"stored in {args.model}")
    return 0
