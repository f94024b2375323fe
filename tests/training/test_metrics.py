"""Loss, scores and schedule against what they say they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import AtomizerError
from atomizer_io.training.evaluate import score
from atomizer_io.training.losses import class_weights_of_counts, loss_sum
from atomizer_io.training.metrics import Scores, better, merit, scores_of_confusion
from atomizer_io.training.schedule import cosine

CLASSES = TaskSpec(num_outputs=3, class_names=("a", "b", "c"))
REGRESSION = TaskSpec(task="regression", num_outputs=1, target_mean=60.0, target_std=70.0)


def test_cross_entropy_leaves_out_what_is_ignored() -> None:
    outputs, target = torch.randn(6, 3), torch.tensor([0, 1, -1, 2, -1, 1])
    total, weight = loss_sum(outputs, target, CLASSES)
    known = target >= 0
    assert float(total / weight) == pytest.approx(
        float(torch.nn.functional.cross_entropy(outputs[known], target[known])), rel=1e-6
    )
    weights = torch.tensor([1.0, 0.2, 3.0])
    total, weight = loss_sum(outputs, target, CLASSES, weights)
    expected = torch.nn.functional.cross_entropy(outputs[known], target[known], weights)
    assert float(total / weight) == pytest.approx(float(expected), rel=1e-6)


def test_squared_error_is_in_units_of_the_standard_deviation() -> None:
    outputs = torch.tensor([[60.0], [130.0], [0.0]], requires_grad=True)
    target = torch.tensor([60.0, 60.0, math.nan])
    total, weight = loss_sum(outputs, target, REGRESSION)
    assert (total.item(), int(weight)) == (1.0, 2)
    total.backward()
    assert torch.isfinite(outputs.grad).all() and outputs.grad[2] == 0


def test_nothing_known_has_a_gradient_of_zero() -> None:
    outputs = torch.randn(4, 3, requires_grad=True)
    total, weight = loss_sum(outputs, torch.full((4,), -1), CLASSES)
    total.backward()
    assert (total.item(), int(weight)) == (0.0, 0) and not outputs.grad.any()


def test_weights_of_classes() -> None:
    counts = torch.tensor([90, 10, 0])
    balanced, root = class_weights_of_counts(counts.tolist(), 1.0), class_weights_of_counts(counts.tolist(), 0.5)
    assert balanced.tolist() == pytest.approx([100 / 180, 5.0, 5.0])  # one that was not met as the rarest that was
    assert float(root[1] / root[0]) == pytest.approx(3.0)
    assert all(float((weights * counts).sum()) == pytest.approx(100) for weights in (balanced, root))
    assert class_weights_of_counts([0, 0], 1.0).tolist() == [1.0, 1.0]


def test_scores_are_those_of_all_positions_together() -> None:
    rng = np.random.default_rng(0)
    target, predicted = rng.integers(-1, 3, 500), rng.integers(0, 3, 500)
    scores = Scores(CLASSES)
    for part in np.array_split(np.arange(500), [3, 100, 101, 400]):
        logits = torch.nn.functional.one_hot(torch.from_numpy(predicted[part]), 3).float()
        labels = torch.from_numpy(target[part])
        scores.update(logits, labels)
    result = scores.compute()
    known = target >= 0
    t, a = target[known], predicted[known]
    iou = [((t == k) & (a == k)).sum() / ((t == k) | (a == k)).sum() for k in range(3)]
    f1 = [2 * ((t == k) & (a == k)).sum() / ((t == k).sum() + (a == k).sum()) for k in range(3)]
    assert result["miou"] == pytest.approx(np.mean(iou)) and result["macro_f1"] == pytest.approx(np.mean(f1))
    assert result["accuracy"] == pytest.approx((t == a).mean()) and result["positions"] == known.sum()
    assert list(result["iou"].values()) == pytest.approx(iou) and list(result["iou"]) == ["a", "b", "c"]
    scores.reset()
    assert math.isnan(scores.compute()["loss"])


def test_a_class_never_met_counts_in_no_mean() -> None:
    result = scores_of_confusion(torch.tensor([[8, 2, 0], [0, 10, 0], [0, 0, 0]]), ("a", "b", "c"))
    assert math.isnan(result["iou"]["c"]) and result["miou"] == pytest.approx((0.8 + 10 / 12) / 2)


def test_regression() -> None:
    rng = np.random.default_rng(1)
    target, predicted = rng.normal(60, 70, 300).astype(np.float32), rng.normal(60, 70, 300).astype(np.float32)
    target[::7] = np.nan
    scores = Scores(REGRESSION)
    for part in np.array_split(np.arange(300), 4):
        rows, labels = torch.from_numpy(predicted[part])[:, None], torch.from_numpy(target[part])
        scores.update(rows, labels)
    result, known = scores.compute(), np.isfinite(target)
    error = (predicted - target)[known]
    assert result["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-5)
    assert result["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
    assert result["r2"] == pytest.approx(
        1 - (error**2).sum() / ((target[known] - target[known].mean()) ** 2).sum(), rel=1e-4
    )


def joined(here: Scores, there: Scores) -> Scores:
    """``here`` as if ``there`` were another process: a metric that is computed gathers the states of both."""
    for mine, theirs in zip(here.children(), there.children(), strict=True):
        states = iter([getattr(theirs, name) for name in theirs._reductions])
        mine.distributed_available_fn = lambda: True
        mine.dist_sync_fn = lambda state, group, states=states: [state, next(states)]
    return here


@pytest.mark.parametrize("task_spec", [CLASSES, REGRESSION], ids=["classes", "regression"])
def test_a_process_that_saw_nothing_has_the_scores_of_all(task_spec: TaskSpec) -> None:
    rows, target = torch.randn(9, task_spec.num_outputs), torch.tensor([0, 1, 2] * 3)
    target = target.float() if task_spec.regression else target
    there = Scores(task_spec)
    there.update(rows, target)
    assert joined(Scores(task_spec), there).compute() == there.compute()


@pytest.mark.parametrize("count", [0, 1])
def test_scores_of_next_to_nothing(count: int) -> None:
    scores = Scores(REGRESSION)
    rows, target = torch.full((count, 1), 67.0), torch.full((count,), 60.0)
    scores.update(rows, target)
    result = scores.compute()
    assert math.isnan(result["r2"]) and (
        result["rmse"] == 7.0 if count else math.isnan(result["rmse"] + result["loss"])
    )


def test_a_prediction_of_nan_is_no_score() -> None:
    data = aio.datasets.create("synthetic", size=16, length=4)
    model = aio.create_model("pixels", num_outputs=len(data.info.classes), channels=data.channels)
    torch.nn.init.constant_(next(model.parameters()), math.nan)
    with pytest.raises(AtomizerError, match="the model outputs NaN for "):
        score(model, data, limit=1, progress=False)


def test_better() -> None:
    assert better(0.5, None, True) and better(0.6, 0.5, True) and not better(0.4, 0.5, True)
    assert better(40.0, 41.0, False) and not better(math.nan, None, True)


def test_models_are_compared_by_the_score_that_is_reported() -> None:
    result = {"macro_f1": 0.7, "miou": 0.6, "rmse": 12.0}
    assert merit(result, CLASSES) == 0.6 and Scores(CLASSES).main == "miou"
    scene = CLASSES.replace(task="classification")
    assert merit(result, scene) == 0.7 and Scores(scene).main == "macro_f1"
    assert merit(result, REGRESSION) == -12.0 and Scores(REGRESSION.replace(task="scene_regression")).main == "rmse"
    assert merit({"miou": math.nan}, CLASSES) < merit({"miou": 0.0}, CLASSES)


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [cosine(step, 200) for step in range(200)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == 1.0 and max(rates) == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True) and rates[-1] < 1e-3
    assert cosine(10**6, 200) == 0.0 and cosine(0, 1) == 1.0
