"""Checking a folder against its dataset: every file is read, and everything that is wrong is reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import Channel
from atomizer_io.data.misfits import images_of, misfits, repeated, sentences
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset, Info, Skipped
from atomizer_io.datasets.leaks import Leaks
from atomizer_io.datasets.registry import create, dataset_class, options_of
from atomizer_io.datasets.statistics import Statistics, measure
from atomizer_io.datasets.summary import Summary
from atomizer_io.errors import AtomizerError, ConfigError, DataError, NoSampleError, listed
from atomizer_io.extras import advice
from atomizer_io.io.raster_pixels import opened, pixels

# How far mean and std of a channel may be from the published ones before another unit is the likely reason.
MEAN_STDS, STD_RATIO = 8.0, 30.0
WORTH_A_LOOK = ("fill", "wrapped", "offset")  # of a sample; units are those of the split
DECLARE = "if it means that nothing was observed, it has to be declared (geotiff-folder: nodata=...)"


@dataclass(slots=True)
class SplitReport:
    """The content of one split, and what is wrong with it."""

    split: str
    absent: str | None = None  # what was looked for in vain, where the split is not there and was not named
    samples: int = 0
    read: int = 0
    faults: list[Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    statistics: Statistics | None = None
    summary: Summary = field(default_factory=Summary)
    unit: str | None = None  # of a regression target
    classes: tuple[str, ...] = ()  # names, in the order of the counts in the statistics, which end with what is ignored


def check(
    name: str, root: str, splits: Iterable[str] | None = None, limit: int | None = None, **options: Any
) -> Iterator[SplitReport]:
    """Read every sample of every split (or of ``splits``; at most ``limit`` each) and report on one split at a time.

    Splits that are not there come last: a copy may have only some. If there is none at all, what is missing is a
    fault, as it is for a split that was named. The split ``all`` is left out where the others have all its files.
    """
    kind = dataset_class(name)
    if "cache" in options_of(kind):  # files are read as they are, and nothing is written
        options = {"cache": False} | options
    usual = [split for split in kind.info.splits if split != "all"]
    every = dict.fromkeys((*usual, *kind.splits_in(Path(root).expanduser(), options)))
    known = sorted(every, key=lambda split: split == "all") if splits is None else list(splits)
    present, wrong = 0, None
    absent: list[tuple[SplitReport, DataError]] = []
    seen: set[Path] = set()  # files of the splits so far
    reported: set[Skipped] = set()  # what is wrong with all splits is reported once
    leaks = Leaks(Path(root).expanduser())
    for split in known:  # grows where the folder has more splits than its kind
        report = SplitReport(split)
        try:
            dataset = create(name, root, split, on_error="skip", **options)
        except DataError as error:
            if splits is None and (isinstance(error, NoSampleError) or not Path(error.path).exists()):
                absent.append((report, error))
                continue
            fault = Skipped(error.path, error.cause)
            if fault in reported and splits is None:
                continue
            reported.add(fault)
            report.faults.append(fault)
        except ConfigError as error:  # a split that only some options make, unless it was named
            if splits is not None or kind.free_splits or split == known[0]:
                raise
            wrong = wrong or error
            report.warnings.append(str(error))
        except Exception as error:  # as in _readable, but for wrong options and a library that is not installed
            if isinstance(error, AtomizerError) or (isinstance(error, ModuleNotFoundError) and advice(error)):
                raise
            report.faults.append(Skipped(str(root), f"{type(error).__name__}: {error}"))
        else:
            present += 1
            files = {path for item in dataset.items for path in dataset.files(item)}
            if splits is None and split == "all" and files <= seen:
                continue
            seen |= files
            report.faults += [fault for fault in dataset.skipped if fault not in reported]
            reported |= set(dataset.skipped)
            known += [more for more in dataset.info.splits if splits is None and more not in known]
            _report(dataset, report, limit, None if split == "all" else leaks)
        yield report
    if not present and wrong is not None:
        raise wrong
    for report, missing in absent:
        fault = Skipped(missing.path, missing.cause)
        if present:
            report.absent = missing.path
        elif fault in reported:
            continue
        else:
            reported.add(fault)
            report.faults.append(fault)
        yield report


def _report(dataset: Dataset, report: SplitReport, limit: int | None, leaks: Leaks | None) -> None:
    """Read a split and write into the report what is in it, and what it shares with the splits before it."""
    report.samples, report.unit, report.classes = len(dataset), dataset.info.unit, dataset.info.classes
    report.statistics = measure(_readable(dataset, report, limit, leaks), classes=len(dataset.info.classes))
    report.warnings = [
        *dataset.warnings(),
        *_cut(list(_units(dataset.channels, report.statistics))),
        *_classes(dataset.info, report.statistics),
        *_number_types(report.summary),
        *report.warnings,
        *(() if leaks is None else leaks.lines(dataset)),
    ]


def _readable(dataset: Dataset, report: SplitReport, limit: int | None, leaks: Leaks | None) -> Iterator[Sample]:
    """Yield the samples that can be read; what is wrong with the others goes into the report, each file once."""
    reported: set[str] = set()
    blank, beyond = [], []
    odd: dict[str, dict[str, str]] = {}  # by kind and sample
    known = {(channel.sensor, channel.name): channel for channel in dataset.channels}

    def add_fault(path: str, cause: str) -> None:
        if path not in reported:
            reported.add(path)
            report.faults.append(Skipped(path, cause))

    for item in dataset.items[:limit]:
        try:
            sample = dataset.sample(item)
        except DataError as error:
            add_fault(error.path, error.cause)
            for path in dataset.files(item):
                if cause := _unreadable(path):
                    add_fault(str(path), cause)
        except AtomizerError as error:
            add_fault(str(dataset.files(item)[0]), str(error))
        except Exception as error:  # a reader met what nobody foresaw: still a line about a file, not a stack trace
            add_fault(str(dataset.files(item)[0]), f"{type(error).__name__}: {error}")
        else:
            report.read += 1
            report.summary.add(sample)
            if sample.queries is not None and bool(sample.queries.ignore.all()):
                blank.append(sample.meta.id)
            if _outside(sample) > 0.5:
                beyond.append(sample.meta.id)
            for kind, texts in misfits(list(images_of(sample)), known).items():
                if kind in WORTH_A_LOOK:
                    odd.setdefault(kind, {}).update(texts)
            if leaks is not None:
                leaks.add(dataset, item, sample)
            if (twice := repeated(sample)) is not None:
                odd.setdefault("repeated", {})[sample.meta.id] = twice
            yield sample
    report.warnings += sentences(odd, {"fill": DECLARE})
    if blank:
        report.warnings.append(f"nothing is known of the target, as all of it is ignored or absent: {listed(blank)}")
    if beyond:
        report.warnings.append(f"more than half of the target lies outside of the images: {listed(beyond)}")


def _unreadable(path: Path) -> str | None:
    """Return why a file cannot be read at all, None if it can be.

    For the other files of a sample in which one file was wrong.
    """
    if not path.exists():
        return "no such file"
    if path.suffix.casefold() not in (".tif", ".tiff"):
        return None
    try:
        with opened(path) as source:
            pixels(source, source.indexes)
    except DataError as error:
        return error.cause
    return None


def _outside(sample: Sample) -> float:
    """Return the share of the queries with a known target outside of the box around all observations."""
    if sample.queries is None:
        return 0.0
    west, south, east, north = sample.atoms.bounds
    x, y = sample.queries.positions[~sample.queries.ignore].unbind(dim=1)
    outside = (x < west) | (x > east) | (y < south) | (y > north)
    return float(outside.double().mean()) if len(outside) else 0.0


def _number_types(summary: Summary) -> Iterator[str]:
    """Name sensors whose files hold different types of numbers, as reflectance from 0 to 1 beside 16-bit numbers."""
    for name, sensor in summary.sensors.items():
        if len(sensor.number_types) > 1:
            counts = " and ".join(f"{count} of {kind}" for kind, count in sensor.number_types.items())
            yield f"{name} has {counts}: are they in the same unit?"


def _cut(lines: list[str], most: int = 12) -> list[str]:
    """Return the first dozen of many lines, and how many more there are."""
    more = len(lines) - most
    return lines if more <= 1 else [*lines[:most], f"… and {more} more channels"]


def _units(published: Iterable[Channel], measured: Statistics) -> Iterator[str]:
    """Name the channels whose numbers look like another unit than that of the published statistics."""
    known = {(channel.sensor, channel.name): channel for channel in published}
    for channel in measured.channels:
        usual = known.get((channel.sensor, channel.name))
        if usual is None or usual.mean is None or usual.std is None or channel.mean is None:
            continue
        ratio = (channel.std or 0.0) / usual.std
        if abs(channel.mean - usual.mean) > MEAN_STDS * usual.std or not 1 / STD_RATIO < ratio < STD_RATIO:
            yield (
                f"{channel.sensor} {channel.name} is {channel.mean:.4g} ± {channel.std or 0:.3g} here, but published "
                f"as {usual.mean:.4g} ± {usual.std:.3g}: other units? If so, train with statistics of your own "
                "(atomizer data stats ... -o stats.json, data.statistics=stats.json)"
            )


def _classes(info: Info, measured: Statistics) -> Iterator[str]:
    """Name the classes that never occur."""
    if measured.samples:
        for name, count in zip(info.classes, measured.classes, strict=False):
            if not count:
                yield f"class {name!r} does not occur"
