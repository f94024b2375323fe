"""What a run leaves to the data: the side of random squares, how often they are drawn, samples and positions of a step.

One recipe serves all data that way. Large maps are cut to squares of about :data:`SQUARE_ATOMS` measurements, so
that a step takes about as long whatever was measured, and are drawn as often as squares fit into them. Of small ones
more come into a batch, until they hold as many measurements as its squares would. A model of images gets squares of
the size that it needs, however many bands these have, and is asked at all pixels, as it answers for all anyway.
"""

from __future__ import annotations

import dataclasses
import math
import statistics

from atomizer_io.datasets.summary import Summary
from atomizer_io.models.base import Model
from atomizer_io.training.config import AUTO, Run

SQUARE_ATOMS = 32_000
WHOLE = 1.5  # a sample that is no more than so many squares stays whole
SIDE_PIXELS = 4  # sides are multiples of so many pixels
MOST_DRAWS = 64  # of one sample in an epoch
FEWEST, MOST = 4, 64  # samples of a batch
QUERIES = 1000  # positions of a sample, of models that answer one by one


def fitted(run: Run, seen: Summary, model: Model) -> Run:
    """Return ``run`` with what it leaves open filled in from ``model`` and what was seen of the training samples."""
    t = run.training
    crop_m = t.crop_m
    if crop_m == AUTO:  # a scene that gets one answer stays whole: part of it may not show why
        crop_m = square_m(seen, model.least_side_px, model.crop_m) if model.task_spec.dense else None
    assert not isinstance(crop_m, str)
    repeat = squares_in(seen, crop_m) if t.repeat is None else t.repeat
    batch_size = samples_in_batch(seen, crop_m) if t.batch_size is None else t.batch_size
    queries = t.queries if t.queries is not None or model.whole_maps else QUERIES
    filled = dataclasses.replace(t, crop_m=crop_m, repeat=repeat, batch_size=batch_size, queries=queries)
    return dataclasses.replace(run, training=filled)


def square_m(seen: Summary, least_px: int = 1, wanted_m: float | None = None) -> float | None:
    """Return the side of the squares that samples are cut to; None where they are small, or have points.

    They are as wide as a model wants them, however small samples are, or else at least ``least_px`` pixels wide, where
    samples are.
    """
    if seen.pixel_m is None or seen.points or not seen.atoms_per_m2:
        return None
    narrowest_m = min(min(sides) for sides in seen.sides_m)
    if wanted_m is not None:
        return wanted_m if wanted_m < narrowest_m else None
    if statistics.mean(seen.atoms) <= WHOLE * SQUARE_ATOMS:
        return None
    step_m = SIDE_PIXELS * seen.pixel_m
    side_m = step_m * max(1, round(math.sqrt(SQUARE_ATOMS / seen.atoms_per_m2) / step_m))
    return min(max(side_m, least_px * seen.pixel_m), narrowest_m)


def squares_in(seen: Summary, crop_m: float | None) -> int:
    """Return how many squares a sample has room for, on average."""
    if crop_m is None:
        return 1
    area = statistics.mean(width * height for width, height in seen.sides_m)
    return min(MOST_DRAWS, max(1, round(area / crop_m**2)))


def samples_in_batch(seen: Summary, crop_m: float | None) -> int:
    """Return how many samples hold as many measurements as the fewest squares of a batch."""
    if crop_m is not None or not seen.atoms:
        return FEWEST
    atoms = FEWEST * SQUARE_ATOMS / max(1.0, statistics.mean(seen.atoms))
    return min(MOST, max(FEWEST, round(atoms)))
