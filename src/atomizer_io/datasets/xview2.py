"""xView2 (xBD): damage to buildings, from one very-high-resolution image before and one after a disaster."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import VHR
from atomizer_io.data.task_spec import IGNORE
from atomizer_io.datasets.dataset import Dataset, Info, Labels, lowest_checksums, require
from atomizer_io.errors import DataError
from atomizer_io.io.crs import shifted
from atomizer_io.io.geometries import from_wkt, rasterised
from atomizer_io.io.raster_pixels import opened
from atomizer_io.io.rasters import PixelBox
from atomizer_io.io.xbd import PUBLISHED_SHAPE, ImageLocation, LabelFile, locate

CHANNELS = VHR.pick("R", "G", "B")  # the catalogue's statistics are those of xBD
DAMAGE = {"no-damage": 1, "minor-damage": 2, "major-damage": 3, "destroyed": 4}
LABELS = Labels(classes=5, ignore=(255,))
IMAGE = re.compile(r"(.+_\d{8})_(?:pre|post)_disaster\.png")

Item = tuple[str, PixelBox]
Stamp = tuple[int, int] | None

# protocol -> split -> folders
FOLDERS: dict[str, dict[str, tuple[str, ...]]] = {
    "official": {name: (name,) for name in ("train", "tier3", "test", "hold")},
    "pangaea": {"train": ("train", "tier3"), "val": ("train", "tier3"), "test": ("test",)},
}


@dataclass(kw_only=True, eq=False, repr=False)
class XView2(Dataset):
    """Windows of ``size`` pixels of about 0.5 m, RGB before and after; the damage of each building after.

    ``size=None`` takes whole images. ``labels`` is where the target comes from: ``"json"`` (polygons), ``"targets"``
    (PNG), or by default the json files where there are any. ``unclassified`` is the class of buildings whose damage
    is unknown; by default they are ignored. ``protocol="pangaea"`` trains on the folders train and tier3
    together, without the tenth of each disaster that is val; test stays test.
    """

    size: int | None = 512
    labels: Literal["json", "targets"] | None = None
    unclassified: int | None = None
    protocol: Literal["official", "pangaea"] = "official"

    info = Info.of("xview2", channels=CHANNELS)

    def configure(self) -> None:
        """Take the splits of the protocol."""
        large_enough = self.size is None or self.size >= 1
        require(large_enough, f"size is {self.size}; give a positive number of pixels, or None for whole images")
        require(
            self.unclassified is None or 0 <= self.unclassified < len(self.info.classes),
            f"unclassified is {self.unclassified}; give a class 0 … 4, or None to ignore such buildings",
        )
        self.values = {**DAMAGE, "un-classified": IGNORE if self.unclassified is None else self.unclassified}
        self.info = replace(self.info, splits=tuple(FOLDERS[self.protocol]))

    def find(self) -> list[Item]:
        """Return scenes and windows (first row, first column, height, width), in the order of names."""
        names = FOLDERS[self.protocol][self.split]
        self.folders: dict[str, Path] = {}  # the folder of each scene
        for folder in (self.existing(self.root / name) for name in names):
            images = [path.name for path in (folder / "images").glob("*_disaster.png")]
            self.folders |= {match[1]: folder for image in images if (match := IMAGE.fullmatch(image))}
        stems = sorted(self.folders)
        if self.protocol == "pangaea" and self.split != "test":
            held_out = validated(stems)
            stems = [stem for stem in stems if (stem in held_out) == (self.split == "val")]
        with_json = all((self.root / name / "labels").is_dir() for name in names)
        self.from_json = self.labels == "json" or (self.labels is None and with_json)
        self.shape = self.image_shape(stems)
        height, width = self.shape
        size = self.size or max(self.shape)
        corners = [(row, column) for row in range(0, height, size) for column in range(0, width, size)]
        windows = [(row, column, min(size, height - row), min(size, width - column)) for row, column in corners]
        return [(stem, window) for stem in stems for window in windows]

    def image_shape(self, stems: list[str]) -> tuple[int, int]:
        """Return height and width of the images, from the first that can be opened; ``read`` checks the others."""
        for stem in stems:
            for path in self.images(stem):
                with contextlib.suppress(DataError), opened(path) as source:  # named when it is read
                    return (source.height, source.width)
        return PUBLISHED_SHAPE

    def images(self, stem: str) -> tuple[Path, Path]:
        """Return the images before and after."""
        before, after = (self.folders[stem] / "images" / f"{stem}_{when}_disaster.png" for when in ("pre", "post"))
        return before, after

    def files(self, item: Item) -> tuple[Path, ...]:
        """Return images and json files before and after, and the target where it is read."""
        stem, folder = item[0], self.folders[item[0]]
        documents = [folder / "labels" / f"{stem}_{when}_disaster.json" for when in ("pre", "post")]
        if self.from_json:
            return (*self.images(stem), *documents)
        target = folder / "targets" / f"{stem}_post_disaster_target.png"
        return (*self.images(stem), *(path for path in documents if path.is_file()), target)

    def read(self, item: Item) -> Sample:
        """Return the sample of one window of a scene, before and after."""
        stem, window = item
        files = self.files(item)
        views = kept(files, tuple(stamp(path) for path in files))
        for path, image in views.images.items():
            if image.shape[1:] != self.shape:
                raise DataError(path, f"has {image.shape[1:]} pixels, others have {self.shape}")
        location, (row, column, height, width) = views.location, window
        part = (slice(None), slice(row, row + height), slice(column, column + width))
        atoms = AtomSet()
        for step, (path, day) in enumerate(zip(self.images(stem), views.dates, strict=True)):
            values = views.images[path][part]
            seen = (values[0] | values[1] | values[2]) > 0  # black is absent with or without a tag
            hidden = None if seen.all() else seen
            atoms += AtomSet.from_raster(values, CHANNELS, location.gsd_m, day, valid=hidden, timestep=step)
        if self.from_json:
            target = damage_of(views.buildings, files[-1], window, self.values)
        else:
            target = LABELS.read(views.images[files[-1]][part][0], files[-1])
        transform = location.transform
        meta = Meta(
            f"{stem}_{row}_{column}",
            crs=location.crs,
            transform=transform and shifted(transform, row, column),
            origin=transform and shifted(transform, row + height / 2, column + width / 2)[2::3],
            extra={"disaster": stem.rsplit("_", 1)[0], "window": window, "gsd_from": location.gsd_from},
        )
        return Sample.of_map(atoms, Grid(height, width, gsd_m=location.gsd_m), target, meta)


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """The content of the files of one scene, which all its windows share.

    ``images`` (C, H, W) are those before and after, and the target where there is one; ``buildings`` those after, as
    damage and geometry in pixels.
    """

    images: dict[Path, NDArray[Any]]
    location: ImageLocation
    dates: tuple[datetime.date | None, datetime.date | None]
    buildings: list[tuple[Any, Any]]


def validated(scenes: Iterable[str]) -> set[str]:
    """Return a tenth of the scenes of each disaster, those with the lowest checksums: one at least, never all."""
    disasters: dict[str, list[str]] = {}
    for scene in scenes:
        disasters.setdefault(scene.rsplit("_", 1)[0], []).append(scene)
    tenths = {disaster: min(max(1, round(len(names) / 10)), len(names) - 1) for disaster, names in disasters.items()}
    return {name for disaster, names in disasters.items() for name in lowest_checksums(names, tenths[disaster])}


@lru_cache(maxsize=1)  # a PNG is decoded from its first row on: windows that come one after the other share one pass
def kept(files: tuple[Path, ...], stamps: tuple[Stamp, ...]) -> Views:
    """Read all files of a scene; they are kept until another scene is read, or they change (``stamps``)."""
    documents = {path.stem.split("_")[-2]: LabelFile.of(path) for path in files if path.suffix == ".json"}
    pre, post = documents.get("pre"), documents.get("post")
    location = locate([document for document in (post, pre) if document is not None])
    images = {}
    for number, path in enumerate(path for path in files if path.suffix == ".png"):
        values = pixels(path, bands=3 if number < 2 else 1)
        if number < 2 and values.dtype != np.uint8:
            raise DataError(path, f"holds {values.dtype}, expected colours as uint8")
        images[path] = values
    before, after = (None if document is None else document.date() for document in (pre, post))
    return Views(images, location, (before, after), [] if post is None else buildings_of(post))


def pixels(path: Path, bands: int) -> NDArray[Any]:
    """Read all pixels (C, H, W) of an image, without the mask of a nodata tag, which would cost a second pass."""
    with opened(path) as source:
        if source.count != bands:
            raise DataError(path, f"has {source.count} bands, expected {bands}")
        values: NDArray[Any] = source.read()
        return values


def buildings_of(document: LabelFile) -> list[tuple[Any, Any]]:
    """Return the damage as written and the geometry in pixels of the buildings of a label file."""
    return [(building.get("subtype"), from_wkt(building["wkt"], document.path)) for building in document.xy]


def stamp(path: Path) -> Stamp:
    """Return time and size of a file, which show whether it is still the same; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size)


def damage_of(
    buildings: list[tuple[Any, Any]], path: Path, window: PixelBox, values: dict[str, int]
) -> NDArray[np.int64]:
    """Return the damage (H, W) of the buildings in a window; of overlapping ones, the later is on top."""
    numbered = []
    for damage, geometry in buildings:
        if not isinstance(damage, str) or damage not in values:
            raise DataError(path, f"has a building with subtype {damage!r}; known are {', '.join(values)}")
        numbered.append((geometry, values[damage]))
    row, column, height, width = window
    return rasterised(numbered, (height, width), (1.0, 0.0, column, 0.0, 1.0, row))
