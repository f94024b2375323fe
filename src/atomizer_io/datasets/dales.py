"""DALES: airborne LiDAR of Surrey (British Columbia), 40 tiles of half a kilometre, eight classes of points."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.datasets.dataset import Info, Labels
from atomizer_io.datasets.point_dataset import PointDataset, classes_of
from atomizer_io.errors import DataError
from atomizer_io.formats.clouds import SUFFIXES, Cloud
from atomizer_io.formats.tile_windows import (
    TileWindow,
    check_window,
    find_windows,
    numbered,
    read_window,
    tile_name,
    whole_file,
)
from atomizer_io.sample import Sample
from atomizer_io.sensors import LIDAR

# The published split has no validation: these three of the 29 training tiles are those of superpoint_transformer.
VAL_TILES = ("5145_54340", "5095_54455", "5110_54475")
CUT = "tiles"  # where retile writes
FOLDERS = (CUT, "DALESObjects", "dales_las", "dales_ply")
SPLITS = ("train", "val", "test")
WINDOW = re.compile(r"_r\d{2,}_c\d{2,}$")  # how the name of a window written by retile ends
LABELS = Labels(classes=8, ignore=(0,), mapping={number: number - 1 for number in range(1, 9)})


class Dales(PointDataset):
    """Windows of the tiles: elevation of every return, with intensity and echo where the release has them.

    ``stride_m`` is the step from window to window, by default their size; 25 lets windows of 50 m overlap. Random
    access to whole tiles is slow, since each window may be in another tile: :func:`retile` writes them to files.
    Options ``max_points`` and ``seed``: see :class:`~atomizer_io.datasets.point_dataset.PointDataset`.
    """

    info = Info(
        name="dales",
        title="DALES",
        task="segmentation",
        classes=("ground", "vegetation", "cars", "trucks", "power lines", "fences", "poles", "buildings"),
        channels=LIDAR.channels,
        extent_m=50.0,
        layout=(
            "DALESObjects/{train,test}/<tile>_new.ply, or\n"
            "dales_las/{train,test}/<tile>.las, or\n"
            "dales_ply/{train,test}/<tile>.ply, or\n"
            "tiles/{train,val,test}/<tile>_r<row>_c<column>.laz, as retile writes it"
        ),
        source="https://udayton.edu/engineering/research/centers/vision_lab/research/was_data_analysis_and_processing/dale.php",
        notes=(
            "val is three of the 29 training tiles, those of superpoint_transformer; class 0 (unknown) is ignored",
            "coordinates are metres (UTM zone 10 north), also where the files do not say so",
            "of several releases in one folder the first of those above is read, windows of retile before all",
        ),
    )

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        window_m: float = 50.0,
        stride_m: float | None = None,
        **options: Any,
    ) -> None:
        check_window(window_m, stride_m)
        self.window_m, self.stride_m = window_m, stride_m
        super().__init__(root, split, **options)

    def find(self) -> list[TileWindow]:
        """Return the windows with points; x and y of whole tiles are read for that, about a second a tile."""
        paths = tiles(self.root, self.split)
        if paths and all(WINDOW.search(path.stem) for path in paths):
            return numbered(whole_file(path) for path in paths)
        found = find_windows(paths, self.window_m, self.stride_m, skip_broken=self.on_error == "skip")
        return [replace(window, id=window.id.replace("_new", "")) for window in found]

    def read(self, item: TileWindow) -> Sample:
        """Return the sample of one window."""
        cloud = read_window(item)
        return self.points_sample(item, cloud, LABELS.read(classes_of(cloud), item.path))


def tiles(root: Path, split: str) -> list[Path]:
    """Return the files of a split, in the folder of a release or in one that has such a folder."""
    folders = (root, *(root / name for name in FOLDERS))
    folder = next((f for f in folders if any((f / name).is_dir() for name in SPLITS)), None)
    if folder is None:
        raise DataError(root, f"has no folder train or test; DALES is expected as\n{Dales.info.layout}")
    own_val = (folder / "val").is_dir()
    inside = folder / ("train" if split == "val" and not own_val else split)
    if not inside.is_dir():
        raise DataError(inside, f"no such folder: the tiles of split {split!r}")
    paths = sorted(p for p in inside.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    if split == "train":
        return [path for path in paths if tile(path) not in VAL_TILES]
    return [path for path in paths if tile(path) in VAL_TILES] if split == "val" and not own_val else paths


def tile(path: Path) -> str:
    """Return the name of the tile that a file is, or was cut from."""
    return WINDOW.sub("", tile_name(path)).removesuffix("_new")


def retile(root: str | Path, out: str | Path, window_m: float = 50.0) -> Path:
    """Write each window once as a file to ``out/tiles/{train,val,test}``; return ``out``, a root to read.

    Coordinates are kept to the millimetre. Splits that are not in ``root`` are left out.
    """
    check_window(window_m, None)
    root, out = Path(root), Path(out)
    target = out / CUT
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(target, "exists and is not an empty folder: name a new one")
    found = {}
    for split in SPLITS:
        with contextlib.suppress(DataError):  # one archive without the other is fine
            found[split] = tiles(root, split)
    if not any(found.values()):
        raise DataError(root, f"has no tiles; DALES is expected as\n{Dales.info.layout}")
    for split, paths in found.items():
        for path in paths:
            for window in find_windows([path], window_m):
                _write(target / split / f"{window.id.replace('_new', '')}.laz", read_window(window))
    return out


def _write(path: Path, cloud: Cloud) -> None:
    """Write a cloud as LAZ, whole or not at all."""
    import laspy
    import pyproj

    header = laspy.LasHeader(point_format=6, version="1.4")
    header.scales = np.full(3, 0.001)
    header.offsets = np.floor([cloud.x.min(), cloud.y.min(), cloud.z.min()])
    if cloud.crs is not None and cloud.unit_m == 1:
        header.add_crs(pyproj.CRS.from_user_input(cloud.crs))
    points = laspy.LasData(header)
    points.x, points.y, points.z = cloud.x, cloud.y, cloud.z
    for name in ("return_number", "number_of_returns", "classification"):
        if getattr(cloud, name) is not None:
            points[name] = getattr(cloud, name).astype(np.uint8)
    if cloud.intensity is not None:
        points.intensity = np.clip(cloud.intensity, 0, 65535).astype(np.uint16)
    if cloud.gps_time is not None:
        points.gps_time = cloud.gps_time
        header.global_encoding.gps_time_type = laspy.header.GpsTimeType.STANDARD
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as stream:
        points.write(stream, do_compress=True, laz_backend=laspy.LazBackend.Lazrs)
    os.replace(part, path)
