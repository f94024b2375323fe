"""Batches of a training run: samples drawn, turned, thinned and asked at some positions, with their geometry."""

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
from atomizer_io.training.augment import augmented
from atomizer_io.training.bands import Keep, restricted
from atomizer_io.training.batches import Batch, Grouped
from atomizer_io.training.channel_draws import ChannelDraws
from atomizer_io.training.config import BY_CLASSES, EVEN, TrainingSettings
from atomizer_io.training.draws import Draw, Draws, generator
from atomizer_io.training.packing import PackingLoader

TRIES = 16  # random squares of a sample until there is something in one
KEPT_BYTES = 512 << 20  # of samples that a worker keeps where nobody says how many
NOTHING = -1  # the number of a sample that is none
HIDDEN, MOST_HIDDEN = 8, 7  # views with hidden channels: so many in all or one of each sample, and of one at most


class Drawn(torch.utils.data.Dataset[Any]):
    """The samples of a dataset as a training run draws them; ``keep`` of them stay in memory, None: what fits.

    Random squares lie ``inside`` the samples, so that all have one size, or reach over their borders by up to a half: a
    place along a border is then in half as many, but as smaller parts are asked at as many positions, it is asked half
    to two thirds as often as one in the middle.
    """

    def __init__(
        self, dataset: Dataset, training: TrainingSettings, seed: int, keep: int | None = 0, *, inside: bool = False
    ) -> None:
        self.dataset, self.training, self.seed, self.keep, self.inside = dataset, training, seed, keep, inside
        self.kept: dict[int, Sample | Skipped] = {}
        self.room = KEPT_BYTES
        self.bounds: dict[int, Box] = {}  # of the atoms of kept samples

    def __len__(self) -> int:
        return len(self.dataset) * (self.training.repeat or 1)

    def __getitem__(self, draw: Draw) -> tuple[Sample | Skipped, Draw]:
        number = draw.index % len(self.dataset)
        sample = self._sample(number)
        if isinstance(sample, Skipped):
            return sample, draw
        own = generator(self.seed, "sample", draw.epoch, draw.batch, draw.place)
        crop_m = self.training.crop_m
        if isinstance(crop_m, float | int) and useless(sample) is None:
            sample = square(sample, crop_m, own, self._bounds(number, sample), self.inside)
        if (cause := useless(sample)) is not None:
            return skipped(sample, cause), draw
        sample = augmented(sample, own, flips=self.training.flips, turns=self.training.rotations)
        sample = self.training.point_augmentation(sample, own)
        sample = self.training.channel_dropout(sample, own)
        return asked(sample, self.training.queries, own, self.training.query_sampling), draw

    def _sample(self, index: int) -> Sample | Skipped:
        if index not in self.kept:
            sample = self.dataset[index]
            size = bytes_of(sample)
            if size > self.room if self.keep is None else len(self.kept) >= self.keep:
                return sample
            self.kept[index] = sample
            self.room -= size
        return self.kept[index]

    def _bounds(self, index: int, sample: Sample) -> Box:
        """Return the bounds of a sample; those of a kept one are found once."""
        if index not in self.kept:
            return sample.atoms.bounds
        if index not in self.bounds:
            self.bounds[index] = sample.atoms.bounds
        return self.bounds[index]


def bytes_of(sample: Sample | Skipped) -> int:
    """Return about how much memory a sample takes."""
    if isinstance(sample, Skipped):
        return 0
    tensors = [sample.target, *(part for each in sample.atoms for part in (each.values, each.positions))]
    if sample.queries is not None:
        tensors.append(sample.queries.positions)
    return sum(tensor.nbytes for tensor in tensors)


def square(
    sample: Sample, size_m: float, own: torch.Generator, bounds: Box | None = None, inside: bool = False
) -> Sample:
    """Return a random square of ``sample``; one in which nothing was observed or is asked is drawn again, a few times.

    The last one is returned as it is. ``bounds`` are those of the sample's atoms, where they are known already.
    """
    bounds = sample.atoms.bounds if bounds is None else bounds
    for _ in range(TRIES):
        part = cropped(sample, random_box(sample, size_m, own, bounds, inside))
        if useless(part) is None:
            break
    return part


