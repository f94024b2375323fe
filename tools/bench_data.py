"""Measure how fast samples are read, beside the plain reading of the same files by the library of their format.

    .venv/bin/python tools/bench_data.py [NAME=ROOT ...] [--repeats 7] [--output results/data.json]

Without names it measures synthetic files of the real size, and a large raster in several layouts.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.registry import create
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.raster_files import open_raster
from atomizer_io.machine import machine
from atomizer_io.texts import write_output

RASTERS, POINT_CLOUDS = (".tif", ".tiff", ".png", ".jp2"), (".las", ".laz")
ITEMS = 8  # different samples that a repeat reads
# what synthetic files of the real size are written with
SYNTHETIC: dict[str, dict[str, int]] = {
    "sen1floods11": {"size": 512},
    "biomassters": {"size": 256},
    "burnscars": {"size": 512},
    "eurosat": {},  # always of the real size
    "xview2": {"size": 1024},
    "pastis-r": {"size": 128, "dates": 40},
}


@dataclass(frozen=True, slots=True)
class Reading:
    """What one dataset took: seconds are per sample, the shortest of the repeats; files lie in the page cache."""

    name: str
    samples: int
    atoms: int  # of a sample, on average
    megabytes: float  # of a sample's arrays as the library gives them, on average
    seconds: float
    plain_seconds: float

    @property
    def ratio(self) -> float:
        """How many times as long as plain reading it took."""
        return self.seconds / self.plain_seconds

    def line(self) -> str:
        """Return this measurement as a row of the printed table."""
        return (
            f"{self.name:16} {1 / self.seconds:10.1f} {self.megabytes / self.seconds:10.0f} {self.atoms:>12,} "
            f"{1000 * self.seconds:10.2f} {1000 * self.plain_seconds:10.2f} {self.ratio:8.2f}"
        )


HEADER = f"{'dataset':16} {'samples/s':>10} {'MB/s':>10} {'atoms':>12} {'ms/sample':>10} {'plain ms':>10} {'ratio':>8}"


def measure_reading(dataset: Dataset, repeats: int = 7) -> Reading:
    """Time ``dataset`` and the plain reading alternately, so that both meet the same machine.

    Plainly, each file is read once, even where several samples are windows of it.
    """
    readable = list(_readable(dataset))
    items, atoms = [item for item, _ in readable], sum(count for _, count in readable)
    samples = _files(dataset, items)
    megabytes = sum(array.nbytes for paths in samples for array in read_plainly(paths)) / 1e6
    if not megabytes:
        raise ConfigError(f"{dataset.info.name} has no files that could be read plainly")

    def ours() -> None:
        for item in items:
            dataset.sample(item)

    def plain() -> None:
        for paths in samples:
            read_plainly(paths)

    times: dict[Callable[[], None], list[float]] = {ours: [], plain: []}
    for _ in range(repeats):
        for call, taken in times.items():
            gc.collect()
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    count = len(items)
    return Reading(
        dataset.info.name, count, atoms // count, megabytes / count, min(times[ours]) / count, min(times[plain]) / count
    )


def _readable(dataset: Dataset) -> Iterator[tuple[Any, int]]:
    """The first items that can be read, and their numbers of atoms; what cannot is an error unless it is skipped."""
    count = 0
    for item in dataset.items:
        try:
            atoms = dataset.sample(item).atoms.num_atoms
        except DataError:
            if dataset.on_error == "raise":
                raise
            continue
        yield item, atoms
        count += 1
        if count == ITEMS:
            return
    if not count:
        raise DataError(dataset.root, f"no sample of split {dataset.split!r} can be read")


def _files(dataset: Dataset, items: Sequence[Any]) -> list[list[Path]]:
    """The files of each item that no item before it has."""
    seen: set[Path] = set()
    samples = []
    for item in items:
        samples.append([path for path in dict.fromkeys(dataset.files(item)) if path not in seen and path.is_file()])
        seen.update(samples[-1])
    return samples


def read_plainly(paths: Sequence[Path]) -> list[NDArray[Any]]:
    """All arrays of a sample, each file read whole by the library of its format; lists and tables are left out.

    The arrays are kept until the sample is complete, as whoever wants a sample has to.
    """
    arrays: list[NDArray[Any]] = []
    for path in paths:
        suffix = path.suffix.lower()
        if suffix in RASTERS:
            arrays.append(_raster(path))
        elif suffix in POINT_CLOUDS:
            import laspy

            points = laspy.read(path)
            arrays += [points.xyz, np.asarray(points.classification)]
        elif suffix == ".npy":
            arrays.append(np.load(path, allow_pickle=False))
        elif suffix in (".hdf5", ".h5"):
            import h5py

            with h5py.File(path) as source:
                arrays += [source[name][()] for name in source]
    return arrays


def _raster(path: Path) -> NDArray[Any]:
    with open_raster(path) as source:
        values: NDArray[Any] = source.read()
        return values


def synthetic(folder: Path) -> list[Dataset]:
    """Folders of synthetic files of the real size: what can be measured without a download."""
    from data import write  # tests/data

    return [create(name, write(name, folder / name, **options)) for name, options in SYNTHETIC.items()]


def run(
    datasets: Sequence[Dataset], output: Path, repeats: int = 7, more: Callable[[], dict[str, Any]] = dict
) -> list[Reading]:
    """Measure, print and write as JSON, with the results of ``more``, which is called after the datasets."""
    print(HEADER)
    readings = []
    for dataset in datasets:
        readings.append(measure_reading(dataset, repeats))
        print(readings[-1].line(), flush=True)
    rows = [asdict(reading) | {"ratio": reading.ratio} for reading in readings]
    result = {"machine": machine(), "reading": rows, **more()}
    write_output(output, json.dumps(result, indent=2) + "\n")
    return readings


def main() -> None:
    """Measure what the command line names."""
    from bench_layouts import measure

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", metavar="NAME=ROOT", help="such as sen1floods11=/data/sen1floods11")
    parser.add_argument("--split", default="train", help="(default: train)")
    parser.add_argument("--repeats", type=int, default=7, help="rounds of which the shortest counts (default: 7)")
    parser.add_argument("--output", type=Path, default=Path("results/data.json"), help="(default: %(default)s)")
    args = parser.parse_args()
    pairs = [text.partition("=")[::2] for text in args.datasets]
    with tempfile.TemporaryDirectory() as folder:
        if pairs:
            run([create(name, root, args.split, on_error="skip") for name, root in pairs], args.output, args.repeats)
        else:
            layouts = functools.partial(measure, Path(folder), args.repeats)
            run(synthetic(Path(folder)), args.output, args.repeats, layouts)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    main()
