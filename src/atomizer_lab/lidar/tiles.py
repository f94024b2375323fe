"""Point clouds in folds: six tiles of LiDAR HD, and the ISPRS filter test, of which whole sites are held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError
from atomizer_lab.paper.trainings import alone

Fold = Mapping[str, tuple[str, ...]]  # names of files by split
TILE = "tiles/test_data_{}_LA93_IGN69.laz"
TILES = ("77050_627755", "77050_627760", "77055_627755", "77055_627760", "77060_627755", "77060_627760")
OTHERS = {
    "hills, 5 points a m²": "las_with_several_extra_byte_bloc.laz",
    "another town, 0.3 points a m²": "test_semis_2021_0382_6565_LA93_IGN69.laz",
}
SAMPLES = ("11", "12", "22", "31", "42", "51", "53", "54", "61", "71")  # the first digit is the site


@dataclass(frozen=True, slots=True)
class PointSet:
    """Point clouds in a folder of all data: options of ``las-folder``, the files of each fold, and of other places.

    ``changes`` is what the set changes of the recipe.
    """

    title: str
    folder: str
    options: Mapping[str, Any] = field(hash=False)
    folds: tuple[Fold, ...] = field(hash=False)
    others: Mapping[str, str] = field(default_factory=dict, hash=False)
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def class_names(self) -> list[str]:
        """The names of the classes in the order of their numbers."""
        names = dict.fromkeys(self.options["classes"].values())
        return [*names, *([self.options["other"]] if "other" in self.options else [])]

    def stage(self, fold: int, data: Path, work: Path) -> tuple[Path, dict[str, Path]]:
        """Return the folder of a fold, and that of each test by its title: of the fold itself, and of other places."""
        place = work / "data" / self.folder
        with alone(place):
            source = data / self.folder
            if self is FILTER_TEST:
                source = converted(source, place)
            own = linked(source, place / f"fold-{fold}", self.folds[fold])
            others = {
                title: linked(source, place / f"other-{number}", {"test": (name,)})
                for number, (title, name) in enumerate(self.others.items())
            }
        return own, {self.title: own, **others}


def rotated(groups: tuple[tuple[str, ...], ...]) -> tuple[Fold, ...]:
    """Return folds in which each group of files tests once, the one after it validates, and all others train."""
    folds = []
    for number, test in enumerate(groups):
        val = groups[(number + 1) % len(groups)]
        folds.append({"train": tuple(n for g in groups for n in g if n not in (*test, *val)), "val": val, "test": test})
    return tuple(folds)


def linked(source: Path, folder: Path, splits: Fold) -> Path:
    """Link files to ``folder/SPLIT``, as ``las-folder`` reads them; return the folder."""
    for split, names in splits.items():
        (folder / split).mkdir(parents=True, exist_ok=True)
        for name in names:
            if not (source / name).is_file():
                raise DataError(source / name, "no such file: a point cloud of this experiment")
            target = folder / split / Path(name).name
            if not target.exists():
                target.symlink_to((source / name).resolve())
    return folder


def converted(source: Path, folder: Path) -> Path:
    """Write the samples of the filter test as LAZ files; a point is ground where the file of the ground has it."""
    import laspy

    for sample in SAMPLES:
        target = folder / f"samp{sample}.laz"
        if target.exists():
            continue
        points, ground = (read_pcd(source / f"samp{sample}-utm{end}.pcd") for end in ("", "-ground"))
        rows = np.dtype((np.void, points.dtype.itemsize * 3))
        is_ground = np.isin(points.view(rows).ravel(), ground.view(rows).ravel())
        header = laspy.LasHeader(point_format=6, version="1.4")
        header.scales, header.offsets = np.full(3, 0.001), np.floor(points.min(axis=0).astype(np.float64))
        las = laspy.LasData(header)
        las.x, las.y, las.z = points.T.astype(np.float64)
        las.classification = np.where(is_ground, 2, 1).astype(np.uint8)
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        with part.open("wb") as stream:
            las.write(stream, do_compress=True, laz_backend=laspy.LazBackend.Lazrs)
        part.rename(target)
    return folder


def read_pcd(path: Path) -> NDArray[np.float32]:
    """Return the points (N, 3) of a PCD file with compressed x, y and z, one coordinate after the other."""
    if not path.is_file():
        raise DataError(path, "no such file: a point cloud of this experiment")
    header, mark, body = path.read_bytes().partition(b"DATA binary_compressed\n")
    if not mark or b"FIELDS x y z\n" not in header:
        raise DataError(path, "is no compressed PCD file of x, y and z")
    packed, size = np.frombuffer(body[:8], "<u4").tolist()
    points = np.frombuffer(unpacked(body[8 : 8 + packed], size), "<f4").reshape(3, -1).T
    return np.ascontiguousarray(points)


def unpacked(data: bytes, size: int) -> bytes:
    """Return what LZF packed: runs of new bytes, and references to earlier ones."""
    out, at = bytearray(), 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length, far = control >> 5, (control & 31) << 8
        if length == 7:
            length += data[at]
            at += 1
        start = len(out) - far - data[at] - 1
        at += 1
        for number in range(start, start + length + 2):  # it may reach into what it writes
            out.append(out[number])
    if len(out) != size:
        raise ValueError(f"{len(out)} bytes where {size} were packed")
    return bytes(out)


VEGETATION = dict.fromkeys((3, 4, 5), "vegetation")
LIDAR_HD = PointSet(
    "LiDAR HD",
    "lidar-hd",
    {
        "classes": {2: "ground", **VEGETATION, 6: "building"},
        "other": "other",
        "ignore": [0, 7, 18, 65, 66],  # never classified, or noise
        "colour": False,
    },
    rotated(tuple((TILE.format(name),) for name in TILES)),
    OTHERS,
)
FILTER_TEST = PointSet(
    "ISPRS filter test",
    "isprs-filtertest",
    {"classes": {2: "ground", 1: "object"}, "colour": False, "window_m": 100.0},
    rotated(tuple(tuple(f"samp{n}.laz" for n in SAMPLES if n[0] == site) for site in "1234567")),
    changes={"training.crop_m": 90.0, "model.settings.offset_scale_m": 10.0},
)
SETS = {points.folder: points for points in (LIDAR_HD, FILTER_TEST)}
