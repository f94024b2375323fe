"""RAMEN: every sensor resampled to one resolution, its channels by wavelength, a transformer over all of them, UPerNet.

Shapes: B samples, T dates, C channels, h × w tokens of a modality, L = h·w, D width, E experts, M queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
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
from atomizer_lab.baselines.ramen_network import LTAE_HEADS, RamenNetwork, Reading
from atomizer_lab.baselines.rasterise import RasterisedScene, pixels_of

RADAR = tuple(f"{orbit}_{pair}" for orbit in ("ASC", "DSC") for pair in ("VV", "VH", "HV", "HH"))
RELIEF = ("elevation", "terrain", "slope")
PIXELS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class RamenSettings:
    """Settings of RAMEN.

    ``encoding_m`` is the resolution at which scenes are encoded, in metres (None: four pixels of the finest raster).
    ``temporal`` is whether it reads several dates of a modality, for which it has an L-TAE (None: for maps only).
    ``learned_channels`` are further channels that have no wavelength.
    """

    width: int = 384
    depth: int = 12
    heads: int = 6
    decoder_width: int = 256
    encoding_m: float | None = None
    temporal: bool | None = None
    learned_channels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "decoder_width"):
            check_count(name, getattr(self, name))
        if self.width % LTAE_HEADS:
            raise ConfigError(f"width must be a multiple of the {LTAE_HEADS} heads of the L-TAE, got {self.width}")
        if self.encoding_m is not None and not 0 < self.encoding_m < math.inf:
            raise ConfigError(f"encoding_m must be a positive number of metres, got {self.encoding_m}")


@dataclass(frozen=True, slots=True)
class ToTokens:
    """Prepares a sample: each modality as a raster of its own, bilinear at the resolution of the encoding.

    Channels are mixed linearly afterwards, so it makes no difference whether pixels are resampled before or after, and
    before takes less. For the same reason a channel that is absent for some dates or pixels adds nothing there.
    """

    channels: tuple[Channel, ...]
    codes: tuple[str, ...]
    encoding_m: float | None
    dates: bool
    temporal: bool

    def __call__(
        self, atoms: AtomSet, queries: Queries | None, cost: Cost = Cost(), generator: torch.Generator | None = None
    ) -> ModalityInput:
        """Rasterise each modality over the same ground and resample it to the same tokens."""
        finest, corners = ground_of(atoms, queries)
        metre = self.encoding_m or PIXELS_PER_TOKEN * min(finest.pixel_m)
        wide, high = finest.size_m
        size = (math.ceil(high / metre - 1e-6), math.ceil(wide / metre - 1e-6))
        corner = (float(corners[0, 0]), float(corners[1, 1]))  # north-west, where tokens begin
        values, days, readings = [], [], []
        for channels, scene in rasters_of(atoms, kind_of, self.channels, corners):
            if len(scene.day_T) > 1 and not self.temporal:
                raise ConfigError(
                    f"{channels[0].sensor} has {len(scene.day_T)} dates, but this RAMEN has no L-TAE: make it "
                    "with temporal=true, or give it one date"
                )
            values.append(resampled(scene, size, metre, corner))
            days.append(days_of(scene, self.dates))
            scale = math.sqrt(math.prod(scene.grid.pixel_m)) / metre
            readings.append(Reading(Spectrum.of(channels, self.codes, code_of), scale, metre))
        prepared = ModalityInput(tuple(values), tuple(days), tuple(readings))
        if queries is None:
            return prepared
        # the map reaches over whole tokens, a little beyond the pixels of the scene
        (across, down), pixel_M = finest.pixel_m, pixels_of(finest, queries.positions)
        output = (round(size[0] * metre / down), round(size[1] * metre / across))
        output = (max(output[0], finest.height), max(output[1], finest.width))
        row, column = pixel_M // finest.width, pixel_M % finest.width
        return replace(prepared, output=output, pixel_M=row * output[1] + column)


def resampled(scene: RasterisedScene, size: Size, metre: float, corner: tuple[float, float]) -> Tensor:
    """Return the values (T, C, h, w) at the centres of ``size`` tokens of ``metre`` metres, south and east of a corner.

    They are bilinear between the nearest four pixels, without smoothing; beyond the raster its border counts on.
    """
    (wide, high), (middle_x, middle_y) = scene.grid.size_m, scene.grid.center_m
    x = corner[0] + metre * (torch.arange(size[1], dtype=torch.float64) + 0.5) - middle_x
    y = middle_y - corner[1] + metre * (torch.arange(size[0], dtype=torch.float64) + 0.5)
    down, across = torch.meshgrid(2 * y / high, 2 * x / wide, indexing="ij")  # from −1 to 1 over the raster
    where = torch.stack([across, down], dim=-1).to(scene.values_TCHW.dtype).expand(len(scene.values_TCHW), -1, -1, -1)
    return F.grid_sample(scene.values_TCHW, where, padding_mode="border", align_corners=False)


def kind_of(channel: Channel) -> str:
    """Return which projector reads a channel: optical, relief, or radar, which has the learned codes."""
    if channel.wavelength_um is not None:
        return "optical"
    return "relief" if channel.name in RELIEF else "radar"


def code_of(channel: Channel) -> str:
    """Return what a channel without a wavelength is known by; a polarisation without an orbit counts as ascending."""
    if channel.name in RELIEF:
        return channel.name
    name = channel.name if channel.name in RADAR else f"ASC_{channel.name}"
    return name if name in RADAR else f"{channel.sensor} {channel.name}"


class Ramen(ModalityModel):
    """RAMEN for maps and scenes: any rasters, channels by wavelength or learned code, several dates by an L-TAE."""

    family = "ramen"
    Settings = RamenSettings
    usual_codes = (*RADAR, *RELIEF)
    code_of = staticmethod(code_of)
    capabilities = Capabilities(new_channels=True)
    least_side_px = 64
    presets: ClassVar = {
        "ramen": Preset(),  # 33.9 M for maps, 23.1 M for scenes
        "ramen_small": Preset({"width": 96, "depth": 4, "heads": 4, "decoder_width": 32}),  # 0.9 M, for a CPU
    }

    def __init__(self, task_spec: TaskSpec, settings: RamenSettings, preset: str | None = None) -> None:
        super().__init__(task_spec, settings, preset)
        self.network = RamenNetwork(
            settings.width,
            settings.depth,
            settings.heads,
            codes=len(RADAR) + len(settings.learned_channels),
            relief=len(RELIEF) if any(kind_of(channel) == "relief" for channel in task_spec.channels) else 0,
            temporal=self.temporal,
            outputs=task_spec.num_outputs,
            decoder_width=settings.decoder_width if task_spec.dense else None,
        )

    @property
    def temporal(self) -> bool:
        """Whether it reads several dates."""
        return self.task_spec.dense if self.chosen.temporal is None else self.chosen.temporal

    @property
    def codes(self) -> tuple[str, ...]:
        """The channels without a wavelength that the network has codes for, in their order."""
        relief = RELIEF if self.network.relief is not None else ()
        return (*RADAR, *self.chosen.learned_channels, *relief)

    def preparer(self) -> ToTokens:
        """Return what rasterises and resamples each modality of a sample."""
        return ToTokens(
            self.task_spec.channels, self.codes, self.chosen.encoding_m, self.task_spec.dates, temporal=self.temporal
        )
