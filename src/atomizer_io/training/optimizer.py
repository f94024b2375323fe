"""What changes the weights in a step: AdamW, gradient clipping, and the EMA that is validated and saved."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from atomizer_io.models.base import Model
from atomizer_io.training.augmentation import ChannelDropout
from atomizer_io.training.config import FROM_DATA, TrainingSettings

SENSITIVE_SHARE = 0.003  # chosen on synthetic floods and MARIDA: docs/lab/diary.md
SMALL_NORM = 1e-6  # that torch adds to a norm before it divides by it


def parameter_groups(model: Model, training: TrainingSettings, loaded: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the trained weights in groups of one learning rate, the lowest first.

    The rate falls by ``layer_decay`` from layer to layer towards the input, for what was ``loaded`` from a checkpoint;
    what is new there has the whole rate. Without a checkpoint it falls for all. Layers that the initialisation from
    data made sensitive have ``sensitive_rate`` of it.
    """
    layers = model.layers()
    sensitive = model.sensitive() if training.initialisation == FROM_DATA else ()
    share = training.sensitive_rate
    if share is None:
        share = SENSITIVE_SHARE if training.channel_dropout == ChannelDropout() else 1.0
    groups: dict[float, list[Tensor]] = {}
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        depth = max((i for i, layer in enumerate(layers) if f"{name}.".startswith(f"{layer}.")), default=0)
        new = bool(loaded) and name not in loaded
        factor = 1.0 if new else training.layer_decay ** (len(layers) - 1 - depth)
        if f"{name}.".startswith(tuple(f"{layer}." for layer in sensitive)):
            factor *= share
        groups.setdefault(factor, []).append(weight)
    return [{"params": groups[factor], "lr": training.learning_rate * factor} for factor in sorted(groups)]


def adamw(model: Model, training: TrainingSettings, loaded: Collection[str] = ()) -> torch.optim.AdamW:
    """Return AdamW for the weights of ``model``, of which some were ``loaded`` from a checkpoint."""
    return torch.optim.AdamW(
        parameter_groups(model, training, loaded),
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
