"""What a run leaves to the data: the side of random crops and their number, samples and positions of a step.

One recipe serves all data that way. Large maps are cut to crops of about :data:`CROP_ATOMS` measurements, so that a
step takes about as long for any sensor, and a sample is drawn as often as crops fit into it. Small samples come in
larger batches, until a batch holds as many measurements as one of crops. A model of images gets crops of the size that
it needs, with any number of bands, and is trained on all pixels, since it predicts all of them anyway.
"""

from __future__ import annotations

import dataclasses
import math
import statistics

from atomizer_io.datasets.summary import Summary
from atomizer_io.models.base import Model
from atomizer_io.training.config import AUTO, Run

CROP_ATOMS = 32_000
WHOLE = 1.5  # a sample of no more than so many crops stays whole
SIDE_PIXELS = 4  # sides are multiples of so many pixels
MOST_DRAWS = 64  # of one sample in an epoch
FEWEST, MOST = 4, 64  # samples of a batch
QUERIES = 1000  # positions of a sample, of models that decode positions one by one


def fitted(run: Run, summary: Summary, model: Model) -> Run:
    """Return ``run`` with what it leaves open filled in from ``model`` and the ``summary`` of training samples."""
    t = run.training
    crop_m = t.crop_m
    if crop_m == AUTO:  # a scene with one label stays whole: a part of it may not show why
        crop_m = crop_side(summary, model.least_side_px, model.crop_m) if model.task_spec.dense else None
    assert not isinstance(crop_m, str)
    repeat = t.repeat
    if repeat is None and crop_m is not None:  # as often as crops fit into a sample, on average
        area = statistics.mean(width * height for width, height in summary.sides_m)
        repeat = min(MOST_DRAWS, max(1, round(area / crop_m**2)))
    batch_size = t.batch_size
    if batch_size is None:  # as many as hold the measurements of the fewest crops of a batch
        atoms = max(1.0, statistics.mean(summary.atoms)) if crop_m is None and summary.atoms else CROP_ATOMS
        batch_size = min(MOST, max(FEWEST, round(FEWEST * CROP_ATOMS / atoms)))
    queries = t.queries if t.queries is not None or model.whole_maps else QUERIES
    filled = dataclasses.replace(t, crop_m=crop_m, repeat=repeat or 1, batch_size=batch_size, queries=queries)
    return dataclasses.replace(run, training=filled)


def crop_side(summary: Summary, least_px: int = 1, needed_m: float | None = None) -> float | None:
    """Return the side of training crops in metres; None where samples are small, or have points.

    It is what a model needs (``needed_m``), however small samples are, or else at least ``least_px`` pixels, where
    samples have so many.
    """
    if summary.pixel_m is None or summary.points or not summary.atoms_per_m2:
        return None
    narrowest_m = min(min(sides) for sides in summary.sides_m)
    if needed_m is not None:
        return needed_m if needed_m < narrowest_m else None
    if statistics.mean(summary.atoms) <= WHOLE * CROP_ATOMS:
        return None
    step_m = SIDE_PIXELS * summary.pixel_m
    side_m = step_m * max(1, round(math.sqrt(CROP_ATOMS / summary.atoms_per_m2) / step_m))
    return min(max(side_m, least_px * summary.pixel_m), narrowest_m)
