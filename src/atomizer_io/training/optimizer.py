"""What changes the weights in a step: AdamW, gradient clipping, and the EMA that is validated and saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from atomizer_io.training.config import TrainingSettings

SMALL_NORM = 1e-6  # that torch adds to a norm before it divides by it


def adamw(model: nn.Module, training: TrainingSettings) -> torch.optim.AdamW:
    """Return AdamW for the weights of ``model``."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=training.learning_rate,
        betas=training.betas,
        eps=training.eps,
        weight_decay=training.weight_decay,
        fused=not training.precision.startswith("16"),  # gradients of scaled losses cannot be clipped for a fused one
    )


def clip_gradients(model: nn.Module, limit: float) -> None:
    """Clip the norm of all gradients, in one call for all tensors."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    if not float(norm) + SMALL_NORM <= limit:  # or nothing would change; NaN does
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm, foreach=True)


class EMA:
    """An exponential moving average of all floating-point weights and buffers of ``model``.

    In update n (from 0) the decay is min(``decay``, (1 + n) / (10 + n)), so that the first weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.updates = model, decay, 0
        own = floating_tensors(model)
        self.names, self.own = list(own), list(own.values())
        self.mean = [tensor.clone() for tensor in self.own]

    def update(self) -> None:
        """Move the average towards the weights, after a step of the optimizer."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self.mean, self.own, 1 - decay)
        self.updates += 1

    def swap(self) -> None:
        """Exchange the weights of the model and their average; doing so twice changes nothing."""
        own = list(floating_tensors(self.model).values())  # the model may have moved to another device
        kept = [tensor.clone() for tensor in own]
        torch._foreach_copy_(own, self.mean)
        torch._foreach_copy_(self.mean, kept)

    def state_dict(self) -> dict[str, Any]:
        """Return the average by name, and the number of updates."""
        return {"updates": self.updates, "mean": dict(zip(self.names, self.mean, strict=True))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the average and the number of updates from a stored state."""
        self.updates = int(state["updates"])
        torch._foreach_copy_(self.mean, [state["mean"][name] for name in self.names])


def floating_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights and buffers of a model that hold floating-point numbers, in the memory that it uses."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach() for name, tensor in tensors.items() if tensor.is_floating_point()}
