"""GEO-Bench v1: folders of HDF5 samples with a partition; a base for its datasets, and a reader for any folder."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel, plain_name
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.data.sensors.catalogue import find
from atomizer_io.datasets.dataset import Dataset, Info, Labels, require
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.geobench import BandFacts, StoredSample, read_sample
from atomizer_io.io.tables import from_json

PARTITION = "default_partition.json"
STATISTICS = "band_stats.json"
OFFICIAL = {"train": "train", "val": "valid", "test": "test"}
LAYOUT = "<id>.hdf5\ndefault_partition.json\nband_stats.json (optional)"
SOURCE = "https://huggingface.co/datasets/recursix/geo-bench-1.0"

# GEO-Bench's names of the Sentinel-2 bands, in its order.
SENTINEL2_KEYS = (
    *("01 - Coastal aerosol", "02 - Blue", "03 - Green", "04 - Red"),
    *("05 - Vegetation Red Edge", "06 - Vegetation Red Edge", "07 - Vegetation Red Edge", "08 - NIR"),
    *("08A - Vegetation Red Edge", "09 - Water vapour", "10 - SWIR - Cirrus", "11 - SWIR", "12 - SWIR"),
)
# What really lies under those names where the conversion gave them to bands in another order (geo-bench issues 28 and
# 29). TCI is an image for people, made of B04, B03 and B02: left out.
TCI = ("TCI_R", "TCI_G", "TCI_B")
MISLABELLED = {
    "eurosat": ["B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11", "B12", "B8A"],
    "brickkiln": ["B01", "B02", "B03", "B04", "B05", "B07", "B8A", "B08", "B11", "B12", *TCI],
}


@dataclass(kw_only=True, eq=False, repr=False)
class GeoBench(Dataset):
    """Samples of a GEO-Bench v1 folder: scenes with one class, or maps of classes, per HDF5 file.

    A subclass for one dataset sets ``info``, ``known_bands`` and ``pixel_m``, and ``labels`` or ``nodata`` if need be.
    Used as it is, the class finds bands and pixel size in the first file, statistics in ``band_stats.json``; the files
    of classification tasks do not name the classes, so pass ``classes``: their names or their number.
    ``gsd_m`` overrides the pixel size of the files.
    """

    classes: int | Sequence[str] | None = None
    gsd_m: float | None = None

    info = Info.of("geobench", layout=LAYOUT, source=SOURCE)
    known_bands: ClassVar[Mapping[str, Channel]] = {}  # name in the file without its date; others are left out
    labels = Labels(classes=0)  # by default as many classes as the dataset has
    pixel_m = 0.0
    nodata: ClassVar[float | None] = None

    def configure(self) -> None:
        """Refuse options of what is known."""
        require(
            not self.known_bands or (self.classes is None and self.gsd_m is None),
            f"the classes and the pixel size of {self.info.name} are known: leave out classes, gsd_m",
        )

    def find(self) -> list[str]:
        """Return the names of the samples, from the partition; ``root`` may also be the folder above."""
        within = (self.root, self.root / self.info.name, *sorted(self.root.glob(f"*_v1.0/{self.info.name}")))
        self.folder = next((folder for folder in within if (folder / PARTITION).is_file()), self.root)
        path = self.folder / PARTITION
        partition = from_json(path)
        names = partition.get(OFFICIAL[self.split]) if isinstance(partition, dict) else None
        if not isinstance(names, list) or not all(isinstance(n, str) and Path(n).name == n for n in names):
            raise DataError(path, f"has no list of sample names {OFFICIAL[self.split]!r}")
        self.bands = self.known_bands
        if names and not self.known_bands:
            self._describe(self._first(names))
        if not self.labels.classes:
            self.labels = Labels(len(self.info.classes))
        return names

    def files(self, item: str) -> tuple[Path, ...]:
        """Return the one file of a sample."""
        return (self.folder / f"{item}.hdf5",)

    def read(self, item: str) -> Sample:
        """Return the sample of one file, with an acquisition for each date."""
        (path,) = self.files(item)
        stored = read_sample(path)
        # the date of bands that have none in their names: the one that the file states, if it is one
        stated = {facts.date for (_, date), facts in stored.facts.items() if date is None}
        undated = next(iter(stated)) if len(stated) == 1 else None
        dates = {date for name, date in stored.bands if name in self.bands} or {None}
        atoms = AtomSet()
        for date in sorted(dates, key=lambda day: day or datetime.date.min):
            atoms += self.acquired(stored, date, date or undated)
        mapped = isinstance(stored.label, np.ndarray)
        if mapped != (self.info.task == "segmentation"):
            raise DataError(
                path, f"its label is {'a map' if mapped else 'one class'}, but this dataset is for {self.info.task}"
            )
        labels = self.labels.read(np.atleast_1d(stored.label), path)
        if not mapped:
            return Sample.of_scene(atoms, int(labels[0]), Meta(item))
        return Sample.of_map(atoms, Grid(labels.shape[0], labels.shape[1], gsd_m=self.pixel_m), labels, Meta(item))

    def acquired(self, stored: StoredSample, named: datetime.date | None, date: datetime.date | None) -> AtomSet:
        """Return the bands whose name has the date ``named``, as atoms."""
        missing = [name for name in self.bands if (name, named) not in stored.bands]
        if missing:
            on = "" if named is None else f" of {named}"
            raise DataError(stored.path, f"has no band {', '.join(map(repr, missing))}{on}")
        values = np.stack([stored.bands[name, named] for name in self.bands])
        return AtomSet.from_raster(values, self.bands.values(), self.pixel_m, date, nodata=self.nodata)

    def _describe(self, stored: StoredSample) -> None:
        """Take bands, classes and pixel size of an unknown folder from one of its files."""
        self.bands = described(stored, self.folder)
        sizes = {facts.gsd_m for facts in stored.facts.values()} if self.gsd_m is None else {self.gsd_m}
        size = sizes.pop() if len(sizes) == 1 else None
        if size is None or not size > 0:
            raise ConfigError(f"{stored.path}: the size of the pixels is not clear: pass gsd_m= in metres")
        classes = stored.classes if self.classes is None else self.classes
        if classes is None:
            raise ConfigError(f"{stored.path}: does not name the classes: pass classes=, names or a number")
        names = [f"class {i}" for i in range(classes)] if isinstance(classes, int) else [*classes]
        require(bool(names), f"classes is {classes!r}: pass a list of names, or their number")
        self.pixel_m = size
        self.info = replace(
            self.info,
            title=f"GEO-Bench {self.folder.resolve().name}",
            task="segmentation" if isinstance(stored.label, np.ndarray) else "classification",
            classes=tuple(names),
            channels=tuple(self.bands.values()),
            extent_m=size * max(next(iter(stored.bands.values())).shape),
            temporal=len({date for _, date in stored.bands}) > 1,
        )

    def _first(self, names: Sequence[str]) -> StoredSample:
        """Return the content of the first file that can be read."""
        causes: list[DataError] = []
        for name in names:
            try:
                return read_sample(*self.files(name))
            except DataError as error:
                causes.append(error)
        raise causes[0]


def geobench_info(published: Info, name: str) -> Info:
    """Return the description of GEO-Bench's copy of a dataset; its channels may have statistics of their own."""
    source = f"{SOURCE} ({published.task}_v1.0/{name})"
    own = Info.of(name, task=published.task, extent_m=published.extent_m, layout=LAYOUT, source=source)
    return replace(own, classes=published.classes, channels=own.channels or published.channels)


