"""Your own point clouds as a dataset: a folder of classified LAS, LAZ or PLY files."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.datasets.dataset import Info, Labels
from atomizer_io.datasets.point_dataset import PointDataset, classes_of
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.formats.cloud_units import parsed_crs
from atomizer_io.formats.clouds import SUFFIXES, cloud_header
from atomizer_io.formats.ground import NOISE
from atomizer_io.formats.tables import lines
from atomizer_io.formats.tile_windows import TileWindow, check_window, find_windows, numbered, read_window, whole_file
from atomizer_io.sample import Sample
from atomizer_io.sensors import AERIAL, LIDAR

CODES = range(256)  # numbers of classes that LAS can hold


class LasFolder(PointDataset):
    """Windows of classified point clouds in any projected CRS; feet become metres.

    ``classes`` names the codes of the files; codes with the same name are one class. Those in ``ignore`` are atoms,
    but their label is −1; so are codes without a name, unless ``other`` names a class for them. ``window_m=None`` makes
    each file one sample. ``colour`` adds the colours that points carry, where they do. ``crs`` (EPSG:2263, or
    EPSG:2263+6360 with the system of the heights) is the coordinate system of files that have none.

    The files of a split are those in the folder of its name, or those listed in ``<split>.txt``, one name a line. If
    there is neither, the files in ``root`` are the split ``train``; ``all`` is every file.
    Options ``max_points`` and ``seed``: see :class:`~atomizer_io.datasets.point_dataset.PointDataset`.
    """

    free_splits = True
    info = Info(
        name="las-folder",
        title="A folder of point clouds",
        task="segmentation",
        channels=(*LIDAR.channels, *AERIAL.channels),
        extent_m=50.0,
        splits=("train", "val", "test", "all"),
        layout="{train,val,test}/*.laz, or *.laz with {train,val,test}.txt, or *.laz; also .las and .ply",
        notes=(
            "files without coordinate system are taken to be in metres, unless crs=EPSG:... names it",
            "noise (7 and 18) never sets the height that others are measured from",
        ),
    )

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        classes: Mapping[int, str],
        ignore: Sequence[int] = (0, *NOISE),
        other: str | None = None,
        window_m: float | None = 50.0,
        stride_m: float | None = None,
        colour: bool = True,
        crs: str | None = None,
        **options: Any,
    ) -> None:
        check_window(window_m, stride_m)
        if crs is not None:
            parsed_crs(crs)
        self.window_m, self.stride_m, self.colour, self.crs = window_m, stride_m, colour, crs
        names, self.labels = class_table(classes, ignore, other)
        own = replace(type(self).info, classes=names, extent_m=window_m or 50.0)
        self.info = own if colour else replace(own, channels=LIDAR.channels)
        super().__init__(root, split, **options)

    def find(self) -> list[TileWindow]:
        """Return the windows with points, for which x and y of all points are read; or whole files as windows."""
        if self.window_m is None:
            return numbered(whole_file(path) for path in self.paths())
        skip = self.on_error == "skip"
        return find_windows(self.paths(), self.window_m, self.stride_m, skip_broken=skip, crs=self.crs)

    def warnings(self) -> list[str]:
        """Return which files say nothing of their coordinates."""
        bare = []
        for path in self.paths():
            with contextlib.suppress(DataError):  # what is wrong with a file is told by reading it
                if cloud_header(path, self.crs).metres_assumed:
                    bare.append(path.name)
        if not bare:
            return []
        files = f"{bare[0]} has" if len(bare) == 1 else f"{bare[0]} and {len(bare) - 1} more have"
        return [f"{files} no coordinate system; coordinates are taken as metres (crs=EPSG:... says otherwise)"]

    def paths(self) -> list[Path]:
        """Return the files of the split."""
        listed, folder = self.root / f"{self.split}.txt", self.root / self.split
        if listed.is_file():
            return [self.root / name for name in lines(listed)]
        if folder.is_dir() or self.split == "all":
            found = (folder if folder.is_dir() else self.root).rglob("*")
        elif self.split == "train":
            found = self.root.glob("*")
        else:
            raise DataError(
                folder,
                f"no such folder, nor {listed.name}: the files of split {self.split!r} (split 'all' is every file)",
            )
        return sorted(p for p in found if p.suffix.lower() in SUFFIXES and p.is_file() and not p.name.startswith("."))

    def read(self, item: TileWindow) -> Sample:
        """Return the sample of one window."""
        cloud = read_window(item, self.crs)
        codes = classes_of(cloud)
        heights = cloud.z[~np.isin(codes, NOISE)]
        return self.points_sample(
            item,
            cloud,
            self.labels.read(codes, item.path),
            datum_m=float(heights.min()) if len(heights) else None,
            colour=self.colour,
        )


def class_table(classes: Mapping[int, str], ignore: Sequence[int], other: str | None) -> tuple[tuple[str, ...], Labels]:
    """Return the class names in order of first mention, ``other`` last if new, and how codes become classes."""
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
    names = tuple(dict.fromkeys([*named.values(), *([] if other is None else [other])]))
    if not names:
        raise ConfigError("no class is named; give code: name, such as {2: 'ground', 6: 'building'}")
    rest = [code for code in CODES if code not in named and code not in ignore]
    mapping = {code: names.index(name) for code, name in named.items()}
    if other is None:
        return names, Labels(len(names), tuple(sorted({*ignore, *rest})), mapping)
    return names, Labels(len(names), tuple(ignore), mapping | dict.fromkeys(rest, names.index(other)))
