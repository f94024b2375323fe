"""Latents talk: self-attention blocks over spatial and global latents (paper, §3.4).

Shapes: B scenes, L spatial latents, G global latents, T = L + G, D width,
2 = (x, y) in metres.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.layers import GatedFeedForward, RotaryAngles, SelfAttention


class TransformerBlock(nn.Module):
    """Pre-norm transformer block: self-attention, then GEGLU."""

    def __init__(
        self, width: int, heads: int, head_dim: int, expansion: float, attention_dropout: float, dropout: float
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads, head_dim, attention_dropout)
        self.feedforward = GatedFeedForward(width, expansion, dropout)

    def forward(self, x_BTD: Tensor, angles_BLe: Tensor | None) -> Tensor:
        """Return the tokens (B, T, D) after both sublayers."""
        x_BTD = x_BTD + self.attention(x_BTD, angles_BLe)
        x_BTD = x_BTD + self.feedforward(x_BTD)
        return x_BTD


class Processor(nn.Module):
    """B blocks over [spatial; global] latents; two-axis RoPE on the spatial ones."""

    def __init__(
        self, width: int, depth: int, global_latents: int, angles: RotaryAngles | None, block: Callable[[], nn.Module]
    ) -> None:
        super().__init__()
        self.global_latents = nn.Parameter(torch.empty(global_latents, width))
        nn.init.trunc_normal_(self.global_latents, std=0.02)
        self.angles = angles
        self.blocks = nn.ModuleList(block() for _ in range(depth))

    def forward(self, h_BLD: Tensor, anchors_BL2: Tensor, blocks: slice = slice(None)) -> Tensor:
        """Return the spatial latents (B, L, D), of scenes that have equally many, after some of the blocks."""
        x_BTD = torch.cat([h_BLD, self.global_latents.expand(h_BLD.shape[0], -1, -1)], dim=1)
        angles_BLe = None if self.angles is None else self.angles(anchors_BL2)
        for block in self.blocks[blocks]:
            x_BTD = block(x_BTD, angles_BLe)
        return x_BTD[:, : h_BLD.shape[1]]
