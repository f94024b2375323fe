"""Your own point clouds as a dataset: a folder of LAS, LAZ or PLY files, alone or with rasters over them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import AERIAL, Sensor
from atomizer_io.data.task_spec import IGNORE, OTHER_CODES
from atomizer_io.datasets.dataset import Info, Labels, require
from atomizer_io.datasets.point_dataset import TileDataset, classes_of, numbers_of
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.io.crs import parsed_crs
from atomizer_io.io.ground import NOISE
from atomizer_io.io.las_classes import UNCLASSIFIED, standard_code
from atomizer_io.io.overlays import Overlay, frame_of, inside, rasters_in, seen_from
from atomizer_io.io.point_atoms import HEIGHT_CHANNELS
from atomizer_io.io.point_clouds import SUFFIXES, point_cloud_header
from atomizer_io.io.point_windows import TileWindow, numbered
from atomizer_io.io.raster_folders import ImageFolders, OneOrEach
from atomizer_io.io.tables import lines, lists_in

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CODES = range(256)  # numbers of classes that LAS can hold
IMAGES = "images"  # where images are looked for


@dataclass(kw_only=True, eq=False, repr=False)
class LasFolder(TileDataset):
    """Windows of point clouds in any projected CRS, feet made metres; the target is the class of each point, or values.

    ``classes`` names the codes of the files, in which predictions are written; codes with the same name are one class
    (written as :func:`codes_of` describes). Those in ``ignore`` are atoms, but their label is −1; so are
    codes without a name, unless ``other`` names a class for them. ``colour`` adds the colours that points carry, by
    default where there are no images. ``crs`` (EPSG:2263, or EPSG:2263+6360 with the system of the heights) is the
    coordinate system of files that have none, also of rasters.

    ``images`` is a folder of rasters whose bands become atoms beside the points, by default ``images`` in ``root`` or
    beside it, and False for none; further sensors are in folders ``images_<name>`` beside it. Rasters may be in any
    coordinate system and are matched by position. ``sensor`` and ``bands`` describe their bands, as for
    :class:`~atomizer_io.datasets.geotiff_folder.GeoTiffFolder`.

    ``target`` is a folder of rasters in ``root`` or beside it, else in the working folder: their values,
    ``target_name`` in ``unit``, are then predicted at the centres of their pixels, and ``classes`` are not needed.

    The files of a split are those in the folder of its name, or those listed in ``<split>.txt``, one name a line. If
    there is neither, the files in ``root`` are the split ``train``; ``all`` is every file. Options ``window_m``,
    ``stride_m``, ``cache``, ``heights`` and ``grid_m``: see
    :class:`~atomizer_io.datasets.point_dataset.TileDataset`.
    """

    classes: Mapping[int, str] | None = None
    ignore: Sequence[int] = (0, *NOISE)
    other: str | None = None
    colour: bool | None = None
    crs: str | None = None
    images: str | Path | bool = True
    sensor: str | Sensor | Mapping[str, str | Sensor] | None = None
    bands: Sequence[str] | Mapping[str, Sequence[str]] | None = None
    target: str | Path | None = None
    target_name: str = "canopy height"
    unit: str = "m"

    free_splits = True
    info = Info.of("las-folder", channels=(*HEIGHT_CHANNELS["ground"], *AERIAL.channels))

    def configure(self) -> None:
        """Take the classes or the rasters of the target, and look for images."""
        if self.crs is not None:
            parsed_crs(self.crs)
        own = replace(self.info, extent_m=self.window_m or 50.0, splits=self.splits_in(self.root, {}))
        self.target_rasters = None
        if self.target is not None:
            folder = folder_of(self.root, self.target)
            self.target_rasters = Overlay.of_target(folder, self.target_name, self.crs)
            own = replace(own, task="regression", target_name=self.target_name, unit=self.unit)
        elif self.classes is None:
            raise ConfigError("las-folder needs the option classes, code: name (or target, a folder of rasters)")
        else:
            names, self.labels = class_table(self.classes, self.ignore, self.other)
            codes = codes_of(names, self.labels.mapping, self.classes)
            own = replace(own, classes=names, codes=codes, label_codes=label_codes(self.labels, self.classes))
        folders = image_folders(self.root, self.images, self.sensor, self.bands)
        self.image_rasters = Overlay() if folders is None else Overlay.of_images(folders, self.crs)
        self.coloured = folders is None if self.colour is None else self.colour
        self.near: dict[tuple[str, Path], Overlay] = {}  # rasters over each tile, once they were looked for
        channels = (*(AERIAL.channels if self.coloured else ()), *self.image_rasters.channels)
        self.info = replace(own, channels=tuple({(c.sensor, c.name): c for c in channels}.values()))
        super().configure()

    def find(self) -> Sequence[TileWindow]:
        """Return the windows with points; with rasters of the target, those that have pixels of it."""
        windows = super().find()
        if self.target_rasters is None:
            return windows
        with_target = [item for item in windows if self.has_target(item)]
        if windows and not with_target:
            folder = self.target_rasters.sources[0].path.parent
            raise DataError(folder, f"no pixel of its rasters lies over the points of split {self.split!r}")
        return numbered(with_target)

    def has_target(self, item: TileWindow) -> bool:
        """Return whether pixels of the target lie in a window; what is wrong with a file is reported by reading it."""
        try:
            return len(self.pixels(item)[0]) > 0
        except DataError:
            if self.on_error == "skip":
                return True
            raise

    def pixels(self, item: TileWindow, centre: tuple[float, float] | None = None) -> tuple[Ints, Floats]:
        """Return the numbers of the pixels of the target in a window, and their positions around ``centre``."""
        header = point_cloud_header(item.path, self.crs)
        bounds = inside(item.bounds, item.extent or header.bounds)
        centre = centre or (bounds[0], bounds[1])
        return self.rasters("target", item.path).centres(frame_of(header, centre), seen_from(centre, bounds))

    def rasters(self, kind: str, path: Path) -> Overlay:
        """Return the images (kind ``images``) or rasters of the target (``target``) that lie over a tile."""
        every = self.image_rasters if kind == IMAGES else self.target_rasters
        if every is None or not every.sources:
            return Overlay()
        if (kind, path) not in self.near:
            self.near[kind, path] = every.over(path, point_cloud_header(path, self.crs))
        return self.near[kind, path]

    def files(self, item: TileWindow) -> tuple[Path, ...]:
        """Return the images over a tile, the tile, and the rasters of the target, if there are any."""
        images, targets = (self.rasters(kind, item.path).paths for kind in (IMAGES, "target"))
        return (*images, item.path, *targets)

    def warnings(self) -> list[str]:
        """Return which files have no coordinate system, and which rasters lie over no tile."""
        bare, used = list[str](), set[Path]()
        own = self.paths()
        every_tile = dict.fromkeys([*own, *self.every_file(self.root)])  # rasters may belong to tiles of other splits
        for path in every_tile:
            with contextlib.suppress(DataError):  # what is wrong with a file is reported by reading it
                bare += [path.name] if path in own and point_cloud_header(path, self.crs).metres_assumed else []
                used |= {*self.rasters(IMAGES, path).paths, *self.rasters("target", path).paths}
        notes = []
        if bare:
            files = f"{bare[0]} has" if len(bare) == 1 else f"{bare[0]} and {len(bare) - 1} more have"
            notes.append(f"{files} no coordinate system; coordinates are taken as metres (if not: crs=EPSG:...)")
        every = (*self.image_rasters.paths, *(() if self.target_rasters is None else self.target_rasters.paths))
        beside = [path.name for path in every if path not in used]
        return [*notes, f"rasters that lie over no tile: {listed(beside)}"] if beside else notes

    @classmethod
    def splits_in(cls, root: Path, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the splits for which there is a list, or without any list a folder of tiles, and the usual ones."""
        names = lists_in(root, lambda line: Path(line).suffix.lower() in SUFFIXES and (root / line).is_file())
        if not names:
            names = sorted(path.name for path in root.glob("*") if path.is_dir() and cls.every_file(path))
        return tuple(dict.fromkeys((*names, *cls.info.splits)))

    def paths(self) -> list[Path]:
        """Return the files of the split."""
        listed_in, folder = self.root / f"{self.split}.txt", self.root / self.split
        if listed_in.is_file():
            return [self.root / name for name in lines(listed_in)]
        if folder.is_dir() or self.split == "all":
            return self.every_file(folder if folder.is_dir() else self.root)
        if self.split == "train":
            return self.every_file(self.root, deep=False)
        raise DataError(
            folder,
            f"no such folder, nor {listed_in.name}: the files of split {self.split!r} (split 'all' is every file)",
        )

    @staticmethod
    def every_file(folder: Path, deep: bool = True) -> list[Path]:
        """Return the tiles in a folder and, if ``deep``, in the folders in it."""
        paths = folder.rglob("*") if deep else folder.glob("*")
        return sorted(p for p in paths if p.suffix.lower() in SUFFIXES and p.is_file() and not p.name.startswith("."))

    def read(self, item: TileWindow) -> Sample:
        """Return the sample of one window."""
        scene = self.scene(item, self.tile_points(item), colour=self.coloured)
        scene = scene.with_images(self.rasters(IMAGES, item.path), self.window_m or 0.0)
        if self.target_rasters is None:
            sample = self.points_sample(item, scene, self.labels.read(classes_of(scene.points), item.path))
            return self.in_tile(sample, item, numbers_of(scene.points))
        numbers, positions = self.pixels(item, scene.centre)
        rasters = self.rasters("target", item.path)
        sizes = torch.from_numpy(rasters.pixel_sizes(numbers))
        sample = Sample.of_points(
            scene.atoms, positions, rasters.values(numbers), self.meta(item, scene), footprint_m=sizes
        )
        return self.in_tile(sample, item, numbers)


