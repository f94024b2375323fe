"""From atoms to spatial latents (paper, §3.3).

Shapes: N atoms, L latents, D width, 2 = (x, y) in metres.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.config import Encodings
from atomizer_io.models.atomizer.geometry.cells import Cells
from atomizer_io.models.atomizer.layers import FeedForward
from atomizer_io.models.atomizer.ops.attention import FoldedCrossAttention
from atomizer_io.models.atomizer.ops.linear import Linear
from atomizer_io.models.atomizer.tokenizer import Tokens


class Encoder(nn.Module):
    """``h = h_init + W_o CrossAttn(LN(h_init), cell)``, then ``h += FF(LN(h))``, one latent per cell."""

    def __init__(
        self, encodings: Encodings, width: int, heads: int, head_dim: int, expansion: float, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.h_init = nn.Parameter(torch.empty(width))
        nn.init.trunc_normal_(self.h_init, std=0.02)
        self.norm = nn.LayerNorm(width)
        self.attention = FoldedCrossAttention(encodings, width, heads, head_dim)
        self.out = Linear(heads * head_dim, width)
        self.feedforward = FeedForward(width, expansion, dropout)

    def forward(self, tokens: Tokens, cells: Cells, anchors_L2: Tensor) -> Tensor:
        """Return the latents (L, D) of all cells of a batch."""
        return self.latents(self.attention(self.query(), tokens, cells, anchors_L2))

    def query(self) -> Tensor:
        """Return the query (D,) that all cells share."""
        query_D: Tensor = self.norm(self.h_init)
        return query_D

    def latents(self, attended_LE: Tensor) -> Tensor:
        """Return the latents (L, D) made of what the query attended to in each cell (L, H·E)."""
        h_LD: Tensor = self.h_init + self.out(attended_LE)
        h_LD = h_LD + self.feedforward(h_LD)
        return h_LD
