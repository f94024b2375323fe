"""Measure whole predictions of one real scene, from atoms to a map, in several ways, beside a plain UNet.

    .venv/bin/python tools/bench_whole.py CHECKPOINT [--set data.root=/data] [--output results/models.json]

The result is written into the file of `atomizer bench models`, and compared with its rows on inputs of the same size.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from atomizer_io.data.sample import Sample
from atomizer_io.decoding.calibration import Calibration, load_all
from atomizer_io.decoding.predictor import Prediction, ScenePredictor
from atomizer_io.decoding.strategies import STRATEGIES, OperatingPoint, own_point
from atomizer_io.errors import ConfigError
from atomizer_io.machine import machine
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.storage import fingerprint
from atomizer_io.texts import parse_json, read_text, write_output
from atomizer_io.training.evaluate import compare
from atomizer_io.training.metrics import scores_of_confusion
from atomizer_io.training.splits import open_split, settings_of
from atomizer_lab.baselines.unet import Trunk
from atomizer_lab.bench.measure import seconds
from atomizer_lab.bench.model_inputs import PAPER_INPUTS

MULTIPLE = 16  # of the sides of an image that the UNet takes
USUAL = ("zone_probe", "quadtree")  # measured as they are, with the rule of the paper: probes that agree are sure


@torch.no_grad()
def whole_predictions(
    model: AtomizerIO, sample: Sample, calibrations: Sequence[Calibration], repeats: int = 3
) -> dict[str, Any]:
    """Measure dense, probing and calibrated predictions (geometry, encoding, decoding) and the UNet.

    Times are the shortest of the repeats. Each row also has its score and the share that differs from dense decoding.
    """
    grid = None if sample.queries is None else sample.queries.grid
    if grid is None:
        raise ConfigError(f"{sample.meta.id} is no raster scene: there is nothing to compare a UNet on")
    channels = sum(len(a.channels) for a in sample.atoms)
    height, width = (-(-side // MULTIPLE) * MULTIPLE for side in grid.shape)
    unet, image = Trunk(channels, model.task_spec.num_outputs).eval(), torch.randn(1, channels, height, width)
    plain = seconds(lambda: unet(image), repeats)
    print(f"plain UNet on {height} × {width} × {channels}: {plain:.2f} s")
    own = own_point(model)
    ways: list[tuple[str, OperatingPoint, float]] = [("dense", own, 0.0)]
    if not model.task_spec.regression:
        ways += [
            (name, replace(own, strategy=name, settings=STRATEGIES[name].usual, margin=0.0), 0.0) for name in USUAL
        ]
    ways += [(f"{c.point.strategy}, alpha {c.alpha:g}", c.point, c.precision or 0.0) for c in calibrations]
    reference = own.predict(model, sample.atoms, grid)
    rows: list[dict[str, Any]] = []
    for name, point, precision in ways:
        prediction = point.predict(model, sample.atoms, grid)
        taken = seconds(lambda point=point: point.predict(model, sample.atoms, grid), repeats)  # type: ignore[misc]
        rows.append(
            {
                "way": name,
                "point": str(point),
                "seconds": taken,
                "times_unet": taken / plain,
                "gflops": gflops(model, sample, point, prediction),
                "decoded": prediction.decoded / prediction.queried.numel(),
                "differing": float(prediction.differs(reference, precision).double().mean()),
                **score(prediction, sample, model),
            }
        )
        print(line(rows[-1]), flush=True)
    size = {"shape": [*grid.shape], "channels": channels, "unet_seconds": plain, "unet_image": [height, width]}
    return {**size, "scene": sample.meta.id, "rows": rows}


def gflops(model: AtomizerIO, sample: Sample, point: OperatingPoint, prediction: Prediction) -> float:
    """Return the GFLOPs of a prediction, from atoms to map; a multiply-add counts as two."""
    assert sample.queries is not None and sample.queries.grid is not None
    predictor = ScenePredictor.encode(model, sample.atoms, sample.queries.grid, cost=point.cost)
    return point.flops(predictor, prediction) / 1e9


def score(prediction: Prediction, sample: Sample, model: AtomizerIO) -> dict[str, float]:
    """Return the mIoU of classes on the scene, or the root mean square error of a regression target."""
    target = sample.target.flatten()
    if not prediction.classes:
        known = target.isfinite()
        return {"rmse": float((prediction.values.flatten()[known] - target[known]).double().square().mean().sqrt())}
    known, count = target >= 0, max(len(model.task_spec.names), 2)
    pairs = target[known] * count + prediction.labels.flatten()[known]
    confusion = pairs.bincount(minlength=count**2).reshape(count, count)
    return {"miou": scores_of_confusion(confusion, model.task_spec.names)["miou"]}


def line(row: dict[str, Any]) -> str:
    """Return a measurement as a line of text."""
    name = "miou" if "miou" in row else "rmse"
    return (
        f"{row['way']:24} {row['seconds']:8.2f} s = {row['times_unet']:.2f} × UNet, {row['gflops']:9.1f} GFLOP, "
        f"{100 * row['decoded']:.1f} % decoded, {100 * row['differing']:.2f} % differ from dense, "
        f"{name} {row[name]:.3f}   ({row['point']})"
    )


def scene_of(folder: Path, changes: Sequence[str]) -> tuple[AtomizerIO, Sample, list[Calibration]]:
    """Return a trained model, the first test scene of its run, and the operating points that are stored with it."""
    model = AtomizerIO.from_pretrained(folder)
    dataset = open_split(settings_of(folder, None, changes), "test")
    compare(model, dataset)
    sample = dataset[0]
    if not isinstance(sample, Sample):
        raise ConfigError(f"the first test scene of {folder} cannot be read: {sample}")
    return model.eval(), sample, [point for point in load_all(folder) if point.model == fingerprint(model)]


def ratios(whole: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how many times as long as each way to predict the models take on an input of the same size."""
    lines = []
    for row in rows:
        scene = PAPER_INPUTS.get(row["input"])
        seconds_taken = row["answer_s"]  # old name
        if scene is None or seconds_taken is None or scene.dates > 1:
            continue
        if [*scene.pixels] == whole["shape"] and len(scene.channels) == whole["channels"]:
            took = (row["prepare_s"] or 0.0) + seconds_taken
            times = "; ".join(f"{took / way['seconds']:.1f} times as long as {way['way']}" for way in whole["rows"])
            lines.append(f"{row['model']} on {row['input']} takes {times}")
    return lines


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, metavar="CHECKPOINT", help="such as runs/NAME/best")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of its data to change")
    parser.add_argument("--repeats", type=int, default=3, help="calls of which the shortest counts")
    parser.add_argument("--output", type=Path, default=Path("results/models.json"))
    args = parser.parse_args()
    result = parse_json(read_text(args.output)) if args.output.exists() else {"benchmark": "models", "rows": []}
    result["whole"] = whole_predictions(*scene_of(args.model, args.set), args.repeats) | {"machine": machine()}
    print("\n".join(ratios(result["whole"], result["rows"])))
    write_output(args.output, json.dumps(result, indent=1) + "\n")
    print(f"written: {args.output}")


if __name__ == "__main__":
    main()
