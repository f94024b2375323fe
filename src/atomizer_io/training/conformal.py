"""Conformal prediction sets: the classes that a position may have, at a stated coverage.

The score of a label is 1 − p, with p the probability that the model gives to its class. Of K held-out labels with n_k
positions each, the threshold q is the smallest score at which

    Σ_k Σ_i 1 / ((K + 1) n_k) · [score_ki ≤ q]  ≥  coverage,

and the set of a position are all classes with 1 − p ≤ q, and always the most probable one. With one position each this
is split conformal prediction with its finite-sample correction, ⌈(K + 1) coverage⌉ / K (Vovk et al., 2005; the sets of
Sadinle et al., 2019); with several, that of hierarchical data (Lee, Barber and Willett, 2023). If a further label is
exchangeable with the held-out ones, the set at a random position of it holds its class with at least that probability:
on average, not for each class, and not elsewhere. Of a cross-validation that is only nearly so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError

Floats = NDArray[np.floating[Any]]

EXACT = 1e-9  # that a sum of shares may miss


@dataclass(frozen=True, slots=True)
class PredictionSets:
    """The rule of the sets: a class belongs to them where its probability is at least ``least``.

    ``labels`` is how many held-out labels it was calibrated on, ``coverage`` what it promises.
    """

    coverage: float
    least: float
    labels: int

    @classmethod
    def calibrated(
        cls,
        probabilities: Floats,
        target: NDArray[np.integer[Any]],
        label: NDArray[np.integer[Any]],
        coverage: float,
        *,
        rounding: float = 0.0,
    ) -> PredictionSets:
        """Calibrate on probabilities (M, C) and classes (M,) of positions that belong to the labels (M,) by number.

        ``rounding`` is by how much the probabilities may be wrong; the sets are as much larger.
        """
        check_coverage(coverage)
        of_target = probabilities[np.arange(len(target)), target]
        score = 1.0 - of_target.astype(np.float64)
        return cls(coverage, 1.0 - threshold(score, label, coverage) - rounding, len(np.unique(label)))

    @property
    def informative(self) -> bool:
        """Whether there were enough labels; otherwise every set has all classes."""
        return self.least > -math.inf

    def members(self, probabilities: Floats) -> NDArray[np.bool_]:
        """Return which classes belong to the set of each position, for probabilities (..., C)."""
        inside = probabilities >= self.least
        first = probabilities.argmax(axis=-1)[..., None]
        np.put_along_axis(inside, first, True, axis=-1)
        return inside


def threshold(score: Floats, label: NDArray[np.integer[Any]], coverage: float) -> float:
    """Return the threshold q of the scores (M,) of positions of labels (M,); infinite where they are too few."""
    _, of_label, positions = np.unique(label, return_inverse=True, return_counts=True)
    share = 1.0 / ((len(positions) + 1) * positions[of_label.reshape(-1)])
    order = np.argsort(score, kind="stable")
    reached = np.cumsum(share[order]) >= coverage - EXACT
    return float(score[order][reached.argmax()]) if reached.any() else math.inf


def least_labels(coverage: float) -> int:
    """Return how many held-out labels it takes for sets that do not always have all classes."""
    return math.ceil(coverage / (1 - coverage) - EXACT)


def check_coverage(coverage: float) -> None:
    """Refuse a coverage that is no share."""
    if not 0 < coverage < 1:
        raise ConfigError(f"coverage must lie between 0 and 1, got {coverage:g}")
