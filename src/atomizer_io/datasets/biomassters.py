"""BioMassters: above-ground biomass of Finnish forests from a year of monthly Sentinel-1 and Sentinel-2."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.datasets.dataset import Dataset, Info, read_image, require
from atomizer_io.errors import DataError
from atomizer_io.io.rasters import Raster
from atomizer_io.io.tables import checksum, rows

METADATA = ("biomassters_features_metadata.csv", "The_BioMassters_-_features_metadata.csv.csv")
GSD_M = 10.0
NO_RADAR = -9999.0
NO_CLOUD_PROBABILITY = 255
INFO = Info.of("biomassters")
RADAR, OPTICAL = INFO.channels[:4], INFO.channels[4:]
# The 15th of September … August, counted from one New Year; the year itself is not published.
DAYS = tuple(
    (datetime.date(2021 + (month > 3), (month + 8) % 12 + 1, 15) - datetime.date(2020, 12, 31)).days
    for month in range(12)
)


@dataclass(kw_only=True, eq=False, repr=False)
class BioMassters(Dataset):
    """Chips of 256 × 256 pixels of 10 m: up to twelve months of Sentinel-1 (dB) and Sentinel-2 L2A, biomass in t/ha.

    ``months`` (0 = September … 11 = August) are those to read, all by default. Sentinel-2 pixels whose cloud
    probability is above ``max_cloud`` (0 … 100 %) are absent; by default clouds stay.
    """

    months: Sequence[int] | None = None
    max_cloud: int | None = None

    info = INFO

    def configure(self) -> None:
        """Refuse months and cloud probabilities that there are not."""
        months = range(12) if self.months is None else self.months
        valid = bool(months) and all(month in range(12) for month in months)
        require(valid, f"months are {self.months}; use numbers from 0 (September) to 11 (August)")
        require(
            self.max_cloud is None or 0 <= self.max_cloud <= 100,
            f"max_cloud is {self.max_cloud}; it is a cloud probability from 0 to 100 %, or None",
        )
        self.months = tuple(sorted({int(month) for month in months}))

    @property
    def part(self) -> str:
        """The folder with the files of the split: ``train`` or ``test``."""
        return "test" if self.split == "test" else "train"

    def find(self) -> list[str]:
        """Return the names of the chips, from PANGAEA's list, else the official table, else the folders."""
        if any(self.root.glob("*_Data_list.csv")):  # the lists of all splits go together
            listed = self.root / f"{self.split}_Data_list.csv"
            return list(dict.fromkeys(row["chip_id"] for row in rows(listed, ["chip_id"])))
        chips = self._official()
        if self.split == "test":
            return chips
        return [chip for chip in chips if is_validation(chip) == (self.split == "val")]

    def _official(self) -> list[str]:
        """Return all chips of the official part, in alphabetical order."""
        for name in METADATA:
            if (self.root / name).is_file():
                table = rows(self.root / name, ["chip_id", "split"])
                return sorted({row["chip_id"] for row in table if row["split"] == self.part})
        targets = self.root / f"{self.part}_agbm"
        if targets.is_dir() or self.part == "train":
            return sorted(path.name.removesuffix("_agbm.tif") for path in targets.glob("*_agbm.tif"))
        return sorted({path.name[: -len("_S1_00.tif")] for path in self.root.glob("test_features/*_S[12]_??.tif")})

    def files(self, item: str) -> tuple[Path, ...]:
        """Return the files month by month, Sentinel-1 first, and the biomass unless its folder is missing."""
        features = tuple(path for _, _, path in self._features(item))
        targets = self.root / f"{self.part}_agbm"
        return (*features, targets / f"{item}_agbm.tif") if self.part == "train" or targets.is_dir() else features

    def _features(self, item: str) -> list[tuple[str, int, Path]]:
        """Return sensor, month and path of the files that exist."""
        folder = self.root / f"{self.part}_features"
        assert self.months is not None
        named = [(s, month, folder / f"{item}_{s}_{month:02d}.tif") for month in self.months for s in ("S1", "S2")]
        existing = [(sensor, month, path) for sensor, month, path in named if path.is_file()]
        if not existing:
            raise DataError(named[0][2], "no such file, nor one of another month")
        return existing

    def read(self, item: str) -> Sample:
        """Return the sample of one chip."""
        features, paths = self._features(item), self.files(item)
        targets = None if len(paths) == len(features) else read_image(paths[-1], "f", bands=1, gsd_m=GSD_M)
        frame, atoms = targets, AtomSet()
        for sensor, month, path in features:  # one after the other: a file just read is still in the cache
            kinds, bands = ("f", 4) if sensor == "S1" else ("iu", 11)
            image = read_image(path, kinds, bands=bands, gsd_m=GSD_M)
            frame = frame or image
            image.check_grid(frame)
            atoms += self._radar(image, month) if sensor == "S1" else self._optical(image, month)
        assert frame is not None
        target = np.full(frame.grid.shape, np.nan, dtype=np.float32) if targets is None else biomass(targets)
        return Sample.of_map(atoms, frame.grid, target, Meta(item))

    def _radar(self, image: Raster, month: int) -> AtomSet:
        return image.atoms(RADAR, DAYS[month], timestep=month, valid=image.values != NO_RADAR)

    def _optical(self, image: Raster, month: int) -> AtomSet:
        """Return the ten bands; the eleventh, cloud probability, only marks what is absent."""
        bands, cloud = image.values[:10], image.values[10]
        # Zeros next to a swath's edge come with any cloud probability, and some pixels lack the 20 m bands alone.
        valid = (bands != 0) & (cloud != NO_CLOUD_PROBABILITY)
        if self.max_cloud is not None:
            valid &= cloud <= self.max_cloud
        only = replace(image, values=bands, nodata=image.nodata[:10])
        return only.atoms(OPTICAL, DAYS[month], timestep=month, valid=valid)


def is_validation(chip: str) -> bool:
    """Return whether a training chip is in the tenth that serves for validation where there are no lists."""
    return checksum(chip) % 10 == 0


def biomass(raster: Raster) -> NDArray[np.float32]:
    """Return the biomass in t/ha (H, W), NaN where it is unknown."""
    values = np.where(np.isfinite(raster.values[0]), raster.values[0], np.nan).astype(np.float32)
    below = int((values < 0).sum())
    if below:
        raise DataError(raster.path, f"{below} pixels have a biomass below zero (lowest {np.nanmin(values):g} t/ha)")
    return values
