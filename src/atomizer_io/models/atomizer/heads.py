"""The last layer: classes or physical quantities, for a scene or for a position."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.config import AtomizerConfig


class Head(nn.Module):
    """LN → Linear: logits of classes, or values in the physical units of the target."""

    def __init__(self, config: AtomizerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.linear = nn.Linear(config.width, config.num_outputs)
        regression = config.task in ("regression", "scene_regression")
        self.mean, self.std = (config.target_mean, config.target_std) if regression else (0.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, outputs)."""
        out: Tensor = self.linear(self.norm(x))
        if (self.mean, self.std) != (0.0, 1.0):  # physical units need more digits than half precision has
            out = out.to(torch.promote_types(out.dtype, torch.float32)) * self.std + self.mean
        return out
