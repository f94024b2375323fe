"""What other libraries hand over, batches of rasters (B, C, H, W), read by a model as observations.

Shapes: B images, C channels, H × W pixels, M positions, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.errors import ConfigError
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.registry import create_model, load_model


class RasterFeatures(nn.Module):
    """Features of images of any sensor; values in raw units, NaN where nothing was observed.

    ``model`` is a saved model, whose statistics standardise the channels that it knows, or a preset with fresh weights.
    """

    def __init__(self, channels: Sequence[Channel], model: str | Path, gsd_m: float | None = None) -> None:
        super().__init__()
        self.channels = tuple(channels)
        sizes = {channel.gsd_m for channel in self.channels} if gsd_m is None else {gsd_m}
        if None in sizes or len(sizes) > 1:
            raise ConfigError("the pixel size of these images is not known: pass gsd_m=, in metres")
        self.gsd_m = float(sizes.pop() or 0.0)
        saved = Path(model).exists() or "/" in str(model)
        network: Any = load_model(str(model)) if saved else create_model(str(model), channels=self.channels)
        if not isinstance(network, AtomizerIO):
            raise ConfigError(f"{model} is no Atomizer-IO: other models have no features at any position")
        self.network = network

    @property
    def width(self) -> int:
        """Number of features, D."""
        return self.network.config.width

    def atoms(self, images: Tensor) -> list[AtomSet]:
        """Return each image as a set of atoms."""
        if images.ndim != 4 or images.shape[1] != len(self.channels):
            raise ConfigError(f"images have shape {tuple(images.shape)}; expected (B, {len(self.channels)}, H, W)")
        return [AtomSet.from_raster(image.cpu(), self.channels, self.gsd_m).to(images.device) for image in images]

    def pooled(self, images: Tensor) -> Tensor:
        """Return the mean of the latents of each image, (B, D)."""
        latents = self.network.encode(self.atoms(images))
        return torch.stack([features_LD.mean(dim=0) for features_LD in latents.features])

    def pyramid(self, images: Tensor, strides: Sequence[int]) -> list[Tensor]:
        """Return decoded features in cells of ``stride`` pixels, (B, D, H / stride, W / stride), for each stride."""
        latents, features = self.network.encode(self.atoms(images)), []
        for stride in strides:
            height, width = (-(-size // stride) for size in images.shape[-2:])
            side_m = self.gsd_m * stride
            positions = Grid(height, width, gsd_m=side_m).positions()
            cells = self.network.embed(latents, [positions] * len(images), footprint_m=(side_m, side_m))
            features.append(torch.stack([f_MD.T.unflatten(-1, (height, width)) for f_MD in cells]))
        return features
