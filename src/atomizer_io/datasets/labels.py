"""Labels in a vector file over rasters or point clouds: points, lines and polygons, and no mask to draw."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import Sensor
from atomizer_io.datasets.dataset import SPLIT_NAMES, Dataset, Info, Skipped, require
from atomizer_io.datasets.label_windows import CloudScenes, LabelWindow, RasterScenes, Scenes, by_date
from atomizer_io.datasets.spatial_folds import blocks_of, folds_of, usual_block_m
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.io.overlays import Overlay, rasters_in
from atomizer_io.io.point_atoms import Heights
from atomizer_io.io.point_clouds import SUFFIXES as CLOUDS
from atomizer_io.io.raster_folders import ImageFolders
from atomizer_io.io.raster_sources import RasterInput, open_rasters
from atomizer_io.io.tile_cache import TileCache
from atomizer_io.io.vector_files import SUFFIXES as VECTORS
from atomizer_io.io.vector_labels import LabelColumns, VectorLabels, read_labels
from atomizer_io.io.vector_sampling import Sampling, metres_at

TABLES = (".csv", ".tsv", ".json")  # which may hold anything
FEW = 10  # features of a class
SAME_M = 0.01  # positions that are nearer are one
MOST_REPORTED = 5  # features that a warning names


@dataclass(kw_only=True, eq=False, repr=False)
class Labelled(Dataset):
    """Windows of images whose queries are the positions of a vector file: points, and positions in lines and polygons.

    ``labels`` is the file (by default the only one in ``root``), ``column`` its class, or with ``task="regression"``
    its value, ``target_name`` in ``unit``. ``classes`` are the values to learn, ``{value: name}`` or a list; without
    them all. Whole numbers are the codes that maps are written in. ``layer`` and ``labels_crs`` are for files that
    have several layers or no coordinate system.

    The images are rasters in ``root``, in a folder ``image`` or in ``image_<sensor>``, described by ``sensor`` and
    ``bands`` as for :class:`~atomizer_io.datasets.geotiff_folder.GeoTiffFolder`; or ``rasters``, a list of paths or of
    ``{path: …, sensor: …, bands: …, date: …}``; or LAS, LAZ and PLY files in ``root``. They are found by where they
    lie, in any coordinate systems. ``window_m`` is the side of a window (64 pixels, or 50 m of points).

    A query stands for an area of ``footprint_m`` (a pixel of the first raster; 1 m on points). Positions in a polygon
    lie ``spacing_m`` apart (the footprint) and ``margin_m`` inside its border (half the footprint); a line is
    ``line_width_m`` wide. A feature has at most ``positions``, which together count ``once``, or by their ``area``; a
    ``weight_column`` is multiplied.

    ``split_column`` names the split of each feature. Without it, blocks of ``block_m`` are dealt to ``folds`` folds:
    number ``fold`` is for testing, the next for validation, the others for training. With ``date_column`` a label is
    shown images taken within ``days`` of its date.
    """

    labels: str | Path | None = None
    column: str | None = None
    task: Literal["segmentation", "regression"] = "segmentation"
    classes: Sequence[str | int] | Mapping[str | int, str] | None = None
    target_name: str | None = None
    unit: str | None = None
    layer: str | None = None
    labels_crs: str | None = None
    date_column: str | None = None
    days: float = 30
    split_column: str | None = None
    folds: int = 5
    fold: int = 0
    block_m: float | None = None
    weight_column: str | None = None
    counts: Literal["once", "area"] = "once"
    positions: int = 100
    spacing_m: float | None = None
    margin_m: float | None = None
    line_width_m: float | None = None
    footprint_m: float | None = None
    window_m: float | None = None
    rasters: Sequence[str | Mapping[str, Any]] | None = None
    sensor: str | Sensor | Mapping[str, str | Sensor] | None = None
    bands: Sequence[str] | Mapping[str, Sequence[str]] | None = None
    heights: Heights = "ground"
    cache: str | Path | bool = True

    free_splits = True
    info = Info.of("labels")

    def configure(self) -> None:
        """Open the images and read the labels, which name the classes and the splits."""
        require(self.folds >= 3, f"folds is {self.folds}; training, validation and testing need at least 3")
        require(0 <= self.fold < self.folds, f"fold is {self.fold}; the folds are 0 … {self.folds - 1}")
        positive = ("block_m", "spacing_m", "line_width_m", "footprint_m", "window_m", "positions")
        for name in positive:
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} is {value}; give a positive number")
        for name in ("days", "margin_m"):
            require((getattr(self, name) or 0) >= 0, f"{name} is {getattr(self, name)}; give 0 or more")
        if not self.root.is_dir():
            return  # an error of the caller
        self.scenes = self.open_scenes()
        self.read_footprint_m = self.footprint_m or self.scenes.footprint_m
        path = self.label_file()
        self.vector = read_once(path, self.columns(), self.sampling(), self.scenes.crs, self)
        broken = [Skipped(str(path), f"feature {number} {cause}") for number, cause in self.vector.skipped]
        if self.vector.more_skipped:
            broken.append(Skipped(str(path), f"{self.vector.more_skipped} more features cannot be used"))
        self.skipped = broken
        if not len(self.vector):
            cause = f"has no feature with a label in column {self.vector.column!r} that can be used"
            if self.vector.narrow:
                cause += f"; {len(self.vector.narrow)} are narrower than twice the margin (margin_m=...)"
            raise DataError(path, cause)
        own = (SPLIT_NAMES.get(name.casefold(), name.casefold()) for name in self.vector.splits)
        self.info = replace(
            self.info,
            task=self.task,
            classes=self.vector.classes,
            codes=self.vector.codes,
            channels=self.scenes.channels,
            extent_m=self.scenes.window_m,
            splits=tuple(dict.fromkeys((*own, *self.info.splits))),
            target_name=self.target_name or (self.vector.column if self.task == "regression" else None),
            unit=self.unit,
        )

    def open_scenes(self) -> Scenes:
        """Open the rasters, or the point clouds and the rasters over them."""
        window_m = float(self.window_m or 0.0)
        if self.rasters is not None:
            named = [dict(raster) if isinstance(raster, Mapping) else {"path": raster} for raster in self.rasters]
            inputs = [RasterInput.of({**raster, "path": self.root / str(raster.get("path"))}) for raster in named]
            return RasterScenes(tuple(open_rasters(inputs)), window_m)
        clouds = sorted(
            path for path in self.root.rglob("*") if path.suffix.casefold() in CLOUDS and path.name[0] != "."
        )
        folders = [path for path in self.root.glob("image*") if path.is_dir() and rasters_in(path)]
        images = Overlay()
        if folders or not clouds:
            where = ImageFolders(self.root, self.root, "image", self.sensor, self.bands, None)
            if not folders:
                where = InOneFolder(self.root, self.root, ".", self.sensor, self.bands, None)
            images = Overlay.of_images(where)
        if clouds:
            cache = TileCache.of(self.cache)
            skip = self.on_error == "skip"
            return CloudScenes(tuple(clouds), images, window_m, self.heights, cache, skip)
        if not images.sources:
            raise DataError(
                self.root, f"has no GeoTIFF and no point cloud; {self.info.title} is expected as\n{self.info.layout}"
            )
        return RasterScenes(images.sources, window_m)

    def label_file(self) -> Path:
        """Return the file of the labels: the one that is named, else the only one in the folder."""
        if self.labels is not None:
            path = self.root / Path(self.labels).expanduser()
            return path if path.exists() or not Path(self.labels).exists() else Path(self.labels)
        files = [path for path in sorted(self.root.iterdir()) if path.suffix.casefold() in VECTORS and path.is_file()]
        certain = [path for path in files if path.suffix.casefold() not in TABLES]
        files = certain if len(certain) == 1 else files
        if len(files) != 1:
            names = listed(path.name for path in files) or "none"
            raise ConfigError(f"{self.root}: name the file of the labels (labels=...): it has {names}")
        return files[0]

    def columns(self) -> LabelColumns:
        """Return which columns of the file are read."""
        classes = self.classes
        if self.task == "regression":
            require(classes is None, "classes are those of a segmentation, and task is regression")
        pairs: list[tuple[str, str]] | None = None
        if isinstance(classes, Mapping):
            pairs = [(str(value), str(name)) for value, name in classes.items()]
        elif classes is not None:
            pairs = [(str(value), str(value)) for value in classes]
        named = None if pairs is None else tuple(pairs)
        return LabelColumns(
            self.column, self.date_column, self.split_column, self.weight_column, named, self.task == "regression"
        )

    def sampling(self) -> Sampling:
        """Return how lines and polygons become positions."""
        spacing_m = self.spacing_m or self.read_footprint_m
        margin_m = self.read_footprint_m / 2 if self.margin_m is None else self.margin_m
        return Sampling(spacing_m, margin_m, self.line_width_m, self.positions, self.counts)

    def find(self) -> list[LabelWindow]:
        """Return the windows with labels of the split."""
        own = np.flatnonzero(self.in_split())
        placed = np.zeros(len(own), dtype=bool)
        matched = np.zeros(len(own), dtype=bool)
        items = []
        for window in self.scenes.windows(self.vector.xy[own]):
            placed[window.labels] = True
            for item in by_date(window, self.vector.day[own], self.scenes.dates, self.days):
                matched[item.labels] = True
                items.append(replace(item, labels=own[item.labels]))
        self.outside, self.unmatched = own[~placed], own[placed & ~matched]
        return items

    def in_split(self) -> NDArray[np.bool_]:
        """Return which labels are in the split."""
        if self.split == "all":
            return np.ones(len(self.vector), dtype=bool)
        if self.split_column is not None:
            names = [SPLIT_NAMES.get(name.casefold(), name.casefold()) for name in self.vector.splits]
            return np.array([*(name == self.split for name in names), False])[self.vector.split]
        fold, self.blocks, self.used_block_m = self.fold_of
        part = {"test": fold == self.fold, "val": fold == (self.fold + 1) % self.folds}
        return part.get(self.split, ~(part["test"] | part["val"]))

    @functools.cached_property
    def fold_of(self) -> tuple[NDArray[np.int16], int, float]:
        """The fold of each label, of how many blocks the folds are made, and the size of these."""
        vector = self.vector
        block_m = self.block_m or usual_block_m(vector.xy, vector.crs, self.folds)
        groups = np.zeros(len(vector), dtype=np.int64) if self.task == "regression" else vector.target
        blocks = blocks_of(vector.xy, vector.crs, block_m)
        return (*folds_of(blocks, vector.feature, groups, vector.weight, self.folds), block_m)

    def files(self, item: LabelWindow) -> tuple[Path, ...]:
        """Return the images of a window, and the file of the labels."""
        return (*self.scenes.files(item), self.vector.path)

    def read(self, item: LabelWindow) -> Sample:
        """Return the sample of one window."""
        frame, atoms = self.scenes.read(item)
        x, y = frame.metres(item.positions[:, 0], item.positions[:, 1])
        target = torch.from_numpy(self.vector.target[item.labels])
        side = torch.full((2,), float(self.read_footprint_m), dtype=torch.float64)
        meta = Meta(item.id, crs=item.crs, origin=frame.origin)
        sample = Sample.of_points(atoms, np.stack([x, y], axis=1), target, meta, footprint_m=side)
        assert sample.queries is not None
        weight = self.vector.weight[item.labels]
        if (weight == 1).all():
            return sample
        return replace(sample, queries=replace(sample.queries, weight=torch.from_numpy(weight)))

    def warnings(self) -> list[str]:
        """Return what deserves a look: labels that are not used, few, twice there, or in contradiction."""
        vector, own = self.vector, np.flatnonzero(self.in_split())
        notes = []
        if self.split == self.info.splits[0]:  # what is about the whole file
            left_out = (f"{value} ({count})" for value, count in vector.left_out.items())
            notes += [f"{vector.unlabelled} features have nothing in column {vector.column!r}"] * bool(
                vector.unlabelled
            )
            notes += [f"values that are not among the classes: {listed(left_out)}"] * bool(vector.left_out)
            if vector.narrow:
                notes.append(f"narrower than twice the margin of {self.sampling().margin_m:g} m, and left out: ")
                notes[-1] += features(np.array(vector.narrow))
            if self.split_column is not None and (none := vector.feature[vector.split < 0]).size:
                notes.append(f"no split in column {self.split_column!r}: {features(none)}")
            if self.split_column is None and self.block_m is None and self.split != "all":
                _, parts, size_m = self.fold_of
                notes.append(
                    f"{parts} blocks of {size_m:g} m are dealt to {self.folds} folds (block_m=... for another size)"
                )
        if len(self.outside):
            notes.append(f"labels outside of all images: {features(vector.feature[self.outside])}")
        if len(self.unmatched):
            what = f"labels without an image within {self.days:g} days"
            notes.append(f"{what}: {features(vector.feature[self.unmatched])}")
        return [*notes, *self.few(own), *self.doubles(own)]

    def few(self, own: NDArray[np.int64]) -> Iterator[str]:
        """Name the classes of the split with few features."""
        pairs = np.unique(np.stack([self.vector.target[own], self.vector.feature[own]]), axis=1)[0]
        for number, name in enumerate(self.info.classes):
            if 0 < (count := int((pairs == number).sum())) < FEW:
                yield f"class {name!r} has {count} label{'s' if count > 1 else ''}"

    def doubles(self, own: NDArray[np.int64]) -> Iterator[str]:
        """Name labels at one position (and of one date): those that agree, and those that contradict each other."""
        vector = self.vector
        metres = vector.xy[own] * metres_at(vector.crs, np.array([float(np.median(vector.xy[:, 1]))]))
        day = vector.day[own].astype(np.int64)
        _, at = np.unique(np.column_stack([np.round(metres / SAME_M), day]), axis=0, return_inverse=True)
        at, target, feature = at.reshape(-1), vector.target[own], vector.feature[own]
        order = np.lexsort((target, at))
        same = at[order][1:] == at[order][:-1]
        agree = target[order][1:] == target[order][:-1]
        one = feature[order][1:] == feature[order][:-1]
        for rows, what in (
            (same & agree & ~one, "twice, with one label"),
            (same & ~agree, "with labels that contradict"),
        ):
            if rows.any():
                pairs = zip(feature[order][:-1][rows].tolist(), feature[order][1:][rows].tolist(), strict=True)
                named = [f"{min(pair)} and {max(pair)}" for pair in dict.fromkeys(pairs)]
                more = f", … and {len(named) - MOST_REPORTED} more" if len(named) > MOST_REPORTED else ""
                yield f"{int(rows.sum())} positions are there {what}: features {', '.join(named[:MOST_REPORTED])}{more}"


class InOneFolder(ImageFolders):
    """The rasters that lie in the root itself."""

    def there(self) -> dict[str, Path]:
        """Return the root."""
        return {self.word: self.base}


def features(numbers: NDArray[np.int64]) -> str:
    """Return how many features there are, and the first of them."""
    names = np.unique(numbers).tolist()
    more = ", …" if len(names) > MOST_REPORTED else ""
    first = ", ".join(map(str, names[:MOST_REPORTED]))
    return f"{len(names):,} features ({first}{more})" if len(names) > 1 else f"feature {first}"


def read_once(
    path: Path, columns: LabelColumns, sampling: Sampling, crs: str | None, options: Labelled
) -> VectorLabels:
    """Read the labels; the splits of a dataset, which are opened one after another, share them."""
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(path, "no such file") from error
    how = (crs, options.labels_crs, options.layer, options.on_error == "skip")
    return _read(path, state.st_mtime_ns, state.st_size, columns, sampling, how)


@functools.lru_cache(maxsize=1)
def _read(
    path: Path, modified: int, size: int, columns: LabelColumns, sampling: Sampling, how: tuple[Any, ...]
) -> VectorLabels:
    crs, own_crs, layer, skip_broken = how
    return read_labels(path, columns, sampling, crs=crs, own_crs=own_crs, layer=layer, skip_broken=skip_broken)
