"""The six tiles of LiDAR HD, dealt out to train, val and test, and disturbed copies of the test tile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.errors import DataError

NAME = "test_data_{}_LA93_IGN69.laz"
SPLITS = {
    "train": ("77050_627755", "77055_627755", "77055_627760", "77060_627760"),
    "val": ("77050_627760",),
    "test": ("77060_627755",),
}
OTHERS = {
    "hills, 5 points a m²": "las_with_several_extra_byte_bloc.laz",
    "another town, 0.3 points a m²": "test_semis_2021_0382_6565_LA93_IGN69.laz",
}
PHOTOGRAPHED = "77055_627760"  # the tile with an orthophoto
CLASSES = {2: "ground", 3: "vegetation", 4: "vegetation", 5: "vegetation", 6: "building"}
OTHER = "other"
IGNORED = (0, 7, 18, 65, 66)  # never classified, or noise
DAY_S = 86_400.0

Points = Any  # laspy's records
Disturbance = Callable[[Any, np.random.Generator], Any]


def stage(tiles: Path, folder: Path) -> Path:
    """Copy the tiles to ``folder/plain/{train,val,test}``, a folder of LAZ files; return ``folder/plain``."""
    for split, names in SPLITS.items():
        for name in names:
            source, target = tiles / NAME.format(name), folder / "plain" / split / NAME.format(name)
            if not source.is_file():
                raise DataError(source, "no such file: one of the six LiDAR HD tiles of this experiment")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_suffix(".part")
                shutil.copyfile(source, part)
                part.rename(target)
    return folder / "plain"


def stage_others(tiles: Path, folder: Path) -> dict[str, Path]:
    """Copy point clouds of other regions to ``folder/NAME/test``; return the folders by name."""
    folders = {}
    for name, file in OTHERS.items():
        source, place = tiles.parent / file, folder / plain_name(name)
        if not source.is_file():
            raise DataError(source, "no such file: a point cloud of this experiment")
        (place / "test").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place / "test" / file)
        folders[name] = place
    return folders


def plain_name(name: str) -> str:
    """Return a name that can be that of a folder."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def stage_photo(tiles: Path, folder: Path) -> Path:
    """Copy the tile that has an orthophoto, and the photo, to ``folder/fused``; return it."""
    place = folder / "fused"
    for source, target in (
        (tiles / NAME.format(PHOTOGRAPHED), place / "all" / NAME.format(PHOTOGRAPHED)),
        (tiles.parent / "ortho" / "test_data_rgb.tif", place / "images" / "rgb.tif"),
    ):
        if not source.is_file():
            raise DataError(source, "no such file: a tile of this experiment, or its orthophoto")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return place


def stray(depth_m: float) -> Disturbance:
    """Return what adds one point ``depth_m`` below the ground in the middle of a tile, of class 1."""

    def disturb(points: Points, draw: np.random.Generator) -> Points:
        middle = int(np.argmin(np.hypot(points.x - np.mean(points.x), points.y - np.mean(points.y))))
        ground = np.flatnonzero(points.classification == 2)
        near = ground[np.argmin(np.hypot(points.x[ground] - points.x[middle], points.y[ground] - points.y[middle]))]
        added = points.points[np.append(np.arange(len(points)), near)]
        points.points = added
        z = np.array(points.z)
        z[-1] -= depth_m
        points.z = z
        points.classification[-1] = 1
        return points

    return disturb


def slope(share: float) -> Disturbance:
    """Return what tilts a tile: ``share`` metres up for each metre to the north-east."""

    def disturb(points: Points, draw: np.random.Generator) -> Points:
        along = (np.array(points.x) - np.min(points.x) + np.array(points.y) - np.min(points.y)) / np.sqrt(2)
        points.z = np.array(points.z) + share * along
        return points

    return disturb


def dimmed(factor: float) -> Disturbance:
    """Return what divides all intensities by ``factor``."""

    def disturb(points: Points, draw: np.random.Generator) -> Points:
        points.intensity = (np.array(points.intensity) / factor).astype(np.uint16)
        return points

    return disturb


def thinned(share: float) -> Disturbance:
    """Return what keeps a share of all points, drawn at random."""

    def disturb(points: Points, draw: np.random.Generator) -> Points:
        count = max(1, round(share * len(points)))
        points.points = points.points[np.sort(draw.choice(len(points), count, replace=False))]
        return points

    return disturb


def another_day(points: Points, draw: np.random.Generator) -> Points:
    """Set the time of all points to adjusted standard GPS time half a year from the summer of 2021."""
    from laspy.header import GpsTimeType

    points.header.global_encoding.gps_time_type = GpsTimeType.STANDARD
    since = 312_000_000 + 180 * DAY_S  # seconds after 2011-09-14, the zero of adjusted standard time
    points.gps_time = np.full(len(points), since)
    return points


DISTURBANCES: dict[str, Disturbance] = {
    "stray point 2 m below": stray(2.0),
    "stray point 20 m below": stray(20.0),
    "slope 5 %": slope(0.05),
    "slope 10 %": slope(0.10),
    "slope 30 %": slope(0.30),
    "intensity ÷ 8": dimmed(8.0),
    "another day": another_day,
    "density 1/2": thinned(1 / 2),
    "density 1/10": thinned(1 / 10),
    "density 1/50": thinned(1 / 50),
}


def disturbed(plain: Path, folder: Path, name: str) -> Path:
    """Write the test tile, with the disturbance ``name``, to ``folder/NAME/test``; return ``folder/NAME``."""
    import laspy

    place = folder / plain_name(name)
    target = place / "test" / NAME.format(SPLITS["test"][0])
    if not target.exists():
        points = laspy.read(plain / "test" / target.name)
        points = DISTURBANCES[name](points, np.random.default_rng(0))
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        with part.open("wb") as stream:
            points.write(stream, do_compress=True, laz_backend=laspy.LazBackend.Lazrs)
        part.rename(target)
    return place


def class_names() -> list[str]:
    """Return the names of the classes in the order of their numbers."""
    return list(dict.fromkeys([*CLASSES.values(), OTHER]))
