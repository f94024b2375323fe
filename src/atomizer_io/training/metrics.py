"""Scores over a whole split, from one confusion matrix or sums over all positions; never averaged over batches."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from atomizer_io.data.task_spec import IGNORE, TaskSpec


class Scores(nn.Module):
    """Collects answers and targets of all samples and processes; :meth:`compute` gives the scores.

    Classes: ``miou``, ``macro_f1``, ``accuracy`` and IoU and F1 per class. Quantities: ``rmse``, ``mae``, ``r2``, in
    the units of the target. A class that neither occurs nor is predicted counts in no mean. ``everywhere=False`` scores
    this process alone. ``main`` is the score by which the best model is chosen. Where a model left points of a cloud
    out of its context, the scores of those that were in it (``miou_context``, ``iou_context``) and of the others
    (``miou_rest``, ``iou_rest``) are given apart as well.
    """

    def __init__(self, task_spec: TaskSpec, everywhere: bool = True) -> None:
        super().__init__()
        from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, R2Score, SumMetric
        from torchmetrics.classification import MulticlassConfusionMatrix

        self.names: Sequence[str] = task_spec.class_names or tuple(str(i) for i in range(task_spec.num_outputs))
        self.main, self.classes = main_score(task_spec), not task_spec.regression
        how: dict[str, Any] = {"sync_on_compute": everywhere}
        self.known, self.loss = SumMetric(**how), MeanMetric(**how)
        if self.classes:
            count = max(task_spec.num_outputs, 2)
            how |= {"num_classes": count, "ignore_index": IGNORE, "validate_args": False}
            self.confusion, self.rest = MulticlassConfusionMatrix(**how), MulticlassConfusionMatrix(**how)
        else:
            self.squared, self.absolute = MeanSquaredError(**how), MeanAbsoluteError(**how)
            self.explained = R2Score(**how)

    def update(
        self, answers: Tensor, target: Tensor, loss: Tensor, weight: Tensor, context: Tensor | None = None
    ) -> None:
        """Add answers (M, outputs) and targets (M,) with their summed loss; ``context`` (M,): not left out of it."""
        known = target != IGNORE if self.classes else target.isfinite()
        self.known.update(known.sum())
        if not bool(known.any()):
            return
        self.loss.update(loss / weight, weight)
        if self.classes:
            self.confusion.update(answers[known].argmax(dim=-1), target[known])
            rest = known & ~context if context is not None else known[:0]
            if bool(rest.any()):
                self.rest.update(answers[rest].argmax(dim=-1), target[rest])
        else:
            for metric in (self.squared, self.absolute, self.explained):
                metric.update(answers[known, 0].float(), target[known])

    def compute(self) -> dict[str, Any]:
        """Return the scores as plain numbers, NaN where nothing was seen.

        Each metric waits for the other processes, so which are computed depends on what all of them saw together.
        """
        with warnings.catch_warnings():  # nothing seen here is no mistake: other processes may have seen something
            warnings.filterwarnings("ignore", message="The ``compute`` method of metric", category=UserWarning)
            several = float(self.known.compute()) > 1
            loss = float(self.loss.compute())
            if self.classes:
                every, rest = self.confusion.compute(), self.rest.compute()
                found = {"loss": loss, **from_confusion(every, self.names)}
                for part, matrix in {"context": every - rest, "rest": rest}.items() if bool(rest.any()) else ():
                    own = from_confusion(matrix, self.names)
                    found |= {f"miou_{part}": own["miou"], f"iou_{part}": own["iou"]}
                return found
            rmse, mae = float(self.squared.compute()) ** 0.5, float(self.absolute.compute())
            r2 = float(self.explained.compute()) if several else math.nan
            return {"loss": loss, "rmse": rmse, "mae": mae, "r2": r2}

    def reset(self) -> None:
        """Forget all answers and targets seen so far."""
        for metric in self.children():
            metric.reset()  # type: ignore[operator]


def from_confusion(confusion: Tensor, names: Sequence[str]) -> dict[str, Any]:
    """Return the scores of a confusion matrix (target, prediction)."""
    matrix = confusion.to("cpu", torch.float64)
    hits, of_target, of_answer = matrix.diagonal(), matrix.sum(dim=1), matrix.sum(dim=0)
    union, both = of_target + of_answer - hits, of_target + of_answer
    iou = torch.where(union > 0, hits / union.clamp(min=1), torch.nan)
    f1 = torch.where(both > 0, 2 * hits / both.clamp(min=1), torch.nan)
    total = matrix.sum()
    return {
        "miou": float(iou.nanmean()),
        "macro_f1": float(f1.nanmean()),
        "accuracy": float(hits.sum() / total) if total else math.nan,
        "iou": dict(zip(names, iou.tolist(), strict=False)),
        "f1": dict(zip(names, f1.tolist(), strict=False)),
        "positions": int(total),
    }


def main_score(task_spec: TaskSpec) -> str:
    """Return the name of the score by which models are compared, as the paper reports it for the task."""
    if task_spec.regression:
        return "rmse"
    return "miou" if task_spec.dense else "macro_f1"


def merit(scores: Mapping[str, Any], task_spec: TaskSpec) -> float:
    """Return a number that is the larger the better the scores are; NaN is worse than anything."""
    value = float(scores[main_score(task_spec)])
    return -math.inf if math.isnan(value) else (-value if task_spec.regression else value)


def better(score: float, best: float | None, higher: bool) -> bool:
    """Whether ``score`` is a new best; NaN never is."""
    return not math.isnan(score) and (best is None or (score > best if higher else score < best))
