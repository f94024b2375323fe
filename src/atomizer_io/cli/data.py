"""List, check, measure and draw datasets.

NAME is one of `atomizer data list`; ROOT is its folder as published ('-' for the synthetic one, which has none).
Options of a dataset follow as key=value: `atomizer data show pastis-r ROOT 0 dates=6`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atomizer_io.cli.decoding import add_atoms_per_latent
from atomizer_io.data.channels import Channel
from atomizer_io.errors import ConfigError

if TYPE_CHECKING:  # what brings torch is imported by the functions that work with it: help must not wait for it
    from atomizer_io.datasets.checking import SplitReport
    from atomizer_io.datasets.dataset import Dataset
    from atomizer_io.datasets.statistics import Statistics

LONG_TABLE = 40  # channels; the published datasets have fewer
NAME_HELP = "name of the dataset, one of `atomizer data list`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer data``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(name: str, text: str, *, root: bool = True) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text, description=text)
        action.set_defaults(act=globals()[f"run_{name}"])
        if root:
            action.add_argument("name", metavar="NAME", help=NAME_HELP)
            action.add_argument("root", metavar="ROOT", help="folder of the dataset ('-' for synthetic)")
        return action

    def add_split(action: argparse.ArgumentParser, text: str) -> None:
        action.add_argument("--split", default="train", help=f"{text} (default: train)")

    add("list", "List the datasets that can be read.", root=False)
    describing = add("describe", "Describe a dataset: task, classes, channels, folder layout.", root=False)
    describing.add_argument("name", metavar="NAME", help=NAME_HELP)
    checking = add("check", "Read every file and report what was understood, what is missing and what is broken.")
    checking.add_argument("--split", action="append", help="check only this split (may be repeated)")
    checking.add_argument("--limit", type=int, help="largest number of samples of each split")
    stats = add("stats", "Measure the mean and the standard deviation of every channel, for normalisation.")
    add_split(stats, "split to measure")
    stats.add_argument("--limit", type=int, help="largest number of samples")
    stats.add_argument("--workers", type=int, default=0, help="number of processes that read (default: 0, this one)")
    text = "what to do with broken files (default: raise)"
    stats.add_argument("--on-error", choices=("raise", "skip"), default="raise", help=text)
    stats.add_argument("-o", "--output", type=Path, help="JSON file for the statistics, which training can read")
    show = add(
        "show", "Draw one sample: bands, target, cells of latents; a point cloud from above and in cross-section."
    )
    show.add_argument("index", type=int, metavar="INDEX", help="number of the sample in its split, from 0")
    add_split(show, "split of the sample")
    add_atoms_per_latent(show, 1000, "atoms per latent, κ, of the cells that are drawn")
    show.add_argument("-o", "--output", type=Path, required=True, help="figure to write (.png, .pdf, .svg)")
    for action in (checking, stats, show):
        action.add_argument("options", nargs="*", metavar="key=value", help="options of the dataset: see data describe")


def run(args: argparse.Namespace) -> int:
    """Run the action that the command line names and return the exit code."""
    return int(args.act(args))


def run_list(args: argparse.Namespace) -> int:
    """Print one line for each dataset."""
    from atomizer_io.datasets.registry import describe, list_datasets

    for name in list_datasets():
        info = describe(name)
        print(f"{name:16} {info.task:15} {info.title}")
    return 0


def run_describe(args: argparse.Namespace) -> int:
    """Print all that is known about one dataset."""
    from atomizer_io.datasets.registry import canonical, dataset_class, describe, options_of

    info = describe(args.name)
    print(f"{info.title} ({canonical(args.name)})\n")
    outputs = f", {len(info.classes)} classes" if info.classes else f", in {info.unit}" if info.unit else ""
    print(f"task      {info.task}{outputs}{', time series' if info.temporal else ''}")
    if info.classes:
        codes = info.codes or range(len(info.classes))
        print(f"classes   {', '.join(f'{code} {text}' for code, text in zip(codes, info.classes, strict=True))}")
    print(f"splits    {', '.join(info.splits)}")
    if info.extent_m:
        print(f"extent    {info.extent_m:g} m")
    if info.source:
        print(f"source    {info.source}")
    for text in info.notes:
        print(f"note      {text}")
    if info.layout:
        print("layout    " + info.layout.replace("\n", "\n          "))
    options = [name for name in options_of(dataset_class(args.name)) if name not in ("on_error", "transform")]
    if options:
        print(f"options   {', '.join(options)}")
    if info.channels:
        print("\n" + "\n".join(channel_lines(info.channels)))
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Report on a folder split by split; return 1 if anything is wrong."""
    from atomizer_io.datasets.checking import check
    from atomizer_io.datasets.registry import canonical

    if args.limit is not None and args.limit < 1:
        raise ConfigError(f"--limit must be at least 1, got {args.limit}")
    wrong, there = 0, []
    for report in check(args.name, args.root, args.split, args.limit, **parse_options(args.options)):
        print_report(report, args.root)
        wrong += len(report.faults)
        there += [report.split] if report.read else []
    if wrong or not there:
        print(f"{wrong} missing or broken" if wrong else f"no sample of {canonical(args.name)} is in {args.root}")
        return 1
    print(f"{', '.join(there)}: nothing is missing or broken")
    return 0


