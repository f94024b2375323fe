"""A summary of samples in a few lines: their sensors, channels, pixels, sites and dates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Skipped
from atomizer_io.errors import listed

MOST_SENSORS = 6  # sensors that get a line of their own; further ones are only named


@dataclass(slots=True)
class SensorSummary:
    """What the samples hold of one sensor; ``sites`` and ``dates`` have one count for each sample that has it."""

    channels: Counter[str] = field(default_factory=Counter)  # samples by name, in the order in which they came
    pixels_m: set[float] = field(default_factory=set)  # sizes of pixels; points have none
    sites: list[int] = field(default_factory=list)
    dates: list[int] = field(default_factory=list)
    when: set[str] = field(default_factory=set)  # dates, or days of the year where the year is not known
    days: set[float] = field(default_factory=set)  # distinct days of the year
    number_types: Counter[str] = field(default_factory=Counter)  # acquisitions by the type of their values

    def add(self, acquisitions: Sequence[Acquisition]) -> None:
        """Take in the acquisitions that one more sample has of this sensor."""
        for acquisition in acquisitions:
            self.number_types[str(acquisition.values.dtype).removeprefix("torch.")] += 1
            if pixel := max(acquisition.footprint_m or (0.0, 0.0)):
                self.pixels_m.add(pixel)
            if acquisition.day_of_year is not None:
                self.days.add(float(acquisition.day_of_year))
        names = dict.fromkeys(name for acquisition in acquisitions for name in observed(acquisition))
        self.channels.update(names.keys())
        when = {text for acquisition in acquisitions if (text := date_text(acquisition)) is not None}
        self.when |= when
        self.dates.append(len(when))
        self.sites.append(sum(len(acquisition.positions) for acquisition in acquisitions))

    def line(self, samples: int) -> str:
        """Return all of this in one line; ``samples`` is the number of all samples."""
        names = listed(self.channels)
        parts = [
            f"{len(self.channels)} channels ({names})" if len(self.channels) > 1 else names,
            f"pixels of {span(self.pixels_m)} m" if self.pixels_m else "points",
            f"{span(self.sites)} sites a sample",
            f"{span(self.dates)} dates a sample ({span(self.when)})" if self.when else "no dates",
            f"in {len(self.sites):,} of {samples:,} samples",
        ]
        return ", ".join(parts)


@dataclass(slots=True)
class Summary:
    """Sensors, channels, sites and dates of the samples that were added; the samples themselves are not kept."""

    samples: int = 0
    sensors: dict[str, SensorSummary] = field(default_factory=dict)
    queries: list[int] = field(
        default_factory=list
    )  # number for each sample; 0 where the target is one of the whole scene
    atoms: list[int] = field(default_factory=list)  # number for each sample
    sides_m: list[tuple[float, float]] = field(default_factory=list)  # width and height of each sample
    fields: Counter[str] = field(default_factory=Counter)  # samples by site field that they know
    timesteps: set[int] = field(default_factory=set)  # numbers of time steps, where acquisitions name them

    def watch(self, items: Iterable[Sample | Skipped]) -> Iterator[Sample | Skipped]:
        """Yield the same items and add those that are samples on their way."""
        for item in items:
            if isinstance(item, Sample):
                self.add(item)
            yield item

    def add(self, sample: Sample) -> None:
        """Take in one more sample."""
        self.samples += 1
        self.queries.append(0 if sample.queries is None else len(sample.queries))
        self.atoms.append(sample.atoms.num_atoms)
        self.sides_m.append(sides_m(sample))
        self.fields.update({name for acquisition in sample.atoms for name in known_fields(acquisition)})
        by_sensor: dict[str, list[Acquisition]] = {}
        for acquisition in sample.atoms:
            if acquisition.num_atoms:
                by_sensor.setdefault(acquisition.sensor, []).append(acquisition)
                if acquisition.timestep is not None:
                    self.timesteps.add(acquisition.timestep)
        for sensor, acquisitions in by_sensor.items():
            self.sensors.setdefault(sensor, SensorSummary()).add(acquisitions)

    def lines(self) -> list[str]:
        """Return the summary in at most eight lines: the number of samples and of queries, then the sensors."""
        target = f"{span(self.queries)} queries each" if any(self.queries) else "one target for each scene"
        return [f"Inspected {self.samples:,} samples with {target}", *self.sensor_lines()]

    def sensor_lines(self) -> list[str]:
        """Return one line a sensor, in at most seven lines."""
        lines = [f"{name}: {sensor.line(self.samples)}" for name, sensor in self.sensors.items()]
        if len(lines) > MOST_SENSORS:
            more = list(self.sensors)[MOST_SENSORS:]
            lines[MOST_SENSORS:] = [f"and {len(more)} more sensors: {listed(more)}"]
        return lines

    @property
    def in_all(self) -> set[tuple[str, str]]:
        """The channels, by sensor and name, that each sample has."""
        return {
            (name, channel)
            for name, sensor in self.sensors.items()
            for channel, count in sensor.channels.items()
            if count == self.samples
        }

    @property
    def fields_in_all(self) -> set[str]:
        """The site fields that each sample has."""
        return {name for name, count in self.fields.items() if count == self.samples}

    @property
    def pixel_m(self) -> float | None:
        """The size of the smallest pixels; None where there are only points."""
        return min((size for sensor in self.sensors.values() for size in sensor.pixels_m), default=None)

    @property
    def points(self) -> bool:
        """Whether there is a sensor whose sites are points."""
        return any(not sensor.pixels_m for sensor in self.sensors.values())

    @property
    def atoms_per_m2(self) -> float:
        """How many measurements there are on a square metre, over all channels and dates; 0 where there are none."""
        area = sum(width * height for width, height in self.sides_m)
        return sum(self.atoms) / area if area else 0.0

    @property
    def series(self) -> bool:
        """Whether a sensor was there on more than one day within a sample."""
        return any(max(sensor.dates) > 1 for sensor in self.sensors.values())

    @property
    def days(self) -> set[float]:
        """The distinct days of the year of all sensors."""
        return {day for sensor in self.sensors.values() for day in sensor.days}

    @property
    def several_days(self) -> bool:
        """Whether a sensor was there on more than one day of the year: only then can a date mean something."""
        return any(len(sensor.days) > 1 for sensor in self.sensors.values())


def observed(acquisition: Acquisition) -> list[str]:
    """Return the names of the channels that have a value somewhere."""
    seen = acquisition.observed_channels().tolist()
    return [channel.name for channel, there in zip(acquisition.channels, seen, strict=True) if there]


def known_fields(acquisition: Acquisition) -> list[str]:
    """Return the names of the site fields that have a value somewhere."""
    return [name for name, values in acquisition.site_fields.items() if bool(values.isfinite().any())]


def sides_m(sample: Sample) -> tuple[float, float]:
    """Return width and height of what was observed, whole pixels included; (0, 0) where nothing was."""
    boxes = []
    for acquisition in sample.atoms:
        if len(acquisition.positions):
            half = torch.tensor(acquisition.footprint_m or (0.0, 0.0), dtype=torch.float64) / 2
            positions = acquisition.positions
            boxes.append(torch.stack([positions.amin(dim=0) - half, positions.amax(dim=0) + half]))
    if not boxes:
        return 0.0, 0.0
    low, high = torch.stack(boxes)[:, 0].amin(dim=0), torch.stack(boxes)[:, 1].amax(dim=0)
    width, height = (high - low).tolist()
    return width, height


def date_text(acquisition: Acquisition) -> str | None:
    """Return the date of an acquisition, its day of the year where the year is not known, or None without either."""
    if acquisition.date is not None:
        return acquisition.date.isoformat()
    return None if acquisition.day_of_year is None else f"day {acquisition.day_of_year:g}"


def span(values: Iterable[Any]) -> str:
    """Return ``10`` where all values are alike to three digits, else the least and the largest: ``10 … 20``."""
    numbers = list(values)
    low, high = (
        f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        for value in (min(numbers), max(numbers))
    )
    return str(low) if low == high else f"{low} … {high}"
