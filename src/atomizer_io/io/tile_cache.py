"""The folder in which cut tiles are kept: found by what they were cut from, written whole or not at all.

FOLDER/<path>-<state>/  a tile, as :mod:`~atomizer_io.io.cut_tile` writes it

``<path>`` stands for the path of the tile, the coordinate system given for it and whether its classes are those of the
LAS standard, ``<state>`` for its size, its time of change and the version of what is stored: a tile that has changed is
cut anew, and what was cut before is removed.
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

from atomizer_io.cache_folder import user_folder
from atomizer_io.errors import DataError, first_line, size_text
from atomizer_io.io.cut_tile import LAST, CutTile, Damaged, record_bytes, write_tile
from atomizer_io.io.point_clouds import point_cloud_header
from atomizer_io.locks import alone
from atomizer_io.progress import progress_bar

T = TypeVar("T")

VERSION = 4  # another one whenever the files look different, or other heights and ranks are in them
LEAST_POINTS = 100_000  # a smaller tile is read faster than it is worth cutting
SHARE_OF_DISK = 0.9  # of what is free: more is not taken
PATIENCE_S = 3600.0  # how long to wait for another process that cuts the same tile
SAID_BYTES = 1e8  # what is smaller is cut without a word
TRIES = 3  # how often a damaged tile is cut anew


@dataclass(frozen=True, slots=True)
class TileCache:
    """A folder with cut tiles, the user's own by default; it is made once there is something to put into it.

    ``coded`` says whether the classes of the tiles are those of the LAS standard.
    """

    where: Path | None = None
    coded: bool = True

    @classmethod
    def of(cls, option: str | Path | bool, *, coded: bool = True) -> TileCache | None:
        """Return the cache that a user names: a folder, true for the user's own, false for none."""
        if option is False:
            return None
        return cls(None if option is True else Path(option).expanduser().absolute(), coded)

    @property
    def folder(self) -> Path:
        """The folder, made if need be; raises OSError where that is not possible."""
        if self.where is None:
            return user_folder("tiles")
        self.where.mkdir(parents=True, exist_ok=True)
        return self.where

    def prepare(self, tiles: Sequence[Path], crs: str | None = None, *, skip_broken: bool = False) -> bool:
        """Cut those tiles that are not there yet, with progress; return whether the cache can be used.

        With ``skip_broken`` tiles that cannot be read are left to whoever reads them.
        """
        broken = (DataError,) if skip_broken else ()
        points, needed = dict[Path, int](), 0
        try:
            for path in tiles:
                with contextlib.suppress(*broken):
                    if not (self.place(path, crs) / LAST).is_file():
                        points[path] = point_cloud_header(path, crs).points
                        needed += points[path] * record_bytes(path, crs)
            self.check_room(needed)
            if needed > SAID_BYTES:
                files = "1 tile is" if len(points) == 1 else f"{len(points)} tiles are"
                text = f"{files} cut once into {self.folder}: {size_text(needed)} (cache=PATH for another folder)"
                print(text, file=sys.stderr)
            every = sum(points.values())
            with progress_bar(every, title="cutting tiles", unit=" points", large=True, show=every > 0) as bar:
                for path in points:
                    with contextlib.suppress(*broken):
                        self.cut(path, crs, bar.update)
        except OSError as error:
            _say_without(error)
            return False
        return True

    def ask(self, path: Path, crs: str | None, question: Callable[[CutTile], T]) -> T | None:
        """Return the answer of a tile, which is cut if need be; None, with a warning, where that cannot be written."""
        try:
            for _ in range(TRIES):
                place = self.place(path, crs)
                if not (place / LAST).is_file():
                    self.cut(path, crs)
                with contextlib.suppress(Damaged):
                    return question(_opened(place))
                _opened.cache_clear()
                shutil.rmtree(place, ignore_errors=True)
            raise OSError(f"{place} is damaged each time it is written")
        except OSError as error:
            _say_without(error)
            return None

    def place(self, path: Path, crs: str | None) -> Path:
        """Return the folder of a tile, there or not."""
        try:
            state = path.stat()
        except OSError as error:
            raise DataError(path, "no such file") from error
        name = _digest([str(path.absolute()), crs, self.coded])
        return self.folder / f"{name}-{_digest([state.st_size, state.st_mtime_ns, VERSION])}"

    def cut(self, path: Path, crs: str | None, tell: Callable[[float], object] = lambda _: None) -> None:
        """Cut a tile into this cache, whole or not at all, unless another process has done so meanwhile.

        ``tell`` is told how many more points are done.
        """
        place, folder = self.place(path, crs), self.folder
        name = place.name.partition("-")[0]
        with alone(folder / f"{name}.lock", PATIENCE_S):
            if not (place / LAST).is_file():
                self.check_room(point_cloud_header(path, crs).points * record_bytes(path, crs))
                for old in folder.glob(f"{name}-*"):  # of a tile that has changed, or left by a killed process
                    shutil.rmtree(old, ignore_errors=True)
                part = Path(tempfile.mkdtemp(dir=folder, prefix=f"{place.name}."))
                try:
                    write_tile(path, crs, part, coded=self.coded, tell=tell)
                    part.chmod(folder.stat().st_mode & 0o777)
                    part.rename(place)
                except OSError:
                    if not (place / LAST).is_file():  # where files cannot be locked, another may have been faster
                        raise
                finally:
                    shutil.rmtree(part, ignore_errors=True)
            (folder / f"{name}.lock").unlink(missing_ok=True)

    def check_room(self, needed: int) -> None:
        """Refuse to fill the disk."""
        free = shutil.disk_usage(self.folder).free if needed else 0
        if needed > SHARE_OF_DISK * free:
            raise OSError(f"{size_text(needed)} are needed, {size_text(free)} are free in {self.folder}")


@functools.lru_cache(maxsize=64)  # of this process: nothing of it is pickled with a dataset
def _opened(place: Path) -> CutTile:
    return CutTile(place)


def _digest(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]


def _say_without(error: OSError) -> None:
    text = f"tiles are not cut into a cache, so every window reads its tile, which is slow: {first_line(error)}"
    warnings.warn(f"{text} (cache=PATH names another folder, cache=false says no to it)", stacklevel=4)
