"""Train a model from a YAML file: `atomizer train configs/sen1floods11.yaml data.root=/data/sen1floods11`.

Any setting of the file can be changed by key=value. Without training.epochs or training.max_steps, early stopping ends
it: when the validation score no longer improves, or when --max-time is over. The folder of the run (runs/NAME) gets
the models, scores, curves and figures; --resume continues a run that was stopped as if it had not been.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

SHOWN = ("folder", "finished", "steps", "ended_by", "seconds", "best", "scores", "curve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer train``."""
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="YAML file, or with --resume the folder of a run")
    add("--resume", action="store_true", help="continue the run in its folder")
    add("--max-time", metavar="HH:MM:SS", help="longest duration of the whole run; a resumed run keeps it")
    add("--folds", type=int, metavar="N", help="train once for each of N spatial folds of the dataset labels")
    add("--print-config", action="store_true", help="print the resolved settings and stop")
    add("--quiet", action="store_true", help="show no progress bar")
    add("options", nargs="*", metavar="key=value", help="settings to change, such as training.epochs=3")


def run(args: argparse.Namespace) -> int:
    """Train; the last line printed is the result as JSON."""
    began_s = time.monotonic()  # before what takes seconds to import

    import yaml

    from atomizer_io.texts import json_text
    from atomizer_io.training import config
    from atomizer_io.training.cross_validation import cross_validate
    from atomizer_io.training.run import train

    path = args.config / "config.yaml" if args.config.is_dir() else args.config
    changes = list(args.options) + ([f"training.max_time='{args.max_time}'"] if args.max_time else [])
    settings = config.load(path, changes)
    if args.resume and args.config.is_dir():
        settings = config.inside(settings, args.config, args.options)
    if args.print_config:
        print(yaml.safe_dump(config.plain(settings), sort_keys=False), end="")
        return 0
    if args.folds is not None:
        summary = cross_validate(path, changes, args.folds, resume=args.resume, progress=not args.quiet)
        if summary:
            print(json_text(summary))
        return 0
    result = train(settings, resume=args.resume, progress=not args.quiet, began_s=began_s)
    if result:
        print(json_text({key: result[key] for key in SHOWN}))
    return 0
