"""What models of several modalities share: each sensor on a grid of its own, channels by wavelength or learned code.

Shapes: B samples, T dates, C channels, H × W pixels, M queries.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Queries
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import AtomsError, UnknownChannelError
from atomizer_io.models.base import in_units
from atomizer_lab.baselines.configured import Configured, counted
from atomizer_lab.baselines.rasterise import RasterisedScene, check_rasters, grid_over, rasterise

Size = tuple[int, int]  # down and across


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The channels of a modality: wavelengths, 0 for those with a learned code, and codes, −1 for the others."""

    wavelengths_um: tuple[float, ...]
    codes: tuple[int, ...]

    @classmethod
    def of(cls, channels: Sequence[Channel], codes: Sequence[str], code_of: Callable[[Channel], str]) -> Spectrum:
        """Return the spectrum of ``channels``; one without a wavelength needs an entry of ``codes``."""
        for channel in channels:
            if channel.wavelength_um is None and code_of(channel) not in codes:
                raise UnknownChannelError(
                    f"{channel.sensor} {channel.name} has no wavelength and the model has no learned code for it: "
                    "leave the channel out, or train with it"
                )
        return cls(
            tuple(channel.wavelength_um or 0.0 for channel in channels),
            tuple(-1 if channel.wavelength_um else codes.index(code_of(channel)) for channel in channels),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ModalityInput:
    """The values (T, C, H, W) and days (T,) of each modality, and ``fixed``: what the network must know besides.

    Samples with equal shapes and ``fixed`` go through the network together. ``output`` is the grid of the
    outputs of a dense task, and query m is number ``pixel_M[m]`` of them; ``queried_Q`` are those parts of the output
    that are needed at all, if the network can leave out others.
    """

    values: tuple[Tensor, ...]
    days: tuple[Tensor, ...]
    fixed: tuple[Any, ...]
    output: Size | None = None
    pixel_M: Tensor | None = None
    queried_Q: Tensor | None = None

    @property
    def kind(self) -> tuple[Any, ...]:
        """What inputs must share to go through the network together."""
        return tuple(values.shape for values in self.values), self.fixed, self.output


class ModalityModel(Configured, abc.ABC):
    """A model whose ``network`` takes a list of tensors (:meth:`arguments`), ``fixed`` and ``output`` of inputs.

    The network returns (B, outputs) for scenes and (B, queries, outputs) for dense tasks.
    """

    whole_maps = True
    network: nn.Module
    usual_codes: ClassVar[tuple[str, ...]]  # of channels without a wavelength

    @staticmethod
    @abc.abstractmethod
    def code_of(channel: Channel) -> str:
        """Return what a channel without a wavelength is known by."""

    @classmethod
    def adapted(cls, task_spec: TaskSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with a learned code for each channel that has no wavelength and is not usual."""
        own = {cls.code_of(channel) for channel in task_spec.channels if channel.wavelength_um is None}
        return {"learned_channels": tuple(sorted(own - set(cls.usual_codes))), **settings}

    @property
    @abc.abstractmethod
    def codes(self) -> tuple[str, ...]:
        """The channels without a wavelength that the network has codes for, in their order."""

    def unreadable(self, channels: Iterable[Channel]) -> list[Channel]:
        """Return the channels that have neither a wavelength nor a code that was learned."""
        learned = {self.code_of(channel) for channel in self.task_spec.channels if channel.wavelength_um is None}
        if not self.task_spec.channels:  # an untrained model: all that it has room for
            learned = set(self.codes)
        return [c for c in channels if c.wavelength_um is None and self.code_of(c) not in learned]

    def arguments(self, inputs: Sequence[ModalityInput]) -> list[Tensor]:
        """Return the tensors that the network takes for inputs of one kind: values, then days of all modalities."""
        values = [torch.stack(part) for part in zip(*(sample.values for sample in inputs), strict=True)]
        days = [torch.stack(part) for part in zip(*(sample.days for sample in inputs), strict=True)]
        return values + days

    def predict(self, inputs: Sequence[ModalityInput]) -> list[Tensor]:
        """Return the outputs at the queries, or for the scene; samples of one kind go through the network together."""
        predictions: list[Tensor] = [torch.empty(0)] * len(inputs)
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for number, sample in enumerate(inputs):
            kinds.setdefault(sample.kind, []).append(number)
        weight = next(self.parameters())
        for numbers in kinds.values():
            alike = [inputs[number] for number in numbers]
            tensors = self.arguments(alike)
            moved = [x.to(weight.device, weight.dtype if x.is_floating_point() else None) for x in tensors]
            for number, out in zip(numbers, self.network(moved, alike[0].fixed, alike[0].output), strict=True):
                pixel_M = inputs[number].pixel_M
                predictions[number] = in_units(out if pixel_M is None else out[pixel_M.to(out.device)], self.task_spec)
        return predictions

    def flops(self, inputs: Sequence[ModalityInput]) -> float:
        """Return the FLOPs of convolutions, matrix products and attention, by running without numbers."""
        return sum(
            counted(_Fixed(self.network, sample.fixed, sample.output), *self.arguments([sample])) for sample in inputs
        )


class _Fixed(nn.Module):
    """A network as a function of tensors only."""

    def __init__(self, network: nn.Module, *fixed: Any) -> None:
        super().__init__()
        self.network, self.fixed = network, fixed

    def forward(self, *tensors: Tensor) -> Tensor:
        """Run the network on ``tensors``."""
        out: Tensor = self.network(tensors, *self.fixed)
        return out


def modalities(atoms: AtomSet, kind_of: Callable[[Channel], str]) -> list[AtomSet]:
    """Return the acquisitions by sensor, ``kind_of`` a channel and pixel size; what nobody observed is left out."""
    check_rasters(atoms)
    groups: dict[tuple[Any, ...], list[Acquisition]] = {}
    for acquisition in atoms:
        if not acquisition.num_atoms:
            continue
        footprint = acquisition.footprint_m or (0.0, 0.0)
        kinds: dict[tuple[str, str], list[int]] = {}
        for number in acquisition.observed_channels().nonzero()[:, 0].tolist():
            channel = acquisition.channels[number]
            kinds.setdefault((channel.sensor, kind_of(channel)), []).append(number)
        for kind, numbers in kinds.items():
            key = (*kind, round(footprint[0], 6), round(footprint[1], 6))
            groups.setdefault(key, []).append(acquisition.with_channels(numbers))
    if not groups:
        raise AtomsError("nothing was observed in this scene")
    return [AtomSet(tuple(group)) for group in groups.values()]


def ground_of(atoms: AtomSet, queries: Queries | None) -> tuple[Grid, Tensor]:
    """Return the finest grid over all sites and queries, and its corners (2, 2) south-west and north-east."""
    grid = grid_over(atoms, around=None if queries is None else queries.positions)
    half, middle = torch.tensor(grid.size_m, dtype=torch.float64) / 2, torch.tensor(grid.center_m, dtype=torch.float64)
    return grid, torch.stack([middle - half, middle + half])


def rasters_of(
    atoms: AtomSet, kind_of: Callable[[Channel], str], known: Iterable[Channel], corners: Tensor
) -> list[tuple[tuple[Channel, ...], RasterisedScene]]:
    """Return the channels of each modality and their raster over the same ground; ``known`` are those of training."""
    groups = modalities(atoms, kind_of)
    return [(group.channels, rasterise(group, described(group.channels, known), around=corners)) for group in groups]


def described(channels: Iterable[Channel], known: Iterable[Channel]) -> list[Channel]:
    """Return ``channels`` with the statistics of the training data, which ``known`` are the channels of."""
    trained = {(channel.sensor, channel.name): channel for channel in known}
    return [trained.get((channel.sensor, channel.name), channel) for channel in channels]


def days_of(scene: RasterisedScene, dates: bool) -> Tensor:
    """Return the day of each time step; its number where days are unknown or without ``dates``."""
    return scene.day_T if dates and scene.day_T.isfinite().all() else torch.arange(len(scene.day_T)).float()
