"""A plain UNet of 31 million parameters, for scale."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3×3 convolutions with batch normalisation and ReLU."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Five levels of 64 to 1024 channels, transposed convolutions on the way up."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        widths = [64, 128, 256, 512, 1024]
        self.down = nn.ModuleList(double_conv(i, o) for i, o in zip([channels, *widths], widths, strict=False))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(double_conv(2 * w, w) for w in reversed(widths[:-1]))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(widths[0], outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, outputs, H, W); H and W are multiples of 16."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            skips.append(x)
        for widen, block, skip in zip(self.widen, self.up, reversed(skips[:-1]), strict=True):
            x = block(torch.cat([skip, widen(x)], dim=1))
        out: Tensor = self.head(x)
        return out
