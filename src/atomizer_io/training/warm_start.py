"""Warm start: which samples fresh weights are fitted to, and what that changes for the training after it.

What is fitted is the model's own affair (:meth:`~atomizer_io.models.base.Model.warm_start`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.models.base import Model, WarmStart
from atomizer_io.progress import progress_bar
from atomizer_io.training.batches import Batch
from atomizer_io.training.config import Run
from atomizer_io.training.data import Collate, EvaluationSamples, ResumableLoader, subsampled
from atomizer_io.training.draws import Draws, generator
from atomizer_io.training.stopping import READING_SHARE, WARM_SHARE, Timing

FITTED = 1000  # samples that fresh weights are fitted to at most
EPOCHS, UNCHECKED_EPOCHS = 20, 3  # how often all of them: with validation data, and without
UNSEEN_MAPS, UNSEEN_SCENES = 50, 250  # validation samples by which it is chosen how they are fitted
UNSEEN_PLACES = 15_000  # of all such maps
RATE, SMALL_RATE = 1e-3, 2e-4  # learning rates: the second keeps what a warm start fitted at single positions
LEAST_READ = 4  # samples of each kind, however little time there is


class Watcher:
    """Shows how far a warm start got, and says when it is ``late``: when its share of all time is over.

    Without ``cuts`` it never is: one of several processes has to fit what the others do, and a run of known length,
    which a limit only interrupts, what it would without the limit.
    """

    def __init__(self, timing: Timing, show: bool, cuts: bool) -> None:
        self.show, self.late, self.what = show, False, ""
        self.bar = progress_bar(None, show=False)
        limited = timing if cuts else Timing(timing.began_s, None)
        self.over, self.read_enough = (limited.share_ends(share) for share in (WARM_SHARE, READING_SHARE))

    def __call__(self, what: str, done: int, total: int | None) -> bool:
        """Take note that so much was done of something; return whether there is time to go on."""
        if what != self.what:
            self.close()
            self.what, title = what, "warm start"
            self.bar = progress_bar(total, initial=done, title=title, unit=f" {what}", show=self.show, stay=False)
        self.bar.update(done - self.bar.n)
        self.late |= self.over()
        return not self.late

    def reading(self, batches: Iterable[Batch], what: str) -> Iterator[Batch]:
        """Yield batches while there is time to read; a few in any case."""
        for number, batch in enumerate(batches):
            if number >= LEAST_READ and self.read_enough():
                self.late = True
                return
            self(what, number, None)
            yield batch

    def close(self) -> None:
        """End the line."""
        self.bar.close()


def wanted(run: Run) -> bool:
    """Whether the settings of a run ask for a warm start: weights of a checkpoint are not fitted again."""
    return run.training.warm_start and run.model.start is None


def fit_warm_start(
    run: Run, model: Model, loader: ResumableLoader, val: Dataset | None, watch: Watcher
) -> WarmStart | None:
    """Fit the fresh weights of a model to the training samples of ``loader``; None where there is no warm start.

    All processes of a run do the same. Choices are made on whole validation samples, at positions drawn evenly: random
    crops would by chance show some positions more often than others.
    """
    if not wanted(run):
        return None
    drawn = loader.samples
    epochs = EPOCHS
    if val is None:  # some are kept to choose by, so a scene with one answer must not come twice
        epochs = UNCHECKED_EPOCHS if model.task_spec.dense else 1
    most = min(FITTED, epochs * len(drawn))
    draws = Draws(len(drawn), 1, run.seed, round=most)  # one by one: the same however batches are dealt
    seen = (loader.collate([drawn[draw] for draw in each]) for each in draws)
    unseen = iter(()) if val is None else unseen_batches(run, val, model)

    def with_targets(batches: Iterable[Batch]) -> Iterator[tuple[Sequence[Any], Tensor]]:
        return ((batch.inputs, batch.target(model.device)) for batch in batches if batch.inputs)

    given = with_targets(watch.reading(seen, "training samples"))
    try:
        return model.warm_start(given, with_targets(watch.reading(unseen, "validation samples")), watch)
    finally:
        watch.close()


def unseen_batches(run: Run, data: Dataset, model: Model) -> Iterator[Batch]:
    """Yield some validation samples, one by one, asked at so many places that all together are not too many."""
    samples = EvaluationSamples(data, limit=run.training.validation_samples, dropout=run.training.channel_dropout)
    own, show = generator(run.seed, "settle"), Collate(model.preparer())
    order = torch.randperm(len(samples), generator=own)[: UNSEEN_MAPS if model.task_spec.dense else UNSEEN_SCENES]
    for number in order.tolist():
        sample, draw = samples[number]
        if isinstance(sample, Sample):
            yield show([(subsampled(sample, -(-UNSEEN_PLACES // len(order)), own), draw)])


def effective(run: Run, warm: WarmStart | None) -> WarmStart | None:
    """Return what of a warm start counts in training: nothing if it was not kept.

    Without validation data, which tell when to give up what it fitted, no weights are slow.
    """
    if warm is None or not warm.kept:
        return None
    return warm if run.data.val is not None else dataclasses.replace(warm, slow=())


def with_rate(run: Run, warm: WarmStart | None) -> Run:
    """Return ``run`` with a learning rate that suits its warm start, unless its settings name one."""
    t = run.training
    if t.learning_rate is not None:
        return run
    rate = SMALL_RATE if warm is not None and warm.small_steps else RATE
    return dataclasses.replace(run, training=dataclasses.replace(t, learning_rate=rate))
