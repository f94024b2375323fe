"""ResNet50 (He et al. 2016) on rasterised atoms: UPerNet for maps, mean pooling and a linear layer for scenes.

Shapes: B scenes, T dates, C channels, D features, H × W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from atomizer_io.errors import ConfigError, check_count
from atomizer_io.models.base import Preset
from atomizer_lab.baselines.batch_norm import BatchNorm2d
from atomizer_lab.baselines.dates import LINEAR, MEAN, MergedDates, check_dates, dates_read
from atomizer_lab.baselines.images import TaskImageModel, ToImage, check_gsd
from atomizer_lab.baselines.upernet import UPerNet

EXPANSION = 4  # features of a block's output by those inside it


@dataclass(frozen=True, slots=True)
class ResNetSettings:
    """Settings of a ResNet: blocks per stage, features of the first one, width of the decoder, pixel size, dates.

    ``temporal`` is how several dates are merged: their ``mean`` is read, or a ``linear`` map over exactly
    ``num_dates`` merges their features. ``gsd_m`` is the pixel size in metres (None: that of the finest raster).
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    decoder_width: int = 256
    temporal: str = MEAN
    num_dates: int | None = None
    gsd_m: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, tuple) or len(self.blocks) != 4:
            raise ConfigError(f"blocks must be four whole numbers above 0, one per stage, got {self.blocks}")
        for number in self.blocks:
            check_count("each of blocks", number)
        check_count("width", self.width)
        check_count("decoder_width", self.decoder_width)
        check_dates(self.temporal, self.num_dates, (MEAN, LINEAR))
        check_gsd(self.gsd_m)


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """Return a convolution without bias and its batch normalisation."""
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride) and 1×1 convolutions beside a residual, which is projected where sizes differ."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.branch = nn.Sequential(
            *conv_norm(inputs, width, 1),
            nn.ReLU(True),
            *conv_norm(width, width, 3, stride),
            nn.ReLU(True),
            *conv_norm(width, outputs, 1),
        )
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else nn.Sequential(*conv_norm(inputs, outputs, 1, stride))
        self.relu = nn.ReLU(True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, H, W) → (B, 4·width, H/stride, W/stride)."""
        out: Tensor = self.relu(self.branch(x) + self.skip(x))
        return out


class ResNet(nn.Module):
    """The convolutional trunk: features at 1/4, 1/8, 1/16 and 1/32 of the size."""

    def __init__(self, channels: int, blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(channels, width, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1))
        self.widths = tuple(EXPANSION * width * 2**stage for stage in range(len(blocks)))
        stages, inputs = [], width
        for stage, (count, outputs) in enumerate(zip(blocks, self.widths, strict=True)):
            inner, stride = outputs // EXPANSION, 1 if stage == 0 else 2
            others = (Bottleneck(outputs, inner, 1) for _ in range(count - 1))
            stages.append(nn.Sequential(Bottleneck(inputs, inner, stride), *others))
            inputs = outputs
        self.stages = nn.ModuleList(stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> list[Tensor]:
        """(B, C, H, W) → four levels (B, D, h, w) from fine to coarse."""
        levels, x = [], self.stem(x)
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        return levels


class DenseResNet(nn.Module):
    """A map from the four levels of a ResNet, merged over dates, by UPerNet."""

    def __init__(self, channels: int, outputs: int, settings: ResNetSettings) -> None:
        super().__init__()
        self.trunk = ResNet(channels, settings.blocks, settings.width)
        self.merge = MergedDates(settings.temporal, self.trunk.widths, settings.num_dates)
        self.decoder = UPerNet(self.trunk.widths, outputs, settings.decoder_width)

    def forward(self, x_BTCHW: Tensor) -> Tensor:
        """(B, T, C, H, W) → (B, outputs, H, W)."""
        levels = self.merge(self.trunk(x_BTCHW.flatten(0, 1)), len(x_BTCHW))
        out: Tensor = self.decoder(levels, x_BTCHW.shape[-2:])
        return out


class SceneResNet(nn.Module):
    """A prediction for the scene from the mean of the coarsest level of a ResNet, merged over dates."""

    def __init__(self, channels: int, outputs: int, settings: ResNetSettings) -> None:
        super().__init__()
        self.trunk = ResNet(channels, settings.blocks, settings.width)
        self.merge = MergedDates(settings.temporal, self.trunk.widths[-1:], settings.num_dates)
        self.head = nn.Linear(self.trunk.widths[-1], outputs)

    def forward(self, x_BTCHW: Tensor) -> Tensor:
        """(B, T, C, H, W) → (B, outputs)."""
        (merged,) = self.merge(self.trunk(x_BTCHW.flatten(0, 1))[-1:], len(x_BTCHW))
        out: Tensor = self.head(merged.mean(dim=(2, 3)))
        return out


class ResNetModel(TaskImageModel):
    """A ResNet for maps and for scenes. Its channels are those of the training data; others are an error."""

    family = "resnet"
    Settings = ResNetSettings
    Dense, Scene = DenseResNet, SceneResNet
    presets: ClassVar = {
        "resnet50": Preset(),  # 37.3 M for maps, 23.6 M for scenes
        "resnet50_temporal": Preset({"temporal": LINEAR, "num_dates": 6}),
        "resnet_small": Preset({"blocks": (1, 1, 2, 1), "width": 16, "decoder_width": 32}),  # 0.9 M, for a CPU
    }

    def preparer(self) -> ToImage:
        """Return what rasterises a sample."""
        dates = dates_read(self.chosen.temporal, self.chosen.num_dates)
        return ToImage(self.check_channels(), self.chosen.gsd_m, dates=dates, timesteps=self.task_spec.timesteps)
