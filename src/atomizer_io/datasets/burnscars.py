"""HLS Burn Scars: burnt areas of the United States in Harmonized Landsat and Sentinel-2 scenes, 804 chips."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset, Info, Labels, lowest_checksums, meta_of, read_image, require
from atomizer_io.errors import DataError
from atomizer_io.io.dates import as_day

IMAGE, MASK = "_merged.tif", ".mask.tif"
NODATA = -9999.0  # some chips lack the tag
FOLDERS = {
    "official": {"train": "training", "val": "validation"},
    "pangaea": {"train": "training", "val": "training", "test": "validation"},
}
INFO = Info.of("burnscars")
CHANNELS = INFO.channels
LABELS = Labels(classes=2, ignore=(-1,))


@dataclass(kw_only=True, eq=False, repr=False)
class BurnScars(Dataset):
    """Chips of 512 × 512 pixels of 30 m: surface reflectance (0–1) in six bands, burnt or not.

    ``protocol="pangaea"`` validates on a tenth of ``training/`` and tests on ``validation/``.
    """

    protocol: Literal["official", "pangaea"] = "official"

    info = INFO

    def configure(self) -> None:
        """Take the splits of the protocol."""
        without_test = self.protocol == "official" and self.split in ("test", "testing")
        require(not without_test, "burnscars has no official split 'test': use 'val', or protocol='pangaea'")
        self.info = replace(self.info, splits=tuple(FOLDERS[self.protocol]))

    def find(self) -> list[str]:
        """Return the names of the chips, without the endings of image and mask."""
        self.folder = self.existing(self.root / FOLDERS[self.protocol][self.split])
        names = sorted(path.name.removesuffix(IMAGE) for path in self.folder.glob(f"*{IMAGE}"))
        if self.protocol == "official" or self.split == "test":
            return names
        held_out = lowest_checksums(names, math.ceil(len(names) / 10))
        return [name for name in names if (name in held_out) == (self.split == "val")]

    def files(self, item: str) -> tuple[Path, ...]:
        """Return the image and the mask of a chip."""
        return (self.folder / f"{item}{IMAGE}", self.folder / f"{item}{MASK}")

    def read(self, item: str) -> Sample:
        """Return the sample of one chip."""
        image_path, mask_path = self.files(item)
        image = read_image(image_path, "f", "reflectance (0–1) as float32", bands=len(CHANNELS))
        mask = read_image(mask_path, "iuf", bands=1)
        mask.check_grid(image)
        atoms = image.atoms(CHANNELS, date_of(image_path), valid=image.values != NODATA)
        return Sample.of_map(atoms, mask.grid, LABELS.read(mask.values[0], mask_path), meta_of(item, mask))


def date_of(path: Path) -> datetime.date:
    """Return the date in the name of a chip, which has year and day of the year."""
    match = re.search(r"\.(\d{7})\.", path.name)
    day = None if match is None else as_day(match[1])
    if day is None:
        raise DataError(path, "has no date YYYYDDD between dots in its name")
    return day
