"""Samples and loaders of a run: random crops, augmentation and subsampled queries in training, whole samples else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.utils.data
from torch import Tensor
from torch.utils.data import DataLoader

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.crop import Box, cropped, random_box
from atomizer_io.datasets.dataset import Dataset, Skipped
from atomizer_io.models.base import Cost, Model, Preparer
from atomizer_io.training.augmentation import ChannelDropout, augmented
from atomizer_io.training.bands import Keep, restricted
from atomizer_io.training.batches import Batch, Grouped, PackingLoader
from atomizer_io.training.config import BY_CLASSES, EVEN, TrainingSettings
from atomizer_io.training.draws import Draw, Draws, generator

TRIES = 16  # random crops of a sample until there is something in one
CACHE_BYTES = 512 << 20  # of samples that a worker keeps in memory where no number is set
NOTHING = -1  # the number of a sample that is none
HIDDEN, MOST_HIDDEN = 8, 7  # views with hidden channels: so many in all or one of each sample, and of one at most

Item = Sample | Skipped


class TrainingSamples(torch.utils.data.Dataset[Any]):
    """The samples of a dataset as training shows them; ``keep`` of them stay in memory, None: what fits.

    Random crops lie ``inside`` the samples, so that all have one size, or reach over their borders by up to a half: a
    position along a border is then in half as many, but as smaller crops have as many queries, it is decoded half to
    two thirds as often as one in the middle.
    """

    def __init__(
        self, dataset: Dataset, training: TrainingSettings, seed: int, keep: int | None = 0, *, inside: bool = False
    ) -> None:
        self.dataset, self.training, self.seed, self.keep, self.inside = dataset, training, seed, keep, inside
        self.cache: dict[int, tuple[Item, Box | None]] = {}
        self.room = CACHE_BYTES

    def __len__(self) -> int:
        return len(self.dataset) * (self.training.repeat or 1)

    def __getitem__(self, draw: Draw) -> tuple[Item, Draw]:
        number, t = draw.index % len(self.dataset), self.training
        sample, bounds = self._read(number)
        if isinstance(sample, Skipped):
            return sample, draw
        own = generator(self.seed, "sample", draw.epoch, draw.batch, draw.place)
        if bounds is not None and isinstance(t.crop_m, float | int):
            sample = random_crop(sample, t.crop_m, own, bounds, self.inside)
        if (cause := unusable(sample)) is not None:
            return skipped(sample, cause), draw
        sample = augmented(sample, own, flips=t.flips, rotations=t.rotations)
        sample = t.channel_dropout(t.point_augmentation(sample, own), own)
        return subsampled(sample, t.queries, own, t.query_sampling), draw

    def _read(self, index: int) -> tuple[Item, Box | None]:
        """Return a sample, and the bounds of its atoms if there is something in it to crop; computed once if cached."""
        if index in self.cache:
            return self.cache[index]
        sample, bounds = self.dataset[index], None
        if isinstance(self.training.crop_m, float | int) and isinstance(sample, Sample) and unusable(sample) is None:
            bounds = sample.atoms.bounds
        size = bytes_of(sample)
        if size <= self.room if self.keep is None else len(self.cache) < self.keep:
            self.cache[index] = sample, bounds
            self.room -= size
        return sample, bounds


def bytes_of(sample: Item) -> int:
    """Return about how much memory a sample takes."""
    if isinstance(sample, Skipped):
        return 0
    parts = [sample.target, *(part for a in sample.atoms for part in (a.values, a.positions))]
    return sum(tensor.nbytes for tensor in parts) + (0 if sample.queries is None else sample.queries.positions.nbytes)


def random_crop(
    sample: Sample, size_m: float, own: torch.Generator, bounds: Box | None = None, inside: bool = False
) -> Sample:
    """Return a random square crop of ``sample``; one without observations or queries is drawn again, a few times.

    The last one is returned as it is. ``bounds`` are those of the sample's atoms, where they are known already.
    """
    bounds = sample.atoms.bounds if bounds is None else bounds
    for _ in range(TRIES):
        crop = cropped(sample, random_box(sample, size_m, own, bounds, inside))
        if unusable(crop) is None:
            break
    return crop


def unusable(sample: Sample) -> str | None:
    """Return why nothing can be learned from a sample: it has no observation, or no query. None: it is fine."""
    if not any(acquisition.num_atoms for acquisition in sample.atoms):
        return "there is no measurement in the part that was taken of it"
    if sample.queries is not None and not len(sample.queries):
        return "there is no query in the part that was taken of it"
    return None


def skipped(sample: Sample, cause: str) -> Skipped:
    """Return what stands in a batch for a sample that was read but is of no use."""
    return Skipped(sample.meta.files[0] if sample.meta.files else sample.meta.id, cause)


def subsampled(sample: Sample, count: int | None, own: torch.Generator, sampling: str = EVEN) -> Sample:
    """``sample`` with no more than ``count`` of the queries whose target is known, drawn by ``sampling``.

    ``even``: each is as likely as any other, so the loss is on average that of all positions. ``classes``: of each
    class that occurs as many as of any other, as far as there are; the loss then counts rare classes for more than
    their share, and nothing corrects for that.
    """
    queries = sample.queries
    if queries is None:
        return sample
    known = (~queries.ignore).nonzero()[:, 0]
    if not len(known):
        known = torch.zeros(1, dtype=torch.long)  # one, ignored: a sample without a target adds nothing to the loss
    if count is not None and len(known) > count:
        known = known[torch.randperm(len(known), generator=own)]
        if sampling == BY_CLASSES:
            known = known[class_by_class(sample.target[known])]
        known = known[:count].sort().values
    return replace(sample, queries=queries.part(known), target=sample.target[known])


def class_by_class(classes: Tensor) -> Tensor:
    """Return the order in which one of each class comes, then a second of each that has one, and so on."""
    by_class = classes.argsort(stable=True)
    counts = torch.bincount(classes)
    first = counts.cumsum(0) - counts
    rank = torch.empty_like(by_class)
    rank[by_class] = torch.arange(len(classes)) - first[classes[by_class]]
    return rank.argsort(stable=True)


class Collate:
    """Makes a :class:`Batch` of samples, in the workers; one of ``costs`` is drawn for each batch of a training.

    With the ``seed`` of a training each sample is prepared with random choices of its own, by its draw. Without one
    nothing is random unless there is a budget, and then by the number of the sample.
    """

    def __init__(self, prepare: Preparer, costs: Sequence[Cost] = (Cost(),), seed: int | None = None) -> None:
        self.prepare, self.costs, self.seed = prepare, tuple(costs), seed

    def __call__(self, items: Sequence[tuple[Item | None, Draw | None] | Item]) -> Batch:
        """Prepare the items that could be read."""
        drawn = [item if isinstance(item, tuple) else (item, None) for item in items]
        samples = [(item, draw) for item, draw in drawn if isinstance(item, Sample)]
        cost, first = self.costs[0], drawn[0][1]
        if len(self.costs) > 1 and first is not None:
            own = generator(self.seed or 0, "configuration", first.epoch, first.batch)
            cost = self.costs[int(torch.randint(len(self.costs), (), generator=own))]
        random = self.seed is not None or cost.budget is not None
        inputs = []
        for sample, draw in samples:
            place = (draw.epoch, draw.batch, draw.place) if random and draw is not None else None
            choices = None if place is None else generator(self.seed or 0, "cells", *place)
            inputs.append(self.prepare(sample.atoms, sample.queries, cost, choices))
        skips = [item for item, _ in drawn if isinstance(item, Skipped)]
        return Batch(
            [sample for sample, _ in samples], inputs, skips, [draw for _, draw in samples if draw is not None]
        )


class ResumableLoader(PackingLoader):
    """A loader over :class:`Draws` that records how far it got, so that a run goes on in the middle of an interval."""

    def __init__(self, samples: TrainingSamples, draws: Draws, collate: Collate, workers: int) -> None:
        super().__init__(
            samples,
            batch_sampler=draws,
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=2 if workers else None,
        )
        self.samples, self.draws, self.collate = samples, draws, collate
        self.epoch, self.given, self.place = 0, 0, 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.draws.epoch, self.draws.first, self.draws.place = self.epoch, self.given, self.place
        for batch in super().__iter__():
            self.given, self.place = self.given + 1, self.place + 1
            if self.given == self.draws.per_epoch:  # now, as nothing is requested after the last batch
                self.epoch, self.given = self.epoch + 1, 0
            if self.place == len(self.draws):
                self.place = 0
            yield batch

    @property
    def epochs(self) -> float:
        """How often all samples were given out so far."""
        return round(self.epoch + self.given / self.draws.per_epoch, 3)

    def state_dict(self) -> dict[str, int]:
        """Return the epoch, how many of its batches were given out, and how many of the interval."""
        return {"epoch": self.epoch, "given": self.given, "place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Begin where a stored state ends."""
        self.epoch, self.given, self.place = state["epoch"], state["given"], state["place"]


