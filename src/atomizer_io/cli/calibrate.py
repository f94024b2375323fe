"""Find how cheaply a model can be read out: `atomizer calibrate runs/sen1floods11/best --alpha 0.01`.

On average over scenes, at most the share alpha of the positions will differ from dense decoding. No labels are used.
The scenes are those of the run that the model belongs to, unless settings say otherwise, whole or as crops; they should
be like those to be predicted. The result is stored with the model.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer calibrate``."""
    parser.add_argument("model", type=Path, metavar="CHECKPOINT", help="folder of a model, such as runs/NAME/best")
    parser.add_argument(
        "--alpha", type=float, default=0.01, help="share of positions that may differ (default: %(default)s)"
    )
    parser.add_argument(
        "--decode",
        help="strategies to calibrate, separated by commas: quadtree, zone-probe, sketch (default: all that can be)",
    )
    parser.add_argument(
        "--precision", type=float, help="for a quantity: the distance from which two values differ, in its unit"
    )
    parser.add_argument("--config", type=Path, help="YAML file of the data (default: the config.yaml of the run)")
    parser.add_argument(
        "--use", choices=("train", "val", "test"), default="val", help="split that is used (default: val)"
    )
    parser.add_argument("--crops", type=int, help="number of squares to cut from the samples (default: whole samples)")
    parser.add_argument("--crop-m", type=float, default=960.0, help="side of a square in metres (default: %(default)s)")
    parser.add_argument(
        "--atoms-per-latent", "--kappa", type=int, metavar="κ", help="atoms per latent, κ (default: the model's)"
    )
    parser.add_argument("--neighbors", type=int, help="latents that a position reads (default: the model's)")
    parser.add_argument("--seed", type=int, default=0, help="seed for where the squares lie (default: %(default)s)")
    parser.add_argument("options", nargs="*", metavar="key=value", help="settings to change, such as data.root=/data")


def run(args: argparse.Namespace) -> int:
    """Calibrate, print the curves, store the results."""
    from atomizer_io.datasets.crop import random_crops
    from atomizer_io.datasets.loading import each
    from atomizer_io.decoding.calibration import STRATEGIES, calibrate
    from atomizer_io.errors import ConfigError
    from atomizer_io.models.registry import load_model
    from atomizer_io.training.evaluate import compare
    from atomizer_io.training.splits import open_split, settings_of

    model = load_model(args.model).eval()
    if not model.abilities.anywhere:
        raise ConfigError(
            f"{model.preset or model.family} answers at all positions at once, so there is nothing to calibrate"
        )
    dataset = open_split(settings_of(args.model, args.config, args.options), args.use)
    compare(model, dataset)
    scenes = dataset if args.crops is None else list(random_crops(dataset, args.crops, args.crop_m, args.seed))
    names = args.decode.split(",") if args.decode else list(STRATEGIES)
    queries = getattr(next(each(dataset)), "queries", None)
    if not args.decode and queries is not None and queries.grid is None:  # points: there are no squares
        names.remove("quadtree")
    for name in names:
        found = calibrate(
            model,
            scenes,
            args.alpha,
            strategy=name.strip().replace("-", "_"),
            precision=args.precision,
            atoms_per_latent=args.atoms_per_latent,
            neighbors=args.neighbors,
            progress=True,
        )
        found.save(args.model)
        print(found)
    print(f"stored in {args.model}")
    return 0
