"""The folder with the stores of large tiles: found by what they were made from, written whole or not at all.

FOLDER/<path>-<state>/  the points of a tile, as :mod:`~atomizer_io.io.point_store` writes them

``<path>`` stands for the path of the tile, the coordinate system given for it and whether its classes are those of the
LAS standard, ``<state>`` for its size, its time of change and the version of what is stored: a tile that has changed is
sorted anew, and its earlier store is removed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from atomizer_io.cache_folder import user_folder
from atomizer_io.errors import DataError, first_line, size_text
from atomizer_io.io.point_clouds import Bounds, point_cloud_header
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.point_store import LAST, Blocks, DamagedStoreError, PointStore, record_bytes, write_store
from atomizer_io.locks import alone
from atomizer_io.progress import progress_bar

T = TypeVar("T")

VERSION = 5  # another one whenever the files look different, or other heights and ranks are in them
BLOCK_M = 12.5
MOST_BLOCKS = 1024  # along one axis; blocks of larger tiles are larger
LEAST_POINTS = 100_000  # a smaller tile is read faster than it is worth sorting
SHARE_OF_DISK = 0.9  # of what is free: more is not taken
PATIENCE_S = 3600.0  # how long to wait for another process that sorts the same tile
REPORTED_BYTES = 1e8  # what is smaller is stored without a message
TRIES = 3  # how often a damaged store is written anew


@dataclass(frozen=True, slots=True)
class TileCache:
    """A folder with stores of tiles, the user's own by default; it is made once there is something to put into it.

    ``las_standard``: whether the classes of the tiles are those of the LAS standard.
    """

    where: Path | None = None
    las_standard: bool = True

    @classmethod
    def of(cls, option: str | Path | bool, *, las_standard: bool = True) -> TileCache | None:
        """Return the cache that a user names: a folder, true for the user's own, false for none."""
        if option is False:
            return None
        return cls(None if option is True else Path(option).expanduser().absolute(), las_standard)

    @property
    def folder(self) -> Path:
        """The folder, made if need be; raises OSError where that is not possible."""
        if self.where is None:
            return user_folder("tiles")
        self.where.mkdir(parents=True, exist_ok=True)
        return self.where

    def prepare(self, tiles: Sequence[Path], crs: str | None = None, *, skip_broken: bool = False) -> bool:
        """Store those tiles that are not there yet, with progress; return whether the cache can be used.

        With ``skip_broken`` tiles that cannot be read are left to whoever reads them.
        """
        broken = (DataError,) if skip_broken else ()
        points, needed = dict[Path, int](), 0
        try:
            for path in tiles:
                with contextlib.suppress(*broken):
                    if not (self.folder_of(path, crs) / LAST).is_file():
                        points[path] = point_cloud_header(path, crs).points
                        needed += points[path] * record_bytes(path, crs)
            self.check_room(needed)
            if needed > REPORTED_BYTES:
                files = "1 tile is" if len(points) == 1 else f"{len(points)} tiles are"
                text = f"{files} sorted once into {self.folder}: {size_text(needed)} (cache=PATH for another folder)"
                print(text, file=sys.stderr)
            total = sum(points.values())
            with progress_bar(total, title="sorting tiles", unit=" points", large=True, show=total > 0) as bar:
                for path in points:
                    with contextlib.suppress(*broken):
                        self.store(path, crs, bar.update)
        except OSError as error:
            _warn_without(error)
            return False
        return True

    def use(self, path: Path, crs: str | None, function: Callable[[PointStore], T]) -> T | None:
        """Return what ``function`` makes of the store of a tile, which is written if need be.

        Where it cannot be written, return None, with a warning.
        """
        try:
            for _ in range(TRIES):
                folder = self.folder_of(path, crs)
                if not (folder / LAST).is_file():
                    self.store(path, crs)
                with contextlib.suppress(DamagedStoreError):
                    return function(_opened(folder))
                _opened.cache_clear()
                shutil.rmtree(folder, ignore_errors=True)
            raise OSError(f"{folder} is damaged each time it is written")
        except OSError as error:
            _warn_without(error)
            return None

    def folder_of(self, path: Path, crs: str | None) -> Path:
        """Return the folder of the store of a tile, there or not."""
        try:
            state = path.stat()
        except OSError as error:
            raise DataError(path, "no such file") from error
        name = _digest([str(path.absolute()), crs, self.las_standard])
        return self.folder / f"{name}-{_digest([state.st_size, state.st_mtime_ns, VERSION])}"

    def store(self, path: Path, crs: str | None, advance: Callable[[float], object] = lambda _: None) -> None:
        """Store a tile in this cache, whole or not at all, unless another process has done so meanwhile.

        ``advance`` is called with the number of points that are done, of which finding the ground is half.
        """
        target, folder = self.folder_of(path, crs), self.folder
        name = target.name.partition("-")[0]
        with alone(folder / f"{name}.lock", PATIENCE_S):
            if not (target / LAST).is_file():
                points = point_cloud_header(path, crs).points
                self.check_room(points * record_bytes(path, crs))
                for old in folder.glob(f"{name}-*"):  # of a tile that has changed, or left by a killed process
                    shutil.rmtree(old, ignore_errors=True)
                part = Path(tempfile.mkdtemp(dir=folder, prefix=f"{target.name}."))
                try:
                    reference = PointCloudReference.of_file(path, crs, las_standard=self.las_standard)
                    advance(points / 2)
                    write_store(path, crs, part, blocks_over, reference, advance=lambda count: advance(count / 2))
                    part.chmod(folder.stat().st_mode & 0o777)
                    part.rename(target)
                except OSError:
                    if not (target / LAST).is_file():  # where files cannot be locked, another may have been faster
                        raise
                finally:
                    shutil.rmtree(part, ignore_errors=True)
            (folder / f"{name}.lock").unlink(missing_ok=True)

    def check_room(self, needed: int) -> None:
        """Refuse to fill the disk."""
        free = shutil.disk_usage(self.folder).free if needed else 0
        if needed > SHARE_OF_DISK * free:
            raise OSError(f"{size_text(needed)} are needed, {size_text(free)} are free in {self.folder}")


def blocks_over(bounds: Bounds) -> Blocks:
    """Return blocks of 12.5 m over ``bounds``, or larger ones where these would be too many."""
    west, south, east, north = bounds
    side = max(BLOCK_M, (east - west) / MOST_BLOCKS, (north - south) / MOST_BLOCKS)
    across, along = (np.arange(1.0, length // side + 1) for length in (east - west, north - south))
    return Blocks(np.asarray(west + side * across), np.asarray(south + side * along))


@functools.lru_cache(maxsize=64)  # of this process: nothing of it is pickled with a dataset
def _opened(folder: Path) -> PointStore:
    return PointStore(folder)


def _digest(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]


def _warn_without(error: OSError) -> None:
    text = f"tiles are not stored in a cache, so every window reads its tile, which is slow: {first_line(error)}"
    warnings.warn(f"{text} (cache=PATH names another folder, cache=false disables it)", stacklevel=4)