def print_report(report: SplitReport, root: str) -> None:
    """Print what one split holds, or that it is not there."""
    if report.absent is not None:
        print(f"{report.split:10} is not there (looked for {relative(report.absent, root)})")
        return
    atoms = sum(report.statistics.counts) if report.statistics else 0
    print(f"{report.split:10} {report.samples} samples, {report.read} read, {atoms:,} atoms")
    for text in report.summary.sensor_lines():
        print(f"  read     {text}")
    if report.statistics and any(report.statistics.classes):
        counts = dict(zip((*report.classes, "ignored"), report.statistics.classes, strict=True))
        shares = {name: 100 * count / sum(counts.values()) for name, count in counts.items()}
        parts = [f"{name} {share:.3g} %" for name, share in shares.items() if share or name != "ignored"]
        print(f"  classes  {', '.join(parts)}")
    if report.statistics and report.statistics.target is not None:
        mean, std = report.statistics.target
        print(f"  target   {mean:.4g} ± {std:.3g} {report.unit or ''}".rstrip())
    for fault in report.faults:
        print(f"  broken   {relative(fault.path, root)}: {fault.cause}")
    for text in report.warnings:
        print(f"  look     {text}")


def run_stats(args: argparse.Namespace) -> int:
    """Measure the statistics of a split, print them and write them if a file is named."""
    from atomizer_io.datasets.dataset import read_items
    from atomizer_io.datasets.statistics import measure
    from atomizer_io.progress import watched

    for name in ("limit", "workers"):
        if getattr(args, name) is not None and getattr(args, name) < (name == "limit"):
            raise ConfigError(f"--{name} must be at least {int(name == 'limit')}, got {getattr(args, name)}")
    dataset = open_dataset(args, on_error=args.on_error)
    if args.output is not None and not args.output.parent.is_dir():
        raise ConfigError(f"cannot write {args.output}: {args.output.parent} is not a folder")
    total = len(dataset) if args.limit is None else min(args.limit, len(dataset))
    samples = watched(read_items(dataset, args.workers, args.limit), total, title="reading", unit=" samples")
    statistics = measure(samples, classes=len(dataset.info.classes))
    print_statistics(statistics, dataset)
    if args.output is not None:
        statistics.save(args.output)
        print(f"\nwritten: {args.output}")
    return 0


