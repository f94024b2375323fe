"""xView2 (xBD): damage to buildings, from one very-high-resolution image before and one after a disaster."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.atoms import AtomSet
from atomizer_io.datasets.dataset import Dataset, Info, Labels
from atomizer_io.datasets.reading.polygons import from_wkt, rasterised
from atomizer_io.datasets.reading.rasters import Window, opened, read_raster
from atomizer_io.datasets.reading.xbd import PUBLISHED_SHAPE, Document, Location, locate
from atomizer_io.datasets.sample import IGNORE, Meta, Sample, dates_of
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.georeference import shifted
from atomizer_io.grid import Grid
from atomizer_io.sensors import VHR

CHANNELS = VHR.pick("R", "G", "B")  # the catalogue's statistics are those of xBD
DAMAGE = {"no-damage": 1, "minor-damage": 2, "major-damage": 3, "destroyed": 4}
LABELS = Labels(classes=5, ignore=(255,))
IMAGE = re.compile(r"(.+_\d{8})_(?:pre|post)_disaster\.png")

Item = tuple[str, Window]


class XView2(Dataset):
    """Windows of ``size`` pixels of about 0.5 m, RGB before and after; the damage of each building after.

    ``size=None`` takes whole images. ``labels`` is where the answers come from: ``"json"`` (polygons), ``"targets"``
    (PNG), or by default the json files where there are any. ``unclassified`` is the class of buildings whose damage
    nobody could tell; by default they are ignored.
    """

    info = Info(
        name="xview2",
        title="xView2 (xBD)",
        task="segmentation",
        classes=("background", "no damage", "minor damage", "major damage", "destroyed"),
        channels=CHANNELS,
        extent_m=256.0,
        splits=("train", "tier3", "test", "hold"),
        temporal=True,
        layout=(
            "{train,tier3,test,hold}/images/<disaster>_<8 digits>_{pre,post}_disaster.png\n"
            "{train,tier3,test,hold}/labels/<disaster>_<8 digits>_{pre,post}_disaster.json\n"
            "{train,test,hold}/targets/<disaster>_<8 digits>_post_disaster_target.png (or labels/)"
        ),
        source="https://xview2.org (CC-BY-NC-SA-4.0)",
        notes=(
            "there is no official val; others take it from train and tier3",
            "un-classified buildings are ignored; unclassified=1 counts them as undamaged, as others do; in the PNG "
            "targets they cannot be told apart",
            "of overlapping buildings, the later in the file is on top",
            "black pixels (0, 0, 0) are absent: the border of the scene",
            "pixel sizes are fitted to the coordinates of the buildings; without any, the sensor's own resolution is "
            "taken, which may differ from that of the image by a third",
        ),
    )

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        size: int | None = 512,
        labels: str | None = None,
        unclassified: int | None = None,
        **common: Any,
    ) -> None:
        if size is not None and size < 1:
            raise ConfigError(f"size is {size}; give a positive number of pixels, or None for whole images")
        if labels not in ("json", "targets", None):
            raise ConfigError(f"labels is {labels!r}; use 'json' or 'targets', or None for what is there")
        if unclassified is not None and not 0 <= unclassified < len(self.info.classes):
            raise ConfigError(f"unclassified is {unclassified}; give a class 0 … 4, or None to ignore such buildings")
        self.size, self.labels = size, labels
        self.values = {**DAMAGE, "un-classified": IGNORE if unclassified is None else unclassified}
        super().__init__(root, split, **common)

    def find(self) -> list[Item]:
        """Places and windows (first row, first column, height, width), in the order of names."""
        folder = self.root / self.split
        if not folder.is_dir():
            raise DataError(folder, f"no such folder; {self.info.title} is expected as\n{self.info.layout}")
        names = sorted(path.name for path in (folder / "images").glob("*_disaster.png"))
        stems = list(dict.fromkeys(found[1] for name in names if (found := IMAGE.fullmatch(name))))
        if self.labels is None:
            self.labels = "json" if (folder / "labels").is_dir() else "targets"
        self.shape = self.image_shape(stems)
        height, width = self.shape
        size = self.size or max(self.shape)
        corners = [(row, column) for row in range(0, height, size) for column in range(0, width, size)]
        windows = [(row, column, min(size, height - row), min(size, width - column)) for row, column in corners]
        return [(stem, window) for stem in stems for window in windows]

    def image_shape(self, stems: list[str]) -> tuple[int, int]:
        """Height and width of the images, from the first that can be opened; ``read`` checks the others."""
        for stem in stems:
            for path in self.images(stem):
                try:
                    return shape_of(path)
                except DataError:  # named when it is read
                    continue
        return PUBLISHED_SHAPE

    def images(self, stem: str) -> tuple[Path, Path]:
        """The images before and after."""
        pre, post = (self.root / self.split / "images" / f"{stem}_{when}_disaster.png" for when in ("pre", "post"))
        return pre, post

    def documents(self, stem: str) -> tuple[Path, Path]:
        """The json files before and after."""
        pre, post = (self.root / self.split / "labels" / f"{stem}_{when}_disaster.json" for when in ("pre", "post"))
        return pre, post

    def files(self, item: Item) -> tuple[Path, ...]:
        """Images and json files before and after; the target where it is read."""
        stem, _ = item
        if self.labels == "json":
            return (*self.images(stem), *self.documents(stem))
        described = (path for path in self.documents(stem) if path.is_file())
        target = self.root / self.split / "targets" / f"{stem}_post_disaster_target.png"
        return (*self.images(stem), *described, target)

    def read(self, item: Item) -> Sample:
        """One window of a place, before and after."""
        stem, window = item
        described = {path: Document.of(path) for path in self.files(item) if path.suffix == ".json"}
        pre, post = (described.get(path) for path in self.documents(stem))
        place = locate([document for document in (post, pre) if document is not None])
        atoms = AtomSet()
        for step, (path, document) in enumerate(zip(self.images(stem), (pre, post), strict=True)):
            atoms += self.image(path, window, place, None if document is None else document.date(), step)
        if self.labels == "json" and post is not None:
            target = damage_of(post, window, self.values)
        else:
            path = self.files(item)[-1]
            self.check_shape(path)
            target = LABELS.read(read_raster(path, bands=1, gsd_m=1.0, window=window).values[0], path)
        row, column, height, width = window
        meta = Meta(
            f"{stem}_{row}_{column}",
            tuple(str(path) for path in self.files(item)),
            place.crs,
            place.transform and shifted(place.transform, row, column),
            place.transform and shifted(place.transform, row + height / 2, column + width / 2)[2::3],
            dates_of(atoms),
            {"disaster": stem.rsplit("_", 1)[0], "window": window, "gsd_from": place.gsd_from},
        )
        return Sample.of_map(atoms, Grid(height, width, gsd_m=place.gsd_m), target, meta)

    def image(self, path: Path, window: Window, place: Location, day: datetime.date | None, step: int) -> AtomSet:
        """A window of an image."""
        self.check_shape(path)
        raster = read_raster(path, bands=3, gsd_m=1.0, window=window)
        if raster.values.dtype != np.uint8:
            raise DataError(path, f"holds {raster.values.dtype}, expected colours as uint8")
        seen = raster.values.max(axis=0) > 0  # black is absent whether or not a tag says so
        return AtomSet.from_raster(raster.values, CHANNELS, place.gsd_m, day, valid=seen, timestep=step)

    def check_shape(self, path: Path) -> None:
        """Refuse an image that is not as large as the first."""
        if (shape := shape_of(path)) != self.shape:
            raise DataError(path, f"has {shape} pixels, others have {self.shape}")


def damage_of(document: Document, window: Window, values: dict[str, int]) -> NDArray[np.int64]:
    """The damage (H, W) of the buildings in a window; of overlapping ones, the later is on top."""
    buildings = []
    for building in document.xy:
        damage = building.get("subtype")
        if damage not in values:
            raise DataError(document.path, f"has a building with subtype {damage!r}; known are {', '.join(values)}")
        for rings in from_wkt(building["wkt"], document.path):
            buildings.append(({"type": "Polygon", "coordinates": rings}, values[damage]))
    row, column, height, width = window
    return rasterised(buildings, (height, width), (1.0, 0.0, column, 0.0, 1.0, row))


def shape_of(path: Path) -> tuple[int, int]:
    """Height and width of an image, from its header."""
    with opened(path) as source:
        return (source.height, source.width)
