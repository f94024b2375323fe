"""Losses: cross-entropy, or mean squared error on the standardised regression target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from atomizer_io.data.task_spec import IGNORE, TaskSpec


def loss_sum(
    outputs: Tensor,
    target: Tensor,
    task_spec: TaskSpec,
    class_weights: Tensor | None = None,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the losses of all known targets (M,), and the weight to divide it by for their mean.

    Each target counts by the ``weight`` (M,) of its position and that of its class, 1 without them.

    Sums, so that positions on several processes weigh alike in a batch. Batches that are accumulated for one step weigh
    alike as wholes, however many positions each has. Where nothing is known both are 0; the sum still has a gradient
    (of zero).
    """
    if task_spec.regression:
        known = target.isfinite()
        error = (outputs[..., 0] - torch.where(known, target, 0.0)) / task_spec.target_std
        counts = known if weight is None else known * weight
        return (error.square() * counts).sum(), counts.sum()
    known = target != IGNORE
    if weight is not None:
        losses = F.cross_entropy(outputs.float(), target, class_weights, ignore_index=IGNORE, reduction="none")
        of_class = 1.0 if class_weights is None else class_weights.to(outputs.device)[target.clamp(min=0)]
        return (losses * weight).sum(), (known * weight * of_class).sum()
    total = F.cross_entropy(outputs.float(), target, class_weights, ignore_index=IGNORE, reduction="sum")
    if class_weights is None:
        return total, known.sum()
    return total, class_weights.to(outputs.device)[target.clamp(min=0)].mul(known).sum()


def class_weights_of_counts(counts: Sequence[int], power: float) -> Tensor:
    """A weight per class, inverse to ``power`` of how often it occurs: 1 balances classes, ½ goes half the way.

    It is 1 on average over what was counted. A class that was not met counts as the rarest that was: it may come yet.
    """
    number = torch.tensor(counts, dtype=torch.float64)
    if not bool(number.any()):
        return torch.ones(len(number))
    raw = torch.where(number > 0, number, number[number > 0].min()) ** -power
    return (raw * number.sum() / (raw * number).sum()).to(torch.float32)
