"""Find how cheaply a model can predict: `atomizer calibrate runs/sen1floods11/best --alpha 0.01`.

On average, at most the share alpha of the positions will differ from the model's own prediction: dense, from whole
cells, with its own κ and k (conformal risk control; no labels are used). Atoms per latent κ, budget m, neighbors k, the
decoding strategy and its settings are chosen together for the fewest FLOPs on one part of the scenes, and tested on
calibration blocks of the others. The result is stored with the model, for `atomizer predict --alpha 0.01`. With
--promise classes, alpha holds for the positions of every class, so that a rare one is not lost.

The scenes are samples of the run that the model belongs to, unless a setting changes that; they should resemble those
to be predicted. What --decode, --kappa, --budget or --neighbors fix stays fixed, and the rest is chosen.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from atomizer_io.cli.decoding import NAMES, add_cost, add_model_and_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer calibrate``."""
    add = parser.add_argument
    add_model_and_data(parser, "val")
    add("--alpha", type=float, default=0.01, help="share of positions that may differ (default: %(default)s)")
    text = "what alpha holds for: all positions together, which may lose a rare class, or those of every class"
    add("--promise", choices=("pixels", "classes"), default="pixels", help=f"{text} (default: %(default)s)")
    text = f"strategies, separated by commas, each of which gets an operating point of its own: {', '.join(NAMES)}"
    add("--decode", metavar="STRATEGIES", help=f"{text} (default: one operating point, of the cheapest strategy)")
    add("--precision", type=float, help="for regression: the distance from which two values differ, in their unit")
    text = "largest number of scenes, chosen at random (default: %(default)s)"
    add("--scenes", type=int, default=60, help=text)
    text = "blocks of the scenes that the choice is tested on (default: 5 divided by alpha)"
    add("--blocks", type=int, help=text)
    add("--squares", dest="blocks", type=int, default=argparse.SUPPRESS, help=argparse.SUPPRESS)  # old name
    text = "cut windows of this side from anywhere in the samples and take them as scenes (default: whole samples)"
    add("--window", type=float, metavar="METRES", help=text)
    add_cost(parser, "chosen", "chosen")
    add("--seed", type=int, default=0, help="seed of all that is random (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Calibrate, print the steps that were tested, and store the results."""
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
    searched = [replace(free, strategies=strategies(name)) for name in names] or [free]
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
    for choices in searched:
        result = calibrate(
            model,
            scenes,
            args.alpha,
            choices=choices,
            precision=args.precision,
            promise=args.promise,
            sampling=sampling,
            progress=True,
        )
        result.save(args.model)
        print(result)
    print(f"stored in {args.model}")
    return 0
