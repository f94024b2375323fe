"""UPerNet: a map from the features of four levels (Xiao et al. 2018), and necks that make levels of a plain ViT.

Shapes: B images, D features of a level, F features of the decoder, H × W pixels of a level.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atomizer_lab.baselines.batch_norm import BatchNorm2d

POOLS = (1, 2, 3, 6)  # cells per side, of which pyramid pooling takes means


class ConvNorm(nn.Sequential):
    """A convolution that keeps the size, batch normalisation and ReLU; the normalisation makes a bias needless."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False), BatchNorm2d(outputs), nn.ReLU(True)
        )


def resized(x: Tensor, size: Sequence[int] | torch.Size) -> Tensor:
    """Return maps (B, D, h, w) at another size, bilinear."""
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    return F.interpolate(x, size=tuple(size), mode="bilinear", align_corners=False)


class UPerNet(nn.Module):
    """Pyramid pooling of the coarsest level, a feature pyramid from coarse to fine, all levels joined at the finest.

    ``widths`` are the features of the levels, from fine to coarse; ``width`` is that of the decoder.
    """

    def __init__(self, widths: Sequence[int], outputs: int, width: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        *finer, coarsest = widths
        self.pools = nn.ModuleList(ConvNorm(coarsest, width, 1) for _ in POOLS)
        self.pooled = ConvNorm(coarsest + len(POOLS) * width, width, 3)
        self.laterals = nn.ModuleList(ConvNorm(level, width, 1) for level in finer)
        self.smooth = nn.ModuleList(ConvNorm(width, width, 3) for _ in finer)
        self.join = ConvNorm(len(widths) * width, width, 3)
        self.dropout = nn.Dropout2d(dropout)
        self.head = nn.Conv2d(width, outputs, 1)

    def forward(self, levels: Sequence[Tensor], size: Sequence[int]) -> Tensor:
        """Levels (B, D, h, w) from fine to coarse → (B, outputs, *size)."""
        *finer, coarsest = levels
        cells = [conv(F.adaptive_avg_pool2d(coarsest, pool)) for pool, conv in zip(POOLS, self.pools, strict=True)]
        cells = [resized(cell, coarsest.shape[-2:]) for cell in cells]
        tops = [self.pooled(torch.cat([coarsest, *cells], dim=1))]
        for level, lateral in zip(reversed(finer), reversed(self.laterals), strict=True):
            tops.append(lateral(level) + resized(tops[-1], level.shape[-2:]))
        coarse, *rest = tops
        smoothed = [smooth(top) for smooth, top in zip(self.smooth, reversed(rest), strict=True)]
        finest = smoothed[0].shape[-2:]
        joined = self.join(torch.cat([resized(level, finest) for level in (*smoothed, coarse)], dim=1))
        return resized(self.head(self.dropout(joined)), size)


class ResizedLevels(nn.Module):
    """Four maps of one size at 4, 2, 1 and 1/2 times that size, by interpolation and pooling: nothing is learned."""

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Four maps (B, D, h, w) → levels from fine to coarse."""
        first, second, third, fourth = maps
        height, width = first.shape[-2:]
        doubled = resized(second, (2 * height, 2 * width))
        return [resized(first, (4 * height, 4 * width)), doubled, third, _halved(fourth)]


class DeconvolvedLevels(nn.Module):
    """Four maps of one size at 4, 2, 1 and 1/2 times that size, enlarged by learned transposed convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.four_times = nn.Sequential(
            nn.ConvTranspose2d(width, width, 2, stride=2),
            BatchNorm2d(width),
            nn.GELU(),
            nn.ConvTranspose2d(width, width, 2, stride=2),
        )
        self.twice = nn.ConvTranspose2d(width, width, 2, stride=2)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Four maps (B, D, h, w) → levels from fine to coarse."""
        first, second, third, fourth = maps
        return [self.four_times(first), self.twice(second), third, _halved(fourth)]


def _halved(x: Tensor) -> Tensor:
    """Return the greatest of 2 × 2 pixels; a side of one pixel stays, an odd last row or column is its own."""
    return F.max_pool2d(x, 2, ceil_mode=True)
