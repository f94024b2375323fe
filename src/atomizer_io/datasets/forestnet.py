"""ForestNet: what drove a loss of primary forest in Indonesia, from Landsat-8; as published, and GEO-Bench's copy."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import LANDSAT8
from atomizer_io.datasets.dataset import Dataset, Info, read_image
from atomizer_io.datasets.geobench import GeoBench, geobench_info
from atomizer_io.errors import DataError
from atomizer_io.io.geobench import StoredSample
from atomizer_io.io.tables import first_existing, read_array, rows

GSD_M = 15.0  # pan-sharpened; the infrared bands were resampled to the same grid by the publishers
VISIBLE = LANDSAT8.pick("B4", "B3", "B2")  # red, green, blue of the PNG
INFRARED = LANDSAT8.pick("B5", "B6", "B7")  # near infrared and both short-wave bands of the npy
INFO = Info.of("forestnet", channels=(*VISIBLE, *INFRARED))
FINE = INFO.classes
MERGED = ("Plantation", "Smallholder agriculture", "Grassland shrubland", "Other")
CLASSES = {"fine": ("label", FINE), "merged": ("merged_label", MERGED)}  # option -> column of the lists, classes
GEOBENCH_KEYS = ("02 - Blue", "03 - Green", "04 - Red", "05 - NIR", "06 - SWIR1", "07 - SWIR2")
DATED = re.compile(r"(\d{4})_(\d{2})_(\d{2})_cloud_(\d+)")


@dataclass(frozen=True, slots=True)
class Event:
    """A loss of forest: one row of the list of a split."""

    listed: Path  # the list and the row, from 1 below the header
    row: int
    folder: Path
    columns: Mapping[str, str | None] = field(hash=False)

    @property
    def location(self) -> dict[str, float]:
        """Latitude and longitude from the list, else from the name of the folder, if they are there."""
        for texts in ((self.columns.get("latitude"), self.columns.get("longitude")), self.folder.name.split("_")):
            try:
                latitude, longitude = (float(text or "") for text in texts)
            except ValueError:
                continue
            return {"latitude": latitude, "longitude": longitude}
        return {}


@dataclass(frozen=True, slots=True)
class Image:
    """One image of an event; a composite has neither a date nor a count of cloudy pixels."""

    visible: Path | None
    infrared: Path | None
    date: datetime.date | None = None
    clouds: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class ForestNet(Dataset):
    """Scenes of 332 × 332 pixels of 15 m, 8 bit, around a loss of forest; the class is its driver.

    ``images`` selects the images of a sample: ``"least-cloudy"`` (the dated image with the fewest cloudy pixels, the
    earliest of equals), ``"all"`` (every dated image) or ``"composite"`` (the publishers' mixture of several dates,
    undated). An event without a dated image gives its composite. ``labels`` are the 12 ``"fine"`` drivers or the 4
    ``"merged"``.
    """

    images: Literal["least-cloudy", "all", "composite"] = "least-cloudy"
    labels: Literal["fine", "merged"] = "fine"

    info = INFO

    def configure(self) -> None:
        """Take the classes of the labels."""
        self.column, classes = CLASSES[self.labels]
        self.info = replace(self.info, classes=classes, temporal=self.images == "all")

    def find(self) -> list[Event]:
        """Return the events of the split."""
        names = (f"{self.split}.csv", f"{self.split}_filtered.csv")
        listed = first_existing(self.root, names, f"the list of events of split {self.split!r}")
        events = []
        for number, row in enumerate(rows(listed, ("example_path", self.column)), start=1):
            name = PurePosixPath(row["example_path"] or "").name  # listed with or without "examples/" before it
            if not name:
                raise DataError(listed, f"row {number} has no example_path")
            events.append(Event(listed, number, self.root / "examples" / name, row))
        return events

    def files(self, item: Event) -> tuple[Path, ...]:
        """Return the images of the sample and the list; without images, the folder they should be in."""
        try:
            images = self.chosen(item)
        except DataError:  # reported by read
            return (item.folder / "images", item.listed)
        return (*(path for image in images for path in (image.visible, image.infrared) if path), item.listed)

    def read(self, item: Event) -> Sample:
        """Return the sample of one event."""
        text = (item.columns[self.column] or "").strip()
        if text not in self.info.classes:
            known = ", ".join(self.info.classes)
            raise DataError(item.listed, f"row {item.row}: {self.column} {text!r} is none of {known}")
        images = self.chosen(item)
        extra: dict[str, Any] = {name: item.columns.get(name) for name in ("label", "merged_label", "year")}
        extra["cloud_pixels"] = tuple(image.clouds for image in images if image.date is not None)
        known_extra = item.location | {key: value for key, value in extra.items() if value not in (None, "")}
        atoms = sum((read_views(image) for image in images), AtomSet())
        return Sample.of_scene(atoms, self.info.classes.index(text), Meta(item.folder.name, extra=known_extra))

    def chosen(self, item: Event) -> list[Image]:
        """Return the images that the option ``images`` names."""
        every = find_images(item)
        dated = sorted((i for i in every if i.date is not None), key=lambda i: (i.date, i.clouds))
        if self.images == "composite" or not dated:
            dated = [image for image in every if image.date is None]
            if not dated:
                raise DataError(
                    item.folder / "images", f"has no composite.png or composite.npy (images={self.images!r})"
                )
        return [min(dated, key=lambda i: i.clouds)] if self.images == "least-cloudy" else dated


class MForestNet(GeoBench):
    """GEO-Bench's ForestNet: one image of 332 × 332 pixels of 15 m a sample, one for each year of an event."""

    info = geobench_info(ForestNet.info, "m-forestnet")
    known_bands: ClassVar = dict(zip(GEOBENCH_KEYS, info.channels, strict=True))
    pixel_m = GSD_M

    def acquired(self, stored: StoredSample, named: datetime.date | None, date: datetime.date | None) -> AtomSet:
        """Return the acquisition as everywhere in GEO-Bench, but without a date for a composite (1 January)."""
        stand_in = date is not None and (date.month, date.day) == (1, 1)
        return super().acquired(stored, named, None if stand_in else date)


