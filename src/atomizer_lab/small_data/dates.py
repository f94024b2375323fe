"""Fewer dates of a series: which acquisitions belong to which, and which dates stay."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Sample
from atomizer_io.training.bands import with_acquisitions

UNDATED = -1


def time_steps(atoms: AtomSet) -> list[int]:
    """Return the time step of each acquisition: its own, or the place of its day among all days; −1 without a day."""
    days = sorted({acquisition.day_of_year for acquisition in atoms if acquisition.day_of_year is not None})
    places = {day: place for place, day in enumerate(days)}
    return [
        acquisition.timestep if acquisition.timestep is not None else places.get(acquisition.day_of_year, UNDATED)
        for acquisition in atoms
    ]


def subsets(steps: Sequence[int], count: int, draws: int) -> list[tuple[int, ...]]:
    """Return ``draws`` different subsets of ``count`` steps, always the same ones; all where there are no more."""
    every = list(itertools.combinations(steps, count))
    order = np.random.default_rng(count).permutation(len(every))[:draws]
    return [every[number] for number in sorted(order.tolist())]


@dataclass(frozen=True)
class OnlySteps:
    """A change of samples: only acquisitions of these time steps stay."""

    steps: tuple[int, ...]

    def __call__(self, sample: Sample) -> Sample:
        """Return the sample without the other acquisitions."""
        kept = zip(sample.atoms, time_steps(sample.atoms), strict=True)
        return with_acquisitions(sample, {i: part for i, (part, step) in enumerate(kept) if step in self.steps})
