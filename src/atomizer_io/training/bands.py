"""Which channels a model gets to see: dropped at random in training, chosen by name in evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

import torch

from atomizer_io.atoms import AtomSet
from atomizer_io.channels import Channel, plain_name, some_of
from atomizer_io.errors import ConfigError
from atomizer_io.sensors import catalogue
from atomizer_io.sensors.sensor import near_matches

Keep = Callable[[Channel], bool]


@dataclass(frozen=True)
class BandDropout:
    """How often channels are left out of a training sample: at most one of the three happens to a sample.

    ``sensor`` is the probability that one whole sensor goes, ``group`` that a group of bands goes (``rgb``,
    ``red_edge``, ``nir``, ``swir`` of a sensor), ``band`` that single bands go, each with probability ``each``.
    Something always stays: a choice that would leave nothing is not made.
    """

    sensor: float = 0.0
    group: float = 0.0
    band: float = 0.0
    each: float = 0.25

    def __post_init__(self) -> None:
        for name in ("sensor", "group", "band", "each"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"band_dropout.{name} is a probability, got {getattr(self, name)}")
        if self.sensor + self.group + self.band > 1:
            raise ConfigError(
                f"band_dropout: sensor, group and band are {self.sensor} + {self.group} + {self.band}; their sum is "
                "at most 1, as at most one of them happens to a sample"
            )

    def __call__(self, atoms: AtomSet, generator: torch.Generator) -> AtomSet:
        """``atoms`` with or without some channels."""
        chance = float(torch.rand((), generator=generator))
        channels = observed(atoms)
        if chance < self.sensor:
            names = sorted({channel.sensor for channel in channels})
            gone = {names[int(torch.randint(len(names), (), generator=generator))]}
            return kept(atoms, lambda channel: channel.sensor not in gone)
        if chance < self.sensor + self.group:
            groups = groups_of(channels)
            if not groups:
                return atoms
            out = groups[sorted(groups)[int(torch.randint(len(groups), (), generator=generator))]]
            return kept(atoms, lambda channel: (channel.sensor, channel.name) not in out)
        if chance < self.sensor + self.group + self.band:
            drawn = (torch.rand(len(channels), generator=generator) < self.each).tolist()
            out = {(c.sensor, c.name) for c, drop in zip(channels, drawn, strict=True) if drop}
            return kept(atoms, lambda channel: (channel.sensor, channel.name) not in out)
        return atoms


def observed(atoms: AtomSet) -> list[Channel]:
    """Channels with at least one atom, by sensor and name."""
    found: dict[tuple[str, str], Channel] = {}
    for acquisition in atoms:
        for channel, seen in zip(acquisition.channels, acquisition.observed_channels().tolist(), strict=True):
            if seen:
                found.setdefault((channel.sensor, channel.name), channel)
    return list(found.values())


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


def kept(atoms: AtomSet, keep: Keep) -> AtomSet:
    """The channels that ``keep`` says, or all where that would leave no atom."""
    if not any(keep(channel) for channel in observed(atoms)):
        return atoms
    found = []
    for acquisition in atoms:
        indices = [i for i, channel in enumerate(acquisition.channels) if keep(channel)]
        if indices:
            whole = len(indices) == len(acquisition.channels)
            found.append(acquisition if whole else acquisition.with_channels(indices))
    return AtomSet(tuple(found))


SENTINELS = {"s1": ("sentinel1",), "s2": ("sentinel2", "sentinel2_l2a", "hls")}


def _in_group(*groups: str) -> Keep:
    def inside(channel: Channel) -> bool:
        known = catalogue.find(channel.sensor)
        return known is not None and any(channel.name in known.groups.get(group, ()) for group in groups)

    return inside


# The paper's table on flexible input composition.
CONFIGURATIONS: dict[str, Keep] = {
    "all": lambda channel: True,
    "s2-only": lambda channel: channel.sensor in SENTINELS["s2"],
    "s1-only": lambda channel: channel.sensor in SENTINELS["s1"],
    "rgb-only": _in_group("rgb"),
    "no-swir": lambda channel: not _in_group("swir")(channel),
    "no-red-edge": lambda channel: not _in_group("red_edge")(channel),
}


def configuration(text: str) -> Keep:
    """A test configuration: one of the paper's names, or channels (``B04,B08``; ``sentinel2 B04``) to keep."""
    named = {plain_name(name): keep for name, keep in CONFIGURATIONS.items()}
    if plain_name(text) in named:
        return named[plain_name(text)]
    if get_close_matches(plain_name(text), named, n=1, cutoff=0.75):
        raise ConfigError(f"{text!r} is no channel configuration; {near_matches(text, {k: k for k in CONFIGURATIONS})}")
    wanted = [part.strip().rpartition(" ") for part in text.split(",") if part.strip()]

    def listed(channel: Channel) -> bool:
        return any(
            channel.called(name) and plain_name(sensor) in ("", plain_name(channel.sensor))
            for sensor, _, name in wanted
        )

    return listed


def restricted(atoms: AtomSet, keep: Keep, text: str) -> AtomSet:
    """Only the channels that ``keep`` says; an error where none is left, which would be no test at all."""
    if not any(keep(channel) for channel in observed(atoms)):
        raise ConfigError(
            f"channel configuration {text!r} leaves nothing: the sample has "
            f"{some_of(f'{c.sensor} {c.name}' for c in observed(atoms))}"
        )
    return kept(atoms, keep)
