"""Many predictions with one model, one after the other: finished outputs are kept, and one failure stops no other.

FOLDER/.finished.jsonl   a line for each finished output: the names of its files, with size and checksum of each

Later lines replace earlier ones, and lines that were cut off count for nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atomizer_io.decoding.scene_decoder import loaded
from atomizer_io.durable import append_line
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.io.point_clouds import SUFFIXES as POINT_CLOUDS
from atomizer_io.io.point_clouds import open_las
from atomizer_io.io.point_store import CHUNK
from atomizer_io.io.raster_files import open_raster
from atomizer_io.io.tables import rows
from atomizer_io.models.base import Model
from atomizer_io.prediction.engines import keep_workers
from atomizer_io.prediction.las import SUFFIXES
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.parts_folder import is_done
from atomizer_io.prediction.point_maps import predict_point_cloud_map
from atomizer_io.prediction.points import PointCloudProduct, predict_points
from atomizer_io.prediction.products import RasterProduct
from atomizer_io.prediction.rasters import paths_of, predict_raster
from atomizer_io.texts import parse_json

COLUMNS = {name: name for name in ("scene", "path", "sensor", "bands", "date", "gsd", "crs", "nodata")} | {
    "gsd": "gsd_m"
}
FILES = (*SUFFIXES, ".tif", ".tiff", ".csv")  # a name that ends like this is meant as a file
RECORD = ".finished.jsonl"
WHOLE, CHANGED, READABLE, UNREADABLE = "whole", "changed", "readable", "unreadable"
PIECE = 4 << 20  # bytes of a file in memory at a time
NOTES = {
    None: "",
    WHOLE: "",
    READABLE: "there is no record of it, but it can be read to its end",
    CHANGED: "computed again, because a file was not as it had been written",
    UNREADABLE: "computed again, because it could not be read to its end",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one of many predictions: a ``product``, an ``error``, or neither where it was finished before.

    ``note`` is why an output that was there was computed again, or how one without a record was checked.
    """

    name: str
    path: Path
    product: RasterProduct | PointCloudProduct | None = None
    error: Exception | None = None
    note: str = ""


Report = Callable[[Outcome], None]
Task = tuple[Sequence[Path], Path, Callable[..., RasterProduct | PointCloudProduct]]  # inputs, output, what makes it


def predict_scenes(
    model: Model | str | Path,
    scenes: str | Path | Mapping[str, Any],
    folder: str | Path,
    *,
    fail_fast: bool = False,
    report: Report | None = None,
    execution: Execution = Execution(),
    **how: Any,
) -> list[Outcome]:
    """Write a map ``folder/SCENE.tif`` of each scene: a mapping from name to rasters, or a CSV file that lists them.

    The list has the columns scene and path (from the folder of the list), and may have sensor, bands, date, gsd, crs
    and nodata; all rows of one scene are seen together. An error stops only its own scene, unless ``fail_fast``;
    ``report`` is called after each scene. With ``execution.resume``, finished maps are kept if all their files are as
    they were written, and computed again if not. Further keywords are those of :func:`predict_raster`.
    """
    named = scenes if isinstance(scenes, Mapping) else read_list(Path(scenes))
    tasks: dict[str, Task] = {}
    for name, rasters in named.items():
        check_name(name)
        make = functools.partial(predict_raster, model, rasters)
        tasks[name] = paths_of(rasters), Path(folder) / f"{name}.tif", make
    return _each(model, tasks, Path(folder), execution, fail_fast, report, **how)


