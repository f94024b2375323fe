"""The last layers of a network, fitted to what they are given at single places, while nothing before them runs.

Everything that is chosen is chosen on unseen rows. With validation data (``checked``) it is chosen by what a run is
judged by: where the places to test on differ from those trained on, the loss mostly tells how sure answers are, not how
often they are right. Rows that were only held back are like the others, and the loss of these tells more.

Shapes: N rows, U unseen rows, R rows of a step, D features, E hidden features, C outputs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, gelu, mse_loss

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.atomizer.heads import Head
from atomizer_io.models.atomizer.layers import FeedForward
from atomizer_io.models.watching import Watch, unwatched

STRENGTHS = (1.0, 1e-1, 1e-2, 1e-3)  # of regularisation, of which one is chosen on unseen rows
WEAK = (1e-4, 1e-5)  # further ones, where there are validation data
USUAL = (1e-2,)  # where there are no unseen rows to choose with
ITERATIONS = 50
ROWS = 512  # of a step of the fit
PASSES, STEPS = 45, 4500  # of the fit over all rows, and its steps at most
UNCHECKED_PASSES, UNCHECKED_STEPS = 15, 1500  # the same without validation data
RATE, DECAY, HIDDEN = 1e-3, 0.05, 0.3  # its learning rate, weight decay, and the share of features that are hidden

Rows = tuple[Tensor, Tensor]  # what a layer is given (N, D), and what is true (N,)


class Regression(NamedTuple):
    """A linear or logistic regression, and how good its answers to unseen rows are."""

    weight_CD: Tensor
    bias_C: Tensor
    merit: tuple[float, float]


@torch.no_grad()
def best_regression(
    head: Head, seen: Sequence[Rows], unseen: Sequence[Rows], checked: bool = True, watch: Watch = unwatched
) -> Regression:
    """Return the regression of ``seen`` rows, as the last layer reads them, that is best on ``unseen`` ones.

    Without unseen rows it is the one of the usual strength.
    """
    task_spec = head.task_spec
    x_ND, y_N = normed(head, seen)
    x_UD, y_U = normed(head, unseen) if unseen else (x_ND[:0], y_N[:0])
    best, start = None, None
    strengths = (*STRENGTHS, *(WEAK if checked else ())) if unseen else USUAL
    for number, strength in enumerate(strengths, 1):
        start = regression(x_ND, y_N, task_spec, strength, start)
        weight_CD, bias_C = start
        found = (0.0, 0.0)
        if unseen:
            found = merit(x_UD @ weight_CD.T + bias_C, y_U, task_spec, checked)
        if best is None or found > best.merit:
            best = Regression(weight_CD, bias_C, found)
        if not watch("regressions", number, len(strengths)):
            break
    assert best is not None
    return best


def normed(head: Head, rows: Sequence[Rows]) -> Rows:
    """Return all rows as the last layer reads them."""
    x_ND, y_N = joined(rows, head.task_spec)
    return head.norm(x_ND).double(), y_N


@torch.no_grad()
def set_last(head: Head, found: Regression) -> None:
    """Give the last layer the weights of a regression."""
    head.linear.weight.copy_(found.weight_CD)
    head.linear.bias.copy_(found.bias_C)


@torch.enable_grad()
def fit(
    feedforward: FeedForward,
    head: Head,
    seen: Sequence[Rows],
    unseen: Sequence[Rows],
    checked: bool = True,
    watch: Watch = unwatched,
) -> None:
    """Train the last two layers of a decoder on ``seen`` for as long as it helps on ``unseen``, and there is time."""
    task_spec, trained = head.task_spec, nn.ModuleList([feedforward, head])
    (x_ND, y_N), (x_UD, y_U) = joined(seen, task_spec), joined(unseen, task_spec)
    search = torch.optim.AdamW(trained.parameters(), RATE, weight_decay=DECAY)
    passes, most_steps = (PASSES, STEPS) if checked else (UNCHECKED_PASSES, UNCHECKED_STEPS)
    steps = max(passes, min(most_steps, passes * len(x_ND) // ROWS))
    slower = torch.optim.lr_scheduler.LinearLR(search, 1.0, 0.0, steps)
    best, most = copy.deepcopy(trained.state_dict()), (-math.inf, -math.inf)
    for step in range(steps + 1):
        if step % (steps // passes) == 0:
            with torch.no_grad():
                answers_UC = head.linear(head.norm(x_UD + feedforward(x_UD)))
            if (found := merit(answers_UC, y_U, task_spec, checked)) > most:
                best, most = copy.deepcopy(trained.state_dict()), found
            if not watch("steps", step, steps):
                break
        if step == steps:
            break
        row_R = torch.randint(len(x_ND), (ROWS,)).to(x_ND.device)
        hidden_RE = gelu(feedforward.up(feedforward.norm(x_ND[row_R])))
        added_RD = feedforward.down(dropout(hidden_RE, HIDDEN))
        loss = loss_of(head.linear(head.norm(x_ND[row_R] + added_RD)), y_N[row_R], task_spec)
        search.zero_grad()
        loss.backward()
        search.step()
        slower.step()
    trained.load_state_dict(best)


@torch.no_grad()
def beats_a_constant(feedforward: FeedForward, head: Head, seen: Sequence[Rows], unseen: Sequence[Rows]) -> bool:
    """Whether the last two layers of a decoder answer about ``unseen`` rows with less loss than always the same answer.

    That is the mean of the ``seen`` rows, or the share that each class has of them.
    """
    task_spec = head.task_spec
    (_, y_N), (x_UD, y_U) = joined(seen, task_spec), joined(unseen, task_spec)
    if task_spec.regression:
        constant_C = y_N.mean()[None]
    else:
        counts_C = torch.bincount(y_N, minlength=task_spec.num_outputs).double() + 1.0
        constant_C = (counts_C / counts_C.sum()).log()
    answers_UC = head.linear(head.norm(x_UD + feedforward(x_UD)))
    known, nothing = (loss_of(part, y_U, task_spec) for part in (answers_UC, constant_C.expand(len(y_U), -1)))
    return bool(known < nothing)


def joined(rows: Sequence[Rows], task_spec: TaskSpec) -> Rows:
    """Return all rows; quantities in units of their spread."""
    x_ND, y_N = torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows])
    return (
        (x_ND, (y_N.double() - task_spec.target_mean) / task_spec.target_std) if task_spec.regression else (x_ND, y_N)
    )


def regression(
    x_ND: Tensor, y_N: Tensor, task_spec: TaskSpec, strength: float, start: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Return weights (C, D) and bias (C,) of a linear or logistic regression; ``strength`` is that of a ridge.

    A logistic one is searched for from ``start``, the weights and bias of another strength.
    """
    mean_D = x_ND.mean(dim=0)
    x_ND = x_ND - mean_D
    if task_spec.regression:
        square_DD = x_ND.T @ x_ND / len(x_ND) + strength * torch.eye(x_ND.shape[1]).to(x_ND)
        weight_CD = torch.linalg.solve(square_DD, x_ND.T @ (y_N - y_N.mean()) / len(x_ND))[None]
        return weight_CD, y_N.mean()[None] - weight_CD @ mean_D
    if start is None:
        start = (x_ND.new_zeros(task_spec.num_outputs, x_ND.shape[1]), x_ND.new_zeros(task_spec.num_outputs))
    weight_CD, bias_C = start[0].clone(), start[1] + start[0] @ mean_D
    search = torch.optim.LBFGS(
        [part.requires_grad_() for part in (weight_CD, bias_C)], max_iter=ITERATIONS, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        found = cross_entropy(x_ND @ weight_CD.T + bias_C, y_N) + strength * weight_CD.square().sum()
        found.backward()
        return found

    with torch.enable_grad():
        search.step(loss)
    return weight_CD.detach(), (bias_C - weight_CD @ mean_D).detach()


def merit(answers_NC: Tensor, y_N: Tensor, task_spec: TaskSpec, checked: bool = True) -> tuple[float, float]:
    """Return how good answers are, the larger the better: their score and then minus their loss, or the loss alone."""
    loss = float(loss_of(answers_NC, y_N, task_spec))
    return (score(answers_NC, y_N, task_spec) if checked and not task_spec.regression else 0.0, -loss)


def score(answers_NC: Tensor, y_N: Tensor, task_spec: TaskSpec) -> float:
    """Return the mean IoU of the classes of a map, or the macro F1 of scenes."""
    count = task_spec.num_outputs
    pairs = torch.bincount(y_N * count + answers_NC.argmax(dim=1), minlength=count**2).view(count, count).double()
    hits_C, seen_C = pairs.diagonal(), pairs.sum(dim=0) + pairs.sum(dim=1)
    found_C = hits_C / (seen_C - hits_C) if task_spec.dense else 2 * hits_C / seen_C
    return float(found_C[seen_C > 0].mean())


def loss_of(answers_NC: Tensor, y_N: Tensor, task_spec: TaskSpec) -> Tensor:
    """Return the mean loss of answers, of quantities in units of their spread."""
    return mse_loss(answers_NC[:, 0], y_N.to(answers_NC)) if task_spec.regression else cross_entropy(answers_NC, y_N)
