"""Scores over a whole split, from one confusion matrix or sums over all positions; never averaged over batches.

Every sample counts once. Samples that are windows of a tile overlap: the probabilities (of a regression: the values) of
all windows that contain a point are averaged, so that every point counts once as well. Only one tile is in memory.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from atomizer_io.data.sample import Sample, unknown
from atomizer_io.data.task_spec import IGNORE, TaskSpec
from atomizer_io.errors import AtomizerError
from atomizer_io.models.base import log_probabilities
from atomizer_io.training.losses import loss_sum


class Scores(nn.Module):
    """Collects outputs and targets of all samples and processes; :meth:`compute` returns the scores.

    Classes: ``miou``, ``macro_f1``, ``accuracy`` and IoU and F1 per class. Regression: ``rmse``, ``mae``, ``r2``, in
    the units of the target. A class that neither occurs nor is predicted counts in no mean. ``everywhere=False`` scores
    this process alone. ``main`` is the score by which the best model is chosen. Where a model left points
    out of its context, the scores of those that were in it (``miou_context``, ``iou_context``) and of the others
    (``miou_rest``, ``iou_rest``) are listed separately as well. ``class_weights`` are those of the ``loss``.
    """

    def __init__(self, task_spec: TaskSpec, everywhere: bool = True) -> None:
        super().__init__()
        from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, R2Score, SumMetric
        from torchmetrics.classification import MulticlassConfusionMatrix

        self.task_spec = task_spec
        self.names: Sequence[str] = task_spec.class_names or tuple(str(i) for i in range(task_spec.num_outputs))
        self.main, self.classes = main_score(task_spec), not task_spec.regression
        self.class_weights: Tensor | None = None
        self.tile: TilePredictions | None = None
        self.finished, self.device = set[str](), torch.device("cpu")
        how: dict[str, Any] = {"sync_on_compute": everywhere}
        self.known, self.loss = SumMetric(**how), MeanMetric(**how)
        if self.classes:
            count = max(task_spec.num_outputs, 2)
            how |= {"num_classes": count, "ignore_index": IGNORE, "validate_args": False}
            self.confusion, self.rest = MulticlassConfusionMatrix(**how), MulticlassConfusionMatrix(**how)
        else:
            self.squared, self.absolute = MeanSquaredError(**how), MeanAbsoluteError(**how)
            self.explained = R2Score(**how)

    def add(self, samples: Sequence[Sample], outputs: Tensor, contexts: Sequence[Tensor | None] = ()) -> None:
        """Add the outputs (M, outputs) for all targets of some samples, concatenated; NaN is an error.

        Samples come in the order of the dataset, so that the windows of a tile follow each other. ``contexts`` are
        those of ``Model.in_context``, for each sample: None, or none at all, leaves no point out.
        """
        self.device = outputs.device
        parts = outputs.split([sample.target.numel() for sample in samples])
        for sample, own, context in zip(samples, parts, contexts or [None] * len(parts), strict=True):
            target = sample.target.reshape(-1)
            known = ~unknown(target)
            there = known.to(own.device)
            if bool(own[there].isnan().any()):
                raise AtomizerError(f"the model outputs NaN for {sample.meta.id}")
            queries = sample.queries
            if queries is None or queries.whole is None or queries.members is None:
                self.update(own, target, context)
                continue
            if self.tile is None or self.tile.name != queries.whole:
                self.finish()
                if queries.whole in self.finished:
                    raise AtomizerError(
                        f"the windows of {queries.whole} do not follow each other, so its points would count twice"
                    )
                self.tile = TilePredictions(queries.whole, self.task_spec)
            inside = torch.ones_like(known) if context is None else context.cpu()
            self.tile.add(queries.members[known], own[there], target[known], inside[known])

    def update(self, outputs: Tensor, target: Tensor, context: Tensor | None = None) -> None:
        """Add outputs (M, outputs) and targets (M,); ``context`` (M,) marks those that were not left out of it."""
        target = target.to(outputs.device)
        loss, weight = loss_sum(outputs, target, self.task_spec, self.class_weights)
        known = target != IGNORE if self.classes else target.isfinite()
        self.known.update(known.sum())
        if not bool(known.any()):
            return
        self.loss.update(loss / weight, weight)
        if self.classes:
            self.confusion.update(outputs[known].argmax(dim=-1), target[known])
            rest = known & ~context.to(outputs.device) if context is not None else known[:0]
            if bool(rest.any()):
                self.rest.update(outputs[rest].argmax(dim=-1), target[rest])
        else:
            for metric in (self.squared, self.absolute, self.explained):
                metric.update(outputs[known, 0].float(), target[known])

    def finish(self) -> None:
        """Count the points of the tile whose windows came last."""
        if self.tile is not None:
            for outputs, target, context in self.tile.pieces():
                self.update(outputs.to(self.device), target, context)
            self.finished.add(self.tile.name)
        self.tile = None

    def compute(self) -> dict[str, Any]:
        """Return the scores as plain numbers, NaN where nothing was added.

        Each metric waits for the other processes, so which are computed depends on what all of them saw together.
        """
        self.finish()
        with warnings.catch_warnings():  # nothing seen here is no mistake: other processes may have seen something
            warnings.filterwarnings("ignore", message="The ``compute`` method of metric", category=UserWarning)
            several = float(self.known.compute()) > 1
            loss = float(self.loss.compute())
            if self.classes:
                every, rest = self.confusion.compute(), self.rest.compute()
                scores = {"loss": loss, **scores_of_confusion(every, self.names)}
                for part, matrix in {"context": every - rest, "rest": rest}.items() if bool(rest.any()) else ():
                    own = scores_of_confusion(matrix, self.names)
                    scores |= {f"miou_{part}": own["miou"], f"iou_{part}": own["iou"]}
                return scores
            rmse, mae = float(self.squared.compute()) ** 0.5, float(self.absolute.compute())
            r2 = float(self.explained.compute()) if several else math.nan
            return {"loss": loss, "rmse": rmse, "mae": mae, "r2": r2}

    def reset(self) -> None:
        """Forget all outputs and targets added so far."""
        self.tile, self.finished = None, set()
        for metric in self.children():
            metric.reset()  # type: ignore[operator]


def scores_of_confusion(confusion: Tensor, names: Sequence[str]) -> dict[str, Any]:
    """Return the scores of a confusion matrix (target, prediction)."""
    matrix = confusion.to("cpu", torch.float64)
    hits, of_target, of_prediction = matrix.diagonal(), matrix.sum(dim=1), matrix.sum(dim=0)
    union, both = of_target + of_prediction - hits, of_target + of_prediction
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


PIECE = 1 << 20  # points of a tile that are counted at once


class TilePredictions:
    """The outputs for one tile so far: for each point, by its number in the tile, the sum over its windows."""

    def __init__(self, name: str, task_spec: TaskSpec) -> None:
        self.name, self.classes = name, not task_spec.regression
        self.sums = torch.zeros(0, task_spec.num_outputs)
        self.windows = torch.zeros(0, dtype=torch.int16)
        self.target = torch.zeros(0, dtype=torch.int16 if self.classes else torch.float32)
        self.context = torch.zeros(0, dtype=torch.bool)

    def add(self, members: Tensor, outputs: Tensor, target: Tensor, context: Tensor) -> None:
        """Add the outputs (M, outputs) of a window for the points of these numbers (M,), all with a known target.

        ``context`` (M,) marks those that were in the context of the window; being in that of one window is enough.
        """
        if not len(members):
            return
        more = int(members.max()) + 1 - len(self.windows)
        if more > 0:
            more = max(more, len(self.windows) // 4)  # some beforehand: points of a tile come window by window
            for name in ("sums", "windows", "target", "context"):
                before: Tensor = getattr(self, name)
                setattr(self, name, torch.cat([before, before.new_zeros(more, *before.shape[1:])]))
        target = target.to(self.target.dtype)
        if bool(((self.windows[members] > 0) & (self.target[members] != target)).any()):
            raise AtomizerError(
                f"windows of {self.name} disagree on the target of a point: are two files of this name in the split? "
                "Give every tile a name of its own"
            )
        values = outputs.float().cpu()
        self.sums.index_add_(0, members, values.softmax(dim=-1) if self.classes else values)
        self.windows.index_add_(0, members, torch.ones(len(members), dtype=torch.int16))
        self.target[members] = target
        self.context[members] |= context.cpu()

    def pieces(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield outputs (n, outputs), targets and context (n,) of all points that were decoded, once each, in pieces.

        The outputs of classes are logarithms of mean probabilities, as scores and losses expect them.
        """
        for numbers in (self.windows > 0).nonzero()[:, 0].split(PIECE):
            mean = self.sums[numbers] / self.windows[numbers, None]
            target, context = self.target[numbers], self.context[numbers]
            yield (log_probabilities(mean), target.long(), context) if self.classes else (mean, target, context)