class EvaluationSamples(torch.utils.data.Dataset[Any]):
    """Samples for evaluation: whole, with the channels of a test configuration.

    With a ``dropout`` that hides channels or dates every sample also comes with some of them hidden, always the same
    ones: a model for any subset of them is not judged by all of them alone. Windows of tiles come once.
    """

    def __init__(
        self,
        dataset: Dataset,
        keep: Keep | None = None,
        channels: str = "all",
        limit: int | None = None,
        dropout: ChannelDropout | None = None,
    ) -> None:
        self.dataset, self.keep, self.channels = dataset, keep, channels
        self.dropout = None if dropout is None else dropout.always()
        self.length = len(dataset) if limit is None else min(limit, len(dataset))
        self.views = 1
        if dropout is not None and dropout.hide and self.length and dataset.whole_of(0) is None:
            self.views += min(MOST_HIDDEN, -(-HIDDEN // self.length))

    def __len__(self) -> int:
        return self.length * self.views

    def dealt(self, process: int, processes: int) -> list[int]:
        """Return the samples of one process of a group: of each ``processes`` wholes one, with all of its windows.

        Where there is none for a process, it gets :data:`NOTHING` once: one that evaluates nothing at all would leave
        the others waiting for its scores.
        """
        numbers = ((index, index // self.views) for index in range(len(self)))
        wholes = itertools.groupby(numbers, lambda pair: self.dataset.whole_of(pair[1]) or pair[1])
        own = itertools.islice((list(pairs) for _, pairs in wholes), process, None, processes)
        return [index for pairs in own for index, _ in pairs] or [NOTHING]

    def __getitem__(self, index: int) -> tuple[Item | None, Draw]:
        if index == NOTHING:
            return None, Draw(index, 0, 0, 0)
        number, view = divmod(index, self.views)
        sample = self.dataset[number]
        if isinstance(sample, Sample) and (cause := unusable(sample)) is not None:
            sample = skipped(sample, cause)
        if isinstance(sample, Sample) and self.keep is not None:
            sample = restricted(sample, self.keep, self.channels)
        if isinstance(sample, Sample) and view and self.dropout is not None:
            hidden = self.dropout(sample, generator(number, view))
            sample = sample if unusable(hidden) else hidden
        return sample, Draw(index, 0, index, 0)


def evaluation_loader(
    samples: EvaluationSamples,
    prepare: Preparer,
    workers: int,
    *,
    cost: Cost = Cost(),
    process: int = 0,
    processes: int = 1,
) -> Grouped:
    """Return batches of whole samples in order, small ones together; each process has a share (``dealt``)."""
    dealt = samples.dealt(process, processes)
    collate = Collate(prepare, [cost])
    singles = PackingLoader(samples, batch_size=1, sampler=dealt, collate_fn=collate, num_workers=workers)
    return Grouped(singles, sum(number != NOTHING for number in dealt))


def loader(
    dataset: Dataset,
    model: Model,
    *,
    batch_size: int = 1,
    workers: int = 0,
    cost: Cost = Cost(),
    **options: Any,
) -> DataLoader[Any]:
    """Return a data loader of :class:`Batch` for ``model``; ``options`` are those of torch's ``DataLoader``."""
    collate = Collate(model.preparer(), [cost])
    return PackingLoader(dataset, batch_size=batch_size, num_workers=workers, collate_fn=collate, **options)
