"""The height of the point that a query names, as a start of the query itself: beyond the paper.

Shapes: M queries, D width, F Fourier features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.encodings import compress, fourier, fourier_dim
from atomizer_io.models.atomizer.tokens import zero_unless


class QueryHeight(nn.Module):
    """MLP(φ(z)), to be added to the query: φ is the encoding of offsets; zero before training and for unknown z."""

    def __init__(self, config: AtomizerConfig) -> None:
        super().__init__()
        self.config = config
        self.up = nn.Linear(fourier_dim(config.offset_frequencies), config.width)
        self.down = nn.Linear(config.width, config.width)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, heights_M: Tensor) -> Tensor:
        """Return what heights in metres, NaN where unknown, add to the queries (M, D)."""
        weight, c = self.up.weight, self.config
        exact_M = heights_M.to(weight.device, torch.promote_types(weight.dtype, torch.float32))
        known_M = ~exact_M.isnan()
        squeezed_M = compress(torch.where(known_M, exact_M, 0.0), c.offset_scale_m)
        phi_MF = fourier(squeezed_M, c.offset_frequencies, c.offset_max_frequency).to(weight.dtype)
        return zero_unless(known_M, self.down(gelu(self.up(phi_MF))))
