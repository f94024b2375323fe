"""How often an open run validates: so that it takes about a tenth of the time, told from what there is to compute.

Operations are counted, not seconds, so that two runs with one seed validate after the same steps on any machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from atomizer_io.models.base import Cost, Model
from atomizer_io.training.batches import Batch
from atomizer_io.training.data import Drawn, Evaluated, Gather, collected
from atomizer_io.training.draws import Draws
from atomizer_io.training.plan import SHARE

LEAST_STEPS = 100  # between two validations: saving and drawing take time as well
FORWARD_AND_BACK = 3.0  # what a training step takes of what its answers alone take
FEW = 2  # batches and samples that are counted


def steps_between(model: Model, drawn: Drawn, draws: Draws, gather: Gather, samples: Evaluated) -> int:
    """Return how many batches are trained on between two validations of ``samples``."""
    training = (gather([drawn[draw] for draw in batch]) for batch in itertools.islice(draws, FEW))
    step = FORWARD_AND_BACK * mean_operations(model, training)
    places = range(0, len(samples), max(1, len(samples) // FEW))[:FEW]
    prepare = model.preparer()
    validation = (collected([(samples[place][0], None)], prepare, Cost()) for place in places)
    whole = mean_operations(model, validation) * len(samples) / draws.processes
    return max(LEAST_STEPS, math.ceil(whole * (1 - SHARE) / SHARE / step)) if step else LEAST_STEPS


def mean_operations(model: Model, batches: Iterable[Batch]) -> float:
    """Return how many operations the answers for a batch take on average."""
    found = [model.flops(batch.inputs) if batch.inputs else 0.0 for batch in batches]
    return sum(found) / max(1, len(found))
