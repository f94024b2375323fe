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
QUANTITY = TaskSpec(task="regression", num_outputs=1, target_mean=60.0, target_std=70.0)


def test_cross_entropy_leaves_out_what_is_ignored() -> None:
    answers, target = torch.randn(6, 3), torch.tensor([0, 1, -1, 2, -1, 1])
    total, weight = loss_sum(answers, target, CLASSES)
    known = target >= 0
    assert float(total / weight) == pytest.approx(
        float(torch.nn.functional.cross_entropy(answers[known], target[known])), rel=1e-6
    )
    weights = torch.tensor([1.0, 0.2, 3.0])
    total, weight = loss_sum(answers, target, CLASSES, weights)
    expected = torch.nn.functional.cross_entropy(answers[known], target[known], weights)
    assert float(total / weight) == pytest.approx(float(expected), rel=1e-6)


def test_squared_error_is_in_units_of_the_spread() -> None:
    answers = torch.tensor([[60.0], [130.0], [0.0]], requires_grad=True)
    target = torch.tensor([60.0, 60.0, math.nan])
    total, weight = loss_sum(answers, target, QUANTITY)
    assert (total.item(), int(weight)) == (1.0, 2)
    total.backward()
    assert torch.isfinite(answers.grad).all() and answers.grad[2] == 0


def test_nothing_known_has_a_gradient_of_zero() -> None:
    answers = torch.randn(4, 3, requires_grad=True)
    total, weight = loss_sum(answers, torch.full((4,), -1), CLASSES)
    total.backward()
    assert (total.item(), int(weight)) == (0.0, 0) and not answers.grad.any()


def test_weights_of_classes() -> None:
    counts = torch.tensor([90, 10, 0])
    balanced, root = class_weights_of_counts(counts.tolist(), 1.0), class_weights_of_counts(counts.tolist(), 0.5)
    assert balanced.tolist() == pytest.approx([100 / 180, 5.0, 5.0])  # one that was not met as the rarest that was
    assert float(root[1] / root[0]) == pytest.approx(3.0)
    assert all(float((weights * counts).sum()) == pytest.approx(100) for weights in (balanced, root))
    assert class_weights_of_counts([0, 0], 1.0).tolist() == [1.0, 1.0]


def test_scores_are_those_of_all_positions_together() -> None:
    rng = np.random.default_rng(0)
    target, answer = rng.integers(-1, 3, 500), rng.integers(0, 3, 500)
    scores = Scores(CLASSES)
    for part in np.array_split(np.arange(500), [3, 100, 101, 400]):
        logits = torch.nn.functional.one_hot(torch.from_numpy(answer[part]), 3).float()
        wanted = torch.from_numpy(target[part])
        scores.update(logits, wanted, *loss_sum(logits, wanted, CLASSES))
    found = scores.compute()
    known = target >= 0
    t, a = target[known], answer[known]
    iou = [((t == k) & (a == k)).sum() / ((t == k) | (a == k)).sum() for k in range(3)]
    f1 = [2 * ((t == k) & (a == k)).sum() / ((t == k).sum() + (a == k).sum()) for k in range(3)]
    assert found["miou"] == pytest.approx(np.mean(iou)) and found["macro_f1"] == pytest.approx(np.mean(f1))
    assert found["accuracy"] == pytest.approx((t == a).mean()) and found["positions"] == known.sum()
    assert list(found["iou"].values()) == pytest.approx(iou) and list(found["iou"]) == ["a", "b", "c"]
    scores.reset()
    assert math.isnan(scores.compute()["loss"])


def test_a_class_never_met_counts_in_no_mean() -> None:
    found = scores_of_confusion(torch.tensor([[8, 2, 0], [0, 10, 0], [0, 0, 0]]), ("a", "b", "c"))
    assert math.isnan(found["iou"]["c"]) and found["miou"] == pytest.approx((0.8 + 10 / 12) / 2)


def test_quantities() -> None:
    rng = np.random.default_rng(1)
    target, answer = rng.normal(60, 70, 300).astype(np.float32), rng.normal(60, 70, 300).astype(np.float32)
    target[::7] = np.nan
    scores = Scores(QUANTITY)
    for part in np.array_split(np.arange(300), 4):
        rows, wanted = torch.from_numpy(answer[part])[:, None], torch.from_numpy(target[part])
        scores.update(rows, wanted, *loss_sum(rows, wanted, QUANTITY))
    found, known = scores.compute(), np.isfinite(target)
    error = (answer - target)[known]
    assert found["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-5)
    assert found["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
    assert found["r2"] == pytest.approx(
        1 - (error**2).sum() / ((target[known] - target[known].mean()) ** 2).sum(), rel=1e-4
    )


def joined(here: Scores, there: Scores) -> Scores:
    """``here`` as if ``there`` were another process: a metric that is computed gathers the states of both."""
    for mine, other in zip(here.children(), there.children(), strict=True):
        states = iter([getattr(other, name) for name in other._reductions])
        mine.distributed_available_fn = lambda: True
        mine.dist_sync_fn = lambda state, group, states=states: [state, next(states)]
    return here


@pytest.mark.parametrize("task_spec", [CLASSES, QUANTITY], ids=["classes", "quantity"])
def test_a_process_that_saw_nothing_has_the_scores_of_all(task_spec: TaskSpec) -> None:
    rows, target = torch.randn(9, task_spec.num_outputs), torch.tensor([0, 1, 2] * 3)
    target = target.float() if task_spec.regression else target
    there = Scores(task_spec)
    there.update(rows, target, *loss_sum(rows, target, task_spec))
    assert joined(Scores(task_spec), there).compute() == there.compute()


@pytest.mark.parametrize("count", [0, 1])
def test_scores_of_next_to_nothing(count: int) -> None:
    scores = Scores(QUANTITY)
    rows, target = torch.full((count, 1), 67.0), torch.full((count,), 60.0)
    scores.update(rows, target, *loss_sum(rows, target, QUANTITY))
    found = scores.compute()
    assert math.isnan(found["r2"]) and (found["rmse"] == 7.0 if count else math.isnan(found["rmse"] + found["loss"]))


def test_an_answer_of_nan_is_no_score() -> None:
    data = aio.datasets.create("synthetic", size=16, length=4)
    model = aio.create_model("pixels", num_outputs=len(data.info.classes), channels=data.channels)
    torch.nn.init.constant_(next(model.parameters()), math.nan)
    with pytest.raises(AtomizerError, match="the model outputs NaN for "):
        score(model, data, limit=1, progress=False)


def test_better() -> None:
    assert better(0.5, None, True) and better(0.6, 0.5, True) and not better(0.4, 0.5, True)
    assert better(40.0, 41.0, False) and not better(math.nan, None, True)


def test_models_are_compared_by_the_score_that_is_reported() -> None:
    found = {"macro_f1": 0.7, "miou": 0.6, "rmse": 12.0}
    assert merit(found, CLASSES) == 0.6 and Scores(CLASSES).main == "miou"
    scene = CLASSES.replace(task="classification")
    assert merit(found, scene) == 0.7 and Scores(scene).main == "macro_f1"
    assert merit(found, QUANTITY) == -12.0 and Scores(QUANTITY.replace(task="scene_regression")).main == "rmse"
    assert merit({"miou": math.nan}, CLASSES) < merit({"miou": 0.0}, CLASSES)


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [cosine(step, 200) for step in range(200)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == 1.0 and max(rates) == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True) and rates[-1] < 1e-3
    assert cosine(10**6, 200) == 0.0 and cosine(0, 1) == 1.0