def print_statistics(statistics: Statistics, dataset: Dataset) -> None:
    """Print the statistics of channels, fields and target, and what was skipped."""
    print(f"{dataset.info.name} {dataset.split}: {statistics.samples} samples, {sum(statistics.counts):,} atoms\n")
    print("\n".join(channel_lines(statistics.channels, statistics.counts)))
    for name, (mean, std) in statistics.fields.items():
        print(f"{'log1p ' if name == 'intensity' else ''}{name}: {mean:.4f} ± {std:.4f}")
    if statistics.target is not None:
        print(f"target: {statistics.target[0]:.6g} ± {statistics.target[1]:.6g} {dataset.info.unit or ''}")
    if statistics.classes:
        total = max(sum(statistics.classes), 1)
        for name, count in zip((*dataset.info.classes, "(ignored)"), statistics.classes, strict=True):
            print(f"{name:32} {count:>12,} {100 * count / total:7.3f} %")
    for skipped in statistics.skipped:
        print(f"skipped   {skipped}")


def channel_lines(channels: tuple[Channel, ...], counts: tuple[int, ...] = ()) -> Iterator[str]:
    """Yield the lines of a table of channels; of hundreds only the first dozen, as a file of statistics has all."""
    yield f"{'sensor':14} {'channel':10} {'µm':>7} {'mean':>12} {'std':>12}" + (
        f" {'min':>10} {'max':>10} {'atoms':>14}" if counts else ""
    )
    shown = channels if len(channels) <= LONG_TABLE else channels[:12]
    for i, c in enumerate(shown):
        line = f"{c.sensor:14} {c.name:10} {number(c.wavelength_um):>7} {number(c.mean):>12} {number(c.std):>12}"
        yield line + (f" {number(c.min):>10} {number(c.max):>10} {counts[i]:>14,}" if counts else "")
    if len(shown) < len(channels):
        yield f"… and {len(channels) - len(shown)} more" + ("; -o FILE writes all" if counts else "")


def number(value: float | None) -> str:
    """Return a number in few characters, a dash where there is none."""
    return "–" if value is None else f"{value:.6g}"


def run_show(args: argparse.Namespace) -> int:
    """Draw one sample and write the figure."""
    from atomizer_io.figures.samples import save

    dataset = open_dataset(args)
    if not 0 <= args.index < len(dataset):
        raise ConfigError(f"{args.name} {args.split} has the samples 0 … {len(dataset) - 1}; {args.index} is not one")
    sample = dataset.sample(dataset.items[args.index])
    print(sample)
    print(f"written: {save(sample, dataset.info, args.output, args.atoms_per_latent)}")
    return 0


def open_dataset(args: argparse.Namespace, **more: Any) -> Dataset:
    """Return the dataset that the command line names."""
    from atomizer_io.datasets.registry import create

    return create(args.name, args.root, args.split, **more, **parse_options(args.options))


def parse_options(texts: list[str]) -> dict[str, Any]:
    """Return ``["dates=6", "sensors=S2,S1"]`` as {"dates": 6, "sensors": ["S2", "S1"]}.

    Values are YAML, but ``a,b`` is a list and ``1e9`` a number.
    """
    from atomizer_io.texts import parse_yaml

    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"{text!r} is not an option: write key=value, such as dates=6")
        if key in ("root", "split", "on_error", "transform"):
            raise ConfigError(f"{key} is not set this way: see --help for --split and --on-error")
        try:
            parsed = options[key] = parse_yaml(value)
        except ValueError as error:
            raise ConfigError(
                f"cannot read the value of {text!r}: it is not YAML, such as 3, [a, b] or {{2: a}}"
            ) from error
        if isinstance(parsed, str) and "," in parsed:
            options[key] = [parse_yaml(part) for part in parsed.split(",") if part.strip()]
        elif isinstance(parsed, str):
            with contextlib.suppress(ValueError):
                options[key] = float(parsed)
    return options


def relative(path: str, root: str) -> str:
    """Return ``path`` as seen from ``root`` if it lies inside."""
    below = os.path.relpath(path, root)
    return path if below.startswith("..") or below == "." else below
