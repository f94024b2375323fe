"""Make scenes, train a tiny model on them, compare, map one, and write a report: a few minutes on two cores.

Nothing is downloaded: the scenes are made up, what Sentinel-1 and Sentinel-2 would see of land and water. The model is
asked with all channels and with some of them missing, beside a logistic regression of single pixels. One scene is
mapped pixel by pixel and adaptively, and written as a GeoTIFF.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

from atomizer_io.errors import AtomizerError

SIZE, SCENES, UNSEEN = 48, 200, 24
STEPS = 700
COLUMNS = 48  # width of the picture in characters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``atomizer demo``."""
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), help="folder to write to (default: demo-output)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of scenes, weights and training (default: 0)")
    # Steps are too small to gain much from more threads, which wait for each other when the machine is shared.
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")


def run(args: argparse.Namespace) -> int:
    """Train, compare, map, report; 0 if the saved model answers as the trained one did."""
    import torch

    from atomizer_io.decoding import dense, quadtree
    from atomizer_io.experiments.demo.report import write_report
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.prediction.demo_map import write_map
    from atomizer_io.training.run import train
    from atomizer_io.training.splits import open_split

    prepare(args)
    torch.set_num_threads(args.threads)
    began = time.monotonic()
    settings = settings_of(args)
    result = train(settings, progress=True)
    folder = Path(result["folder"])
    print(f"trained   {result['steps']} steps in {result['seconds']:.0f} s")

    model = AtomizerIO.from_pretrained(folder / "best")
    unseen = open_split(settings, "test")
    table = compare(model, open_split(settings, "train"), unseen)
    print_table(table)

    sample = next(iter(unseen))
    assert sample.queries is not None and sample.queries.grid is not None
    grid = sample.queries.grid
    with torch.no_grad():
        latents = model.encode([sample.atoms])
    whole = dense(model, latents, grid)
    quick = quadtree(model, latents, grid, start=8)
    same = float((whole.labels == quick.labels).float().mean())
    print(
        f"\nmap       {whole.decoded:,} positions asked densely; {quick.decoded:,} by quadtree, "
        f"{100 * same:.1f} % of the pixels alike"
    )
    print_picture(sample.target.reshape(whole.labels.shape), whole.labels)

    again = dense(AtomizerIO.from_pretrained(folder / "best"), latents, grid)
    unchanged = torch.equal(again.answers, whole.answers)
    tif = write_map(whole, sample, unseen.info.classes, args.output / "map.tif")
    page = write_report(args.output / "report.html", result, table, sample, unseen.info, whole, quick)
    print(f"\nmodel     {folder / 'best'}" + ("" if unchanged else " (read back, it gives OTHER answers)"))
    print(f"map       {tif}\nreport    {page}\nin all    {time.monotonic() - began:.0f} s")
    return 0 if unchanged else 1


def prepare(args: argparse.Namespace) -> None:
    """Refuse what cannot work before a minute is spent on it; an earlier demo makes way."""
    for name in ("steps", "threads"):
        if getattr(args, name) < 1:
            raise AtomizerError(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.seed < 0:
        raise AtomizerError(f"--seed must not be negative, got {args.seed}")
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        if (args.output / "run" / "config.yaml").exists():
            shutil.rmtree(args.output / "run")
    except OSError as error:
        raise AtomizerError(f"cannot write to --output {args.output}: {error.strerror}") from error


def settings_of(args: argparse.Namespace) -> Any:
    """The run: one scene a step, sensors and bands now and then left out."""
    from atomizer_io.training import config

    return config.parse(
        {
            "data": {
                "name": "synthetic",
                "options": {"like": "sen1floods11", "size": SIZE, "length": SCENES, "seed": args.seed},
                "val": None,
                "workers": 0,
                "keep": SCENES,
                "measure": min(8, SCENES),
            },
            "model": {"preset": "atomizer_io_tiny"},
            "training": {
                "max_steps": args.steps,
                "batch_size": 1,
                "learning_rate": 3e-3,
                "betas": [0.9, 0.95],
                "configurations": [[255, 64]],
                "queries": 600,
                "band_dropout": {"sensor": 0.35, "group": 0.1, "band": 0.25, "each": 0.6},
                "loggers": ["csv"],
                "accelerator": "cpu",
                "save_every": 200,
            },
            "seed": args.seed,
            "output": str(args.output),
            "name": "run",
        }
    )


def compare(model: Any, train: Any, unseen: Any) -> dict[str, dict[str, float]]:
    """mIoU on unseen scenes by channel configuration: the model's, and a logistic regression's fitted for it."""
    from dataclasses import replace

    from atomizer_io.models.rivals.pixels import fitted
    from atomizer_io.training.bands import CONFIGURATIONS, kept
    from atomizer_io.training.evaluate import score

    learned = [train[i] for i in range(min(len(train), 60))]
    table = {}
    for name, keep in CONFIGURATIONS.items():
        ours = score(model, unseen, name, limit=UNSEEN, progress=False)
        seen = tuple(channel for channel in model.problem.channels if keep(channel))
        rival = fitted(model.problem.replace(channels=seen), [replace(s, atoms=kept(s.atoms, keep)) for s in learned])
        theirs = score(rival, unseen, name, limit=UNSEEN, progress=False)
        table[name] = {"atomizer-io": ours["miou"], "logistic regression": theirs["miou"]}
    return table


def print_table(table: dict[str, dict[str, float]]) -> None:
    """mIoU by what was observed."""
    print(f"\nmIoU on {UNSEEN} unseen scenes   atomizer-io   logistic regression of pixels")
    for name, row in table.items():
        print(f"{name:26} {row['atomizer-io']:13.3f} {row['logistic regression']:20.3f}")


def print_picture(target: Any, predicted: Any) -> None:
    """Target and prediction side by side, thinned to the columns and to half as many rows: characters are tall."""
    step = max(1, target.shape[1] // COLUMNS)
    signs = {0: "·", 1: "█", -1: " "}
    print(f"\n{'target':{COLUMNS}}   prediction        █ water  · dry  (blank: not asked)")
    for row in range(0, target.shape[0], 2 * step):
        left, right = ([signs[int(v)] for v in image[row, ::step]] for image in (target, predicted))
        print("".join(left) + "   " + "".join(right))
