"""How fast samples are read, beside the plain reading of the same files by the library of their format."""

from __future__ import annotations

import gc
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.bench.measure import machine
from atomizer_io.datasets import fixtures
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.registry import create
from atomizer_io.datasets.sample import Sample

RASTERS, CLOUDS = (".tif", ".tiff", ".png", ".jp2"), (".las", ".laz")
ITEMS = 8  # different samples that a repeat reads


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
        """Times the plain reading."""
        return self.seconds / self.plain_seconds

    def line(self) -> str:
        """A row of the table."""
        return (
            f"{self.name:16} {1 / self.seconds:10.1f} {self.megabytes / self.seconds:10.0f} {self.atoms:>12,} "
            f"{1000 * self.seconds:10.2f} {1000 * self.plain_seconds:10.2f} {self.ratio:8.2f}"
        )


HEADER = f"{'dataset':16} {'samples/s':>10} {'MB/s':>10} {'atoms':>12} {'ms/sample':>10} {'plain ms':>10} {'ratio':>8}"


def measure_reading(dataset: Dataset, repeats: int = 7) -> Reading:
    """Time ``dataset`` and the plain reading in turns, so that both meet the same machine."""
    items = dataset.items[:ITEMS]
    samples = [[path for path in dataset.files(item) if path.exists()] for item in items]
    megabytes = sum(array.nbytes for paths in samples for array in read_plainly(paths)) / 1e6
    atoms = sum(dataset.sample(item).atoms.num_atoms for item in items)

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


def read_plainly(paths: Sequence[Path]) -> list[NDArray[Any]]:
    """All arrays of a sample, each file read whole by the library of its format; lists and tables are left out.

    The arrays are kept until the sample is complete, as whoever wants a sample has to.
    """
    arrays: list[NDArray[Any]] = []
    for path in paths:
        suffix = path.suffix.lower()
        if suffix in RASTERS:
            arrays.append(_raster(path))
        elif suffix in CLOUDS:
            import laspy

            cloud = laspy.read(path)
            arrays += [cloud.xyz, np.asarray(cloud.classification)]
        elif suffix == ".npy":
            arrays.append(np.load(path, allow_pickle=False))
        elif suffix in (".hdf5", ".h5"):
            import h5py

            with h5py.File(path) as source:
                arrays += [source[name][()] for name in source]
    return arrays


def _raster(path: Path) -> NDArray[Any]:
    import rasterio

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files without a coordinate system
        with rasterio.open(path) as source:
            values: NDArray[Any] = source.read()
            return values


def made_up(folder: Path) -> list[Dataset]:
    """Folders of made-up files of the real size: what can be measured without a download."""
    sizes = {"sen1floods11": 512, "biomassters": 256, "burnscars": 512}
    return [create(name, fixtures.write(name, folder / name, size=size)) for name, size in sizes.items()]


def run(datasets: Sequence[Dataset], output: Path, repeats: int = 7) -> list[Reading]:
    """Measure, print and write as JSON."""
    print(HEADER)
    readings = []
    for dataset in datasets:
        assert isinstance(dataset.sample(dataset.items[0]), Sample)
        readings.append(measure_reading(dataset, repeats))
        print(readings[-1].line(), flush=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(reading) | {"ratio": reading.ratio} for reading in readings]
    output.write_text(json.dumps({"machine": machine(), "reading": rows}, indent=2) + "\n", encoding="utf-8")
    return readings
