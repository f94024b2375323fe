"""Every random choice of a training run, made from the seed and the place in the run alone.

No generator is carried from step to step: what is drawn for a sample depends on (seed, epoch, batch, place in the
batch) and on nothing else. So a run that was stopped anywhere goes on as if it had not been, and the number of loader
workers or processes changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils.data import Sampler

from atomizer_io.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Draw:
    """One sample of a training run: which one, and when it comes."""

    index: int
    epoch: int
    batch: int  # of the epoch, counted over all processes
    place: int  # within that batch


def generator(seed: int, *keys: int | str) -> torch.Generator:
    """Return a random generator that depends on the seed and the keys alone."""
    digest = hashlib.blake2b(repr((seed, *keys)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


class Draws(Sampler[list[Draw]]):
    """Batches of one process: each epoch shuffles all samples and deals them out, ``batch_size`` to each process.

    The last, incomplete batch of an epoch is left out, unless it is the only one. With fewer samples than processes
    some samples come twice, as a process without a batch would keep the others waiting. Iterating gives a round: an
    epoch, or ``round`` batches, through as many epochs as that takes. ``epoch``, ``first`` (a batch of
    it) and ``place`` (in the round) say where to begin.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        seed: int,
        *,
        process: int = 0,
        processes: int = 1,
        round: int | None = None,
    ) -> None:
        if length < 1:
            raise ConfigError("there is no sample to train on")
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.process, self.processes = process, processes
        self.per_epoch = max(1, length // (batch_size * processes))
        self.round = round or self.per_epoch
        self.epoch, self.first, self.place = 0, 0, 0

    def __len__(self) -> int:
        return self.round

    def __iter__(self) -> Iterator[list[Draw]]:
        epoch, batch, order = self.epoch, self.first, self._order(self.epoch)
        for _ in range(self.place, self.round):
            yield self._dealt(order, epoch, batch)
            batch += 1
            if batch == self.per_epoch:
                epoch, batch = epoch + 1, 0
                order = self._order(epoch)

    def _order(self, epoch: int) -> list[int]:
        return torch.randperm(self.length, generator=generator(self.seed, "order", epoch)).tolist()

    def _dealt(self, order: list[int], epoch: int, batch: int) -> list[Draw]:
        whole = self.batch_size * self.processes
        dealt = [order[i % self.length] for i in range(batch * whole, (batch + 1) * whole)]
        if self.length < whole:  # fewer samples than one batch: each once, but something for every process
            dealt = dealt[: max(self.length, self.processes)]
        mine = range(self.process, len(dealt), self.processes)
        return [Draw(dealt[place], epoch, batch, place) for place in mine]
