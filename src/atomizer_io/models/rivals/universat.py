"""UniverSat: every sensor on its own grid, channels by their wavelength, dates by their day, absent channels left out.

Shapes: T dates, C channels, H × W pixels, M queries, Q tokens that are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from atomizer_io.atoms import Acquisition, AtomSet
from atomizer_io.channels import Channel
from atomizer_io.errors import AtomsError, ConfigError, UnknownChannelError, check_count
from atomizer_io.grid import Grid
from atomizer_io.models.contract import Abilities, Cost, Model, Preset, in_units
from atomizer_io.models.operations import counted
from atomizer_io.models.rasterise import RasterisedScene, grid_over, pixels_of, rasterise
from atomizer_io.models.rivals.universat_network import Layout, UniverSatNetwork
from atomizer_io.models.settings import settings_from
from atomizer_io.problem import Problem
from atomizer_io.sample import Queries

CODES = ("VV", "VH", "VV-VH", "HH", "HV", "HH-HV", "height", "elevation")  # channels without a wavelength
ORBITS = ("ASC_", "DSC_")  # of Sentinel-1: modalities of their own with the same codes
PIXELS_PER_PATCH = 4


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
        if self.width % 8 or self.width % self.heads or self.width // self.heads % 4:
            raise ConfigError(
                f"width must be a multiple of 8 and of four times the heads, got width {self.width}, heads {self.heads}"
            )
        if self.patch_m is not None and not 0 < self.patch_m < math.inf:
            raise ConfigError(f"patch_m must be a positive number of metres, got {self.patch_m}")


@dataclass(frozen=True, slots=True)
class UniverSatInput:
    """The values (T, C, H, W) and days (T,) of each modality, and what is asked.

    ``token_Q`` are the tokens of the ``output`` grid that are needed; query m is pixel ``pixel_M[m]`` of the token
    ``token_Q[place_M[m]]``.
    """

    values: tuple[Tensor, ...]
    days: tuple[Tensor, ...]
    layouts: tuple[Layout, ...]
    output: tuple[int, int] | None = None
    token_Q: Tensor | None = None
    place_M: Tensor | None = None
    pixel_M: Tensor | None = None

    @property
    def kind(self) -> tuple[Any, ...]:
        """What inputs must share to go through the network together."""
        return self.layouts, tuple(values.shape for values in self.values), self.output


@dataclass(frozen=True, slots=True)
class PrepareModalities:
    """Prepares a sample: each sensor, orbit and pixel size is a raster of its own with the channels that are there."""

    channels: tuple[Channel, ...]
    codes: tuple[str, ...]
    settings: UniverSatSettings
    dates: bool

    def __call__(
        self,
        atoms: AtomSet,
        queries: Queries | None,
        cost: Cost = Cost(),
        generator: torch.Generator | None = None,
    ) -> UniverSatInput:
        """Rasterise each modality over the same ground, padded to whole patches."""
        groups = modalities(atoms)
        grid = grid_over(atoms, around=None if queries is None else queries.positions)
        (wide, high), (x, y) = grid.size_m, grid.center_m
        corners = torch.tensor([[x - wide / 2, y - high / 2], [x + wide / 2, y + high / 2]], dtype=torch.float64)
        patch_m = self.settings.patch_m or PIXELS_PER_PATCH * min(grid.pixel_m)
        values, days, layouts = [], [], []
        for group in groups:
            scene = rasterise(group, self.described(group.channels), around=corners)
            layout = self.layout(group.channels, scene.grid, patch_m)
            values.append(padded(scene.values_TCHW, layout.patch))
            days.append(self.days(scene))
            layouts.append(layout)
        prepared = UniverSatInput(tuple(values), tuple(days), tuple(layouts))
        return prepared if queries is None else self.asked(prepared, groups, queries, corners)

    def described(self, channels: Sequence[Channel]) -> list[Channel]:
        """Return the channels with the statistics of the training data, where it had them."""
        known = {(channel.sensor, channel.name): channel for channel in self.channels}
        return [known.get((channel.sensor, channel.name), channel) for channel in channels]

    def layout(self, channels: Sequence[Channel], grid: Grid, patch_m: float) -> Layout:
        """Return how the network is to read these channels on this grid."""
        for channel in channels:
            if channel.wavelength_um is None and code_of(channel) not in self.codes:
                raise UnknownChannelError(
                    f"{channel.sensor} {channel.name} has no wavelength and the model has no learned code for it: "
                    "leave the channel out, or train with it"
                )
        side, pixel = self.settings.subpatch, grid.pixel_m[::-1]
        patch = tuple(max(int(patch_m / size + 1e-6) // side, 1) * side for size in pixel)
        return Layout(
            tuple(channel.wavelength_um or 0.0 for channel in channels),
            tuple(-1 if channel.wavelength_um else self.codes.index(code_of(channel)) for channel in channels),
            (patch[0], patch[1]),
            pixel,
        )

    def days(self, scene: RasterisedScene) -> Tensor:
        """Return the day of each step; where days are unknown or must not be used, the number of the step."""
        return scene.day_T if self.dates and scene.day_T.isfinite().all() else torch.arange(len(scene.day_T)).float()

    def asked(
        self, prepared: UniverSatInput, groups: Sequence[AtomSet], queries: Queries, corners: Tensor
    ) -> UniverSatInput:
        """Return ``prepared`` with the tokens and pixels of the finest raster that the queries lie in."""
        areas = [math.prod(layout.pixel_m) for layout in prepared.layouts]
        finest, stride = areas.index(min(areas)), self.settings.stride
        height, width = prepared.values[finest].shape[-2:]
        grid = grid_over(groups[finest], around=corners)
        pixel_M = pixels_of(grid, queries.positions)
        row, column = pixel_M // grid.width, pixel_M % grid.width
        output = (-(-height // stride), -(-width // stride))
        token_M = row // stride * output[1] + column // stride
        token_Q, place_M = token_M.unique(return_inverse=True)
        within = row % stride * stride + column % stride
        return UniverSatInput(
            prepared.values, prepared.days, prepared.layouts, output, token_Q, place_M=place_M, pixel_M=within
        )


def modalities(atoms: AtomSet) -> list[AtomSet]:
    """Return the acquisitions by sensor, orbit and pixel size, without channels and dates that nobody observed."""
    groups: dict[tuple[Any, ...], list[Acquisition]] = {}
    for acquisition in atoms:
        if not acquisition.num_atoms:
            continue
        footprint = acquisition.footprint_m or (0.0, 0.0)
        if min(footprint) <= 0:
            raise AtomsError(f"UniverSat reads rasters only: {acquisition.sensor} has sites without a pixel size")
        seen = acquisition.observed_channels().tolist()
        kinds: dict[tuple[str, str], list[int]] = {}
        for number, channel in enumerate(acquisition.channels):
            if seen[number]:
                kinds.setdefault((channel.sensor, orbit_of(channel)), []).append(number)
        for kind, numbers in kinds.items():
            key = (*kind, round(footprint[0], 6), round(footprint[1], 6))
            groups.setdefault(key, []).append(acquisition.with_channels(numbers))
    if not groups:
        raise AtomsError("nothing was observed in this scene")
    return [AtomSet(tuple(group)) for group in groups.values()]


def orbit_of(channel: Channel) -> str:
    """Return the orbit that the name of a radar channel begins with, or nothing."""
    return next((orbit for orbit in ORBITS if channel.name.startswith(orbit)), "")


def code_of(channel: Channel) -> str:
    """Return what a channel without a wavelength is known by: its polarisation or kind, else sensor and name."""
    name = channel.name.removeprefix(orbit_of(channel))
    return name if name in CODES else f"{channel.sensor} {channel.name}"


def padded(values_TCHW: Tensor, patch: tuple[int, int]) -> Tensor:
    """Return the raster with zeros, which are means, below and to the right, so that it consists of whole patches."""
    height, width = values_TCHW.shape[-2:]
    return F.pad(values_TCHW, (0, -width % patch[1], 0, -height % patch[0]))


class Counted(nn.Module):
    """The network for one kind of input as a function of tensors only."""

    def __init__(self, model: UniverSat, sample: UniverSatInput) -> None:
        super().__init__()
        self.network, self.norm, self.head, self.sample = model.network, model.norm, model.head, sample

    def forward(self, *tensors: Tensor) -> Tensor:
        """Run on ``tensors``: values and days of each modality, then the tokens that are asked for, if any."""
        count, sample = len(self.sample.values), self.sample
        asked = tensors[2 * count] if len(tensors) > 2 * count else None
        x = self.network(tensors[:count], tensors[count : 2 * count], sample.layouts, sample.output, asked)
        out: Tensor = self.head(self.norm(x if asked is not None else x.mean(dim=1)))
        return out


class UniverSat(Model):
    """UniverSat for maps and scenes: any sensors, pixel sizes and dates, channels by wavelength or learned code."""

    family = "universat"
    abilities = Abilities(new_channels=True)
    presets: ClassVar = {
        "universat": Preset(),  # 36.1 M, the paper's
        "universat_small": Preset({"width": 96, "depth": 3, "heads": 4}),  # 1.2 M, for a CPU
    }

    def __init__(self, problem: Problem, settings: UniverSatSettings, preset: str | None = None) -> None:
        super().__init__(problem, preset)
        self.chosen = settings
        codes = len(CODES) + len(settings.learned_channels)
        self.network = UniverSatNetwork(
            settings.width, settings.depth, settings.heads, settings.subpatch, codes, settings.train_skip
        )
        self.norm = nn.LayerNorm(settings.width)
        pixels = settings.stride**2 if problem.dense else 1
        self.head = nn.Linear(settings.width, pixels * problem.num_outputs)

    @classmethod
    def build(cls, problem: Problem, settings: Mapping[str, Any], preset: str | None = None) -> Self:
        """Return a UniverSat with fresh weights."""
        return cls(problem, settings_from(UniverSatSettings, settings), preset)

    @classmethod
    def adapted(cls, problem: Problem, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with a learned code for each channel that has no wavelength and is not usual."""
        own = {code_of(channel) for channel in problem.channels if channel.wavelength_um is None}
        return {"learned_channels": tuple(sorted(own - set(CODES))), **settings}

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self.chosen)

    def preparer(self) -> PrepareModalities:
        """Return what rasterises each modality of a sample."""
        codes = (*CODES, *self.chosen.learned_channels)
        return PrepareModalities(self.problem.channels, codes, self.chosen, self.problem.dates)

    def unreadable(self, channels: Iterable[Channel]) -> list[Channel]:
        """Return the channels that have neither a wavelength nor a code that was learned."""
        learned = {code_of(channel) for channel in self.problem.channels if channel.wavelength_um is None}
        if not self.problem.channels:  # an untrained model: all that it has room for
            learned = {*CODES, *self.chosen.learned_channels}
        return [c for c in channels if c.wavelength_um is None and code_of(c) not in learned]

    def answer(self, inputs: Sequence[UniverSatInput]) -> list[Tensor]:
        """Return an answer per query or scene; samples of one kind go through the network together."""
        answers: list[Tensor] = [torch.empty(0)] * len(inputs)
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for number, sample in enumerate(inputs):
            kinds.setdefault(sample.kind, []).append(number)
        for numbers in kinds.values():
            for number, out in zip(numbers, self.answer_alike([inputs[n] for n in numbers]), strict=True):
                answers[number] = in_units(out, self.problem)
        return answers

    def answer_alike(self, inputs: Sequence[UniverSatInput]) -> Iterable[Tensor]:
        """Return the raw answers for samples of one kind."""
        weight, first = self.head.weight, inputs[0]
        counts = range(len(first.values))
        values = [torch.stack([s.values[n] for s in inputs]).to(weight.device, weight.dtype) for n in counts]
        days = [torch.stack([s.days[n] for s in inputs]).to(weight.device) for n in counts]
        if not self.problem.dense:
            x_BLD = self.network(values, days, first.layouts)
            yield from self.head(self.norm(x_BLD.mean(dim=1)))
            return
        asked_BQ = pad_sequence([s.token_Q for s in inputs if s.token_Q is not None], batch_first=True)
        x_BQD = self.network(values, days, first.layouts, first.output, asked_BQ)
        out = self.head(self.norm(x_BQD)).unflatten(-1, (-1, self.problem.num_outputs))
        for sample, found in zip(inputs, out, strict=True):
            assert sample.place_M is not None and sample.pixel_M is not None
            yield found[sample.place_M.to(found.device), sample.pixel_M.to(found.device)]

    def operations(self, inputs: Sequence[UniverSatInput]) -> float:
        """Return the operations of matrix products and attention, for the tokens that the queries need."""
        total = 0.0
        for sample in inputs:
            tensors = [*(v[None] for v in sample.values), *(d[None] for d in sample.days)]
            tensors += [] if sample.token_Q is None else [sample.token_Q[None]]
            total += counted(Counted(self, sample), *tensors)
        return total
