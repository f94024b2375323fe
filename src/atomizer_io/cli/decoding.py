"""Options that several commands share: the model and its data, and how and at what cost it is decoded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atomizer_io.decoding.scene_decoder import Decoding

NAMES = (
    "dense",
    "quadtree",
    "zone-probe",
    "sketch",
)  # as in decoding/scene_decoder.py, which imports torch


def add_model_and_data(parser: argparse.ArgumentParser, split: str) -> None:
    """Add a trained model and the split of the data that it is used on."""
    add = parser.add_argument
    add("model", type=Path, metavar="CHECKPOINT", help="folder of a model, such as runs/NAME/best")
    add("--config", type=Path, help="YAML file of the data (default: the config.yaml of the run)")
    add_split(parser, split)
    add("options", nargs="*", metavar="key=value", help="settings to change, such as data.root=/data")


def add_split(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option ``--split``, which was called ``--use``."""
    text = "split of the data: train, val or test as the run names them, or any split of the dataset"
    parser.add_argument("--split", default=default, help=f"{text} (default: %(default)s)")
    parser.add_argument("--use", dest="split", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_atoms_per_latent(parser: Any, default: int | str = "the model's", of: str = "atoms per latent, κ") -> None:
    """Add the option for κ; a default that is a text only explains what happens without it."""
    value = default if isinstance(default, int) else None
    names, text = ("--atoms-per-latent", "--kappa"), f"{of} (default: {default})"
    parser.add_argument(*names, type=int, default=value, metavar="κ", help=text)


def add_cost(parser: Any, default: str, budget: str) -> None:
    """Add the options for κ, m and k with what happens without them."""
    text = "most atoms of a cell that are used; a model without cells counts those of the scene"
    add_atoms_per_latent(parser, default)
    parser.add_argument("--budget", type=int, metavar="m", help=f"{text} (default: {budget})")
    parser.add_argument("--neighbors", type=int, metavar="k", help=f"latents that a query reads (default: {default})")


def add_decoding(parser: Any) -> None:
    """Add the decoding strategy and its cost to a parser or a group of its arguments."""
    add = parser.add_argument
    text = "decoding strategy, which chooses the queries (default: dense; with --alpha: as calibrated)"
    add("--decode", choices=NAMES, default="", help=text)
    text = "share of positions that may differ from the model's own dense prediction: sets κ, m, k and --decode"
    add("--alpha", type=float, help=f"{text}; run `atomizer calibrate` first")
    add_cost(parser, "the model's", "all")
    text = "points of a window of a point cloud that become context; all are decoded (default: the model's)"
    add("--max-points", type=int, metavar="COUNT", help=text)


def decoding_of(args: argparse.Namespace) -> Decoding:
    """Return the decoding strategy and the cost that the options name."""
    from atomizer_io.decoding.scene_decoder import Decoding
    from atomizer_io.models.base import Cost

    return Decoding(args.decode, args.alpha, Cost(args.atoms_per_latent, args.budget, args.neighbors, args.max_points))