def useless(sample: Sample) -> str | None:
    """Return why nothing can be learned from a sample: nothing was observed, or nothing is asked. None: it is fine."""
    if not any(acquisition.num_atoms for acquisition in sample.atoms):
        return "there is no measurement in the part that was taken of it"
    if sample.queries is not None and not len(sample.queries):
        return "nothing is asked in the part that was taken of it"
    return None


def skipped(sample: Sample, cause: str) -> Skipped:
    """Return what stands in a batch for a sample that was read but is of no use."""
    return Skipped(sample.meta.files[0] if sample.meta.files else sample.meta.id, cause)


def asked(sample: Sample, count: int | None, own: torch.Generator, sampling: str = EVEN) -> Sample:
    """``sample`` asked at no more than ``count`` of the positions where the truth is known, drawn as ``sampling`` says.

    ``even``: each is as likely as any other, so the loss is on average that of all positions. ``classes``: of each
    class that occurs as many as of any other, as far as there are; the loss then counts rare classes for more than
    their share, and nothing corrects for that.
    """
    queries = sample.queries
    if queries is None:
        return sample
    known = (~queries.ignore).nonzero()[:, 0]
    if not len(known):
        known = torch.zeros(1, dtype=torch.long)  # one, ignored: a sample without a truth adds nothing to the loss
    if count is not None and len(known) > count:
        known = known[torch.randperm(len(known), generator=own)]
        if sampling == BY_CLASSES:
            known = known[in_turn(sample.target[known])]
        known = known[:count].sort().values
    return replace(sample, queries=queries.part(known), target=sample.target[known])


def in_turn(classes: Tensor) -> Tensor:
    """Return the order in which one of each class comes, then a second of each that has one, and so on."""
    by_class = classes.argsort(stable=True)
    counts = torch.bincount(classes)
    first = counts.cumsum(0) - counts
    turn = torch.empty_like(by_class)
    turn[by_class] = torch.arange(len(classes)) - first[classes[by_class]]
    return turn.argsort(stable=True)


def collected(
    items: Sequence[tuple[Sample | Skipped | None, Draw | None]], prepare: Preparer, cost: Cost, seed: int = 0
) -> Batch:
    """Make a batch of samples, each prepared with random choices of its own if it was drawn for a training run."""
    read = [(item, draw) for item, draw in items if isinstance(item, Sample)]
    inputs = [
        prepare(
            sample.atoms,
            sample.queries,
            cost,
            None if draw is None else generator(seed, "cells", draw.epoch, draw.batch, draw.place),
        )
        for sample, draw in read
    ]
    return Batch(
        [sample for sample, _ in read],
        inputs,
        [item for item, _ in items if isinstance(item, Skipped)],
        [draw for _, draw in read if draw is not None],
    )


class Gather:
    """Makes a :class:`Batch` of drawn samples, in the workers; one of ``costs`` is drawn for the whole batch."""

    def __init__(self, prepare: Preparer, costs: Sequence[Cost], seed: int) -> None:
        self.prepare, self.costs, self.seed = prepare, tuple(costs), seed

    def __call__(self, items: Sequence[tuple[Sample | Skipped | None, Draw]]) -> Batch:
        """Prepare the items that could be read."""
        return collected(items, self.prepare, self._choose(items[0][1]), self.seed)

    def _choose(self, draw: Draw) -> Cost:
        if len(self.costs) == 1:
            return self.costs[0]
        own = generator(self.seed, "configuration", draw.epoch, draw.batch)
        return self.costs[int(torch.randint(len(self.costs), (), generator=own))]


