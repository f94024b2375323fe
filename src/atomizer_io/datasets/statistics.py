"""Statistics of a dataset as it streams by: of channels over what was observed, of site fields and of the target."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.acquisition import LOGARITHMIC_FIELDS
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import LIDAR
from atomizer_io.datasets.dataset import Skipped
from atomizer_io.errors import DataError
from atomizer_io.io.point_atoms import points_per_m2
from atomizer_io.texts import parse_json, read_text, write_text


@dataclass(slots=True)
class Moments:
    """Count, mean, sum of squared deviations and range of numbers seen so far; nothing else is kept."""

    count: int = 0
    mean: float = 0.0
    deviations: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    def add(self, values: NDArray[Any]) -> None:
        """Take in more numbers, by Chan's formula: a mean of means would weigh small samples too much."""
        if not values.size:
            return
        new = values.astype(np.float64)
        mean = float(new.mean())
        deviations = float(((new - mean) ** 2).sum())
        total, shift = self.count + new.size, mean - self.mean
        self.deviations += deviations + shift**2 * self.count * new.size / total
        self.mean += shift * new.size / total
        self.count = total
        self.low, self.high = min(self.low, float(new.min())), max(self.high, float(new.max()))

    @property
    def std(self) -> float:
        """Standard deviation, over all numbers (no correction for the mean)."""
        return float(np.sqrt(self.deviations / self.count)) if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """What was measured: ``channels`` with mean, std, min and max in raw units go into a model's settings.

    ``counts`` are atoms per channel in the same order. ``target`` is (mean, std) of a regression target; ``classes``
    counts labels, ignored ones last. ``fields`` has (mean, std) of each site field; intensity as log1p, as the model
    reads it. ``density`` is (mean, std) of the points per m² of the samples, where there are point clouds.
    """

    channels: tuple[Channel, ...]
    counts: tuple[int, ...]
    samples: int
    target: tuple[float, float] | None = None
    classes: tuple[int, ...] = ()
    fields: dict[str, tuple[float, float]] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    density: tuple[float, float] | None = None

    def save(self, path: str | Path) -> None:
        """Write the statistics as JSON."""
        document = asdict(self)
        document["channels"] = [{k: v for k, v in c.items() if v not in (None, ())} for c in document["channels"]]
        write_text(Path(path), json.dumps(document, indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Statistics:
        """Read the statistics that :meth:`save` wrote."""
        try:
            document = parse_json(read_text(Path(path)))
            return cls(
                channels=tuple(Channel(**{**c, "aliases": tuple(c.get("aliases", ()))}) for c in document["channels"]),
                counts=tuple(document["counts"]),
                samples=document["samples"],
                target=_pair(document["target"]),
                classes=tuple(document["classes"]),
                fields={name: (mean, std) for name, (mean, std) in document["fields"].items()},
                skipped=tuple(Skipped(**s) for s in document["skipped"]),
                density=_pair(document.get("density")),
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise DataError(path, f"is not a file of statistics ({error}); `atomizer data stats` writes one") from error


def _pair(stored: Any) -> tuple[float, float] | None:
    return (float(stored[0]), float(stored[1])) if stored else None


def measure(items: Iterable[Sample | Skipped], classes: int = 0) -> Statistics:
    """Return the statistics of samples; ``classes`` is the number of classes (0: a regression)."""
    channels: dict[tuple[str, str], tuple[Channel, Moments]] = {}
    fields: dict[str, Moments] = {}
    target, density, labels = Moments(), Moments(), np.zeros(classes + 1, dtype=np.int64)
    samples, skipped = 0, []
    for item in items:
        if isinstance(item, Skipped):
            skipped.append(item)
            continue
        samples += 1
        for acquisition in item.atoms:
            values, valid = acquisition.values.numpy(), None if acquisition.valid is None else acquisition.valid.numpy()
            for i, channel in enumerate(acquisition.channels):
                _, moments = channels.setdefault((channel.sensor, channel.name), (channel, Moments()))
                moments.add(values[:, i] if valid is None else values[valid[:, i], i])
            for name, numbers in acquisition.site_fields.items():
                known = numbers[numbers.isfinite()].double()
                known = known.clamp(min=0).log1p() if name in LOGARITHMIC_FIELDS else known
                fields.setdefault(name, Moments()).add(known.numpy())
            if any(channel.sensor == LIDAR.channels[0].sensor for channel in acquisition.channels):
                density.add(np.array([points_per_m2(acquisition.positions.numpy())]))
        values = item.target.numpy().reshape(-1)
        if classes:
            labels += np.bincount(np.where(values < 0, classes, values), minlength=classes + 1)
        else:
            target.add(values[np.isfinite(values)])
    return Statistics(
        channels=tuple(_described(channel, moments) for channel, moments in channels.values()),
        counts=tuple(moments.count for _, moments in channels.values()),
        samples=samples,
        target=(target.mean, target.std) if target.count else None,
        classes=tuple(labels.tolist()) if classes else (),
        fields={name: (moments.mean, moments.std) for name, moments in fields.items()},
        skipped=tuple(skipped),
        density=(density.mean, density.std) if density.count else None,
    )


def _described(channel: Channel, moments: Moments) -> Channel:
    if not moments.count:
        return replace(channel, mean=None, std=None, min=None, max=None)
    std = moments.std if moments.std > 0 else None  # a constant channel cannot be standardised
    return replace(channel, mean=moments.mean, std=std, min=moments.low, max=moments.high)
