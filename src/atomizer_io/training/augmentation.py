"""Augmentation of training samples: flips and rotations, hidden channels and dates, shifted wavelengths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atomizer_io.data.acquisition import memory
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import catalogue
from atomizer_io.errors import ConfigError
from atomizer_io.training.bands import observed, with_acquisitions, with_channels


def rotated(sample: Sample, quarters: int, flip: bool) -> Sample:
    """Return ``sample`` mirrored at the north–south axis if ``flip``, then rotated counter-clockwise about its origin.

    The queries keep their order, so the target stays as it is; they no longer fill a north-up grid.
    """
    if not flip and not quarters % 4:
        return sample
    matrix = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64).matrix_power(quarters % 4)
    if flip:
        matrix = matrix @ torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)

    grids: dict[object, Tensor] = {}  # acquisitions on one grid share their positions, and go on sharing them

    def moved(positions: Tensor) -> Tensor:
        if (key := memory(positions)) not in grids:
            grids[key] = positions @ matrix.T
        return grids[key]

    sideways = quarters % 2 == 1
    acquisitions = []
    for acquisition in sample.atoms:
        across, along = acquisition.footprint_m or (0.0, 0.0)
        footprint = (along, across) if sideways else (across, along)
        acquisitions.append(acquisition.moved(moved(acquisition.positions), footprint))
    queries = sample.queries
    if queries is not None:
        size_m = queries.footprint_m
        size_m = size_m.flip(-1) if sideways and size_m is not None else size_m
        queries = replace(queries, positions=moved(queries.positions), grid=None, footprint_m=size_m)
    return replace(sample, atoms=AtomSet(tuple(acquisitions)), queries=queries)


def augmented(sample: Sample, generator: torch.Generator, *, flips: bool = True, rotations: bool = True) -> Sample:
    """Return the sample in one of the eight orientations of a square, each as likely as any other."""
    flip = flips and bool(torch.randint(2, (), generator=generator))
    return rotated(sample, int(torch.randint(4, (), generator=generator)) if rotations else 0, flip)


@dataclass(frozen=True)
class ChannelDropout:
    """Which channels of a training sample stay, so that one model learns to predict from every subset of them.

    The ``scheme`` is applied to a ``share`` of the samples: each ``sensors``, ``groups`` (of bands: RGB, red edge, NIR,
    SWIR …; bands in none stand alone) or ``bands`` stays with a probability that is itself drawn between 0 and 1 for
    the sample, so that subsets of every size come equally often. ``mixed`` draws one of the three for each sample,
    ``none`` leaves all. ``dates`` is the share of samples of which a subset of the dates stays, drawn likewise. At
    least one of each always stays; in a share ``alone`` of the cases just one does, as few subsets are that small, and
    a model learns little of what is hardly ever shown. In three quarters of the samples ``wavelengths`` moves the
    centre of every band by up to that share of itself and halves or doubles its width at most, so that a model learns
    what lies between the bands it is trained on, as other sensors have it; values stay as they are.
    """

    scheme: str = "none"
    share: float = 0.7
    dates: float = 0.0
    alone: float = 0.0
    wavelengths: float = 0.0

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise ConfigError(f"training.channel_dropout.scheme {self.scheme!r} is not known; use {', '.join(SCHEMES)}")
        for name in ("share", "dates", "alone"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"training.channel_dropout.{name} is a share from 0 to 1, got {getattr(self, name)}")
        if not 0 <= self.wavelengths <= FARTHEST:
            raise ConfigError(
                f"training.channel_dropout.wavelengths is a share from 0 to {FARTHEST}, got {self.wavelengths}"
            )

    @property
    def hide(self) -> bool:
        """Whether some samples lack channels or dates."""
        return self.scheme != "none" or self.dates > 0

    def always(self) -> ChannelDropout:
        """Return a dropout that hides channels or dates of every sample, and shifts no wavelengths."""
        return ChannelDropout(self.scheme, 1.0, 1.0 if self.dates else 0.0, self.alone)

    def __call__(self, sample: Sample, generator: torch.Generator) -> Sample:
        """Return ``sample``, perhaps without some of its channels and dates, or with others in their place."""
        if self == ChannelDropout():
            return sample
        chance, which, days = torch.rand(3, generator=generator).tolist()
        if self.scheme != "none" and chance < self.share:
            scheme = self.scheme if self.scheme != "mixed" else MIXED[int(which * len(MIXED))]
            units = units_of(observed(sample.atoms), scheme)
            stay = random_subset(len(units), self.alone, generator)
            gone = set().union(*(unit for unit, stays in zip(units, stay, strict=True) if not stays))
            sample = with_channels(sample, lambda channel: (channel.sensor, channel.name) not in gone)
        if days < self.dates:
            sample = with_dates(sample, self.alone, generator)
        if self.wavelengths and float(torch.rand((), generator=generator)) < MOVED:
            sample = with_shifted_bands(sample, self.wavelengths, generator)
        return sample


MIXED = ("sensors", "groups", "bands")
SCHEMES = ("none", *MIXED, "mixed")
FARTHEST = 0.5  # of its wavelength, that a band is moved by at most
MOVED = 0.75  # share of samples whose bands move; the others show the bands as they are


def random_subset(count: int, alone: float, generator: torch.Generator) -> list[bool]:
    """Return which of ``count`` stay: each with one probability, drawn from 0 to 1; one at least.

    In a share ``alone`` of the cases it is just one.
    """
    chance = torch.rand((), generator=generator)
    stays = torch.rand(count, generator=generator) < chance
    if alone and float(torch.rand((), generator=generator)) < alone:
        stays[:] = False
    if not bool(stays.any()):
        stays[int(torch.randint(count, (), generator=generator))] = True
    return [bool(stay) for stay in stays]


def units_of(channels: Iterable[Channel], scheme: str) -> list[set[tuple[str, str]]]:
    """Return the units that a scheme keeps or drops: channels of a sensor, of a group of bands, or single ones."""
    names = [(channel.sensor, channel.name) for channel in channels]
    if scheme == "sensors":
        return [{name for name in names if name[0] == sensor} for sensor in dict.fromkeys(name[0] for name in names)]
    if scheme == "bands":
        return [{name} for name in names]
    groups = groups_of(channels)
    named = [groups[group] for group in sorted(groups)]
    without = {sensor for sensor, _ in names if not any(group.startswith(f"{sensor} ") for group in groups)}
    whole = [{name for name in names if name[0] == sensor} for sensor in sorted(without)]
    rest = [name for name in names if name[0] not in without and not any(name in group for group in named)]
    return [*named, *whole, *({name} for name in rest)]


def groups_of(channels: Iterable[Channel]) -> dict[str, set[tuple[str, str]]]:
    """Groups of bands (``sentinel2 swir``) of catalogue sensors that are present, in whole or in part."""
    present = {(channel.sensor, channel.name) for channel in channels}
    groups = {}
    for sensor in sorted({sensor for sensor, _ in present}):
        known = catalogue.find(sensor)
        for group, names in (known.groups if known else {}).items():
            members = {(sensor, name) for name in names} & present
            if members:
                groups[f"{sensor} {group}"] = members
    return groups


def with_dates(sample: Sample, alone: float, generator: torch.Generator) -> Sample:
    """Return ``sample`` with the acquisitions of a subset of its dates; those without a date stay."""
    days = [acquisition.day_of_year for acquisition in sample.atoms]
    known = sorted({day for day in days if day is not None})
    if len(known) < 2:
        return sample
    stays = dict(zip(known, random_subset(len(known), alone, generator), strict=True))
    left = {number for number, day in enumerate(days) if day is None or stays[day]}
    parts = {number: part for number, part in enumerate(sample.atoms) if number in left}
    if not any(part.num_atoms for part in parts.values()):
        return sample
    return with_acquisitions(sample, parts)


def with_shifted_bands(sample: Sample, share: float, generator: torch.Generator) -> Sample:
    """Return ``sample`` with other wavelengths and widths of its bands, the same for all dates of a sensor."""
    moved: dict[tuple[str, str], Channel] = {}
    parts = {}
    for number, acquisition in enumerate(sample.atoms):
        for channel in acquisition.channels:
            if channel.wavelength_um is not None and (channel.sensor, channel.name) not in moved:
                shift, width = (2 * torch.rand(2, generator=generator, dtype=torch.float64) - 1).tolist()
                bandwidth_um = None if channel.bandwidth_um is None else channel.bandwidth_um * 2.0**width
                wavelength_um = channel.wavelength_um * (1 + share * shift)
                moved[channel.sensor, channel.name] = replace(
                    channel, wavelength_um=wavelength_um, bandwidth_um=bandwidth_um
                )
        channels = tuple(moved.get((channel.sensor, channel.name), channel) for channel in acquisition.channels)
        parts[number] = replace(acquisition, channels=channels)
    return with_acquisitions(sample, parts)
