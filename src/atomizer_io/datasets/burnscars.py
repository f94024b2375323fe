"""HLS Burn Scars: burnt areas of the United States in Harmonized Landsat and Sentinel-2 scenes, 804 chips."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from atomizer_io.data.sample import Meta, Sample, dates_of
from atomizer_io.data.sensors import HLS
from atomizer_io.datasets.dataset import Dataset, Info, Labels
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.dates import as_day
from atomizer_io.io.rasters import read_raster
from atomizer_io.io.tables import checksum

IMAGE, MASK = "_merged.tif", ".mask.tif"
NODATA = -9999.0  # some chips lack the tag
FOLDERS = {
    "official": {"train": "training", "val": "validation"},
    "pangaea": {"train": "training", "val": "training", "test": "validation"},
}
LABELS = Labels(classes=2, ignore=(-1,))
# Statistics of the chips in all digits, as terratorch and PANGAEA-bench ship them.
CHANNELS = (
    HLS.subset("B02", "B03", "B04", "B8A", "B11", "B12")
    .with_statistics(
        mean=[
            0.033349706741586264,
            0.05701185520536176,
            0.05889748132001316,
            0.2323245113436119,
            0.1972854853760658,
            0.11944914225186566,
        ],
        std=[
            0.02269135568823774,
            0.026807560223070237,
            0.04004109844362779,
            0.07791732423672691,
            0.08708738838140137,
            0.07241979477437814,
        ],
    )
    .channels
)


class BurnScars(Dataset):
    """Chips of 512 × 512 pixels of 30 m: surface reflectance (0–1) in six bands, burnt or not.

    ``protocol="pangaea"`` validates on a tenth of ``training/`` and tests on ``validation/``.
    """

    info = Info(
        name="burnscars",
        title="HLS Burn Scars",
        task="segmentation",
        classes=("not burned", "burn scar"),
        channels=CHANNELS,
        extent_m=15360.0,
        splits=("train", "val"),
        layout=(
            "training/subsetted_512x512_HLS.S30.T<tile>.<YYYYDDD>.v1.4_merged.tif\n"
            "training/subsetted_512x512_HLS.S30.T<tile>.<YYYYDDD>.v1.4.mask.tif\n"
            "validation/ (the same)"
        ),
        source="https://huggingface.co/datasets/ibm-nasa-geospatial/hls_burn_scars (CC-BY-4.0)",
        notes=(
            "official: train and val are the two folders, there is no test",
            "protocol='pangaea': test is validation/, val the tenth of training/ whose names have the lowest checksums "
            "(PANGAEA-bench draws its tenth by a seeded shuffle of scikit-learn, so the chips differ)",
            "reflectance -9999 is absent, label -1 ignored",
        ),
    )

    def __init__(self, root: str | Path, split: str = "train", *, protocol: str = "official", **common: Any) -> None:
        if protocol not in FOLDERS:
            raise ConfigError(f"protocol is {protocol!r}; use {' or '.join(map(repr, FOLDERS))}")
        if protocol == "official" and split in ("test", "testing"):
            raise ConfigError("burnscars has no official split 'test': use 'val', or protocol='pangaea'")
        self.protocol = protocol
        self.info = replace(self.info, splits=tuple(FOLDERS[protocol]))
        super().__init__(root, split, **common)

    def find(self) -> list[str]:
        """Return the names of the chips, without the ending that tells image and mask apart."""
        folder = self.folder
        if not folder.is_dir():
            raise DataError(folder, f"no such folder; {self.info.title} is expected as\n{self.info.layout}")
        names = sorted(path.name.removesuffix(IMAGE) for path in folder.glob(f"*{IMAGE}"))
        if self.protocol == "official" or self.split == "test":
            return names
        kept_out = set(sorted(names, key=lambda name: (checksum(name), name))[: math.ceil(len(names) / 10)])
        return [name for name in names if (name in kept_out) == (self.split == "val")]

    @property
    def folder(self) -> Path:
        """Folder with the chips of the split."""
        return self.root / FOLDERS[self.protocol][self.split]

    def files(self, item: str) -> tuple[Path, ...]:
        """Return the image and the mask of a chip."""
        return (self.folder / f"{item}{IMAGE}", self.folder / f"{item}{MASK}")

    def read(self, item: str) -> Sample:
        """Return the sample of one chip."""
        image_path, mask_path = self.files(item)
        image, mask = read_raster(image_path, bands=len(CHANNELS)), read_raster(mask_path, bands=1)
        if image.values.dtype.kind != "f":
            raise DataError(image_path, f"holds {image.values.dtype}, expected reflectance (0–1) as float32")
        mask.check_grid(image)
        atoms = image.atoms(CHANNELS, date_of(image_path), valid=image.values != NODATA)
        meta = Meta(item, (str(image_path), str(mask_path)), mask.crs, mask.transform, mask.origin, dates_of(atoms))
        return Sample.of_map(atoms, mask.grid, LABELS.read(mask.values[0], mask_path), meta)


def date_of(path: Path) -> datetime.date:
    """Return the date in the name of a chip, which has year and day of the year."""
    found = re.search(r"\.(\d{7})\.", path.name)
    day = None if found is None else as_day(found[1])
    if day is None:
        raise DataError(path, "has no date YYYYDDD between dots in its name")
    return day