def find_images(event: Event) -> list[Image]:
    """Return all images of an event: files of one name in ``visible`` and ``infrared`` belong together."""
    if not event.folder.is_dir():
        raise DataError(event.folder, f"no such folder, but row {event.row} of {event.listed.name} lists it")
    folder = event.folder / "images"
    visible = {path.stem: path for path in folder.glob("visible/*.png")}
    infrared = {path.stem: path for path in folder.glob("infrared/*.npy")}
    images = []
    for stem in sorted(visible.keys() | infrared.keys()):
        pair = (visible.get(stem), infrared.get(stem))
        if match := DATED.fullmatch(stem):
            year, month, day, clouds = map(int, match.groups())
            try:
                images.append(Image(*pair, datetime.date(year, month, day), clouds))
            except ValueError as error:
                raise DataError(pair[0] or pair[1] or folder, f"has no date in its name: {error}") from error
        elif stem == "composite":
            images.append(Image(*pair))
    if not images:
        raise DataError(folder, "has no image called YYYY_MM_DD_cloud_N or composite")
    return images


def read_views(image: Image) -> AtomSet:
    """Read one image as one acquisition of up to six channels."""
    layers, valid = list[NDArray[Any]](), list[NDArray[np.bool_]]()
    channels: tuple[Channel, ...] = ()
    if image.visible is not None:
        values, seen = read_visible(image.visible)
        layers, valid, channels = [values], [np.broadcast_to(seen, values.shape)], VISIBLE
    if image.infrared is not None:
        values = read_array(image.infrared, "iuf")
        if values.ndim != 3 or values.shape[2] != 3 or not values.size:
            raise DataError(image.infrared, f"has shape {values.shape}, expected (height, width, 3)")
        values = np.moveaxis(values, 2, 0)
        if layers and values.shape != layers[0].shape:
            raise DataError(image.infrared, f"has {values.shape[1:]} pixels, {image.visible} has {layers[0].shape[1:]}")
        layers, valid = [*layers, values], [*valid, np.ones(values.shape, dtype=bool)]
        channels += INFRARED
    return AtomSet.from_raster(np.concatenate(layers), channels, GSD_M, image.date, valid=np.concatenate(valid))


def read_visible(path: Path) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Read red, green and blue (3, H, W) of a PNG, and where (H, W) its alpha band, if any, shows them."""
    raster = read_image(path, "B", gsd_m=GSD_M)
    if len(raster.values) not in (3, 4):
        raise DataError(path, f"has {len(raster.values)} bands, expected red, green, blue (and alpha)")
    seen = np.ones(raster.grid.shape, dtype=bool) if len(raster.values) == 3 else raster.values[3] > 0
    return raster.values[:3], seen
