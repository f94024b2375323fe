"""Whole predictions of one real scene, from atoms to a map, in several ways, beside a plain UNet on such an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from atomizer_io.data.sample import Sample
from atomizer_io.decoding.calibration import Calibration
from atomizer_io.decoding.operating_point import OperatingPoint, own_point
from atomizer_io.decoding.predictor import Prediction, ScenePredictor
from atomizer_io.decoding.strategies import STRATEGIES
from atomizer_io.errors import ConfigError
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.training.metrics import from_confusion
from atomizer_lab.baselines.unet import Trunk
from atomizer_lab.bench.measure import seconds

MULTIPLE = 16  # of the sides of an image that the UNet takes
USUAL = ("zone_probe", "quadtree")  # measured as they are, with the rule of the paper: probes that agree are sure


@torch.no_grad()
def whole_predictions(
    model: AtomizerIO, sample: Sample, calibrations: Sequence[Calibration], repeats: int = 3
) -> dict[str, Any]:
    """Measure dense, probing and calibrated predictions (geometry, encoding, read-out) and the UNet.

    Times are the shortest of the repeats. What differs from the dense answer and, for classes, the score are beside.
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
    truth = own.predict(model, sample.atoms, grid)
    rows: list[dict[str, Any]] = []
    for name, point, precision in ways:
        found = point.predict(model, sample.atoms, grid)
        taken = seconds(lambda point=point: point.predict(model, sample.atoms, grid), repeats)  # type: ignore[misc]
        rows.append(
            {
                "way": name,
                "point": str(point),
                "seconds": taken,
                "times_unet": taken / plain,
                "gflops": gflops(model, sample, point, found),
                "decoded": found.decoded / found.queried.numel(),
                "differing": float(found.differs(truth, precision).double().mean()),
                **score(found, sample, model),
            }
        )
        print(line(rows[-1]), flush=True)
    size = {"shape": [*grid.shape], "channels": channels, "unet_seconds": plain, "unet_image": [height, width]}
    return {**size, "scene": sample.meta.id, "rows": rows}


def gflops(model: AtomizerIO, sample: Sample, point: OperatingPoint, found: Prediction) -> float:
    """Return the operations of a prediction, from atoms to map; a multiply-add counts as two."""
    assert sample.queries is not None and sample.queries.grid is not None
    predictor = ScenePredictor.encode(model, sample.atoms, sample.queries.grid, cost=point.cost)
    return point.flops(predictor, found) / 1e9


def score(found: Prediction, sample: Sample, model: AtomizerIO) -> dict[str, float]:
    """Return the mIoU of classes on the scene, or the root mean square error of a quantity."""
    target = sample.target.flatten()
    if not found.classes:
        known = target.isfinite()
        return {"rmse": float((found.values.flatten()[known] - target[known]).double().square().mean().sqrt())}
    known, count = target >= 0, max(len(model.task_spec.names), 2)
    pairs = target[known] * count + found.labels.flatten()[known]
    confusion = pairs.bincount(minlength=count**2).reshape(count, count)
    return {"miou": from_confusion(confusion, model.task_spec.names)["miou"]}


def line(row: dict[str, Any]) -> str:
    """Return a measurement as a line of text."""
    name = "miou" if "miou" in row else "rmse"
    return (
        f"{row['way']:24} {row['seconds']:8.2f} s = {row['times_unet']:.2f} × UNet, {row['gflops']:9.1f} GFLOP, "
        f"{100 * row['decoded']:.1f} % decoded, {100 * row['differing']:.2f} % differ from dense, "
        f"{name} {row[name]:.3f}   ({row['point']})"
    )
