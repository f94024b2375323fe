"""A plain UNet on rasterised atoms; absent values are zero, as convolutional networks have it.

Shapes: B images, C channels, H × W pixels, M queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atomizer_io.atoms import AtomSet
from atomizer_io.channels import Channel
from atomizer_io.errors import ConfigError
from atomizer_io.models.contract import Cost, Model, Preset, in_units
from atomizer_io.models.operations import counted
from atomizer_io.models.rasterise import pixels_of, rasterise
from atomizer_io.models.settings import settings_from
from atomizer_io.problem import Problem
from atomizer_io.sample import Queries


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
        if self.gsd_m is not None and not 0 < self.gsd_m < math.inf:
            raise ConfigError(f"gsd_m must be a positive number of metres, got {self.gsd_m}")


@dataclass(frozen=True, slots=True)
class UNetInput:
    """A rasterised scene (C, H, W), dates averaged, and the pixel (M,) of each query."""

    values_CHW: Tensor
    pixel_M: Tensor


@dataclass(frozen=True, slots=True)
class Rasterise:
    """Prepares a sample: channels of the training data on one grid, zero where absent, the mean over dates."""

    channels: tuple[Channel, ...]
    gsd_m: float | None
    multiple: int

    def __call__(
        self,
        atoms: AtomSet,
        queries: Queries | None,
        cost: Cost = Cost(),
        generator: torch.Generator | None = None,
    ) -> UNetInput:
        """Rasterise, average over dates and pad to a multiple of the deepest level's pixel."""
        assert queries is not None
        scene = rasterise(atoms, self.channels, gsd_m=self.gsd_m, around=queries.positions)
        height, width = scene.grid.shape
        # at least two pixels on the deepest level: batch normalisation cannot do with one
        right, below = (max(-side % self.multiple, 2 * self.multiple - side) for side in (width, height))
        pixel_M = pixels_of(scene.grid, queries.positions)
        row, column = pixel_M // width, pixel_M % width
        return UNetInput(F.pad(scene.mean_over_time(), (0, right, 0, below)), row * (width + right) + column)


class UNet(Model):
    """A UNet for maps of classes or quantities. Its channels are those of the training data; others are an error."""

    family = "unet"
    presets: ClassVar = {
        "unet": Preset(),  # 31 M, the usual widths
        "unet_small": Preset({"widths": (16, 32, 64, 128)}),  # 0.5 M, for a CPU
    }

    def __init__(self, problem: Problem, settings: UNetSettings, preset: str | None = None) -> None:
        super().__init__(problem, preset)
        if not problem.dense:
            raise ConfigError(f"a UNet answers at positions, but the task is {problem.task}: use another model")
        self.chosen = settings
        self.trunk = Trunk(max(1, len(problem.channels)), problem.num_outputs, settings.widths)

    @classmethod
    def build(cls, problem: Problem, settings: Mapping[str, Any], preset: str | None = None) -> Self:
        """Return a UNet with fresh weights."""
        return cls(problem, settings_from(UNetSettings, settings), preset)

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self.chosen)

    def preparer(self) -> Rasterise:
        """Return what rasterises a sample."""
        if not self.problem.channels:
            raise ConfigError("a UNet has one input per channel: create it with channels=")
        return Rasterise(self.problem.channels, self.chosen.gsd_m, self.trunk.multiple)

    def answer(self, inputs: Sequence[UNetInput]) -> list[Tensor]:
        """Return the output at the pixel of each query; images of one size go through the network together."""
        answers: list[Tensor] = [torch.empty(0)] * len(inputs)
        sizes: dict[torch.Size, list[int]] = {}
        for number, image in enumerate(inputs):
            sizes.setdefault(image.values_CHW.shape, []).append(number)
        weight = self.trunk.head.weight
        for numbers in sizes.values():
            batch = torch.stack([inputs[number].values_CHW for number in numbers]).to(weight.device, weight.dtype)
            for number, out in zip(numbers, self.trunk(batch), strict=True):
                answers[number] = in_units(out.flatten(1).T[inputs[number].pixel_M.to(out.device)], self.problem)
        return answers

    def operations(self, inputs: Sequence[UNetInput]) -> float:
        """Return the operations of the convolutions."""
        total = 0.0
        for image in inputs:
            total += counted(self.trunk, image.values_CHW[None])
        return total
