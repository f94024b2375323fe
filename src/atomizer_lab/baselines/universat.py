"""UniverSat: every sensor on its own grid, channels by their wavelength, dates by their day, absent channels left out.

Shapes: T dates, C channels, H × W pixels, M queries, Q tokens that are queried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Queries
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, check_count
from atomizer_io.models.base import Capabilities, Cost, Preset
from atomizer_lab.baselines.modalities import (
    ModalityInput,
    ModalityModel,
    Size,
    Spectrum,
    days_of,
    ground_of,
    rasters_of,
)
from atomizer_lab.baselines.rasterise import pixels_of
from atomizer_lab.baselines.universat_network import Layout, PatchEncoder, UniverSatNetwork

CODES = ("VV", "VH", "VV-VH", "HH", "HV", "HH-HV", "height", "elevation")  # channels without a wavelength
ORBITS = ("ASC_", "DSC_")  # of Sentinel-1: modalities of their own with the same codes
PIXELS_PER_PATCH = 4
CROP_PX = 16  # side of the crops of large maps in training


@dataclass(frozen=True, slots=True)
class UniverSatSettings:
    """Settings of UniverSat.

    ``patch_m`` is the size of a patch in metres (None: four pixels of the finest raster), ``subpatch`` that of a
    sub-patch and ``stride`` that of an output token, in pixels. ``train_skip`` lets gradients pass from the decoder
    through the sub-patches, which the published code does not. ``learned_channels`` are further channels that have no
    wavelength.
    """

    width: int = 384
    depth: int = 12
    heads: int = 6
    patch_m: float | None = None
    subpatch: int = 1
    stride: int = 4
    train_skip: bool = False
    learned_channels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "subpatch", "stride"):
            check_count(name, getattr(self, name))
        # how wide each pooling is, and by what its heads go into it; rotated heads are multiples of 4
        pools = (
            (self.width // 4, 4 * max(1, self.heads // 6)),
            (self.width // 2, max(1, self.heads // 4)),
            (self.width, 4 * max(1, self.heads // 2)),
            (self.width, 4 * self.heads),
        )
        if self.width % 8 or any(wide % parts for wide, parts in pools):
            raise ConfigError(
                f"width {self.width} does not divide into {self.heads} heads at all levels: choose a width that is a "
                "multiple of 16 and of four times the heads, such as 96 with 4 heads or 384 with 6"
            )
        if self.patch_m is not None and not 0 < self.patch_m < math.inf:
            raise ConfigError(f"patch_m must be a positive number of metres, got {self.patch_m}")


@dataclass(frozen=True, slots=True)
class ToPatches:
    """Prepares a sample: each sensor, orbit and pixel size is a raster of its own with the channels that are there."""

    channels: tuple[Channel, ...]
    codes: tuple[str, ...]
    settings: UniverSatSettings
    dates: bool

    def __call__(
        self, atoms: AtomSet, queries: Queries | None, cost: Cost = Cost(), generator: torch.Generator | None = None
    ) -> ModalityInput:
        """Rasterise each modality over the same ground, padded to whole patches."""
        finest, corners = ground_of(atoms, queries)
        patch_m = self.settings.patch_m or PIXELS_PER_PATCH * min(finest.pixel_m)
        rasters = rasters_of(atoms, orbit_of, self.channels, corners)
        scenes, layouts = [scene for _, scene in rasters], [self.layout(c, s.grid, patch_m) for c, s in rasters]
        pairs = zip(scenes, layouts, strict=True)
        values = tuple(padded(scene.values_TCHW, layout.patch) for scene, layout in pairs)
        days = tuple(days_of(scene, self.dates) for scene in scenes)
        prepared = ModalityInput(values, days, tuple(layouts))
        if queries is None:
            return prepared
        areas = [math.prod(layout.pixel_m) for layout in layouts]
        best = areas.index(min(areas))
        return self.queried(prepared, scenes[best].grid, values[best].shape[-2:], queries.positions)

    def layout(self, channels: Sequence[Channel], grid: Grid, patch_m: float) -> Layout:
        """Return how the network is to read these channels on this grid."""
        side, (across, down) = self.settings.subpatch, grid.pixel_m
        patch = tuple(max(int(patch_m / size + 1e-6) // side, 1) * side for size in (down, across))
        return Layout(Spectrum.of(channels, self.codes, code_of), (patch[0], patch[1]), (down, across))

    def queried(self, prepared: ModalityInput, grid: Grid, size: Sequence[int], positions_M2: Tensor) -> ModalityInput:
        """Return ``prepared`` with the tokens, and pixels in them, of the finest ``grid`` that positions lie in."""
        stride, pixel_M = self.settings.stride, pixels_of(grid, positions_M2)
        row, column = pixel_M // grid.width, pixel_M % grid.width
        output = (-(-size[0] // stride), -(-size[1] // stride))
        queried_Q, place_M = (row // stride * output[1] + column // stride).unique(return_inverse=True)
        within_M = row % stride * stride + column % stride
        return replace(prepared, output=output, queried_Q=queried_Q, pixel_M=place_M * stride**2 + within_M)


def orbit_of(channel: Channel) -> str:
    """Return the orbit that the name of a radar channel begins with, or nothing."""
    return next((orbit for orbit in ORBITS if channel.name.startswith(orbit)), "")


def code_of(channel: Channel) -> str:
    """Return what a channel without a wavelength is known by: its polarisation or kind, else sensor and name."""
    name = channel.name.removeprefix(orbit_of(channel))
    return name if name in CODES else f"{channel.sensor} {channel.name}"


def padded(values_TCHW: Tensor, patch: Size) -> Tensor:
    """Return the raster with zeros, which are means, below and to the right, so that it consists of whole patches."""
    height, width = values_TCHW.shape[-2:]
    return F.pad(values_TCHW, (0, -width % patch[1], 0, -height % patch[0]))


class UniverSat(ModalityModel):
    """UniverSat for maps and scenes: any sensors, pixel sizes and dates, channels by wavelength or learned code."""

    family = "universat"
    Settings = UniverSatSettings
    usual_codes = CODES
    code_of = staticmethod(code_of)
    capabilities = Capabilities(new_channels=True)
    presets: ClassVar = {
        "universat": Preset(),  # 36.1 M, the paper's
        "universat_small": Preset({"width": 96, "depth": 3, "heads": 4}),  # 1.2 M, for a CPU
    }

    def __init__(self, task_spec: TaskSpec, settings: UniverSatSettings, preset: str | None = None) -> None:
        super().__init__(task_spec, settings, preset)
        codes = len(CODES) + len(settings.learned_channels)
        self.network = UniverSatNetwork(
            PatchEncoder(settings.width, settings.heads, settings.subpatch, codes),
            settings.depth,
            settings.heads,
            task_spec.num_outputs,
            settings.stride**2 if task_spec.dense else 1,
            settings.train_skip,
        )
        if not task_spec.dense:  # scenes are classified without these, which are counted all the same
            self.network.decoder.requires_grad_(False)
            self.network.encoder.sub.requires_grad_(False)

    @property
    def crop_m(self) -> float | None:
        """The side of training crops in metres: small, as steps are slow; None where a scene gets one prediction."""
        pixel_m = self.task_spec.pixel_m
        return None if pixel_m is None or not self.task_spec.dense else CROP_PX * pixel_m

    @property
    def codes(self) -> tuple[str, ...]:
        """The channels without a wavelength that the network has codes for, in their order."""
        return (*CODES, *self.chosen.learned_channels)

    def preparer(self) -> ToPatches:
        """Return what rasterises each modality of a sample."""
        return ToPatches(self.task_spec.channels, self.codes, self.chosen, self.task_spec.dates)

    def arguments(self, inputs: Sequence[ModalityInput]) -> list[Tensor]:
        """Return values and days of all modalities, and for dense tasks the tokens (B, Q) that are queried."""
        queried = [sample.queried_Q for sample in inputs if sample.queried_Q is not None]
        return super().arguments(inputs) + ([pad_sequence(queried, batch_first=True)] if queried else [])