class ResumableLoader(PackingLoader):
    """A loader over :class:`Draws` that knows how far it got, so that a run goes on in the middle of a round."""

    def __init__(self, drawn: Drawn, draws: Draws, gather: Gather, workers: int) -> None:
        super().__init__(
            drawn,
            batch_sampler=draws,
            collate_fn=gather,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=2 if workers else None,
        )
        self.drawn, self.draws, self.gather = drawn, draws, gather
        self.epoch, self.given, self.place = 0, 0, 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.draws.epoch, self.draws.first, self.draws.place = self.epoch, self.given, self.place
        for batch in super().__iter__():
            self.given, self.place = self.given + 1, self.place + 1
            if self.given == self.draws.per_epoch:  # now, as nobody asks for what comes after the last batch
                self.epoch, self.given = self.epoch + 1, 0
            if self.place == len(self.draws):
                self.place = 0
            yield batch

    @property
    def epochs(self) -> float:
        """How often all samples were given out so far."""
        return round(self.epoch + self.given / self.draws.per_epoch, 3)

    def state_dict(self) -> dict[str, int]:
        """Return the epoch, how many of its batches were given out, and how many of the round."""
        return {"epoch": self.epoch, "given": self.given, "place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Begin at the place of a stored state."""
        self.epoch, self.given, self.place = state["epoch"], state["given"], state["place"]


class Evaluated(torch.utils.data.Dataset[Any]):
    """Samples for evaluation: whole, with the channels of a test configuration.

    With ``draws`` that hide channels or dates every sample also comes with some of them hidden, always the same ones:
    a model that is to answer from any of them is not judged by all of them alone. Windows of tiles come once.
    """

    def __init__(
        self,
        dataset: Dataset,
        keep: Keep | None = None,
        channels: str = "all",
        limit: int | None = None,
        draws: ChannelDraws | None = None,
    ) -> None:
        self.dataset, self.keep, self.channels, self.draws = dataset, keep, channels, draws
        self.length = len(dataset) if limit is None else min(limit, len(dataset))
        self.views = 1
        if draws is not None and draws.hide and self.length and dataset.whole_of(0) is None:
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

    def __getitem__(self, index: int) -> tuple[Sample | Skipped | None, Draw]:
        if index == NOTHING:
            return None, Draw(index, 0, 0, 0)
        number, view = divmod(index, self.views)
        sample = self.dataset[number]
        if isinstance(sample, Sample) and (cause := useless(sample)) is not None:
            sample = skipped(sample, cause)
        if isinstance(sample, Sample) and self.keep is not None:
            sample = restricted(sample, self.keep, self.channels)
        if isinstance(sample, Sample) and view and self.draws is not None:
            hidden = self.draws.always()(sample, generator(number, view))
            sample = sample if useless(hidden) else hidden
        return sample, Draw(index, 0, index, 0)


class Show:
    """Makes a :class:`Batch` of samples for evaluation, prepared as for a prediction, in the workers.

    Nothing is drawn unless a budget asks for it, and then by the number of the sample.
    """

    def __init__(self, prepare: Preparer, cost: Cost) -> None:
        self.prepare, self.cost = prepare, cost

    def __call__(self, items: Sequence[tuple[Sample | Skipped | None, Draw]]) -> Batch:
        """Prepare the items that could be read."""
        drawn = self.cost.budget is not None
        return collected([(item, draw if drawn else None) for item, draw in items], self.prepare, self.cost)


def evaluation_loader(
    samples: Evaluated,
    prepare: Preparer,
    workers: int,
    *,
    cost: Cost = Cost(),
    process: int = 0,
    processes: int = 1,
) -> Grouped:
    """Return batches of whole samples in order, small ones together; each process has a share (``Evaluated.dealt``)."""
    dealt = samples.dealt(process, processes)
    singles = PackingLoader(samples, batch_size=1, sampler=dealt, collate_fn=Show(prepare, cost), num_workers=workers)
    return Grouped(singles, sum(number != NOTHING for number in dealt))


class Collate:
    """Makes a :class:`Batch` of plain samples, for training loops of one's own."""

    def __init__(self, prepare: Preparer, cost: Cost) -> None:
        self.prepare, self.cost = prepare, cost

    def __call__(self, items: Sequence[Sample | Skipped]) -> Batch:
        """Prepare the items that could be read."""
        return collected([(item, None) for item in items], self.prepare, self.cost)


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
    collate = Collate(model.preparer(), cost)
    return PackingLoader(dataset, batch_size=batch_size, num_workers=workers, collate_fn=collate, **options)
