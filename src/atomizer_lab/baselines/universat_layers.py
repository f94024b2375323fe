"""Layers of UniverSat: Fourier lift, rotary positions, axial pooling, gated attention.

Shapes: B samples, X rows that are pooled apart from each other, N entries of the axis that is pooled, D width of the
input, E width of the output, H heads, K width of a head, L tokens, Q queries, R registers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FASTEST, SLOWEST = 7.0, 7e-4  # cycles over a scene, of the rotary frequencies at the start
DAYS_BASE = 100_000.0  # of the rotary frequencies of days
START = 1e-6  # of the learned scale of a residual branch

Turn = tuple[Tensor, Tensor]  # cosine and sine, to broadcast against (..., N, H, K)


def rms_norm(width: int) -> nn.RMSNorm:
    """Return the normalisation of UniverSat: division by the root of the mean square, and a learned gain."""
    return nn.RMSNorm(width, eps=1e-8)


def mlp(width: int) -> nn.Sequential:
    """Return two linear layers with four times the width between them."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class FourierLift(nn.Module):
    """Lifts a number x to D numbers: a linear function of √2 cos(x f + φ) with D / 4 frozen random f and φ."""

    def __init__(self, width: int, bandwidth: float) -> None:
        super().__init__()
        waves = max(1, width // 4)
        self.frequency: Tensor
        self.phase: Tensor
        self.register_buffer("frequency", 2 * math.pi * bandwidth * torch.randn(waves))
        self.register_buffer("phase", 2 * math.pi * torch.rand(waves))
        self.linear = nn.Linear(waves, width)

    def forward(self, x: Tensor) -> Tensor:
        """(...) → (..., D)."""
        waves = torch.addcmul(self.phase, x[..., None], self.frequency).cos()
        out: Tensor = self.linear(waves * math.sqrt(2.0))
        return out


class Rotary(nn.Module):
    """Learned frequencies of two coordinates; at the start half of the channels follow x and half follow y."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 4:
            raise ValueError(f"the width of a head is a multiple of 4 for rotations, got {width}")
        cycles = FASTEST * (SLOWEST / FASTEST) ** torch.linspace(0, 1, width // 4)
        none = torch.zeros_like(cycles)
        along_x, along_y = torch.cat([cycles, none]).repeat(2), torch.cat([none, cycles]).repeat(2)
        self.frequency = nn.Parameter(2 * math.pi * torch.stack([along_x, along_y]))

    def forward(self, place_L2: Tensor) -> Turn:
        """Return the rotation (L, 1, K) of coordinates (L, 2)."""
        angle = (place_L2.to(self.frequency) @ self.frequency)[..., None, :]
        return angle.cos(), angle.sin()


def turn_of_days(day_BN: Tensor, width: int) -> Turn:
    """Return the rotation (B, 1, N, 1, K) of days of the year."""
    power = torch.arange(0, width, 2, dtype=torch.float32, device=day_BN.device) / width
    angle = (day_BN.float()[..., None] * DAYS_BASE**-power).repeat(1, 1, 2)[:, None, :, None, :]
    return angle.cos(), angle.sin()


def turned(x: Tensor, turn: Turn | None) -> Tensor:
    """Rotate the last axis of (..., N, H, K), channel i together with channel i + K / 2."""
    if turn is None:
        return x
    cosine, sine = (part.to(x.dtype) for part in turn)
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cosine, torch.cat([-second, first], dim=-1), sine)


def places(rows: int, columns: int) -> Tensor:
    """Return the coordinates (rows · columns, 2), x and y, of a grid whose longer side runs from 0 to 1."""
    longest = max(rows, columns, 2) - 1
    y, x = torch.meshgrid(torch.arange(rows) / longest, torch.arange(columns) / longest, indexing="ij")
    return torch.stack([x, y], dim=-1).reshape(-1, 2)


def border_places(count: int) -> Tensor:
    """Return the coordinates (R, 2) of ``count`` registers, evenly along the border of the unit square."""
    along = 4.0 * torch.arange(count) / max(count, 1)
    # the border from the corner (0, 0) by way of (1, 0) and (1, 1)
    x = along.clamp(max=1.0) - (along - 2.0).clamp(0.0, 1.0)
    y = (along - 1.0).clamp(0.0, 1.0) - (along - 3.0).clamp(0.0, 1.0)
    return torch.stack([x, y], dim=-1)


class AxialPool(nn.Module):
    """Pools an axis to one entry by gated cross-attention; the width becomes ``expand`` (1 or 2) times what it was.

    The query is a linear function of mean and maximum of the axis, and mean and maximum (or the maximum alone) are the
    residual. An axis of one entry needs no attention.
    """

    def __init__(self, width: int, heads: int, expand: int = 2) -> None:
        super().__init__()
        wide = expand * width
        self.heads, self.head, self.expand = heads, wide // heads, expand
        self.norm = rms_norm(width)
        self.query = nn.Linear(2 * width, 2 * wide)  # the second half of each head is the gate
        self.key = nn.Linear(width, wide, bias=False)
        self.value = nn.Linear(width, wide, bias=False)
        self.query_norm, self.key_norm = rms_norm(self.head), rms_norm(self.head)
        self.mlp_norm, self.mlp = rms_norm(wide), mlp(wide)
        self.attention_scale = nn.Parameter(torch.full((wide,), START))
        self.mlp_scale = nn.Parameter(torch.full((wide,), START))
        for layer in (self.query, self.key, self.value):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, x_BXND: Tensor, turn: Turn | None = None) -> Tensor:
        """(B, X, N, D) → (B, X, E); ``turn`` rotates the keys."""
        x = x_BXND
        top = x.amax(dim=-2)
        rest = top if self.expand == 1 else torch.cat([x.mean(dim=-2), top], dim=-1)
        out = torch.addcmul(rest, self.attention_scale, self.attend(self.norm(x), turn))
        return torch.addcmul(out, self.mlp_scale, self.mlp(self.mlp_norm(out)))

    def attend(self, x_BXND: Tensor, turn: Turn | None) -> Tensor:
        """Return what the query finds (B, X, E).

        Values are projected after they were weighted, which is the same and takes 1 / N of the FLOPs.
        """
        x = x_BXND
        if x.shape[-2] == 1:
            alone: Tensor = self.value(x[..., 0, :])
            return alone
        summary = torch.cat([x.mean(dim=-2), x.amax(dim=-2)], dim=-1)
        query, gate = self.query(summary).unflatten(-1, (self.heads, 2 * self.head)).chunk(2, dim=-1)  # (B, X, H, K)
        key = turned(self.key_norm(self.key(x).unflatten(-1, (self.heads, self.head))), turn)  # (B, X, N, H, K)
        score = torch.einsum("bxhk,bxnhk->bxhn", self.query_norm(query) / math.sqrt(self.head), key)
        mixed_BXHD = score.softmax(dim=-1) @ x
        weight = self.value.weight.unflatten(0, (self.heads, self.head))  # (H, K, D)
        value = torch.einsum("bxhd,hkd->bxhk", mixed_BXHD, weight)
        return (value * gate.sigmoid()).flatten(-2)


class GatedBlock(nn.Module):
    """Self-attention of tokens with rotary positions and a gate on the attended values, then two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.norm = rms_norm(width)
        self.query = nn.Linear(width, 2 * width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.query_norm, self.key_norm = rms_norm(self.head), rms_norm(self.head)
        self.rotary = Rotary(self.head)
        self.out = nn.Linear(width, width)
        self.mlp_norm, self.mlp = rms_norm(width), mlp(width)
        self.attention_scale = nn.Parameter(torch.full((width,), START))
        self.mlp_scale = nn.Parameter(torch.full((width,), START))
        for layer in (self.query, self.key, self.value):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, x_BLD: Tensor, place_L2: Tensor) -> Tensor:
        """(B, L, D) → (B, L, D)."""
        x, turn = self.norm(x_BLD), self.rotary(place_L2)
        query, gate = self.query(x).unflatten(-1, (self.heads, 2 * self.head)).chunk(2, dim=-1)
        key, value = (layer(x).unflatten(-1, (self.heads, self.head)) for layer in (self.key, self.value))
        attended = attention(turned(self.query_norm(query), turn), turned(self.key_norm(key), turn), value)
        out = torch.addcmul(x_BLD, self.attention_scale, self.out((attended * gate.sigmoid()).flatten(-2)))
        return torch.addcmul(out, self.mlp_scale, self.mlp(self.mlp_norm(out)))


class GatedCrossBlock(nn.Module):
    """Cross-attention of tokens to sub-patches, gated, with rotary positions of both, then two linear layers.

    It begins as attention by position that hands values on unchanged.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.norm, self.context_norm = rms_norm(width), rms_norm(width)
        self.query = nn.Linear(width, 2 * width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.query_norm, self.key_norm = nn.LayerNorm(self.head), nn.LayerNorm(self.head)
        self.rotary = Rotary(self.head)
        self.out = nn.Linear(width, width)
        self.mlp_norm, self.mlp = rms_norm(width), mlp(width)
        for layer in (self.query, self.key):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            with torch.no_grad():
                layer.weight.mul_(0.1)
        for layer in (self.value, self.out):
            nn.init.eye_(layer.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_BQD: Tensor, place_BQ2: Tensor, context_BLD: Tensor, place_L2: Tensor) -> Tensor:
        """(B, Q, D) → (B, Q, D); each query reads all of ``context_BLD``."""
        x, context = self.norm(x_BQD), self.context_norm(context_BLD)
        query, gate = self.query(x).unflatten(-1, (self.heads, 2 * self.head)).chunk(2, dim=-1)
        key, value = (layer(context).unflatten(-1, (self.heads, self.head)) for layer in (self.key, self.value))
        query = turned(self.query_norm(query), self.rotary(place_BQ2))
        attended = attention(query, turned(self.key_norm(key), self.rotary(place_L2)), value)
        out = x_BQD + self.out((attended * gate.sigmoid()).flatten(-2))
        done: Tensor = out + self.mlp(self.mlp_norm(out))
        return done


def attention(query_BQHK: Tensor, key_BLHK: Tensor, value_BLHK: Tensor) -> Tensor:
    """Return softmax attention (B, Q, H, K) without ever holding all scores."""
    query, key, value = (part.transpose(1, 2) for part in (query_BQHK, key_BLHK, value_BLHK))
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2)
