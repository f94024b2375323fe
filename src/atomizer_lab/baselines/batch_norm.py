"""Batch normalisation that also trains on one value per channel, which a batch of one small image leaves.

A single value has no standard deviation, so it is normalised by the running statistics, as in evaluation.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class BatchNorm1d(nn.BatchNorm1d):
    """Normalises (N, D) over N."""

    def forward(self, input: Tensor) -> Tensor:
        """(N, D) → (N, D)."""
        return _by_running(self, input) if self.training and input.numel() == input.shape[1] else super().forward(input)


class BatchNorm2d(nn.BatchNorm2d):
    """Normalises (B, D, H, W) over B, H and W."""

    def forward(self, input: Tensor) -> Tensor:
        """(B, D, H, W) → (B, D, H, W)."""
        return _by_running(self, input) if self.training and input.numel() == input.shape[1] else super().forward(input)


def _by_running(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
