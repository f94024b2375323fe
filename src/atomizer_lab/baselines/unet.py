"""A plain UNet on rasterised atoms; absent values are zero, as convolutional networks have it.

Shapes: B images, C channels, H × W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Preset
from atomizer_lab.baselines.images import Image, ImageModel, ToImage, check_gsd


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3×3 convolutions with batch normalisation and ReLU."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Trunk(nn.Module):
    """Double convolutions of growing width on the way down, transposed convolutions and skips on the way up."""

    def __init__(self, channels: int, outputs: int, widths: Sequence[int] = (64, 128, 256, 512, 1024)) -> None:
        super().__init__()
        self.down = nn.ModuleList(double_conv(i, o) for i, o in zip([channels, *widths], widths, strict=False))
        self.widen = nn.ModuleList(
            nn.ConvTranspose2d(below, w, 2, stride=2) for w, below in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.up = nn.ModuleList(double_conv(2 * w, w) for w in widths[-2::-1])
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(widths[0], outputs, 1)
        self.multiple = 2 ** (len(widths) - 1)  # sides of an image are multiples of this

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, outputs, H, W)."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            skips.append(x)
        for widen, block, skip in zip(self.widen, self.up, reversed(skips[:-1]), strict=True):
            x = block(torch.cat([skip, widen(x)], dim=1))
        out: Tensor = self.head(x)
        return out


@dataclass(frozen=True, slots=True)
class UNetSettings:
    """Settings of a UNet: channels per level, and the pixel size in metres (None: that of the finest raster)."""

    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    gsd_m: float | None = None

    def __post_init__(self) -> None:
        numbers = self.widths if isinstance(self.widths, tuple) else ()
        if len(numbers) < 2 or any(not isinstance(width, int) or width < 1 for width in numbers):
            raise ConfigError(f"widths must be two or more whole numbers above 0, got {self.widths}")
        check_gsd(self.gsd_m)


class UNet(ImageModel):
    """A UNet for maps of classes or regression targets; channels other than those of the training data are an error."""

    family = "unet"
    Settings = UNetSettings
    presets: ClassVar = {
        "unet": Preset(),  # 31 M, the usual widths
        "unet_small": Preset({"widths": (16, 32, 64, 128)}),  # 0.5 M, for a CPU
    }

    def __init__(self, task_spec: TaskSpec, settings: UNetSettings, preset: str | None = None) -> None:
        super().__init__(task_spec, settings, preset)
        if not task_spec.dense:
            raise ConfigError(f"a UNet predicts at positions, but the task is {task_spec.task}: use another model")
        self.trunk = Trunk(max(1, len(task_spec.channels)), task_spec.num_outputs, settings.widths)

    def network(self) -> Trunk:
        """Return the convolutions."""
        return self.trunk

    def preparer(self) -> ToImage:
        """Return what rasterises a sample and pads it to a multiple of the deepest level's pixel."""
        # at least two pixels on the deepest level: batch normalisation cannot do with one
        multiple = self.trunk.multiple
        return ToImage(self.check_channels(), self.chosen.gsd_m, multiple, least=2 * multiple)

    def arguments(self, images: Sequence[Image]) -> tuple[Tensor, ...]:
        """Return the images (B, C, H, W), means over dates."""
        return (torch.cat([image.values_TCHW for image in images]),)
