"""Series of single points as Presto's evaluation data have them: a year of Sentinel-1, Sentinel-2 and weather."""

from __future__ import annotations

import datetime
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2, Sensor
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.errors import DataError
from atomizer_io.io.tables import checksum, read_array

FOLDER = "algae_blooms"
SERIES, MONTH, LATLON, TEST, TARGET = "s1_s2_era5_srtm", "month", "latlon", "is_test", "target"
GSD_M = 10.0
ORIGIN = torch.zeros(1, 2, dtype=torch.float64)  # the point in its own frame, shared by all acquisitions
ERA5_M, SRTM_M = 27_830.0, 30.0  # a quarter of a degree, one arc second
COLUMNS = 18
CELL_DEG = 1.0  # points in one cell are in one split
VAL_SHARE = 4  # one cell in four validates
# Mean, std: the 582 series of split train.
RADAR = SENTINEL1.subset("VV", "VH").with_statistics(mean=[-17.1253, -25.9745], std=[4.25297, 5.50567]).channels
OPTICAL = (
    *SENTINEL2.subset("B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12")
    .with_statistics(
        mean=[1767.13, 1624.81, 1599.55, 1665.20, 1759.76, 1871.77, 1801.23, 1911.55, 774.147, 1433.81, 1110.81],
        std=[1488.14, 1412.76, 1578.09, 1595.66, 1674.83, 1729.89, 1665.24, 1767.00, 921.793, 1180.41, 969.586],
    )
    .channels,
    Channel("sentinel2", "NDVI", gsd_m=GSD_M, mean=-0.00680537, std=0.216163),
)
WEATHER = (
    Sensor.define("era5", gsd_m=ERA5_M, bands={"temperature_2m": None, "total_precipitation": None})
    .with_statistics(mean=[285.315, 0.00252502], std=[9.99717, 0.00173561])
    .channels
)
TERRAIN = (
    Sensor.define("srtm", gsd_m=SRTM_M, bands={"elevation": None, "slope": None})
    .with_statistics(mean=[425.706, 3.42516], std=[188.732, 3.62827])
    .channels
)
# which columns of the array each sensor has
COLUMNS_OF = {RADAR: [0, 1], OPTICAL: [*range(2, 13), 17], WEATHER: [13, 14], TERRAIN: [15, 16]}


class PrestoSeries(Dataset):
    """Months of one point: Sentinel-1 in dB, Sentinel-2 L1C × 10⁴, weather, terrain; severity of algal blooms.

    The published series have twelve months, others may have any number. A sample is one site with one acquisition of
    each sensor a month, and one of the terrain. The test split is the official one, of other regions; ``val`` is a
    quarter of the cells of one degree of the rest.
    """

    info = Info(
        name="presto-series",
        title="Algal blooms of Presto's evaluation data",
        task="regression",
        target_name="bloom severity",
        channels=(*RADAR, *OPTICAL, *WEATHER, *TERRAIN),
        extent_m=GSD_M,
        temporal=True,
        layout=(
            f"{FOLDER}/{SERIES}.npy (points, months, {COLUMNS})\n{FOLDER}/{{{MONTH},{LATLON},{TEST},{TARGET}}}.npy"
        ),
        source="https://github.com/nasaharvest/presto (MIT)",
        notes=(
            "severity is a number from 1 to 5, one for the whole series",
            "a month is one time step on its 15th; the year is not published, so days run on past 365",
            "val has the training points in cells of one degree whose CRC-32 (of 'latitude_longitude', rounded down) "
            "is divisible by 4: points lie close together, and a split at random would leak",
            "the files mark nothing as absent; NaN, and 0 in a band of Sentinel-2, would be. Months without a "
            "Sentinel-1 image repeat the values of another month",
            "what the files call NDVI is (B07 - B03) / (B07 + B03)",
        ),
    )

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