def predict_point_clouds(
    model: Model | str | Path,
    clouds: Sequence[str | Path],
    folder: str | Path,
    *,
    gsd_m: float | None = None,
    fail_fast: bool = False,
    report: Report | None = None,
    execution: Execution = Execution(),
    **how: Any,
) -> list[Outcome]:
    """Classify the points of many point clouds, given as files or folders of LAS, LAZ and PLY files, into ``folder``.

    Outputs have the names of their inputs; COPC becomes plain LAZ, as does PLY. With ``gsd_m`` each one becomes a map
    with pixels of so many metres, ``folder/NAME.tif``. As to errors and resuming see :func:`predict_scenes`; further
    keywords are those of :func:`predict_points`, or of :func:`predict_point_cloud_map` for maps.
    """
    tasks: dict[str, Task] = {}
    for path in point_cloud_files(clouds):
        name = re.sub(r"(?i)\.(copc\.laz|ply)$", ".laz", path.name)
        name = name if gsd_m is None else f"{Path(name).stem}.tif"
        if name in tasks:
            raise ConfigError(
                f"{tasks[name][0][0]} and {path} would both be written as {name}: predict them into different folders"
            )
        make: Callable[..., RasterProduct | PointCloudProduct] = functools.partial(predict_points, model, path)
        if gsd_m is not None:
            make = functools.partial(predict_point_cloud_map, model, path, gsd_m=gsd_m)
        tasks[name] = [path, *paths_of(how.get("rasters", ()))], Path(folder) / name, make
    return _each(model, tasks, Path(folder), execution, fail_fast, report, **how)


