"""Your own series of single points as a dataset: a table of observations and one of labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import get
from atomizer_io.datasets.dataset import Dataset, Info, require
from atomizer_io.errors import DataError
from atomizer_io.io.dates import as_day
from atomizer_io.io.raster_bands import own_sensor
from atomizer_io.io.tables import checksum, evenly, rows

SERIES, LABELS = "series.csv", "labels.csv"
ORIGIN = torch.zeros(1, 2, dtype=torch.float64)  # a point in its own frame, shared by all acquisitions
SPLITS = ("test", "val", "train", "train", "train")  # of cells, by their checksum


@dataclass(kw_only=True, eq=False, repr=False)
class SeriesFolder(Dataset):
    """One point a sample: what a sensor observed there on several dates, and a class or a value.

    ``bands`` are columns of ``series.csv`` that ``sensor`` has, or ``{column: [wavelength, bandwidth]}`` in µm (nothing
    for what has none) of one of your own. ``gsd_m`` is the pixel size. Points in one cell of ``cell_deg`` degrees are
    in one split: three fifths of the cells train, one fifth each validates and tests. ``dates`` is how many dates of a
    series are used at most, spread over it. ``task="regression"`` takes labels that are numbers, ``target_name`` in
    ``unit``.
    """

    sensor: str
    bands: Sequence[str] | Mapping[str, Sequence[float] | None]
    gsd_m: float
    task: str = "classification"
    cell_deg: float = 0.1
    dates: int | None = None
    target_name: str | None = None
    unit: str | None = None

    info = Info(
        name="series-folder",
        title="Series of points",
        task="classification",
        channels=(),
        extent_m=0.0,
        splits=("train", "val", "test", "all"),
        temporal=True,
        layout=f"{SERIES} (series, date, and a column for each band)\n{LABELS} (series, label, longitude, latitude)",
        notes=("points lie close together, and a split at random would leak: cells divide them",),
    )

    def configure(self) -> None:
        """Take the channels, and what is predicted."""
        require(self.task in ("classification", "regression"), f"task is {self.task!r}: series have one target each")
        require(self.cell_deg > 0, f"cell_deg is {self.cell_deg:g}: give the width of a cell in degrees")
        require(self.dates is None or self.dates > 0, f"dates is {self.dates}: give at least 1")
        if isinstance(self.bands, Mapping):
            channels = own_sensor(self.root / SERIES, self.sensor, self.bands).channels
        else:
            channels = get(self.sensor).pick(*self.bands)
        self.channels_of_bands = tuple(replace(channel, gsd_m=self.gsd_m) for channel in channels)
        named = {"task": self.task, "target_name": self.target_name, "unit": self.unit}
        self.info = replace(self.info, channels=self.channels_of_bands, extent_m=self.gsd_m, **named)  # type: ignore[arg-type]

    def find(self) -> list[str]:
        """Return the names of the series of the split; all observations are read."""
        path, columns = self.root / SERIES, tuple(self.bands)
        self.series: dict[str, list[tuple[str, NDArray[np.float32]]]] = {}
        for row in rows(path, ("series", "date", *columns)):
            try:
                values = np.array([float(row[name] or "nan") for name in columns], dtype=np.float32)
            except ValueError as error:
                raise DataError(path, f"series {row['series']!r} has a value that is no number: {error}") from error
            self.series.setdefault(row["series"], []).append((row["date"], values))
        labels = rows(self.root / LABELS, ("series", "label", "longitude", "latitude"))
        self.labels = {row["series"]: row["label"].strip() for row in labels}
        if self.task == "classification":
            self.info = replace(self.info, classes=tuple(sorted(set(self.labels.values()))))
        return [row["series"] for row in labels if self.split in ("all", self.split_of(row))]

    def split_of(self, row: Mapping[str, str]) -> str:
        """Return the split of the cell in which a point lies."""
        try:
            cell = [math.floor(float(row[name]) / self.cell_deg) for name in ("latitude", "longitude")]
        except (ValueError, OverflowError) as error:
            raise DataError(self.root / LABELS, f"series {row['series']!r} has no position: {error}") from error
        return SPLITS[checksum(f"{cell[0]}_{cell[1]}") % len(SPLITS)]

    def files(self, item: str) -> tuple[Path, ...]:
        """Return both tables."""
        return (self.root / SERIES, self.root / LABELS)

    def read(self, item: str) -> Sample:
        """Return the sample of one series."""
        if item not in self.series:
            raise DataError(self.root / SERIES, f"has no row of series {item!r}")
        atoms = AtomSet(
            tuple(
                observed(values, self.channels_of_bands, step, self.root / SERIES, date)
                for step, (date, values) in enumerate(evenly(self.series[item], self.dates))
            )
        )
        return Sample.of_scene(atoms, self.target(item), Meta(item))

    def target(self, item: str) -> float | int:
        """Return the class or the value of a series."""
        if self.task == "classification":
            return self.info.classes.index(self.labels[item])
        try:
            return float(self.labels[item])
        except ValueError as error:
            raise DataError(self.root / LABELS, f"series {item!r} has a label that is no number: {error}") from error


def observed(
    values: NDArray[np.float32], channels: tuple[Channel, ...], step: int, path: Path, date: str
) -> Acquisition:
    """Return what was observed of a point on one date; NaN is absent."""
    day = as_day(date)
    if day is None:
        raise DataError(path, f"has date {date!r}; write 2021-07-04 or 20210704")
    return Acquisition(torch.from_numpy(values[None]), ORIGIN, channels, day, timestep=step)
