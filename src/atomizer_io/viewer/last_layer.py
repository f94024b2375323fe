"""The last layer, refitted to a few labelled positions: a logistic regression of decoded features.

It begins at the model's own layer, towards which it is regularised, so that a class without labels is not lost; a new
class begins at zero. Shapes: N labels, D features, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from atomizer_io.datasets.spatial_folds import blocks_of, folds_of, usual_block_m
from atomizer_io.errors import ConfigError

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)  # of the regularisation; cross-validation chooses
ITERATIONS, FOLDS = 80, 5


@dataclass(frozen=True, slots=True, eq=False)
class LastLayer:
    """Weights (C, D) and bias (C,) of a linear layer that classifies features."""

    weight_CD: Tensor
    bias_C: Tensor

    def probabilities(self, features_MD: Tensor) -> Tensor:
        """Return the probability of each class (M, C)."""
        return F.linear(features_MD, self.weight_CD, self.bias_C).softmax(dim=-1)


@dataclass(frozen=True, slots=True)
class Score:
    """How right held-out labels are predicted: the share of all, the mean over classes; None where it is not known."""

    accuracy: float | None
    mean_recall: float | None
    why: str = ""


def fit(
    features_ND: Tensor, target_N: Tensor, prior: LastLayer, used_PN: Tensor, strengths_P: Tensor
) -> tuple[Tensor, Tensor]:
    """Return weights (P, C, D) and biases (P, C) of P layers of least cross-entropy, every class weighing alike.

    Layer p is fitted to the labels that ``used_PN`` marks; its loss has ``strengths_P[p]`` times the square of what it
    changes of the prior, in units of the standard deviation of the features.
    """
    from scipy.optimize import minimize

    mean_D, scale_D = features_ND.mean(dim=0), features_ND.std(dim=0, correction=0).clamp(min=1e-3)
    scaled_ND = F.pad((features_ND - mean_D) / scale_D, (0, 1), value=1.0).numpy()  # the last is for the bias
    base_NC = F.linear(features_ND, prior.weight_CD, prior.bias_C).numpy()
    one_NC = F.one_hot(target_N, len(prior.bias_C)).numpy().astype(np.float32)
    used = used_PN.numpy().astype(np.float32)
    weight_PN = used / np.maximum(used @ one_NC, 1)[:, target_N.numpy()]
    weight_PN1 = (weight_PN / weight_PN.sum(axis=1, keepdims=True))[..., None]
    penalty_P1D = strengths_P.numpy()[:, None, None] * np.append(np.ones(len(mean_D), np.float32), 0)
    shape = (len(used), scaled_ND.shape[1], len(prior.bias_C))

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        change_PDC = flat.reshape(shape).astype(np.float32)
        logits_PNC = base_NC + scaled_ND @ change_PDC
        logits_PNC -= logits_PNC.max(axis=2, keepdims=True)
        share_PNC = np.exp(logits_PNC)
        total_PN1 = share_PNC.sum(axis=2, keepdims=True)
        entropy_PN1 = np.log(total_PN1) - (logits_PNC * one_NC).sum(axis=2, keepdims=True)
        pull_PDC = penalty_P1D.transpose(0, 2, 1) * change_PDC
        value = float((weight_PN1 * entropy_PN1).sum() + (pull_PDC * change_PDC).sum() / 2)
        slope_PDC = scaled_ND.T @ (weight_PN1 * (share_PNC / total_PN1 - one_NC)) + pull_PDC
        return value, slope_PDC.astype(np.float64).ravel()

    solved = minimize(loss, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    change_PCD = torch.from_numpy(solved.x.reshape(shape).astype(np.float32)).transpose(1, 2)
    weight_PCD = change_PCD[..., :-1] / scale_D
    return prior.weight_CD + weight_PCD, prior.bias_C + change_PCD[..., -1] - weight_PCD @ mean_D


def fitted(
    features_ND: Tensor, target_N: Tensor, prior: LastLayer, xy_N2: NDArray[np.float64], crs: str | None
) -> tuple[LastLayer, Score]:
    """Return the layer with the strength that spatial cross-validation finds best, and its score there."""
    fold_N, why = spatial_folds(target_N, xy_N2, crs)
    used_FN = torch.ones(1, len(target_N), dtype=torch.bool)
    if fold_N is None:
        weight_PCD, bias_PC = fit(features_ND, target_N, prior, used_FN, torch.tensor(STRENGTHS[1:2]))
        return LastLayer(weight_PCD[0], bias_PC[0]), Score(None, None, why)
    used_FN = torch.cat([used_FN, fold_N != torch.arange(int(fold_N.max()) + 1)[:, None]])
    folds = len(used_FN)  # the first is fitted to all labels
    used_PN, strengths_P = used_FN.repeat(len(STRENGTHS), 1), torch.tensor(STRENGTHS).repeat_interleave(folds)
    weight_PCD, bias_PC = fit(features_ND, target_N, prior, used_PN, strengths_P)
    best, score = 0, Score(None, None)
    for number in range(len(STRENGTHS)):
        of_N = number * folds + 1 + fold_N
        logits_NC = (weight_PCD[of_N] @ features_ND[..., None])[..., 0] + bias_PC[of_N]
        right_N = (logits_NC.argmax(dim=1) == target_N).float()
        recall = float(torch.stack([right_N[target_N == c].mean() for c in target_N.unique()]).mean())
        if score.mean_recall is None or recall > score.mean_recall:
            best, score = number, Score(float(right_N.mean()), recall)
    return LastLayer(weight_PCD[best * folds], bias_PC[best * folds]), score


def spatial_folds(target_N: Tensor, xy_N2: NDArray[np.float64], crs: str | None) -> tuple[Tensor | None, str]:
    """Return the fold of each label, whole blocks together, or None and why there is none."""
    counts = torch.bincount(target_N)
    if int(counts[counts > 0].min()) < 2 or int((counts > 0).sum()) < 2:
        return None, "no score yet: it takes two labels of each of two classes"
    folds, size_m = min(FOLDS, len(target_N) // 2), usual_block_m(xy_N2, crs, FOLDS)
    for _ in range(4):  # smaller blocks where labels lie close together
        try:
            blocks, every = blocks_of(xy_N2, crs, size_m), np.arange(len(target_N))
            of_labels, _ = folds_of(blocks, every, target_N.numpy(), np.ones(len(target_N)), folds)
            return torch.from_numpy(of_labels.astype(np.int64)), ""
        except ConfigError:
            size_m /= 4
    return None, "no score: all labels lie in one spot"


def where_next(lead_HW: NDArray[np.float32], taken: Sequence[tuple[int, int]], count: int = 5) -> list[tuple[int, int]]:
    """Return pixels to label next: among the least certain those that are far from each other and from all labels."""
    known = np.isfinite(lead_HW)
    limit = np.quantile(lead_HW[known], 0.05)
    candidates = np.argwhere(known & (lead_HW <= limit))
    candidates = candidates[np.linspace(0, len(candidates) - 1, min(len(candidates), 2000)).astype(int)]
    distance = np.full(len(candidates), np.inf)
    for pixel in taken:
        distance = np.minimum(distance, ((candidates - pixel) ** 2).sum(axis=1))
    chosen: list[tuple[int, int]] = []
    while len(chosen) < min(count, len(candidates)):
        row, column = candidates[int(distance.argmax())].tolist()
        chosen.append((row, column))
        distance = np.minimum(distance, ((candidates - (row, column)) ** 2).sum(axis=1))
    return chosen