def true_bands(dataset: str) -> dict[str, str]:
    """Return the true band under each name in the files of a dataset, where they are mislabelled."""
    names = MISLABELLED.get(plain_name(dataset).removeprefix("m"))
    return {} if names is None else dict(zip(SENTINEL2_KEYS, names, strict=True))


def described(stored: StoredSample, folder: Path) -> dict[str, Channel]:
    """Return the channels of a folder by the names in its files, with the statistics of the folder or none."""
    path = folder / STATISTICS
    statistics = from_json(path) if path.is_file() else {}
    if not isinstance(statistics, dict):
        raise DataError(path, "has no statistics by band")
    true = true_bands(folder.resolve().name)
    channels = {}
    for (name, _), facts in stored.facts.items():
        if true.get(name, name) in TCI:
            continue
        channel = described_band(stored.path, true.get(name, name), facts)
        mean, std = None, None
        if name in statistics:
            try:
                mean, std = float(statistics[name]["mean"]), float(statistics[name]["std"])
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(path, f"has no usable mean and std of {channel.name}") from error
        channels[name] = replace(channel, mean=mean, std=std, min=None, max=None)
    return channels


def described_band(path: Path, name: str, facts: BandFacts) -> Channel:
    """Return the channel of the catalogue, or one by the description in the file."""
    sensor = SENTINEL2 if facts.kind is None else find(facts.kind)
    if sensor is not None and name in sensor:
        return sensor[name]
    if facts.wavelength_um is None:
        raise DataError(path, f"band {name!r} is in no catalogue and its wavelength is not known")
    return Channel(GeoBench.info.name, name, facts.wavelength_um, gsd_m=facts.gsd_m)