def read_list(path: Path, *, allow_vrt: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Return the rasters of each scene that a CSV file lists, in its order; ``allow_vrt`` holds for all of them."""
    scenes: dict[str, list[dict[str, Any]]] = {}
    folder = os.path.dirname(path)
    for number, row in enumerate(rows(path, ["scene", "path"]), 1):
        cells = {(key or "").strip(): value.strip() for key, value in row.items() if isinstance(value, str)}
        unknown = sorted(cells.keys() - COLUMNS.keys()) or [""] * (None in row)
        if unknown:
            raise DataError(path, f"row {number}: column {unknown[0]!r} is not known; use {', '.join(COLUMNS)}")
        if not cells["scene"] or not cells["path"]:
            raise DataError(path, f"row {number} has no {'path' if cells['scene'] else 'scene'}")
        raster: dict[str, Any] = {COLUMNS[key]: value for key, value in cells.items() if value}
        name = raster.pop("scene")
        raster["path"] = Path(os.path.join(folder, raster["path"]))
        if allow_vrt:
            raster["allow_vrt"] = True
        if "bands" in raster:
            raster["bands"] = [band for band in re.split(r"[,;\s]+", raster["bands"]) if band]
        for key, called, unit in (("gsd_m", "gsd", " of metres"), ("nodata", "nodata", "")):
            try:
                raster |= {key: float(raster[key])} if key in raster else {}
            except ValueError:
                raise DataError(path, f"row {number}: {called} is {raster[key]!r}; give a number{unit}") from None
        scenes.setdefault(name, []).append(raster)
    if not scenes:
        raise DataError(path, "lists no scene")
    return scenes


def point_cloud_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files among ``paths``, and the LAS, LAZ and PLY files of the folders among them."""
    files: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(p for p in path.iterdir() if p.suffix.lower() in POINT_CLOUDS) if path.is_dir() else [path]
        if not inside:
            raise DataError(path, "contains no LAS, LAZ or PLY file")
        files += inside
    if not files:
        raise ConfigError("no point cloud was given: name a file or a folder")
    return list(dict.fromkeys(files))


def check_name(name: str) -> None:
    """Refuse a scene name that would be written to another folder, or hidden."""
    if not name or name.startswith(".") or re.search(r"[/\\:\0]", name):
        raise ConfigError(
            f"{name!r} cannot be the name of a scene, because its map is called like it: use a plain name"
        )


def _mark(path: Path) -> tuple[int, int] | None:
    """Return what identifies a file, by whatever name; None if there is none."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    return state.st_dev, state.st_ino


def _each(
    model: Model | str | Path,
    tasks: Mapping[str, Task],
    folder: Path,
    execution: Execution,
    fail_fast: bool,
    report: Report | None,
    **how: Any,
) -> list[Outcome]:
    """Run the predictions in turn; whatever would stop all of them is raised before the first."""
    if folder.is_file() or (folder.suffix.lower() in FILES and not folder.is_dir()):
        raise ConfigError(f"{folder} is a file name, but several outputs are written into a folder: name a folder")
    present = set(os.listdir(folder)) if folder.is_dir() else set()  # one look at the folder, not one for each output
    there = [output for _, output, _ in tasks.values() if output.name in present and output.exists()]
    if there:
        inputs = {mark for paths, _, _ in tasks.values() for path in paths if (mark := _mark(path)) is not None}
        own = next((output for output in there if _mark(output) in inputs), None)
        if own is not None:
            raise ConfigError(f"{own} is an input of the prediction: name another folder")
    if there and not execution.resume and not execution.overwrite:
        more = f", and {len(there) - 1} more" if len(there) > 1 else ""
        raise ConfigError(f"{there[0]} exists{more}: --resume keeps finished outputs, --overwrite replaces them")
    if not isinstance(model, Model):
        loaded(str(model))
    outcomes: list[Outcome] = []
    finished = Finished(folder)
    with keep_workers(execution.engine):
        for name, (_, output, make) in tasks.items():
            state = finished.state(output) if execution.resume and is_done(output) else None
            if state in (WHOLE, READABLE):
                outcome = Outcome(name, output, note=NOTES[state])
            else:
                outcome = _one(name, output, functools.partial(make, output, **how), execution, finished, state)
            outcomes.append(outcome)
            if report is not None:
                report(outcome)
            if outcome.error is not None and fail_fast:
                break
    return outcomes


def _one(
    name: str,
    output: Path,
    make: Callable[..., RasterProduct | PointCloudProduct],
    execution: Execution,
    finished: Finished,
    state: str | None,
) -> Outcome:
    """Make one output and record it; ``state`` is what is wrong with the one that is there, which is replaced then."""
    try:
        product = make(execution=execution if state is None else replace(execution, overwrite=True))
        files = product.files.values() if isinstance(product, RasterProduct) else (product.path, product.preview)
        finished.add(output, [path for path in files if path is not None])
    except Exception as error:  # of any kind: the others may be fine
        return Outcome(name, output, error=error)
    return Outcome(name, output, product, note=NOTES[state])


class Finished:
    """The outputs that were finished in a folder, by the names of their first files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, list[Any] | None]] = {}
        with contextlib.suppress(OSError):
            for line in (folder / RECORD).read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    record = parse_json(line)
                    self.files[str(record["output"])] = dict(record["files"])

    def add(self, output: Path, files: Iterable[Path]) -> None:
        """Record the files of an output that was written, and return when the record is on the disk."""
        traces = {path.name: trace(path) for path in files if path.is_file()}
        self.files[output.name] = traces
        append_line(self.folder / RECORD, json.dumps({"output": output.name, "files": traces}))

    def state(self, output: Path) -> str:
        """Return whether an output is as it was written; one without a record is read to its end instead."""
        if output.name not in self.files:
            return READABLE if readable(output) else UNREADABLE
        files = self.files[output.name]
        same = all(trace(self.folder / Path(name).name) == stored for name, stored in files.items())
        return WHOLE if same and output.name in files else CHANGED


def trace(path: Path) -> list[Any] | None:
    """Return size and checksum of a file; None where there is no ordinary file."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            size = 0
            while piece := file.read(PIECE):
                digest.update(piece)
                size += len(piece)
    except OSError:
        return None
    return [size, digest.hexdigest()]


def readable(path: Path) -> bool:
    """Whether all of a map or a point cloud can be read, to its last block; its values are not judged."""
    from rasterio.errors import RasterioError

    try:
        if path.suffix.lower() in SUFFIXES:
            with open_las(path) as points:
                count = sum(len(chunk) for chunk in points.chunk_iterator(CHUNK))
                return bool(count == points.header.point_count)
        with open_raster(path) as source:
            for _, window in source.block_windows(1):
                source.read(window=window)
    except (OSError, ValueError, RuntimeError, AtomizerError, RasterioError):
        return False
    return True
