"""The two feed-forward layers and the rotary self-attention that several stages share.

Shapes: B sequences, T tokens of which R have a position, H heads, E head dim, e = E/2 pairs of channels, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad, scaled_dot_product_attention, softplus

from atomizer_io.models.atomizer.encodings import compress
from atomizer_io.models.atomizer.ops.linear import Linear


class FeedForward(nn.Module):
    """LN → Linear → GELU → Linear, to be added to its input."""

    def __init__(self, width: int, expansion: float, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = round(width * expansion)
        self.norm = nn.LayerNorm(width)
        self.up = Linear(width, hidden)
        self.dropout = nn.Dropout(dropout)
        self.down = Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is to be added to ``x``, in its shape."""
        out: Tensor = self.down(self.dropout(gelu(self.up(self.norm(x)))))
        return out


class GatedFeedForward(nn.Module):
    """LN → (Linear · GELU(Linear)) → Linear (GEGLU), to be added to its input."""

    def __init__(self, width: int, expansion: float, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = round(width * expansion)
        self.norm = nn.LayerNorm(width)
        self.up = Linear(width, 2 * hidden, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.down = Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is to be added to ``x``, in its shape."""
        content, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        out: Tensor = self.down(self.dropout(content * gelu(gate)))
        return out


class SelfAttention(nn.Module):
    """LN → multi-head self-attention without qkv bias → Linear, to be added to its input.

    ``angles`` (B, R, E/2), if given, rotate queries and keys of the first R tokens; the others have no position.
    """

    def __init__(self, width: int, heads: int, head_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_dim, self.dropout = heads, head_dim, dropout
        self.norm = nn.LayerNorm(width)
        self.qkv = Linear(width, 3 * heads * head_dim, bias=False)
        self.out = Linear(heads * head_dim, width)

    def weights(self, x_BTD: Tensor, angles_BRe: Tensor | None = None) -> Tensor:
        """Return the attention (B, H, T, T) itself, for explanations."""
        q, k, _ = self._qkv(x_BTD, angles_BRe)
        return (q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)).softmax(dim=-1)

    def _qkv(self, x_BTD: Tensor, angles_BRe: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        qkv_BTE = self.qkv(self.norm(x_BTD)).unflatten(-1, (3 * self.heads, self.head_dim))
        if angles_BRe is None:
            q, k, v = qkv_BTE.transpose(1, 2).chunk(3, dim=1)
            return q, k, v
        qk_BTE, v_BTE = qkv_BTE.split([2 * self.heads, self.heads], dim=2)
        q, k = rotate(qk_BTE.transpose(1, 2), angles_BRe).chunk(2, dim=1)  # both in one go
        return q, k, v_BTE.transpose(1, 2)

    def forward(self, x_BTD: Tensor, angles_BRe: Tensor | None = None) -> Tensor:
        """Return what is to be added to ``x_BTD``, in its shape."""
        q, k, v = self._qkv(x_BTD, angles_BRe)
        attended_BHTE = scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        out: Tensor = self.out(attended_BHTE.transpose(1, 2).flatten(2))
        return out


def rotate(x_BHTE: Tensor, angles_BRe: Tensor) -> Tensor:
    """Rotate each adjacent pair of channels of the first R tokens by its angle.

    A pair (a, b) becomes (a, b) cos + (−b, a) sin, on whole rows: every other channel alone takes twice the time.
    """
    still = x_BHTE.shape[2] - angles_BRe.shape[1]  # tokens without a position
    cos_BRe, sin_BRe = angles_BRe.cos().to(x_BHTE.dtype), angles_BRe.sin().to(x_BHTE.dtype)
    cos_B1TE = pad(torch.stack([cos_BRe, cos_BRe], dim=-1).flatten(-2), (0, 0, 0, still), value=1.0)[:, None]
    sin_B1TE = pad(torch.stack([-sin_BRe, sin_BRe], dim=-1).flatten(-2), (0, 0, 0, still))[:, None]
    swapped_BHTE = torch.stack([x_BHTE[..., 1::2], x_BHTE[..., 0::2]], dim=-1).flatten(-2)
    return x_BHTE * cos_B1TE + swapped_BHTE * sin_B1TE


class RotaryAngles(nn.Module):
    """Rotation angles from physical coordinates: ``2π f compress(w, s)`` with a learned scale ``s`` (paper, §3.4).

    A scene compressed by half its extent spans only [−0.5, 0.5], so the frequencies f are whole cycles per unit, spaced
    geometrically; with the textbook's radians neighbours would hardly differ. Angles stay in float32 or better.
    Axes have equally many frequencies.
    """

    def __init__(self, axes: int, head_dim: int, scale: float, min_cycles: float, max_cycles: float) -> None:
        super().__init__()
        self.reference_scale = scale
        self.log_ratio = nn.Parameter(torch.tensor(math.log(math.e - 1)))  # softplus of it is the scale over its start
        self.count = head_dim // (2 * axes)
        self.min_cycles, self.ratio = min_cycles, max_cycles / min_cycles

    @property
    def cycles(self) -> list[float]:
        """Return the frequencies f; computed when they are used, because their number may come from anybody's file."""
        return [self.min_cycles * self.ratio ** (i / max(1, self.count - 1)) for i in range(self.count)]

    @property
    def scale(self) -> Tensor:
        """Return the learned scale: s_p in metres, or s_t in days."""
        return self.reference_scale * softplus(self.log_ratio)

    def forward(self, coordinates: Tensor) -> Tensor:
        """Return the angles (…, E/2) of coordinates (…, axes) in metres or days, axis after axis."""
        dtype = torch.promote_types(self.log_ratio.dtype, torch.float32)
        squeezed = compress(coordinates.to(self.log_ratio.device, dtype), self.scale.to(dtype))
        return (2 * math.pi * squeezed[..., None] * squeezed.new_tensor(self.cycles)).flatten(-2)
