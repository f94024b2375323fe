"""Accuracy and areas with their uncertainty, from a confusion matrix of labels: rows are map classes, columns labels.

Where the labels are a random sample of the mapped area, the estimates are those of Olofsson et al. (2014, Remote
Sensing of Environment 148), with W_i the share of the map that class i has, n_ij the labels, n_i the sum of row i:

    p_ij = W_i n_ij / n_i                     share of the area that is mapped as i and is j
    O    = Σ p_jj                             V(O)   = Σ W_i² U_i (1 − U_i) / (n_i − 1)
    U_i  = n_ii / n_i                         V(U_i) = U_i (1 − U_i) / (n_i − 1)
    P_j  = p_jj / Σ_i p_ij                    V(P_j) by their equation 7
    A_j  = Σ_i p_ij                           V(A_j) = Σ_i W_i² (n_ij / n_i) (1 − n_ij / n_i) / (n_i − 1)

O is the overall accuracy, U the user's and P the producer's accuracy, A the share of the area. Labels that were chosen
by hand say nothing about areas; their accuracies are shares of the labels, with Wilson's intervals for a class, and
overall with one from how much blocks of labels differ, since labels near each other are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Z95 = 1.959964  # quantile of the normal distribution for intervals of 95 %
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share with its 95 % confidence interval; NaN where the labels are too few for it."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, variance: float, quantile: float = Z95) -> Estimate:
        """Return a value with the interval of its variance, within 0 … 1."""
        if math.isnan(variance):
            return cls(value, NAN, NAN)
        margin = quantile * math.sqrt(variance)
        return cls(value, max(0.0, value - margin), min(1.0, value + margin))

    @classmethod
    def wilson(cls, hits: float, count: float) -> Estimate:
        """Return the share ``hits`` / ``count`` with Wilson's interval, which is none where ``count`` is 0."""
        if not count:
            return cls(NAN, NAN, NAN)
        share, z2 = hits / count, Z95**2
        middle = (share + z2 / (2 * count)) / (1 + z2 / count)
        margin = Z95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
        return cls(share, max(0.0, middle - margin), min(1.0, middle + margin))


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Overall, user's and producer's accuracy by class, and ``areas``, shares of the map: empty if not adjusted."""

    overall: Estimate
    users: tuple[Estimate, ...]
    producers: tuple[Estimate, ...]
    areas: tuple[Estimate, ...] = ()


def area_adjusted(confusion: NDArray[Any], mapped: NDArray[Any]) -> Accuracy:
    """Return the estimates for a random sample: labels (map class, label) and the mapped area of each class.

    Classes that are not on the map count for nothing; :func:`lacking` names those that have too few labels.
    """
    n, area = confusion.astype(np.float64), mapped.astype(np.float64)
    n_i, weight = n.sum(axis=1), area / area.sum()
    own = n / np.where(n_i > 0, n_i, 1)[:, None]  # n_ij / n_i
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where((weight > 0)[:, None], own * (1 - own) / (n_i - 1)[:, None], 0.0)
        variance[(weight > 0) & (n_i < 2)] = NAN
        p = weight[:, None] * own
        users = own.diagonal()
        share = p.sum(axis=0)
        producers = p.diagonal() / share
        total = area @ own  # N̂_.j: area of each class, in the units of the map
        diagonal = np.eye(len(n), dtype=bool)
        off = np.where(diagonal, 0.0, area[:, None] ** 2 * variance).sum(axis=0)
        of_producers = (area**2 * (1 - producers) ** 2 * variance.diagonal() + producers**2 * off) / total**2
    overall = Estimate.around(float(p.trace()), float((weight**2 * variance.diagonal()).sum()))
    of_areas = (weight[:, None] ** 2 * variance).sum(axis=0)
    return Accuracy(
        overall,
        tuple(
            Estimate.around(float(u), float(v)) if there else Estimate(NAN, NAN, NAN)
            for u, v, there in zip(users, variance.diagonal(), (n_i > 0) & (weight > 0), strict=True)
        ),
        tuple(Estimate.around(float(value), float(v)) for value, v in zip(producers, of_producers, strict=True)),
        tuple(Estimate.around(float(value), float(v)) for value, v in zip(share, of_areas, strict=True)),
    )


def lacking(confusion: NDArray[Any], mapped: NDArray[Any]) -> list[int]:
    """Return the classes that are on the map and have fewer than two labels there: nothing is known of their errors."""
    return np.flatnonzero((np.asarray(mapped) > 0) & (confusion.sum(axis=1) < 2)).tolist()


def of_labels(confusion: NDArray[Any], right: NDArray[np.bool_], block: NDArray[np.integer[Any]]) -> Accuracy:
    """Return the shares of the labels, whatever they are a sample of; ``right`` (K,) labels lie in a ``block`` (K,)."""
    n = confusion.astype(np.float64)
    hits = n.diagonal()
    return Accuracy(
        by_blocks(right, block),
        tuple(Estimate.wilson(h, c) for h, c in zip(hits.tolist(), n.sum(axis=1).tolist(), strict=True)),
        tuple(Estimate.wilson(h, c) for h, c in zip(hits.tolist(), n.sum(axis=0).tolist(), strict=True)),
    )


def by_blocks(right: NDArray[np.bool_], block: NDArray[np.integer[Any]]) -> Estimate:
    """Return the share of labels that are right, with an interval from how much whole blocks of them differ.

    It is that of a ratio of block totals, with Student's t of one degree of freedom less than blocks.
    """
    from scipy.stats import t

    _, index = np.unique(block, return_inverse=True)
    count = np.bincount(index.reshape(-1)).astype(np.float64)
    hits = np.bincount(index.reshape(-1), weights=right)
    blocks, total = len(count), count.sum()
    share = float(hits.sum() / total) if total else NAN
    if blocks < 2:
        return Estimate(share, NAN, NAN)
    variance = blocks / (blocks - 1) * ((hits - share * count) ** 2).sum() / total**2
    return Estimate.around(share, float(variance), float(t.ppf(0.975, blocks - 1)))
