"""What was understood of a dataset, in a few lines: its sensors, channels, sites and dates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from atomizer_io.datasets.dataset import Skipped
from atomizer_io.errors import listed
from atomizer_io.sample import Sample

SENSORS = 5  # lines about sensors; more are counted only


@dataclass(slots=True)
class Range:
    """The least and the largest of numbers, one for each sample."""

    low: int = -1
    high: int = -1

    def add(self, number: int) -> None:
        """Take in the number of another sample."""
        self.low, self.high = number if self.low < 0 else min(self.low, number), max(self.high, number)

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"


@dataclass(slots=True)
class OfSensor:
    """What the samples have of one sensor."""

    channels: dict[str, None] = field(default_factory=dict)  # names, in the order in which they came
    samples: int = 0
    sites: Range = field(default_factory=Range)
    dates: Range = field(default_factory=Range)
    days: set[float] = field(default_factory=set)  # distinct days of the year


@dataclass(slots=True)
class Summary:
    """Sensors, channels, sites and dates of the samples that were added; the samples themselves are not kept."""

    samples: int = 0
    sensors: dict[str, OfSensor] = field(default_factory=dict)
    asked: Range = field(default_factory=Range)

    def watch(self, items: Iterable[Sample | Skipped]) -> Iterator[Sample | Skipped]:
        """The same items, added on their way."""
        for item in items:
            if isinstance(item, Sample):
                self.add(item)
            yield item

    def add(self, sample: Sample) -> None:
        """Take in one more sample."""
        self.samples += 1
        self.asked.add(0 if sample.queries is None else len(sample.queries))
        sites: dict[str, int] = {}
        dates: dict[str, set[Any]] = {}
        for acquisition in sample.atoms:
            if not acquisition.num_atoms:
                continue
            sensor = acquisition.sensor
            known = self.sensors.setdefault(sensor, OfSensor())
            known.channels |= dict.fromkeys(channel.name for channel in acquisition.channels)
            sites[sensor] = sites.get(sensor, 0) + len(acquisition.positions)
            when = dates.setdefault(sensor, set())
            if acquisition.day_of_year is not None:
                when.add(acquisition.date or acquisition.day_of_year)
                known.days.add(float(acquisition.day_of_year))
        for sensor, count in sites.items():
            found = self.sensors[sensor]
            found.samples += 1
            found.sites.add(count)
            found.dates.add(len(dates[sensor]))

    def lines(self) -> list[str]:
        """What was seen, at most eight lines."""
        asked = "the scene" if self.asked.high <= 0 else f"{self.asked} positions"
        found = [f"{self.samples:,} samples looked at; each is asked about {asked}"]
        for name, sensor in list(self.sensors.items())[:SENSORS]:
            part = "" if sensor.samples == self.samples else f", in {sensor.samples:,} of the samples"
            found.append(
                f"{name}: {len(sensor.channels)} channels ({listed(sensor.channels)}); per sample {sensor.sites} sites "
                f"on {sensor.dates} dates{part}"
            )
        if len(self.sensors) > SENSORS:
            found.append(f"and {len(self.sensors) - SENSORS} more sensors: {listed(list(self.sensors)[SENSORS:])}")
        found.append(f"days of the year: {self._days()}")
        return found

    @property
    def days(self) -> set[float]:
        """The distinct days of the year of all sensors."""
        return {day for sensor in self.sensors.values() for day in sensor.days}

    @property
    def several_days(self) -> bool:
        """Whether a sensor was there on more than one day of the year: only then can a date mean something."""
        return any(len(sensor.days) > 1 for sensor in self.sensors.values())

    def _days(self) -> str:
        days = self.days
        if len(days) > 1:
            return f"{len(days)} distinct, from {min(days):g} to {max(days):g}"
        return f"{min(days):g} for all" if days else "none is known"


def describe(samples: Iterable[Sample | Skipped]) -> list[str]:
    """What was understood of some samples, in at most eight lines of text."""
    summary = Summary()
    for _ in summary.watch(samples):
        pass
    return summary.lines()
