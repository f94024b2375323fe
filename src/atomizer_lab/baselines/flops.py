"""Counting the FLOPs of a network by running it on tensors without values."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def counted(module: nn.Module, *inputs: Tensor) -> float:
    """Return the FLOPs of ``module(*inputs)``; a multiply-add counts as two.

    It runs on the meta device: nothing is computed there, and attention is counted, which it is not on a CPU.
    """
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        copy.deepcopy(module).eval().to("meta")(*(tensor.to("meta") for tensor in inputs))
    return float(counter.get_total_flops())
