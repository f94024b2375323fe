"""A model of TorchGeo-bench, which hands over any bands with their wavelengths: none is refused or filled with zeros.

torchgeo-bench run model._target_=atomizer_io.integrations.torchgeo_bench.AtomizerBench model.checkpoint=runs/my/best
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchgeo_bench.models.interface import BenchModel

from atomizer_io.data.channels import Channel
from atomizer_io.integrations.rasters import RasterFeatures


class AtomizerBench(BenchModel):
    """Embeddings (B, D) of images, the mean of their latents: of a ``checkpoint`` or of fresh weights."""

    def __init__(
        self, bands: Sequence[Any], checkpoint: str = "atomizer_io_tiny", gsd_m: float | None = None, **_: object
    ) -> None:
        super().__init__(bands=list(bands), normalization="identity")  # the network standardises by channel
        self.features = RasterFeatures([Channel.of(band) for band in bands], checkpoint, gsd_m).eval()

    @torch.no_grad()
    def _forward_patch_features(self, images: Tensor, bboxes: Tensor | None = None) -> Tensor:
        return self.features.pooled(images)
