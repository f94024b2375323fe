"""Augmentation of point clouds for other terrain and other sensors: tilted, shifted, thinned, without some fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atomizer_io.data.acquisition import FIELD_SOURCES, Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Queries, Sample
from atomizer_io.data.sensors import LIDAR, LIDAR_HEIGHT
from atomizer_io.errors import ConfigError

FEW = 16  # points that always stay
GROUND_ERROR = 0.02  # share of a tilt that is left in heights above a ground that was estimated
BEND = 3.0  # doublings of intensity that go with one doubling of the power of its rank
(ELEVATION,), (HEIGHT,) = LIDAR.channels, LIDAR_HEIGHT.channels
ZERO_FOR = {"first": "echo_before", "last": "echo_after"}  # the site field that is 0 for these returns


@dataclass(frozen=True)
class PointAugmentation:
    """How the point clouds of training samples are changed at random, for each visit anew; by default not at all.

    ``slope`` is the largest tilt, as rise over run: elevations rise along a plane, counted from the lowest point as
    before; heights above ground keep a fiftieth of it, as the ground has to be estimated. ``height_m`` is by how many
    metres all heights of a point cloud are shifted at most. ``intensity`` is by how many doublings intensities are
    scaled at most, up or down; ranks of intensity are bent by a power, between 2^(−intensity/3) and 2^(intensity/3).
    ``thinning`` is the smallest share of points that stays, drawn evenly on a logarithmic scale (1: all stay).
    ``returns`` is the probability that only first or only last returns stay, as if a pulse had no echo. A query goes
    with the point that it looks at. ``field_dropout`` is the probability that all points lack the numbers of returns,
    the intensity or both, each as likely.
    """

    slope: float = 0.0
    height_m: float = 0.0
    intensity: float = 0.0
    thinning: float = 1.0
    returns: float = 0.0
    field_dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("slope", "height_m", "intensity"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"training.point_augmentation.{name} must be 0 or more, got {getattr(self, name)}")
        if not 0 < self.thinning <= 1:
            raise ConfigError(
                "training.point_augmentation.thinning is the smallest share of points that stays, above 0 and up to "
                f"1, got {self.thinning}"
            )
        for name in ("returns", "field_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"training.point_augmentation.{name} is a probability, got {getattr(self, name)}")

    def __call__(self, sample: Sample, generator: torch.Generator) -> Sample:
        """Return ``sample`` with its point clouds changed; pixels stay as they are."""
        point_clouds = {n: points for n, points in enumerate(sample.atoms) if points.footprint_m == (0.0, 0.0)}
        if self == PointAugmentation() or not point_clouds:
            return sample
        change = self.random_change(generator)
        kept = {number: change.kept(points, generator) for number, points in point_clouds.items()}
        if sample.queries is not None and not bool(remaining_queries(sample.queries, kept).any()):
            change = replace(change, share=1.0, returns=None)  # nothing would be learned from what is left
            kept = {}
        parts = [change(part) if number in point_clouds else part for number, part in enumerate(sample.atoms)]
        return only_points(replace(sample, atoms=AtomSet(tuple(parts))), kept)

    def random_change(self, generator: torch.Generator) -> PointChange:
        """Return one change, the same for all point clouds of a sample."""
        size, angle, shift, scale, bend, share, drop, which = torch.rand(
            8, generator=generator, dtype=torch.float64
        ).tolist()
        tilt, angle = self.slope * size, 2 * math.pi * angle
        return PointChange(
            tilt=(tilt * math.cos(angle), tilt * math.sin(angle)),
            shift_m=self.height_m * (2 * shift - 1),
            scale=2 ** (self.intensity * (2 * scale - 1)),
            power=2 ** (self.intensity / BEND * (2 * bend - 1)),
            share=self.thinning**share,
            returns=None if drop >= self.returns else "first" if which < 0.5 else "last",
            lacks=self._dropped_fields(generator) if self.field_dropout else (),
        )

    def _dropped_fields(self, generator: torch.Generator) -> tuple[str, ...]:
        """Return the fields that points lack, by their names in files."""
        chance, which = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
        both = ("number_of_returns", "intensity")
        return (both[:1], both[1:], both)[int(3 * which)] if chance < self.field_dropout else ()


@dataclass(frozen=True, slots=True)
class PointChange:
    """One random change of point clouds; ``tilt`` is metres of rise per metre east and north."""

    tilt: tuple[float, float]
    shift_m: float
    scale: float
    power: float
    share: float
    returns: str | None
    lacks: tuple[str, ...]

    def kept(self, points: Acquisition, generator: torch.Generator) -> Tensor:
        """Return which points (P,) stay; where only few would, none goes for its return."""
        keep = self.of_returns(points)
        if self.share < 1:
            stay = keep.nonzero()[:, 0]
            count = max(FEW, round(self.share * len(stay)))
            keep = torch.zeros_like(keep)
            keep[stay[torch.randperm(len(stay), generator=generator)[:count]]] = True
        return keep

    def of_returns(self, points: Acquisition) -> Tensor:
        """Return which points (P,) are first, or last, returns or of an unknown number; all where those are few."""
        every = torch.ones(len(points.positions), dtype=torch.bool)
        echo = None if self.returns is None else points.site_fields.get(ZERO_FOR[self.returns])
        if echo is None:
            return every
        matching = ~(echo > 0)
        return matching if int(matching.sum()) >= FEW else every

    def __call__(self, points: Acquisition) -> Acquisition:
        """Return all points at other heights, with other intensities and echoes."""
        fields = dict(points.site_fields)
        if "intensity" in fields:
            fields["intensity"] = fields["intensity"] * self.scale
        if "intensity_rank" in fields:
            fields["intensity_rank"] = fields["intensity_rank"] ** self.power
        if self.returns is not None and not bool(self.of_returns(points).all()):
            for name in fields.keys() & ZERO_FOR.values():
                fields[name] = fields[name] * 0  # the only return of its pulse; NaN stays unknown
        fields = {name: values for name, values in fields.items() if FIELD_SOURCES.get(name) not in self.lacks}
        return replace(self.lifted(points), site_fields=fields)

    def lifted(self, points: Acquisition) -> Acquisition:
        """Return the points at other heights."""
        rise = points.positions @ torch.tensor(self.tilt, dtype=torch.float64)
        above_ground = GROUND_ERROR * (rise - rise.mean()) + self.shift_m
        names = [(channel.sensor, channel.name) for channel in points.channels]
        observed, changes = points.observed().double(), {}
        if (ELEVATION.sensor, ELEVATION.name) in names:
            column = names.index((ELEVATION.sensor, ELEVATION.name))
            changes[column] = rise - (lowest(observed[:, column] + rise) - lowest(observed[:, column])) + self.shift_m
        if (HEIGHT.sensor, HEIGHT.name) in names:
            changes[names.index((HEIGHT.sensor, HEIGHT.name))] = above_ground
        values = (points.values if points.values.is_floating_point() else points.values.float()).clone()
        for column, change in changes.items():
            values[:, column] += change.to(values.dtype)
        return replace(points, values=values)


def lowest(heights: Tensor) -> float:
    """Return the least of the heights that are known; 0 where none is."""
    known = heights[heights.isfinite()]
    return float(known.min()) if len(known) else 0.0


def remaining_queries(queries: Queries, kept: Mapping[int, Tensor]) -> Tensor:
    """Return the queries (M,) that look at no point that goes; ``kept`` marks what stays, by acquisition."""
    remaining = torch.ones(len(queries), dtype=torch.bool)
    for number, sites in queries.sites.items():
        if number in kept:
            remaining &= (sites < 0) | kept[number][sites.clamp(min=0)]
    return remaining


def only_points(sample: Sample, kept: Mapping[int, Tensor]) -> Sample:
    """Return ``sample`` with only the points that ``kept`` marks (P,), by acquisition, and the queries that stay."""
    if all(bool(keep.all()) for keep in kept.values()):
        return sample
    parts = [part.with_sites(kept[n]) if n in kept else part for n, part in enumerate(sample.atoms)]
    queries, target = sample.queries, sample.target
    if queries is not None:
        remaining = remaining_queries(queries, kept)
        if not bool(remaining.all()):
            queries, target = queries.part(remaining), target[remaining]
        numbers = {n: torch.cat([keep.cumsum(0) - 1, torch.tensor([-1])]) for n, keep in kept.items()}  # −1 stays −1
        sites = {n: numbers[n][named] if n in kept else named for n, named in queries.sites.items()}
        queries = replace(queries, sites=sites)
    return replace(sample, atoms=AtomSet(tuple(parts)), queries=queries, target=target)
