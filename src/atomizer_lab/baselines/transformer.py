"""The blocks of a vision transformer (Dosovitskiy et al. 2021), used by several models.

Shapes: B sequences, L tokens, D features, A heads, V = D/A.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from atomizer_io.errors import ConfigError

EPS = 1e-6  # of layer normalisation


class Attention(nn.Module):
    """Self-attention of several heads; queries, keys and values come from one linear map with a bias."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"{width} features cannot be split among {heads} heads: take a multiple")
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x_BLD: Tensor, mask_BL: Tensor | None = None) -> Tensor:
        """(B, L, D) → (B, L, D); where ``mask_BL`` is False no token looks."""
        q_BALV, k_BALV, v_BALV = self.qkv(x_BLD).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        looked_BALV = F.scaled_dot_product_attention(
            q_BALV,
            k_BALV,
            v_BALV,
            attn_mask=None if mask_BL is None else mask_BL[:, None, None, :],
            dropout_p=self.dropout if self.training else 0.0,
        )
        out: Tensor = self.out(looked_BALV.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention and two linear layers with GELU between, each behind a layer normalisation and beside a residual."""

    def __init__(
        self, width: int, heads: int, hidden: int, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, EPS)
        self.attention = Attention(width, heads, attention_dropout)
        self.mlp_norm = nn.LayerNorm(width, EPS)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, width), nn.Dropout(dropout)
        )

    def forward(self, x_BLD: Tensor, mask_BL: Tensor | None = None) -> Tensor:
        """(B, L, D) → (B, L, D)."""
        x_BLD = x_BLD + self.attention(self.attention_norm(x_BLD), mask_BL)
        out: Tensor = x_BLD + self.mlp(self.mlp_norm(x_BLD))
        return out


class Transformer(nn.Module):
    """A number of blocks and a layer normalisation; features can be tapped after some blocks."""

    def __init__(
        self,
        width: int = 384,
        depth: int = 12,
        heads: int = 6,
        mlp_ratio: int = 4,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(width, heads, mlp_ratio * width, dropout, attention_dropout) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width, EPS)
        self.apply(start)

    def forward(self, x_BLD: Tensor, mask_BL: Tensor | None = None) -> Tensor:
        """(B, L, D) → normalised features (B, L, D) after the last block."""
        for block in self.blocks:
            x_BLD = block(x_BLD, mask_BL)
        out: Tensor = self.norm(x_BLD)
        return out

    def tapped(self, x_BLD: Tensor, taps: Sequence[int], mask_BL: Tensor | None = None) -> list[Tensor]:
        """Return the features (B, L, D) after the blocks numbered ``taps``; those of the last block are normalised."""
        tapped, last = dict[int, Tensor](), len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            x_BLD = block(x_BLD, mask_BL)
            if number in taps:
                tapped[number] = self.norm(x_BLD) if number == last else x_BLD
        return [tapped[number] for number in taps]  # a shallow network may return a block twice


def taps_of(depth: int) -> tuple[int, int, int, int]:
    """Return the four blocks whose features a dense decoder reads: of twelve blocks the numbers 3, 5, 7 and 11."""
    first, second, third = (max(0, round(depth * part) - 1) for part in (1 / 3, 1 / 2, 2 / 3))
    return first, second, third, depth - 1


def start(module: nn.Module) -> None:
    """Draw the weights of a linear layer: normal, of deviation 0.02, truncated at 0.04; its bias is zero."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
        nn.init.zeros_(module.bias)
