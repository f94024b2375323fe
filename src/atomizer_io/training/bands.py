"""Which channels a model gets to see, chosen by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel, fold, plain_name
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import catalogue
from atomizer_io.data.sensors.sensor import near_matches
from atomizer_io.errors import ConfigError, listed

Keep = Callable[[Channel], bool]


def observed(atoms: AtomSet) -> list[Channel]:
    """Return the channels that have at least one atom, by sensor and name."""
    channels: dict[tuple[str, str], Channel] = {}
    for acquisition in atoms:
        for channel, seen in zip(acquisition.channels, acquisition.observed_channels().tolist(), strict=True):
            if seen:
                channels.setdefault((channel.sensor, channel.name), channel)
    return list(channels.values())


def with_channels(sample: Sample, keep: Keep) -> Sample:
    """Return ``sample`` with only the channels that ``keep`` accepts, or with all where that would leave no atom.

    Queries name sites by the number of an acquisition, so these numbers follow where whole acquisitions go.
    """
    return with_acquisitions(sample, _parts(sample.atoms, keep))


def with_acquisitions(sample: Sample, parts: dict[int, Acquisition]) -> Sample:
    """Return ``sample`` with these acquisitions, by their number in the sample, in place of all."""
    queries = sample.queries
    if queries is not None:
        sites = {new: queries.sites[old] for new, old in enumerate(parts) if old in queries.sites}
        queries = replace(queries, sites=sites)
    return replace(sample, atoms=AtomSet(tuple(parts.values())), queries=queries)


def _parts(atoms: AtomSet, keep: Keep) -> dict[int, Acquisition]:
    """Return what is left of the acquisitions by their number in ``atoms``, without those of which nothing is left."""
    if not any(keep(channel) for channel in observed(atoms)):
        return dict(enumerate(atoms))
    parts = {}
    for number, acquisition in enumerate(atoms):
        indices = [i for i, channel in enumerate(acquisition.channels) if keep(channel)]
        if indices:
            whole = len(indices) == len(acquisition.channels)
            parts[number] = acquisition if whole else acquisition.with_channels(indices)
    return parts


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
NAMED = {plain_name(name): keep for name, keep in CONFIGURATIONS.items()}
ONLY, WITHOUT = re.compile(r"(.+)[-_ ]only", re.IGNORECASE), re.compile(r"no[-_ ](.+)", re.IGNORECASE)
RANGE = re.compile(r"([\d.]+)\s*-\s*([\d.]+)\s*(um|µm|nm)", re.IGNORECASE)
EVERY = re.compile(r"every[-_ ]([1-9]\d*)(?:st|nd|rd|th)", re.IGNORECASE)


def configurations(text: str) -> list[str]:
    """The configurations of a command line: separated by ``;``, or by ``,`` where one is between names of them.

    ``all,no-swir`` are two configurations, ``B04,B08`` are two channels of one.
    """
    parts = separated(text, ";")
    if len(parts) == 1 and any(_is_named(part) for part in separated(text, ",")):
        parts = separated(text, ",")
    if not any(part.strip() for part in parts):
        raise ConfigError("no channel configuration is named: write one, such as all or s2-only")
    return parts


def separated(text: str, separators: str) -> list[str]:
    """Return the parts of ``text`` between separators that are not inside double quotes."""
    return [part.strip() for part in re.split(f'[{separators}](?=(?:[^"]*"[^"]*")*[^"]*$)', text) if part.strip()]


def _is_named(part: str) -> bool:
    return plain_name(part) in NAMED or any(kind.fullmatch(part) for kind in (ONLY, WITHOUT, RANGE, EVERY))


def configuration(text: str, present: Sequence[Channel] = ()) -> Keep:
    """Which of the channels in ``present`` (those of the data) a test configuration keeps.

    A configuration is one of the paper's names, or parts joined by ``+``: a sensor, a channel (``B04``, ``sentinel2
    B04``, ``"my band"``), ``SENSOR-only``, wavelengths (``0.4-0.7um``, ``400-700nm``). Parts add up; from their sum
    ``no-SENSOR`` takes away, and ``every-2nd`` leaves the first, third … channel of each sensor.
    """
    if plain_name(text) in NAMED:
        return NAMED[plain_name(text)]
    whole = _matching(text, present)
    parts = [text] if whole else separated(text, "+,")
    thinned = [int(match[1]) for part in parts if (match := EVERY.fullmatch(part))]
    away = [_chosen(part, present) for part in parts if _takes_away(part, present)]
    added = [_chosen(part, present) for part in parts if not EVERY.fullmatch(part) and not _takes_away(part, present)]
    kept = [
        c for c in present if (not added or any(c in part for part in added)) and not any(c in part for part in away)
    ]
    for step in thinned:
        sensors = dict.fromkeys(channel.sensor for channel in kept)
        kept = [c for sensor in sensors for c in [c for c in kept if c.sensor == sensor][:: max(1, step)]]
    if not kept:
        raise ConfigError(f"channel configuration {text!r} leaves nothing: {_had(present)}")
    names = {(channel.sensor, channel.name) for channel in kept}
    return lambda channel: (channel.sensor, channel.name) in names


def _takes_away(part: str, present: Sequence[Channel]) -> bool:
    return bool(WITHOUT.fullmatch(part)) and not _matching(part, present) and plain_name(part) not in NAMED


def _chosen(part: str, present: Sequence[Channel]) -> list[Channel]:
    """The channels that a part of a configuration speaks of; where there is none, an error with what may be meant."""
    name = part.strip('"')
    if plain_name(part) in NAMED:
        return [channel for channel in present if NAMED[plain_name(part)](channel)]
    chosen = _matching(name, present)
    if not chosen and (match := RANGE.fullmatch(name)):
        scale = 1e-3 if match[3].lower() == "nm" else 1.0
        low, high = float(match[1]) * scale, float(match[2]) * scale
        chosen = [c for c in present if c.wavelength_um is not None and low <= c.wavelength_um <= high]
    elif not chosen and (match := ONLY.fullmatch(name) or WITHOUT.fullmatch(name)):
        group = _in_group(fold(match[1]))
        chosen = _matching(match[1].strip('"'), present) or [channel for channel in present if group(channel)]
    if not chosen:
        sensors = {channel.sensor for channel in present}
        known = [*CONFIGURATIONS, *sensors, *(f"{s}-only" for s in sensors), *(f"no-{s}" for s in sensors)]
        hint = near_matches(name, {fold(key): key for key in (*known, *(c.name for c in present))})
        near = f"{hint} " if hint.startswith("did") else ""
        raise ConfigError(f"{part!r} matches no channel; {near}{_had(present)}")
    return chosen


def _matching(name: str, present: Sequence[Channel]) -> list[Channel]:
    """Channels of a sensor of that name, else channels of that name, with or without their sensor before it."""
    return _of_sensor(name, present) or [
        c for c in present if c.called(name) or fold(name) in {fold(f"{c.sensor} {n}") for n in c.folded_names()}
    ]


def _of_sensor(name: str, present: Sequence[Channel]) -> list[Channel]:
    sensors = SENTINELS.get(plain_name(name))
    return [c for c in present if (c.sensor in sensors if sensors else plain_name(c.sensor) == plain_name(name))]


def _had(present: Iterable[Channel]) -> str:
    return f"the data have {listed(f'{c.sensor} {c.name}' for c in present) or 'no channels'}"


def restricted(sample: Sample, keep: Keep, text: str) -> Sample:
    """Return only the channels that ``keep`` accepts; none left is an error, as it would be no test at all."""
    channels = observed(sample.atoms)
    if not any(keep(channel) for channel in channels):
        had = listed(f"{c.sensor} {c.name}" for c in channels)
        raise ConfigError(f"channel configuration {text!r} leaves nothing: the sample has {had}")
    return with_channels(sample, keep)
