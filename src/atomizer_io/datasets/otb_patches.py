"""Patches stacked in one raster, one below the other, as Orfeo ToolBox's patch extraction writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import get
from atomizer_io.datasets.dataset import Dataset, Info, Labels
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.raster_bands import kept
from atomizer_io.io.raster_pixels import opened
from atomizer_io.io.rasters import read_raster
from atomizer_io.io.tables import checksum

SPLIT_AT = {"train": range(8), "test": range(8, 10)}  # tenths of the patches, by a checksum of their number


class OtbPatches(Dataset):
    """Scene classification from one raster of stacked square patches and one of labels (one pixel a patch).

    ``images`` and ``labels`` are file names in the folder, ``sensor`` and ``bands`` say what the bands are (``-``:
    left out), ``gsd_m`` the size of their pixels. ``classes`` names or counts the classes. Splits are 80 and 20 % of
    the patches, by a checksum of their number.
    """

    free_splits = True
    info = Info(
        name="otb-patches",
        title="Stacked patches",
        task="classification",
        channels=(),
        extent_m=0.0,
        splits=("train", "test", "all"),
        layout="<images>.tif: patches of width × width pixels below each other\n<labels>.tif: one pixel a patch",
        source="your own files; see the patch extraction of Orfeo ToolBox (otbtf)",
    )

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        images: str,
        labels: str,
        sensor: str,
        bands: Sequence[str],
        classes: Sequence[str] | int,
        gsd_m: float,
        **common: Any,
    ) -> None:
        names = tuple(str(i) for i in range(classes)) if isinstance(classes, int) else tuple(map(str, classes))
        if not names:
            raise ConfigError("classes is empty: name the classes or give their number")
        self.images, self.labels = images, labels
        self.numbers, self.count = kept(Path(root) / images, bands, len(bands)), len(bands)
        self.bands = get(sensor).pick(*(bands[number - 1] for number in self.numbers))
        self.gsd_m = float(gsd_m)
        self.info = replace(type(self).info, classes=names, channels=self.bands)
        super().__init__(root, split, **common)

    def find(self) -> list[int]:
        """Return the numbers of the patches."""
        with opened(self.root / self.images) as source:
            self.size, rest = source.width, source.height % source.width
            count = source.height // source.width
        if rest:
            raise DataError(self.root / self.images, f"is {rest} rows higher than {count} square patches")
        self.info = replace(self.info, extent_m=self.size * self.gsd_m)
        answers = read_raster(self.root / self.labels, bands=1, gsd_m=1.0).values.reshape(-1)
        if len(answers) != count:
            raise DataError(self.root / self.labels, f"has {len(answers)} labels for {count} patches")
        self.answers = Labels(len(self.info.classes)).read(answers, self.root / self.labels)
        if self.split == "all":
            return list(range(count))
        return [i for i in range(count) if checksum(str(i)) % 10 in SPLIT_AT[self.split]]

    def files(self, item: int) -> tuple[Path, ...]:
        """Return the raster of patches and that of labels."""
        return (self.root / self.images, self.root / self.labels)

    def read(self, item: int) -> Sample:
        """Return the sample of one patch."""
        raster = read_raster(
            self.root / self.images,
            bands=self.count,
            indexes=self.numbers,
            gsd_m=self.gsd_m,
            window=(item * self.size, 0, self.size, self.size),
        )
        atoms = raster.atoms(self.bands)
        return Sample.of_scene(atoms, int(np.int64(self.answers[item])), Meta(f"patch-{item:06d}", (str(raster.path),)))
