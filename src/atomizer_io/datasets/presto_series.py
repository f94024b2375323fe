"""Series of single points as Presto's evaluation data have them: a year of Sentinel-1, Sentinel-2 and weather."""

from __future__ import annotations

import datetime
import math
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.errors import DataError
from atomizer_io.io.tables import checksum, read_array

FOLDER = "algae_blooms"
SERIES, MONTH, LATLON, TEST, TARGET = "s1_s2_era5_srtm", "month", "latlon", "is_test", "target"
GSD_M = 10.0
ORIGIN = torch.zeros(1, 2, dtype=torch.float64)  # the point in its own frame, shared by all acquisitions
COLUMNS = 18
CELL_DEG = 1.0  # points in one cell are in one split
VAL_SHARE = 4  # one cell in four validates
INFO = Info.of("presto-series")
RADAR, OPTICAL, WEATHER, TERRAIN = (tuple(own) for _, own in groupby(INFO.channels, lambda channel: channel.sensor))
# which columns of the array each sensor has
COLUMNS_OF = {RADAR: [0, 1], OPTICAL: [*range(2, 13), 17], WEATHER: [13, 14], TERRAIN: [15, 16]}


class PrestoSeries(Dataset):
    """Months of one point: Sentinel-1 in dB, Sentinel-2 L1C × 10⁴, weather, terrain; severity of algal blooms.

    The published series have twelve months, others may have any number. A sample is one site with one acquisition of
    each sensor a month, and one of the terrain. The test split is the official one, of other regions; ``val`` is a
    quarter of the cells of one degree of the rest.
    """

    info = INFO

    def find(self) -> list[int]:
        """Return the numbers of the series of the split."""
        self.folder = self.root / FOLDER
        path = self.folder / f"{SERIES}.npy"
        series = read_array(path, "f", ndim=(3,), mapped=True)
        count, months, columns = series.shape
        if not months or columns != COLUMNS:
            raise DataError(path, f"has shape {series.shape}, expected (points, months, {COLUMNS})")
        self.months = self._column(MONTH, "iu", (count, months))
        if not ((self.months >= 0) & (self.months < 12)).all():
            raise DataError(self.folder / f"{MONTH}.npy", "has months outside 0 … 11")
        positions, self.targets = self._column(LATLON, "f", (count, 2)), self._column(TARGET, "iuf", (count,))
        if not np.isfinite(positions).all():
            raise DataError(self.folder / f"{LATLON}.npy", "has latitudes or longitudes that are no numbers")
        test = self._column(TEST, "iu", (count,)).astype(bool)
        splits = np.where(test, "test", np.where([is_validation(*at) for at in positions.tolist()], "val", "train"))
        return [int(number) for number in np.flatnonzero(splits == self.split)]

    def _column(self, name: str, kinds: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return one of the arrays beside the series, which must have a row for each."""
        path = self.folder / f"{name}.npy"
        array = read_array(path, kinds)
        if array.shape != shape:
            raise DataError(path, f"has shape {array.shape}, expected {shape} as {SERIES}.npy has {shape[0]} series")
        return array

    @cached_property
    def series(self) -> NDArray[np.float32]:
        """All values (points, months, columns), read once in each process."""
        return read_array(self.folder / f"{SERIES}.npy", "f", ndim=(3,)).astype(np.float32)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the values: a worker reads its own."""
        return {key: value for key, value in self.__dict__.items() if key != "series"}

    def files(self, item: int) -> tuple[Path, ...]:
        """Return the file of the series and that of the targets."""
        return (self.folder / f"{SERIES}.npy", self.folder / f"{TARGET}.npy")

    def read(self, item: int) -> Sample:
        """Return the sample of one series."""
        values = self.series[item]
        days = days_of(self.months[item].tolist())
        atoms = [
            one_site(values[step], channels, step, days[step])
            for step in range(len(values))
            for channels in (RADAR, OPTICAL, WEATHER)
        ]
        atoms.append(one_site(values[0], TERRAIN, len(values), None))
        return Sample.of_scene(AtomSet(tuple(atoms)), float(self.targets[item]), Meta(f"series-{item:04d}"))


def one_site(values: NDArray[np.float32], channels: tuple[Channel, ...], step: int, day: float | None) -> Acquisition:
    """Return what one sensor saw of the point in one month; ``values`` (18,) are all columns of the month."""
    own = values[None, COLUMNS_OF[channels]]
    valid = np.isfinite(own)
    if channels is OPTICAL:
        valid[:, :-1] &= own[:, :-1] != 0  # the index, last, may be zero
        valid[:, -1] &= valid[:, :-1].any(axis=1)
    return Acquisition(
        values=own,  # type: ignore[arg-type]
        positions=ORIGIN,
        channels=channels,
        day_of_year=day,
        valid=valid,  # type: ignore[arg-type]
        timestep=step,
        footprint_m=(GSD_M, GSD_M),
    )


def days_of(months: list[int]) -> list[float]:
    """Return the 15th of each month (0: January) as a day of the year; after December days run on past 365."""
    days, year = list[float](), 0
    for before, month in zip([months[0], *months], months, strict=False):
        year += month < before
        days.append(365.0 * year + datetime.date(2021, month + 1, 15).timetuple().tm_yday)
    return days


def is_validation(latitude: float, longitude: float) -> bool:
    """Return whether training points in the cell of this point validate."""
    cell = f"{math.floor(latitude / CELL_DEG)}_{math.floor(longitude / CELL_DEG)}"
    return checksum(cell) % VAL_SHARE == 0
