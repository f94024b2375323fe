"""A vision transformer (Dosovitskiy et al. 2021) on rasterised atoms: UPerNet for maps, a class token for scenes.

Shapes: B scenes, T dates, S = B·T images, C channels, H × W pixels, L patches, K patches that are read, D features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Queries
from atomizer_io.errors import ConfigError, check_count
from atomizer_io.models.base import Cost, Preset
from atomizer_lab.baselines.dates import L_TAE, LINEAR, MEAN, MergedDates, check_dates, dates_read
from atomizer_lab.baselines.images import Image, TaskImageModel, ToImage, check_gsd
from atomizer_lab.baselines.rasterise import check_rasters, rasterise
from atomizer_lab.baselines.transformer import Transformer, taps_of
from atomizer_lab.baselines.upernet import ResizedLevels, UPerNet

DIGITS: dict[str, Any] = {"heads": 4, "patch_px": 1, "image_px": 28, "omit": True}
TEN_CLASSES: dict[str, Any] = {"task": "classification", "num_outputs": 10}


@dataclass(frozen=True, slots=True)
class ViTSettings:
    """Settings of a vision transformer.

    ``patch_px`` is the side of a patch and ``image_px`` that of the image for which positions are learned; images of
    another size get positions by interpolation. ``temporal`` is how several dates are merged: their ``mean`` is
    read, or their features are merged by a ``linear`` map over exactly ``num_dates`` or by an ``ltae``. ``omit`` leaves
    out patches without any observation, which only scenes allow; otherwise their values are zero. ``gsd_m`` is the
    pixel size in metres (None: that of the finest raster).
    """

    width: int = 384
    depth: int = 12
    heads: int = 6
    patch_px: int = 16
    image_px: int = 512
    decoder_width: int = 256
    dropout: float = 0.0
    attention_dropout: float = 0.0
    temporal: str = MEAN
    num_dates: int | None = None
    omit: bool = False
    gsd_m: float | None = None

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "patch_px", "image_px", "decoder_width"):
            check_count(name, getattr(self, name))
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if self.image_px % self.patch_px:
            raise ConfigError(f"image_px={self.image_px} is no multiple of patch_px={self.patch_px}")
        check_dates(self.temporal, self.num_dates, (MEAN, LINEAR, L_TAE))
        if self.omit and self.temporal != MEAN:
            raise ConfigError("omit reads one image per scene: use temporal mean")
        check_gsd(self.gsd_m)


class ViT(nn.Module):
    """The trunk: patches, learned positions, a class token and the blocks of a transformer."""

    def __init__(self, channels: int, settings: ViTSettings) -> None:
        super().__init__()
        self.side = settings.image_px // settings.patch_px
        self.patches = nn.Conv2d(channels, settings.width, settings.patch_px, settings.patch_px)
        self.class_token_D = nn.Parameter(torch.empty(settings.width))
        self.class_position_D = nn.Parameter(torch.empty(settings.width))
        self.position_LD = nn.Parameter(torch.empty(self.side**2, settings.width))
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = Transformer(
            settings.width,
            settings.depth,
            settings.heads,
            dropout=settings.dropout,
            attention_dropout=settings.attention_dropout,
        )
        for parameter in (self.class_token_D, self.class_position_D, self.position_LD, self.patches.weight):
            nn.init.trunc_normal_(parameter, std=0.02, a=-0.04, b=0.04)
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]

    def tokens(self, x_SCHW: Tensor, kept_SK: Tensor | None = None) -> Tensor:
        """Return the class token and the patches, with their positions: (S, 1 + L, D), or (S, 1 + K, D) of those kept.

        A patch keeps the position of its place, whichever others are left out.
        """
        grid_SDhw: Tensor = self.patches(x_SCHW)
        x_SLD = grid_SDhw.flatten(2).transpose(1, 2) + self.positions(*grid_SDhw.shape[-2:])
        if kept_SK is not None:
            x_SLD = x_SLD.gather(1, kept_SK[..., None].expand(-1, -1, x_SLD.shape[-1]))
        first_D = self.class_token_D + self.class_position_D
        tokens: Tensor = self.dropout(torch.cat([first_D.expand(len(x_SLD), 1, -1), x_SLD], dim=1))
        return tokens

    def positions(self, rows: int, columns: int) -> Tensor:
        """Return the positions (L, D) of a grid of patches, bicubic between the learned ones if it is another grid."""
        if (rows, columns) == (self.side, self.side):
            return self.position_LD
        grid = self.position_LD.T.reshape(1, -1, self.side, self.side)
        position_1DHW = F.interpolate(grid, size=(rows, columns), mode="bicubic", align_corners=False)
        return position_1DHW.flatten(2)[0].T


class DenseViT(nn.Module):
    """A map from the patches after four blocks, merged over dates and resized to four levels, by UPerNet."""

    def __init__(self, channels: int, outputs: int, settings: ViTSettings) -> None:
        super().__init__()
        if settings.omit:
            raise ConfigError("omit leaves out parts of an image, so it is for scenes: a map needs every patch")
        self.trunk = ViT(channels, settings)
        self.taps, widths = taps_of(settings.depth), (settings.width,) * 4
        self.merge = MergedDates(settings.temporal, widths, settings.num_dates)
        self.levels = ResizedLevels()
        self.decoder = UPerNet(widths, outputs, settings.decoder_width)

    def forward(self, x_BTCHW: Tensor) -> Tensor:
        """(B, T, C, H, W) → (B, outputs, H, W)."""
        height, width = x_BTCHW.shape[-2:]
        patch = self.trunk.patches.kernel_size[0]
        tokens = self.trunk.blocks.tapped(self.trunk.tokens(x_BTCHW.flatten(0, 1)), self.taps)
        maps = [x_SLD[:, 1:].transpose(1, 2).unflatten(2, (height // patch, width // patch)) for x_SLD in tokens]
        out: Tensor = self.decoder(self.levels(self.merge(maps, len(x_BTCHW))), (height, width))
        return out


class SceneViT(nn.Module):
    """A prediction for the scene from the class token, merged over dates."""

    def __init__(self, channels: int, outputs: int, settings: ViTSettings) -> None:
        super().__init__()
        self.trunk = ViT(channels, settings)
        self.merge = MergedDates(settings.temporal, (settings.width,), settings.num_dates)
        self.head = nn.Linear(settings.width, outputs)

    def forward(self, x_BTCHW: Tensor, kept_BK: Tensor | None = None, real_BK: Tensor | None = None) -> Tensor:
        """(B, T, C, H, W), and the patches to read and which of them are real, unless it is all → (B, outputs)."""
        mask_BL = None if real_BK is None else F.pad(real_BK, (1, 0), value=True)
        x_SLD = self.trunk.blocks(self.trunk.tokens(x_BTCHW.flatten(0, 1), kept_BK), mask_BL)
        (merged,) = self.merge([x_SLD[:, 0, :, None, None]], len(x_BTCHW))
        out: Tensor = self.head(merged.flatten(1))
        return out


@dataclass(frozen=True, slots=True)
class ToPatches(ToImage):
    """Prepares a sample of which only the patches with an observation are read.

    The image reaches over ``extent_m`` about the origin of the scene, if that is known, so that a patch has the same
    position whichever others are there.
    """

    extent_m: float | None = None

    def __call__(
        self, atoms: AtomSet, queries: Queries | None, cost: Cost = Cost(), generator: torch.Generator | None = None
    ) -> Image:
        """Rasterise and pad one sample, and list its patches with an observation."""
        check_rasters(atoms)
        corners = None if self.extent_m is None else torch.tensor([[-0.5, -0.5], [0.5, 0.5]]) * self.extent_m
        scene = rasterise(atoms, self.channels, gsd_m=self.gsd_m, around=corners)
        seen_HW = self.padded(scene.present_TCHW.any(dim=1).any(dim=0).float())
        seen_L = F.max_pool2d(seen_HW[None], self.multiple).flatten()
        return Image(self.padded(scene.mean_over_time()[None]), kept_K=seen_L.nonzero()[:, 0])


class ViTModel(TaskImageModel):
    """A vision transformer for maps and for scenes, with the channels of the training data; others are an error."""

    family = "vit"
    Settings = ViTSettings
    Dense, Scene = DenseViT, SceneViT
    presets: ClassVar = {
        "vit_small": Preset(),  # 30.3 M for maps
        "vit_small_patch8": Preset({"patch_px": 8, "image_px": 64}),  # 21.7 M for small scenes
        "vit_small_temporal": Preset({"image_px": 128, "temporal": L_TAE}),  # 31.7 M for maps
        "vit_tiny": Preset(  # 1.1 M, for a CPU
            {"width": 96, "depth": 6, "heads": 3, "patch_px": 8, "image_px": 64, "decoder_width": 48}
        ),
        "vit_mnist": Preset({**DIGITS, "width": 224, "dropout": 0.1, "attention_dropout": 0.05}, TEN_CLASSES),  # 7.44 M
        "vit_mnist_small": Preset({**DIGITS, "width": 64, "depth": 3, "image_px": 14}, TEN_CLASSES),  # 0.16 M
    }

    def preparer(self) -> ToImage:
        """Return what rasterises a sample."""
        settings, channels, patch = self.chosen, self.check_channels(), self.chosen.patch_px
        if settings.omit:
            return ToPatches(channels, settings.gsd_m, patch, extent_m=self.task_spec.extent_m)
        dates = dates_read(settings.temporal, settings.num_dates)
        return ToImage(channels, settings.gsd_m, patch, dates=dates, timesteps=self.task_spec.timesteps)

    def arguments(self, images: Sequence[Image]) -> tuple[Tensor, ...]:
        """Return values (B, T, C, H, W); where patches are left out also those to read (B, K), and which are real."""
        values = super().arguments(images)
        kept = [image.kept_K for image in images if image.kept_K is not None]
        most = max(map(len, kept), default=0)
        all_L = math.prod(side // self.chosen.patch_px for side in values[0].shape[-2:])
        if not kept or min(map(len, kept)) == all_L:
            return values
        kept_BK = torch.stack([F.pad(kept_K, (0, most - len(kept_K))) for kept_K in kept])
        if min(map(len, kept)) == most:
            return (*values, kept_BK)
        real_BK = torch.arange(most) < torch.tensor([len(kept_K) for kept_K in kept])[:, None]
        return (*values, kept_BK, real_BK)
