"""The running mean of the weights of a model in training, which mostly does better than the weights of any one step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Average:
    """An exponential moving average of all floating-point weights and buffers of ``model``.

    In update n (from 0) the average keeps a share of min(``decay``, (1 + n) / (10 + n)) of itself, so that the weights
    of the start are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.updates = model, decay, 0
        own = numbers_of(model)
        self.names, self.own = list(own), list(own.values())
        self.mean = [tensor.clone() for tensor in self.own]

    def update(self) -> None:
        """Move the average towards the weights, after a step of the optimizer."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self.mean, self.own, 1 - decay)
        self.updates += 1

    def swap(self) -> None:
        """Exchange the weights of the model and their average; a second time, and all is as before."""
        own = list(numbers_of(self.model).values())  # the model may have moved to another device
        kept = [tensor.clone() for tensor in own]
        torch._foreach_copy_(own, self.mean)
        torch._foreach_copy_(self.mean, kept)

    def state_dict(self) -> dict[str, Any]:
        """Return the average by name, and the number of updates."""
        return {"updates": self.updates, "mean": dict(zip(self.names, self.mean, strict=True))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the average and the number of updates from a stored state."""
        self.updates = int(state["updates"])
        torch._foreach_copy_(self.mean, [state["mean"][name] for name in self.names])


def numbers_of(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights and buffers of a model that hold floating-point numbers, in the memory that it uses."""
    every = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach() for name, tensor in every.items() if tensor.is_floating_point()}
