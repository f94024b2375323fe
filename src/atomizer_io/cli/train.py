"""Train a model as a YAML file says: `atomizer train configs/sen1floods11.yaml data.root=/data/sen1floods11`.

Any setting of the file can be changed by key=value. Without training.epochs or training.max_steps it trains until the
validation score stops rising, or --max-time is over. The run's folder (runs/NAME) gets the models, their scores, curves
and pictures; `--resume` goes on with a run that was stopped, exactly as if it had not been.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

SHOWN = ("folder", "finished", "steps", "ended_by", "seconds", "best", "scores", "curve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``atomizer train``."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="YAML file, or with --resume the folder of a run")
    parser.add_argument("--resume", action="store_true", help="go on with the run in its folder")
    parser.add_argument("--max-time", metavar="HH:MM:SS", help="how long all of it may take; a resumed run keeps it")
    parser.add_argument("--print-config", action="store_true", help="print the resolved settings and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("options", nargs="*", metavar="key=value", help="settings to change, such as training.epochs=3")


def run(args: argparse.Namespace) -> int:
    """Train; the last line is the result as JSON."""
    began_s = time.monotonic()  # before what takes seconds to import

    import yaml

    from atomizer_io.training import config
    from atomizer_io.training.run import train

    path = args.config / "config.yaml" if args.config.is_dir() else args.config
    changes = list(args.options) + ([f"training.max_time='{args.max_time}'"] if args.max_time else [])
    settings = config.load(path, changes)
    if args.resume and args.config.is_dir():
        settings = config.inside(settings, args.config, args.options)
    if args.print_config:
        print(yaml.safe_dump(config.plain(settings), sort_keys=False), end="")
        return 0
    result = train(settings, resume=args.resume, progress=not args.quiet, began_s=began_s)
    if result:
        print(json.dumps({key: result[key] for key in SHOWN}))
    return 0
