"""Options of all commands that decode a model: on which split, how, and at what cost."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atomizer_io.decoding.options import Decoding

NAMES = ("dense", "quadtree", "zone-probe", "sketch")  # as in decoding/choice.py, which imports torch: --help must not


def add_split(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option ``--split``, which was called ``--use``."""
    parser.add_argument(
        "--split",
        default=default,
        help="split of the data: train, val or test as the run names them, or any split of the dataset "
        "(default: %(default)s)",
    )
    parser.add_argument("--use", dest="split", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_decoding(parser: Any) -> None:
    """Add the options to a parser or a group of its arguments."""
    parser.add_argument(
        "--decode",
        choices=NAMES,
        default="",
        help="where the model is asked (default: dense; with --alpha: as calibrated)",
    )
    parser.add_argument(
        "--alpha",
        type=float,
        help="share of positions that may differ from the model's own dense answer: sets the whole cost (κ, m, k and "
        "--decode); run `atomizer calibrate` first",
    )
    parser.add_argument(
        "--atoms-per-latent", "--kappa", type=int, metavar="κ", help="atoms per latent, κ (default: the model's)"
    )
    parser.add_argument(
        "--budget",
        type=int,
        metavar="m",
        help="most atoms of a cell that are used; of the scene by a model without cells (default: all)",
    )
    parser.add_argument(
        "--neighbors", type=int, metavar="k", help="latents that a position reads (default: the model's)"
    )
    parser.add_argument(
        "--max-points",
        type=int,
        metavar="COUNT",
        help="points of a window of a cloud that become context; all are asked (default: the model's)",
    )


def decoding_of(args: argparse.Namespace) -> Decoding:
    """Return what was chosen."""
    from atomizer_io.decoding.options import Decoding
    from atomizer_io.models.base import Cost

    return Decoding(args.decode, args.alpha, Cost(args.atoms_per_latent, args.budget, args.neighbors, args.max_points))
