"""Attention from a few queries to any number of keys, which are made block by block and never stand in memory together.

The softmax runs on from block to block. The backward pass makes each block again, so that training takes no more memory
than a block either: neither the keys nor their (heads × queries × keys) weights are ever there at once.

Shapes: H heads, L queries, n keys of a block, E head dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Block = TypeVar("Block")


def streamed_attention(
    query_HLE: Tensor, blocks: Sequence[Block], keys_and_values: Callable[..., tuple[Tensor, Tensor]], *inputs: Tensor
) -> Tensor:
    """Return softmax(q·k / √E)·v (H, L, E) over the keys of all blocks, at least one, as if they stood in one row.

    ``keys_and_values(block, *inputs)`` makes the keys and values (H, n, E) of a block, the same ones at each call; a
    block may have none. Gradients reach the queries and ``inputs``, and nothing else that it uses.
    """
    scaled_HLE = query_HLE / math.sqrt(query_HLE.shape[-1])
    attended_HLE: Tensor = _Streamed.apply(keys_and_values, blocks, scaled_HLE, *inputs)
    return attended_HLE


class _Streamed(torch.autograd.Function):
    """The attention of :func:`streamed_attention` to queries that are scaled already."""

    @staticmethod
    def forward(
        ctx: Any,
        keys_and_values: Callable[..., tuple[Tensor, Tensor]],
        blocks: Sequence[Any],
        query_HLE: Tensor,
        *inputs: Tensor,
    ) -> Tensor:
        """Return the attended values; ``peak`` and ``total`` are largest logit and sum of weights so far."""
        exact = torch.promote_types(query_HLE.dtype, torch.float32)
        peak_HL1 = query_HLE.new_full((*query_HLE.shape[:2], 1), -torch.inf, dtype=exact)
        total_HL1 = torch.zeros_like(peak_HL1)
        sum_HLE = torch.zeros_like(query_HLE, dtype=exact)
        for block in blocks:
            key_HnE, value_HnE = keys_and_values(block, *inputs)
            if not key_HnE.shape[1]:
                continue
            weights_HLn = (query_HLE @ key_HnE.mT).to(exact)
            higher_HL1 = torch.maximum(peak_HL1, weights_HLn.amax(dim=-1, keepdim=True))
            weights_HLn.sub_(higher_HL1).exp_()
            fading_HL1 = (peak_HL1 - higher_HL1).exp_()
            total_HL1 = total_HL1.mul_(fading_HL1).add_(weights_HLn.sum(dim=-1, keepdim=True))
            sum_HLE = sum_HLE.mul_(fading_HL1).add_(weights_HLn.to(value_HnE.dtype) @ value_HnE)
            peak_HL1 = higher_HL1
        attended_HLE = (sum_HLE / total_HL1).to(query_HLE.dtype)
        ctx.save_for_backward(query_HLE, attended_HLE, peak_HL1 + total_HL1.log(), *inputs)
        ctx.keys_and_values, ctx.blocks = keys_and_values, blocks
        device = query_HLE.device.type
        ctx.precision = (torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        return attended_HLE

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_HLE: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the queries and of what the keys and values are made of."""
        query_HLE, attended_HLE, log_total_HL1, *inputs = ctx.saved_tensors
        exact = log_total_HL1.dtype
        grads = {i: torch.zeros_like(part) for i, part in enumerate(inputs) if ctx.needs_input_grad[3 + i]}
        query_grad_HLE = torch.zeros_like(query_HLE, dtype=exact)
        mean_HL1 = (grad_HLE.to(exact) * attended_HLE.to(exact)).sum(dim=-1, keepdim=True)
        dtype, mixed = ctx.precision
        for block in ctx.blocks:
            with torch.enable_grad(), torch.autocast(query_HLE.device.type, dtype, enabled=mixed):
                leaves = [part.detach().requires_grad_(i in grads) for i, part in enumerate(inputs)]
                key_HnE, value_HnE = ctx.keys_and_values(block, *leaves)
            if not key_HnE.shape[1]:
                continue
            key, value = key_HnE.detach(), value_HnE.detach()
            query, grad = query_HLE.to(key.dtype), grad_HLE.to(key.dtype)
            weights_HLn = (query @ key.mT).to(exact).sub_(log_total_HL1).exp_()
            change_HLn = (grad @ value.mT).to(exact).sub_(mean_HL1).mul_(weights_HLn).to(key.dtype)
            query_grad_HLE += change_HLn @ key
            if grads:
                made = (change_HLn.mT @ query, weights_HLn.to(value.dtype).mT @ grad)
                parts = torch.autograd.grad((key_HnE, value_HnE), [leaves[i] for i in grads], made)
                for total, part in zip(grads.values(), parts, strict=True):
                    total += part
        return None, None, query_grad_HLE.to(query_HLE.dtype), *(grads.get(i) for i in range(len(inputs)))
