"""Patches stacked in one raster, one below the other, as Orfeo ToolBox's patch extraction writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import get
from atomizer_io.datasets.dataset import Dataset, Info, Labels, require
from atomizer_io.errors import DataError
from atomizer_io.io.raster_bands import kept
from atomizer_io.io.raster_pixels import opened
from atomizer_io.io.rasters import read_raster
from atomizer_io.io.tables import checksum

SPLIT_AT = {"train": range(8), "test": range(8, 10), "all": range(10)}  # tenths, by a checksum of the number


@dataclass(kw_only=True, eq=False, repr=False)
class OtbPatches(Dataset):
    """Scene classification from one raster of stacked square patches and one of labels (one pixel a patch).

    ``images`` and ``labels`` are file names in the folder, ``sensor`` and ``bands`` name the bands (``-``:
    left out), ``gsd_m`` the size of their pixels. ``classes`` names or counts the classes. Splits are 80 and 20 % of
    the patches, by a checksum of their number.
    """

    images: str
    labels: str
    sensor: str
    bands: Sequence[str]
    classes: Sequence[str] | int
    gsd_m: float

    free_splits = True
    info = Info.of("otb-patches")

    def configure(self) -> None:
        """Take the classes and the channels of the bands."""
        names = range(self.classes) if isinstance(self.classes, int) else self.classes
        require(len(names) > 0, "classes is empty: name the classes or give their number")
        self.numbers = kept(self.root / self.images, self.bands, len(self.bands))
        channels = get(self.sensor).pick(*(self.bands[number - 1] for number in self.numbers))
        self.info = replace(self.info, classes=tuple(map(str, names)), channels=channels)

    def find(self) -> list[int]:
        """Return the numbers of the patches."""
        images, labels = self.files(0)
        with opened(images) as source:
            self.size, rest = source.width, source.height % source.width
            count = source.height // source.width
        if rest:
            raise DataError(images, f"is {rest} rows higher than {count} square patches")
        self.info = replace(self.info, extent_m=self.size * float(self.gsd_m))
        stored = read_raster(labels, bands=1, gsd_m=1.0).values.reshape(-1)
        if len(stored) != count:
            raise DataError(labels, f"has {len(stored)} labels for {count} patches")
        self.targets = Labels(len(self.info.classes)).read(stored, labels)
        return [i for i in range(count) if checksum(str(i)) % 10 in SPLIT_AT[self.split]]

    def files(self, item: int) -> tuple[Path, ...]:
        """Return the raster of patches and that of labels."""
        return (self.root / self.images, self.root / self.labels)

    def read(self, item: int) -> Sample:
        """Return the sample of one patch."""
        path, window = self.root / self.images, (item * self.size, 0, self.size, self.size)
        raster = read_raster(path, bands=len(self.bands), indexes=self.numbers, gsd_m=self.gsd_m, window=window)
        meta = Meta(f"patch-{item:06d}", (str(path),))
        return Sample.of_scene(raster.atoms(self.info.channels), int(self.targets[item]), meta)
