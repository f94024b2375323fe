"""Accuracy and areas with intervals, against the published example and values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from atomizer_io.training.area_accuracy import Estimate, area_adjusted, by_blocks, lacking, of_labels

# Olofsson et al. (2014), section 5: deforestation, forest gain, stable forest, stable non-forest
PUBLISHED = np.array([[66, 0, 5, 4], [0, 55, 8, 12], [1, 0, 153, 11], [2, 1, 9, 313]])
PIXELS = np.array([200_000, 150_000, 3_200_000, 6_450_000])
PIXEL_HA = 0.09


def margin(estimate: Estimate) -> float:
    return estimate.value - estimate.low


def test_the_published_example() -> None:
    result = area_adjusted(PUBLISHED, PIXELS)
    assert (result.overall.value, margin(result.overall)) == pytest.approx((0.95, 0.02), abs=0.005)
    users = [(estimate.value, margin(estimate)) for estimate in result.users]
    np.testing.assert_allclose(users, [(0.88, 0.07), (0.73, 0.10), (0.93, 0.04), (0.96, 0.02)], atol=0.006)
    deforested = result.producers[0]
    assert (deforested.value, margin(deforested)) == pytest.approx((0.75, 0.21), abs=0.005)
    area = result.areas[0]
    total = PIXELS.sum() * PIXEL_HA
    assert (area.value * total, margin(area) * total) == pytest.approx((21_158, 6_158), abs=1)
    assert sum(estimate.value for estimate in result.areas) == pytest.approx(1)


def test_two_classes_by_hand() -> None:
    """Half of the map each; of 11 labels in class 0 one is of class 1, of 21 in class 1 none is of class 0."""
    result = area_adjusted(np.array([[10, 1], [0, 21]]), np.array([50.0, 50.0]))
    own = (10 / 11) * (1 / 11) / 10
    assert result.overall.value == pytest.approx(0.5 * 10 / 11 + 0.5)
    assert margin(result.overall) == pytest.approx(1.959964 * math.sqrt(0.25 * own))
    assert [area.value for area in result.areas] == pytest.approx([0.5 * 10 / 11, 0.5 + 0.5 / 11])
    assert [margin(area) for area in result.areas] == pytest.approx([1.959964 * math.sqrt(0.25 * own)] * 2)
    assert result.users[1] == Estimate(1.0, 1.0, 1.0) and result.producers[0].value == 1.0


def test_a_class_without_labels_on_the_map_is_named() -> None:
    confusion = np.array([[10, 1, 0], [0, 1, 0], [0, 0, 0]])
    assert lacking(confusion, np.array([5.0, 5.0, 5.0])) == [1, 2]
    assert lacking(confusion, np.array([5.0, 0.0, 0.0])) == []
    result = area_adjusted(confusion, np.array([5.0, 5.0, 0.0]))
    assert math.isnan(result.overall.low) and math.isnan(result.users[2].value)


def test_the_interval_covers_the_area_of_random_samples() -> None:
    """The map has 70 % class 0; 10 % of that and 20 % of the rest are wrong: the area of class 0 is 69 %."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        mapped = (rng.random(300) > 0.7).astype(int)
        wrong = rng.random(300) < np.where(mapped == 0, 0.1, 0.2)
        true = np.where(wrong, 1 - mapped, mapped)
        confusion = np.bincount(2 * mapped + true, minlength=4).reshape(2, 2)
        area = area_adjusted(confusion, np.array([0.7, 0.3])).areas[0]
        inside += area.low <= 0.69 <= area.high
    assert 0.92 <= inside / 400 <= 0.98


def test_labels_that_are_no_sample_are_counted_as_they_are() -> None:
    right = np.array([True, True, True, False])
    result = of_labels(np.array([[2, 1], [0, 1]]), right, np.array([0, 0, 7, 7]))
    assert result.overall.value == 0.75 and result.areas == ()
    assert result.users[0] == Estimate.wilson(2, 3) and result.producers[1] == Estimate.wilson(1, 2)
    wilson = Estimate.wilson(8, 10)  # Brown, Cai and DasGupta (2001), by hand
    assert (wilson.low, wilson.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert Estimate.wilson(0, 0).value != Estimate.wilson(0, 0).value


def test_labels_that_agree_within_blocks_have_a_wider_interval() -> None:
    rng = np.random.default_rng(0)
    block = np.repeat(np.arange(20), 30)
    alike = np.repeat(rng.random(20) < 0.8, 30)
    apart = rng.permutation(alike)
    wide, narrow = by_blocks(alike, block), by_blocks(apart, block)
    assert wide.value == narrow.value == alike.mean()
    assert margin(wide) > 3 * margin(narrow)
    assert math.isnan(by_blocks(alike, np.zeros(600, dtype=int)).low)
