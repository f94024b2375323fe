"""Your own GeoTIFFs as a dataset: a folder of images and one of masks, and no class to write."""

from __future__ import annotations

import datetime
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.inputs import option
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import Sensor
from atomizer_io.datasets.dataset import Dataset, Info, Labels, meta_of, require
from atomizer_io.errors import DataError, listed
from atomizer_io.io.dates import as_day, compiled, date_by_pattern, date_in, date_of_file
from atomizer_io.io.raster_bands import Bands, sidecar
from atomizer_io.io.raster_folders import (
    ImageFolders,
    assigned,
    band_by_band,
    by_stem,
    doubles,
    matching,
    without_suffix,
)
from atomizer_io.io.rasters import Raster, offset_m, read_raster, stacked
from atomizer_io.io.tables import lines, lists_in, rows


@dataclass(kw_only=True, eq=False, repr=False)
class GeoTiffFolder(Dataset):
    """Images and masks of the same name, or several rasters a sample from folders ``image_<name>``.

    ``sensor`` is the name of a sensor or a ``Sensor``, ``bands`` its bands in the order of the files; without ``bands``
    the files' own descriptions name them. Several rasters have ``sensor={"s1": "sentinel1", "s2": "sentinel2"}``, and
    so may ``bands``, ``gsd_m``, ``crs`` and ``nodata``. Each stays on its own grid; the centre of the first is (0, 0).
    ``"-"`` as the sensor of a folder leaves it out. A folder that ``sensor`` does not name is used if its files
    describe their bands, also by ``NAME.bands.yaml`` beside them, and is an error if they do not.

    ``classes`` are names, their number, or ``{number in the mask: name}``, where numbers with the same name are one
    class; maps are written in these numbers, of several in the first. Values in ``ignore`` (255 and −1 where they are
    no class) and the mask's nodata are ignored. ``task="regression"`` takes masks of values, ``target_name`` in
    ``unit``, ``task="classification"`` a ``labels.csv`` with columns image and label. ``gsd_m`` is the pixel size of
    files without a coordinate system, ``crs`` the system of files that state where their pixels lie but not in which
    system, ``nodata`` a value without data beside the one that files name. ``date_pattern`` is an expression whose
    first group is the date in a name; only by it can seven digits be a year and the day of the year. ``allow_vrt`` also
    takes VRT files, mosaics of other files, as images and masks.

    Files that lie otherwise are found by patterns: ``image_files="{label}/{name}.jpg"`` (or one by name, as for
    ``sensor``; ``{band}`` for a file for each of ``bands``), ``mask_files="labels/{name}.png"``, of which the first
    band counts. ``splits`` has patterns of the names of samples by split (``{"test": ["paris", "S2_*_16PCC_*"]}``),
    ``dates`` the date of an image by its name, or by folder and name (``{"s2/paris": "2018-03-28"}``).
    """

    sensor: str | Sensor | Mapping[str, str | Sensor] | None = None
    bands: Sequence[str] | Mapping[str, Sequence[str]] | None = None
    classes: int | Sequence[str] | Mapping[int, str] | None = None
    task: Literal["segmentation", "regression", "classification"] = "segmentation"
    ignore: Sequence[float] | None = None
    nodata: float | Mapping[str, float] | None = None
    gsd_m: float | Mapping[str, float] | None = None
    crs: str | Mapping[str, str] | None = None
    target_name: str | None = None
    unit: str | None = None
    date_pattern: str | None = None
    image_folder: str = "image"
    mask_folder: str = "mask"
    image_files: str | Mapping[str, str] | None = None
    mask_files: str | None = None
    splits: Mapping[str, Sequence[str]] | None = None
    dates: Mapping[str, Any] | None = None
    allow_vrt: bool = False

    free_splits = True
    info = Info.of("geotiff-folder")

    def configure(self) -> None:
        """Take the classes, the task and the splits that the folder has."""
        named = self.task != "segmentation" or self.classes is not None
        require(named, "the classes in the masks are not named: pass classes=['water', 'land'] or their number")
        self.pattern = compiled(self.date_pattern)
        names, self.numbers = class_names(self.classes)
        own = set(self.numbers) or set(range(len(names)))
        known = range(len(names) if self.numbers else 0)
        default = [value for value in (255, -1) if value not in own] if self.task == "segmentation" else []
        self.ignored = tuple(default if self.ignore is None else self.ignore)
        self.info = replace(
            self.info,
            task=self.task,
            classes=names,
            codes=tuple({number: code for code, number in reversed(self.numbers.items())}[i] for i in known),
            splits=self.splits_in(self.root, vars(self)),
            target_name=self.target_name,
            unit=self.unit,
        )

    @classmethod
    def splits_in(cls, root: Path, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the splits for which there is a folder or a list of images, and the usual ones."""
        word, vrt = options.get("image_folder", "image"), bool(options.get("allow_vrt"))
        folders = [path.parent.name for path in root.glob(f"*/{word}*") if path.is_dir()]
        images = {stem for folder in root.glob(f"{word}*") if folder.is_dir() for stem in by_stem(folder, vrt)}
        lists = lists_in(root, lambda line: without_suffix(line) in images)
        apart = sorted(path.stem for path in root.glob("splits/*.txt"))
        named = options.get("splits") or ()
        return tuple(dict.fromkeys((*named, *sorted(folders), *apart, *lists, *cls.info.splits)))

    def find(self) -> list[str]:
        """Return the names of the samples; set ``images`` and ``masks`` (by name) and what the files describe."""
        own = self.root / self.split
        apart = self.image_files is None and any(path.is_dir() for path in own.glob(f"{self.image_folder}*"))
        self.base = own if apart else self.root
        patterns = {self.image_folder: self.image_files} if isinstance(self.image_files, str) else self.image_files
        sensor, bands = self.sensor, self.bands
        if patterns is not None and any("{band}" in pattern for pattern in patterns.values()):
            patterns, sensor, bands = band_by_band(patterns, sensor, bands)
        options = (sensor, bands, self.gsd_m, self.crs, self.allow_vrt, patterns)
        self.sources = ImageFolders(self.root, self.base, self.image_folder, *options)
        self.folders = self.sources.used()
        apart = self.split != "all" and any(self.root.glob(f"*/{self.image_folder}*"))
        for folder in self.folders.values():
            if not folder.is_dir():  # where there are folders of splits, that of this one is missing
                self.existing(own / folder.name if apart else folder)
        targets = {} if self.mask_files is None else matching(self.root, self.mask_files)
        masks = {path for path, _ in targets.values()}  # which may lie among the images
        listings = {name: self.sources.files(name) for name in self.folders}
        self.images = {
            name: {stem: path for stem, (path, _) in images.items() if path not in masks}
            for name, images in listings.items()
        }
        self.stems = stems = sorted({stem for images in self.images.values() for stem in images})
        self.masks = {name: [path] for name, (path, _) in targets.items()}
        if self.mask_files is None:
            self.masks = assigned(by_stem(self.base / self.mask_folder, self.allow_vrt), stems)
        dated = {row["image"]: row["date"] for row in self.table("dates.csv", "date")}
        self.dated = {**dated, **{name: str(date) for name, date in (self.dates or {}).items()}}
        self.labels = {stem: label for images in listings.values() for stem, (_, label) in images.items() if label}
        self.tabled = self.task == "classification" and not self.labels  # else folders are named after the classes
        if self.tabled:
            self.labels = {row["image"]: row["label"] for row in self.table("labels.csv", "label", needed=True)}
        if self.base == own or self.split == "all":
            items = stems
        elif (listed := self.listed(self.split)) is not None:
            items = list(dict.fromkeys(listed))
        else:
            raise DataError(
                self.root / f"{self.split}.txt",
                f"no such list. To make split {self.split!r}, write the names of its images there, one a line, or put "
                f"them into {own / self.image_folder}; split 'all' takes every image",
            )
        if items:
            self.described = {name: self.describe(name) for name in self.images}
            channels = dict.fromkeys(channel for bands in self.described.values() for channel in bands.channels)
            extent_m = max(bands.extent_m for bands in self.described.values())
            classes = self.info.classes or self.named_labels()
            self.info = replace(self.info, classes=classes, channels=tuple(channels), extent_m=extent_m)
        return items

    def listed(self, split: str) -> list[str] | None:
        """Return the names in the list of a split, or those that its patterns fit; None if there are neither."""
        if self.splits is not None and split in self.splits:
            fitting = {pattern: fnmatch.filter(self.stems, pattern) for pattern in self.splits[split]}
            unmet = [pattern for pattern, names in fitting.items() if not names]
            require(not unmet, f"splits: no image is called {listed(unmet)}, which should be in {split!r}")
            return sorted({name for names in fitting.values() for name in names})
        for path in (self.root / f"{split}.txt", self.root / "splits" / f"{split}.txt"):
            if path.is_file():
                return [without_suffix(line) for line in lines(path)]
        return None

    def table(self, name: str, column: str, needed: bool = False) -> list[dict[str, str]]:
        """Return the rows of a csv in the folder of the split or the root; none if it is not there."""
        path = self.csv(name)
        listed = rows(path, ("image", column)) if needed or path.is_file() else []
        return [{**row, "image": without_suffix(row["image"] or "")} for row in listed]

    def csv(self, name: str) -> Path:
        """Return where a csv is: in the folder of the split, else in the root."""
        return self.base / name if (self.base / name).is_file() else self.root / name

    def describe(self, name: str) -> Bands:
        """Return the bands of a folder by the options and the header of its first file (that is sound)."""
        causes: list[DataError] = []
        for path in self.images[name].values():
            try:
                return self.sources.bands_of(path, name)
            except DataError as error:
                if self.on_error == "raise":
                    raise
                causes.append(error)
        nothing = f"has no GeoTIFF; to leave it out: sensor={self.sources.naming(name)}"
        raise causes[0] if causes else DataError(self.folders[name], nothing)

    def raster(self, path: Path, name: str) -> Raster:
        """Read a file of the folder of images called ``name``."""
        facts = self.sources.description(path, name)
        georeference: dict[str, Any] = {
            "gsd_m": facts.get("gsd_m"),
            "crs": facts.get("crs"),
            "allow_vrt": self.allow_vrt,
        }
        raster = read_raster(path, **georeference, **self.described[name].to_read)
        mark = option(self.nodata, name)
        return replace(raster, declared=facts.get("nodata") if mark is None else mark)

    def files(self, item: str) -> tuple[Path, ...]:
        """Return the rasters of a sample, and its mask or the table of labels."""
        masks = self.masks.get(item, [])
        mask = masks[0] if len(masks) == 1 else self.base / self.mask_folder / f"{item}.tif"
        target = (self.csv("labels.csv"),) if self.tabled else () if self.task == "classification" else (mask,)
        return (*self.rasters_of(item).values(), *target)

    def rasters_of(self, item: str) -> dict[str, Path]:
        """Return the images of a sample by the name of their folder; where the first should be, if none."""
        there = {name: images[item] for name, images in self.images.items() if item in images}
        name, folder = next(iter(self.folders.items()))
        return there or {name: folder / f"{item}.tif"}

    def read(self, item: str) -> Sample:
        """Return the sample of one name."""
        paths = self.rasters_of(item)
        rasters = {name: self.raster(path, name) for name, path in paths.items()}
        frame = next(iter(rasters.values()))
        groups: dict[Any, list[tuple[Raster, tuple[Channel, ...]]]] = {}  # bands in files of their own, by their pixels
        for name, raster in rasters.items():
            day = self.date(raster.path, item, name)
            known = self.sources.bands_of(raster.path, name) if sidecar(raster.path) else self.described[name]
            whole = name.partition("/")[0] if raster.mask is None else name
            key = (whole, day, raster.grid.shape, raster.transform)
            groups.setdefault(key, []).append((raster, known.channels_of(raster)))
        atoms = AtomSet()
        for (_, day, *_), group in groups.items():
            raster, channels = stacked([raster for raster, _ in group]), [c for _, own in group for c in own]
            atoms += raster.atoms(channels, day, center_m=offset_m(frame, raster))
        if self.task == "classification":
            return Sample.of_scene(atoms, self.label(item), meta_of(item, frame))
        mask = self.read_mask(item, frame)
        grid = replace(mask.grid, center_m=offset_m(frame, mask))
        meta = replace(meta_of(item, mask), origin=frame.origin)
        return Sample.of_map(atoms, grid, self.target(mask), meta)

    def read_mask(self, item: str, frame: Raster) -> Raster:
        """Read the mask of a sample; one without coordinates lies on the pixels of the first raster."""
        masks = self.masks.get(item, [])
        if len(masks) != 1:
            also = f"; {', '.join(path.name for path in masks)} could all be meant" if masks else ""
            raise DataError(
                self.base / self.mask_folder / f"{item}.tif",
                f"no such mask, nor one called {item}_<anything>.tif or {item}.tiff{also}; to go on without such an "
                "image, leave it out of the list of the split or set on_error to skip",
            )
        first: dict[str, Any] = {"bands": 1} if self.mask_files is None else {"indexes": (1,)}
        mask = read_raster(masks[0], **first, gsd_m=1.0, allow_vrt=self.allow_vrt)
        if mask.crs is None:
            if mask.grid.shape != frame.grid.shape:
                raise DataError(
                    mask.path,
                    f"has no coordinate system, and {mask.grid.shape} pixels where {frame.path.name} has "
                    f"{frame.grid.shape}",
                )
            return replace(mask, grid=frame.grid, crs=frame.crs, transform=frame.transform)
        return mask

    def target(self, mask: Raster) -> NDArray[Any]:
        """Return the classes or values (H, W) of a mask."""
        values, known = mask.values[0], mask.valid()
        if self.task == "regression":
            unknown = np.isin(values, self.ignored) | (False if known is None else ~known[0])
            return np.where(unknown, np.float32(np.nan), values.astype(np.float32))
        if known is not None:
            values = np.where(known[0], values, np.nan)
        ignore = tuple(int(value) for value in self.ignored)
        return Labels(len(self.info.classes), ignore, self.numbers).read(values, mask.path)

    def label(self, item: str) -> int:
        """Return the class of a sample by its label, which is a name or a number."""
        text = (self.labels.get(item) or "").strip()
        if text in self.info.classes:
            return self.info.classes.index(text)
        if text.isdecimal() and (number := self.numbers.get(int(text), int(text))) < len(self.info.classes):
            return number
        cause = f"{item} has label {text!r}; classes are {', '.join(self.info.classes)}" if text else f"no row {item}"
        raise DataError(self.files(item)[-1], cause)

    def named_labels(self) -> tuple[str, ...]:
        """Return the classes that occur, in the order of numbers or names."""
        names = {text.strip() for text in self.labels.values() if text}
        return tuple(sorted(names, key=lambda text: (not text.isdecimal(), len(text) if text.isdecimal() else 0, text)))

    def date(self, path: Path, item: str, name: str) -> datetime.date | None:
        """Return the date of an image: from ``dates.csv``, the yaml beside it, its name, its tag, or its folder."""
        text = self.dated.get(f"{path.parent.name}/{item}") or self.dated.get(item)
        if text:
            if (day := as_day(text)) is None:
                raise DataError(self.csv("dates.csv"), f"{item} has date {text!r}; write 2021-07-04 or 20210704")
            return day
        if beside := self.sources.description(path, name).get("date"):
            if (day := as_day(str(beside))) is None:
                raise DataError(path, f"has date {beside!r} in the bands.yaml beside it; write 2021-07-04")
            return day
        if self.pattern is not None:
            return date_by_pattern(path, self.pattern)
        return date_of_file(path, self.allow_vrt) or date_in(path.parent.name)

    def warnings(self) -> list[str]:
        """Return what is in the folder and not used, and what is in two splits."""
        masks = self.base / self.mask_folder
        usual = self.image_files is None
        twice = [path for folder in (*self.folders.values(), masks) for path in doubles(folder) if usual]
        notes = [f"{path.parent.name}/{path.name} is not used: another file has its name" for path in twice]
        notes += [f"{folder.name} is left out by sensor=" for folder in self.sources.left_out()]
        meant = {path for paths in self.masks.values() for path in paths}
        lone = [path.name for path in by_stem(masks).values() if path not in meant]
        if lone and self.task != "classification":
            notes.append(f"masks without an image of their name are not used: {listed(lone)}")
        own = self.listed(self.split) if self.base == self.root else None
        for split in self.info.splits if own else ():
            both = sorted(set(own or ()) & set(self.listed(split) or ())) if split != self.split else []
            if both:
                notes.append(f"also in the list of split {split!r}: {listed(both)}")
        return notes


def class_names(classes: int | Sequence[str] | Mapping[int, str] | None) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the names of the classes, and number on disk → class where they are given by number.

    Numbers with the same name are one class.
    """
    if isinstance(classes, Mapping):
        names = list(dict.fromkeys(map(str, classes.values())))
        return tuple(names), {int(value): names.index(str(name)) for value, name in classes.items()}
    if isinstance(classes, int):
        require(classes >= 2, f"classes is {classes}; there must be at least two")
        return tuple(map(str, range(classes))), {}
    return tuple(map(str, classes or ())), {}
