"""What reaches the stages of a network: do latents and queries differ, is attention uniform, do gradients arrive?

Shapes: N latents or queries, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.decoder import LatentAttention
from atomizer_io.models.atomizer.encoder import Encoder
from atomizer_io.models.atomizer.observations import ObservationAttention
from atomizer_io.models.atomizer.ops.attention import plan
from atomizer_io.models.atomizer.ops.memory import rows_at_once
from atomizer_io.models.atomizer.prepare import PreparedSample
from atomizer_io.models.atomizer.processor import TransformerBlock
from atomizer_io.models.atomizer.temporal import TemporalAggregator

HEADER = f"{'stage':16}{'common':>10}{'differing':>11}{'entropy':>9}{'gradient':>11}"


@dataclass(frozen=True, slots=True)
class Stage:
    """Lengths of what the outputs of a stage have in common within a scene, and of what differs; means over scenes.

    ``entropy`` is that of its attention as a share of uniform attention's, NaN without attention to several things;
    ``gradient`` is the norm of the gradient of all of its parameters for the batch.
    """

    name: str
    common: float
    differing: float
    entropy: float
    gradient: float

    def __str__(self) -> str:
        entropy = "" if math.isnan(self.entropy) else f"{self.entropy:.3f}"
        return f"{self.name:16}{self.common:10.3g}{self.differing:11.3g}{entropy:>9}{self.gradient:11.3g}"


def diagnose(
    model: AtomizerIO, inputs: Sequence[PreparedSample], loss: Callable[[list[Tensor]], Tensor]
) -> list[Stage]:
    """Return the stages of ``model`` for one batch; ``loss`` makes a number of its predictions. Dropout is off."""
    stages, training = stages_of(model), model.training
    rows: dict[str, list[Tensor]] = {name: [] for name in stages}
    shares: dict[str, list[Tensor]] = {name: [torch.empty(0)] for name in stages}
    lengths: dict[str, list[tuple[float, float]]] = {name: [] for name in stages}

    def watch(name: str, module: nn.Module) -> RemovableHandle:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            if isinstance(module, TransformerBlock):
                output = output[:, : output.shape[1] - len(model.processor.global_latents)]
            rows[name].append((arguments[0] if module is model.head else output).flatten(0, -2))
            shares[name].extend(share.flatten().float().cpu() for share in shares_of(module, arguments))

        # what leaves the decoder enters the head
        return (model.head if module is model.decoder else module).register_forward_hook(hook)

    hooks: list[Any] = []
    try:
        model.eval().zero_grad()
        loss(model.predict(inputs)).backward()
        gradients = {name: gradient_norm(module) for name, module in stages.items()}
        model.zero_grad()
        hooks += [watch(name, module) for name, module in stages.items()]
        for sample in inputs:  # latents are compared with those of their own scene
            with torch.no_grad():
                model.predict([sample])
            for name, parts in rows.items():
                lengths[name].append(common_and_differing(torch.cat(parts)))
                parts.clear()
    finally:
        for handle in hooks:
            handle.remove()
        model.train(training)
    result = []
    for name, gradient in gradients.items():
        common, differing = torch.tensor(lengths[name]).nanmean(dim=0).tolist()
        result.append(Stage(name, common, differing, float(torch.cat(shares[name]).nanmean()), gradient))
    return result


def stages_of(model: AtomizerIO) -> dict[str, nn.Module]:
    """Return the stages by name, in the order of the computation."""
    named: dict[str, nn.Module] = {"encoder": model.encoder}
    for number, block in enumerate(model.processor.blocks):
        if model.temporal is not None and number == model.config.step_depth:
            named["temporal"] = model.temporal
        named[f"processor {number + 1}"] = block
    if model.temporal is not None:
        named.setdefault("temporal", model.temporal)
    if model.decoder is not None:
        named["decoder input"] = model.decoder.latent.context_norm
        if model.decoder.observation is not None:
            named["observations"] = model.decoder.observation
        named |= {"neighbors": model.decoder.latent, "decoder": model.decoder}
    return named


def common_and_differing(x_ND: Tensor) -> tuple[float, float]:
    """Return the length of the mean of some rows, and the root mean square of their distances from it."""
    mean_D = x_ND.mean(dim=0)
    return float(mean_D.norm()), float((x_ND - mean_D).square().sum(dim=1).mean().sqrt())


def shares_of(module: nn.Module, arguments: Any) -> list[Tensor]:
    """Return, for all queries of the attention of a stage, its entropy as a share of that of uniform attention."""
    if isinstance(module, Encoder):
        tokens, cells, anchors_L2 = arguments
        attention, segments = module.attention, cells.segments(max(1, int(cells.counts_L.max())))
        folded = attention.fold(module.query(), tokens.kind_KF)
        _, blocks = plan(
            segments, cells, tokens, anchors_L2, rows_at_once(attention.atom_bytes(), tokens.value_N.device)
        )
        logits = [attention.hidden_and_logits(folded, tokens.value_N, tokens.site_SF, block)[1] for block in blocks]
        return [uniformity(logits_KnH.softmax(dim=1), dim=1) for logits_KnH in logits]
    if isinstance(module, TransformerBlock):
        return [uniformity(module.attention.weights(*arguments), dim=-1)]
    if isinstance(module, TemporalAggregator):
        return [uniformity(module.step_shares(*arguments), dim=0)]
    if isinstance(module, ObservationAttention):  # to channels, as a mean over heads
        return [uniformity(module.shares(arguments[0], look), dim=1) for look in arguments[1]]
    if isinstance(module, LatentAttention):
        q_MD, pieces = arguments
        by_piece = zip(q_MD.split([len(piece) for piece in pieces]), pieces, strict=True)
        return [uniformity(module.weights(q, piece.latents, piece.near), dim=1) for q, piece in by_piece]
    return []


def uniformity(weights: Tensor, dim: int) -> Tensor:
    """Return the entropy of weights as a share of its maximum; NaN where there is a single one above zero."""
    count = (weights > 0).sum(dim=dim)
    entropy: Tensor = torch.special.entr(weights).sum(dim=dim) / count.clamp(min=2).log()
    return entropy.masked_fill(count < 2, torch.nan)


def gradient_norm(module: nn.Module) -> float:
    """Return the norm of the gradients of all parameters of a module."""
    norms = [parameter.grad.norm() for parameter in module.parameters() if parameter.grad is not None]
    return float(torch.stack(norms).norm()) if norms else 0.0
