"""Conformal prediction sets: the finite-sample threshold by hand, and the coverage of simulated labels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from atomizer_io.errors import ConfigError
from atomizer_io.training.conformal import PredictionSets, least_labels, threshold

Simulated = tuple[np.ndarray, np.ndarray]


def simulated(rng: np.random.Generator, count: int, classes: int = 4) -> Simulated:
    """Probabilities, and classes that are drawn from other ones: the model is too sure of itself."""
    logits = rng.normal(size=(count, classes))
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sure = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)
    target = (true.cumsum(axis=1) < rng.random((count, 1))).sum(axis=1)
    return sure, target


def test_the_threshold_is_that_of_split_conformal_prediction() -> None:
    score = np.arange(1, 20) / 100  # 19 labels: the ⌈20 · 0.9⌉ = 18th smallest
    label = np.arange(19)
    assert threshold(score[::-1], label, 0.9) == 0.18
    assert threshold(score, label, 0.95) == 0.19
    assert threshold(score, label, 0.96) == math.inf
    assert [least_labels(coverage) for coverage in (0.5, 0.9, 0.95, 0.99)] == [1, 9, 19, 99]
    assert threshold(score[:9], label[:9], 0.9) == 0.09 and threshold(score[:8], label[:8], 0.9) == math.inf


def test_positions_of_a_label_share_its_weight() -> None:
    """Three labels, each 1/4 together: scores 0.1 (twice), 0.2 (once), 0.3 and 0.4 (1/8 each)."""
    score, label = np.array([0.3, 0.1, 0.2, 0.1, 0.4]), np.array([8, 5, 6, 5, 8])
    assert threshold(score, label, 0.25) == 0.1
    assert threshold(score, label, 0.5) == 0.2
    assert threshold(score, label, 0.6) == 0.3
    assert threshold(score, label, 0.75) == 0.4


def test_too_few_labels_give_all_classes() -> None:
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]])
    sets = PredictionSets.calibrated(probabilities, np.array([0, 1]), np.array([1, 2]), 0.9)
    assert not sets.informative and sets.members(np.array([[0.99, 0.01]])).all()
    with pytest.raises(ConfigError, match="coverage must lie between 0 and 1, got 1"):
        PredictionSets.calibrated(probabilities, np.array([0, 1]), np.array([1, 2]), 1.0)


def test_the_most_probable_class_is_always_there() -> None:
    sets = PredictionSets(0.5, 0.9, 10)
    assert sets.members(np.array([[0.4, 0.35, 0.25], [0.95, 0.05, 0.0]])).tolist() == [[True, False, False]] * 2
    assert sets.members(np.full((5, 7, 2), 0.5)).sum() == 35


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_sets_cover_what_they_promise(coverage: float) -> None:
    """On average over many calibrations with 40 labels, which without the correction would cover too little."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        sets = PredictionSets.calibrated(*simulated(rng, 40), np.arange(40), coverage)
        probabilities, target = simulated(rng, 500)
        covered.append(sets.members(probabilities)[np.arange(500), target].mean())
    assert coverage - 0.01 <= np.mean(covered) <= coverage + 0.03


def test_sets_cover_new_labels_of_many_positions_that_are_alike() -> None:
    """Labels of 1 to 60 positions with a common shift; large ones are harder. A random position of a new label."""
    rng = np.random.default_rng(0)

    def labels(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = rng.integers(1, 60, count)
        label = np.repeat(np.arange(count), size)
        right = np.clip(rng.beta(8, 2, count)[label] - size[label] / 120 + rng.normal(0, 0.05, len(label)), 0.01, 0.99)
        return np.stack([right, 1 - right], axis=1), np.zeros(len(label), dtype=int), label

    covered = []
    for _ in range(300):
        sets = PredictionSets.calibrated(*labels(30), 0.9)
        probabilities, _, label = labels(100)
        inside = sets.members(probabilities)[:, 0]
        covered.append(np.mean([inside[label == number].mean() for number in range(100)]))
    assert 0.885 <= np.mean(covered) <= 0.95