def folder_of(root: Path, named: str | Path) -> Path:
    """Return the folder of a name in ``root`` or beside it, or else in the working folder; if nowhere, in root."""
    path = Path(named).expanduser()
    folders = (root / path, root.absolute().parent / path, path)
    return next((folder for folder in folders if folder.is_dir()), root / path)


def image_folders(
    root: Path, images: str | Path | bool, sensor: OneOrEach, bands: Sequence[str] | Mapping[str, Sequence[str]] | None
) -> ImageFolders | None:
    """Return where images lie: the folder that is named, else ``images`` in ``root`` or beside it; None without any."""
    if images is False:
        return None
    named = None if images is True else Path(images).expanduser().absolute()
    candidates = [root / IMAGES, root.absolute().parent / IMAGES] if named is None else [named]
    for folder in candidates:
        folders = ImageFolders(folder.parent, folder.parent, folder.name, sensor, bands, None)
        if any(rasters_in(path) for path in folders.there().values()):
            return folders
    if named is not None:
        cause = "has no GeoTIFF" if named.is_dir() else "no such folder: images that lie over the points"
        raise DataError(named, cause)
    unused = sensor is None and bands is None
    require(unused, f"sensor and bands are those of images, but {root} has no folder images: name it, images=PATH")
    return None


def class_table(
    classes: Mapping[int, str], ignore: Sequence[int], rest_class: str | None
) -> tuple[tuple[str, ...], Labels]:
    """Return the class names in order of first mention, ``rest_class`` last if new, and how codes become classes."""
    try:
        named = {int(code): str(name) for code, name in classes.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"classes is {classes!r}; give code: name, such as {{2: 'ground', 6: 'building'}}") from error
    wrong = sorted(code for code in (*named, *ignore) if code not in CODES)
    if wrong:
        raise ConfigError(f"{wrong[0]} is not a class of LAS: its classes are 0 … 255")
    both = sorted(set(named) & set(ignore))
    if both:
        raise ConfigError(f"code {both[0]} ({named[both[0]]}) is among the classes and among the ignored: choose one")
    names = tuple(dict.fromkeys([*named.values(), *([] if rest_class is None else [rest_class])]))
    if not names:
        raise ConfigError("no class is named; give code: name, such as {2: 'ground', 6: 'building'}")
    rest = [code for code in CODES if code not in named and code not in ignore]
    mapping = {code: names.index(name) for code, name in named.items()}
    if rest_class is None:
        return names, Labels(len(names), tuple(sorted({*ignore, *rest})), mapping)
    return names, Labels(len(names), tuple(ignore), mapping | dict.fromkeys(rest, names.index(rest_class)))


def codes_of(names: Sequence[str], mapping: Mapping[int, int], classes: Mapping[int, str]) -> tuple[int, ...]:
    """Return the code of each class: its only one, or that of the LAS standard for its name, or the first of several.

    First come the codes that ``classes`` names; of those that became ``other``, unclassified (1) comes first.
    """
    order = [*(int(code) for code in classes), UNCLASSIFIED, *mapping]
    own = [[code for code in order if mapping.get(code) == number] for number in range(len(names))]
    standard = map(standard_code, names)
    return tuple(code if code in codes else codes[0] for code, codes in zip(standard, own, strict=True))


def label_codes(labels: Labels, classes: Mapping[int, str]) -> dict[int, int]:
    """Return the class of each code that is named or ignored, and of all others, as a model remembers it."""
    named = {int(code): labels.mapping[int(code)] for code in classes}
    rest = next((number for code, number in labels.mapping.items() if code not in named), IGNORE)
    ignored = dict.fromkeys(labels.ignore, IGNORE) if rest != IGNORE else {}
    return {**named, **ignored, OTHER_CODES: rest}
