"""How much memory work in blocks may take. Sizes are in bytes, so narrow models get more rows at once than wide ones.

A block is as large as pays off: on a CPU what its caches hold of the widest preset in 1 024 queries, on other devices
enough to keep them busy. Activations of a block are kept for the backward pass while they fit ``KEPT_BYTES``; those of
the blocks after that are computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import torch
from torch.utils.checkpoint import checkpoint

CPU_BLOCK_BYTES = 32 << 20
DEVICE_BLOCK_BYTES = 1 << 30
KEPT_BYTES = 512 << 20

Given = TypeVarTuple("Given")
Result = TypeVar("Result")


def rows_at_once(bytes_per_row: int, device: torch.device) -> int:
    """Rows of a block whose intermediate results take ``bytes_per_row`` each; at least one."""
    return max(1, (CPU_BLOCK_BYTES if device.type == "cpu" else DEVICE_BLOCK_BYTES) // bytes_per_row)


class Keeping:
    """Runs blocks one after the other, and remembers how much of what they keep for the backward pass still fits."""

    def __init__(self) -> None:
        self.left = KEPT_BYTES

    def run(self, block: Callable[[*Given], Result], *arguments: *Given, size: int) -> Result:
        """The result of ``block``, whose activations take about ``size`` bytes."""
        self.left -= size
        if self.left >= 0 or not torch.is_grad_enabled():
            return block(*arguments)
        result: Result = checkpoint(block, *arguments, use_reentrant=False)
        return result
