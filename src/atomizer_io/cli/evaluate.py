"""Score a trained model: `atomizer evaluate runs/sen1floods11/best --channels all,s2-only,s1-only`.

The data are those of the run that the model belongs to, unless a setting changes that: `data.root=/data/other`.
Channel configurations are the paper's (all, s2-only, s1-only, rgb-only, no-swir, no-red-edge), or are made of sensors,
channels and wavelengths of your data: sentinel1+B04, lidar-only, no-sentinel1, 0.4-0.7um, every-2nd.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from atomizer_io.cli.decoding import add_decoding, add_model_and_data, decoding_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer evaluate``."""
    add_model_and_data(parser, "test")
    text = "channel configurations, separated by ';' (or ',' between names such as s2-only); a configuration joins by "
    text += "'+': sensors, channels (in double quotes where needed), SENSOR-only, no-SENSOR, 400-700nm, every-2nd"
    parser.add_argument("--channels", default="all", help=text)
    add_decoding(parser)
    parser.add_argument("--limit", type=int, help="largest number of samples")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the scores")


def run(args: argparse.Namespace) -> int:
    """Print a table of the scores and, last, one line of JSON."""
    from atomizer_io.texts import json_text, write_output
    from atomizer_io.training.bands import configurations
    from atomizer_io.training.evaluate import evaluate, table
    from atomizer_io.training.splits import settings_of

    settings = settings_of(args.model, args.config, args.options)
    scores = evaluate(
        settings,
        args.model,
        use=args.split,
        channels=configurations(args.channels),
        decoding=decoding_of(args),
        limit=args.limit,
    )
    print(table(scores))
    if args.output is not None:
        write_output(args.output, json_text(scores, 2) + "\n")
    print(json_text(scores["scores"]))
    return 0
