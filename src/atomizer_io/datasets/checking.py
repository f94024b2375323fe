"""Is a folder what its dataset should be? Every file is read, and everything that is wrong is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from atomizer_io.channels import Channel
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.datasets.registry import create, dataset_class
from atomizer_io.datasets.sample import Sample
from atomizer_io.datasets.statistics import Statistics, measure
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.extras import advice

# How far the mean and the spread of a channel may be from the published ones before another unit is the likely reason.
MEAN_STDS, SPREAD_RATIO = 8.0, 30.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one file."""

    path: str
    cause: str

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}"


@dataclass(slots=True)
class SplitReport:
    """What was found in one split."""

    split: str
    samples: int = 0
    read: int = 0
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    statistics: Statistics | None = None


def check(
    name: str, root: str, splits: Iterable[str] | None = None, limit: int | None = None, **options: Any
) -> Iterator[SplitReport]:
    """Read every sample of every split (or of ``splits``; at most ``limit`` each) and report on one split at a time."""
    kind = dataset_class(name)
    known = list(kind.info.splits) if splits is None else list(splits)
    found = 0
    for split in known:  # grows where the folder has more splits than its kind
        report = SplitReport(split)
        try:
            dataset = create(name, root, split, on_error="skip", **options)
        except DataError as error:
            if splits is None and kind.free_splits and (found or split != known[-1]):
                continue
            report.problems.append(Problem(error.path, error.cause))
        except ConfigError as error:  # a split that only some options make, unless it was asked for
            if splits is not None or split == known[0]:
                raise
            report.warnings.append(str(error))
        except Exception as error:  # as in _readable, but for wrong options and a library that is not installed
            if isinstance(error, AtomizerError) or (isinstance(error, ModuleNotFoundError) and advice(error)):
                raise
            report.problems.append(Problem(str(root), f"{type(error).__name__}: {error}"))
        else:
            found += 1
            known += [more for more in dataset.info.splits if splits is None and more not in known]
            report.samples = len(dataset)
            report.statistics = measure(_readable(dataset, report, limit), classes=len(dataset.info.classes))
            report.warnings = [
                *dataset.warnings(),
                *_units(dataset.channels, report.statistics),
                *_classes(dataset.info, report.statistics),
            ]
        yield report


def _readable(dataset: Dataset, report: SplitReport, limit: int | None) -> Iterator[Sample]:
    """The samples that can be read; what is wrong with the others goes into the report, each file once."""
    told: set[str] = set()

    def tell(path: str, cause: str) -> None:
        if path not in told:
            told.add(path)
            report.problems.append(Problem(path, cause))

    for item in dataset.items[:limit]:
        try:
            sample = dataset.sample(item)
        except DataError as error:
            tell(error.path, error.cause)
            for path in dataset.files(item):
                if not path.exists():
                    tell(str(path), "no such file")
        except AtomizerError as error:
            tell(str(dataset.files(item)[0]), str(error))
        except Exception as error:  # a reader met what nobody foresaw: still a line about a file, not a stack trace
            tell(str(dataset.files(item)[0]), f"{type(error).__name__}: {error}")
        else:
            report.read += 1
            yield sample


def _units(published: Iterable[Channel], measured: Statistics) -> Iterator[str]:
    """Channels whose numbers look like another unit than that of the published statistics."""
    known = {(channel.sensor, channel.name): channel for channel in published}
    for channel in measured.channels:
        usual = known.get((channel.sensor, channel.name))
        if usual is None or usual.mean is None or usual.std is None or channel.mean is None:
            continue
        spread = (channel.std or 0.0) / usual.std
        if abs(channel.mean - usual.mean) > MEAN_STDS * usual.std or not 1 / SPREAD_RATIO < spread < SPREAD_RATIO:
            yield (
                f"{channel.sensor} {channel.name} is {channel.mean:.4g} ± {channel.std or 0:.3g} here, but published "
                f"as {usual.mean:.4g} ± {usual.std:.3g}: other units?"
            )


def _classes(info: Info, measured: Statistics) -> Iterator[str]:
    """Classes that never occur."""
    if measured.samples:
        for name, count in zip(info.classes, measured.classes, strict=False):
            if not count:
                yield f"class {name!r} does not occur"
