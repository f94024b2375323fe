"""Gradients are clipped as torch clips them, and left alone where their norm is small."""

from __future__ import annotations

import pytest
import torch

import atomizer_io as aio
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.task import Task
from scenes import SMALL


@pytest.mark.parametrize("size", [1e-4, 1.0, float("nan")])
def test_gradients_are_clipped_as_torch_does(size: float) -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL)
    task = Task(model, TrainingSettings(), lambda step: 1.0, seed=0)
    weights = list(model.parameters())
    for number, weight in enumerate(weights[:-1]):  # the last has none
        weight.grad = size * torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
    before = [weight.grad.clone() for weight in weights[:-1]]
    task.configure_gradient_clipping(torch.optim.SGD(weights), 1.0, "norm")
    gradients = [weight.grad.clone() for weight in weights[:-1]]
    for weight, grad in zip(weights, before, strict=False):
        weight.grad = grad.clone()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    expected = [weight.grad for weight in weights[:-1]]
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
    if size == 1e-4:
        assert all(torch.equal(a, b) for a, b in zip(gradients, before, strict=True))
