"""What a loader hands over: samples with what was prepared of them; in evaluation, small ones together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Skipped
from atomizer_io.models.base import Model
from atomizer_io.training.draws import Draw

GROUP = 32_000  # measurements and asked positions that are evaluated at once, unless a single sample has more


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples, their prepared inputs (``model.predict(batch.inputs)``), and what could not be read."""

    samples: list[Sample]
    inputs: list[Any]
    skipped: list[Skipped]
    draws: list[Draw]

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def read(self) -> int:
        """The number of samples of the dataset, with those that could not be read."""
        return len(self.samples) + len(self.skipped)

    @property
    def targets(self) -> list[Tensor]:
        """The targets of the samples, one tensor each."""
        return [sample.target for sample in self.samples]

    @property
    def num_atoms(self) -> int:
        """The number of atoms of all samples."""
        return sum(sample.atoms.num_atoms for sample in self.samples)

    @property
    def size(self) -> int:
        """What a model has to hold: measurements, with those that are absent at a site, and positions to answer at."""
        values = sum(acquisition.values.numel() for sample in self.samples for acquisition in sample.atoms)
        return values + sum(len(sample.queries) for sample in self.samples if sample.queries is not None)

    def first(self, count: int) -> Batch:
        """Return the first ``count`` samples only."""
        return Batch(self.samples[:count], self.inputs[:count], [], self.draws[:count])

    def target(self, device: torch.device) -> Tensor:
        """Return the targets of all samples in one row."""
        return torch.cat([sample.target.reshape(-1) for sample in self.samples]).to(device)

    def answers(self, model: Model) -> Tensor:
        """Return what ``model`` answers for all targets, in the same row: (M, outputs)."""
        found = model.predict(self.inputs)
        return torch.cat(found) if model.task_spec.dense else torch.stack(found)

    def apart(self, answers: Tensor) -> list[Tensor]:
        """Return the parts of :meth:`answers` that belong to each sample."""
        return list(answers.split([target.numel() for target in self.targets]))


def joined(batches: Sequence[Batch]) -> Batch:
    """Return one batch of all samples of some, in their order."""
    return Batch(
        [sample for batch in batches for sample in batch.samples],
        [each for batch in batches for each in batch.inputs],
        [item for batch in batches for item in batch.skipped],
        [draw for batch in batches for draw in batch.draws],
    )


class Grouped:
    """The ``singles`` of a loader, ``samples`` in all, with small ones that follow each other in one batch.

    Of tiny samples most of the time goes into calls rather than numbers, so many at once take far less of it. A batch
    has no more than ``size`` measurements and positions, or one sample. Order and samples stay as they are.
    """

    def __init__(self, singles: Iterable[Batch], samples: int, size: int = GROUP) -> None:
        self.singles, self.samples, self.size = singles, samples, size

    def __iter__(self) -> Iterator[Batch]:
        group, held = list[Batch](), 0
        for single in self.singles:
            own = single.size
            if group and held + own > self.size:
                yield joined(group)
                group, held = [], 0
            group.append(single)
            held += own
        if group:
            yield joined(group)
