"""One prediction for each scene: the class, or the regression target, of whole patches, as a table."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.misfits import Image, misfits, sentences
from atomizer_io.decoding.predictor import probabilities
from atomizer_io.decoding.scene_decoder import loaded
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.io.crs import outline
from atomizer_io.io.raster_folders import SUFFIX
from atomizer_io.io.raster_pixels import limited_cache
from atomizer_io.io.raster_sources import RasterSource, open_rasters
from atomizer_io.models.base import Cost, Model
from atomizer_io.prediction.at_positions import cells_of, columns_of
from atomizer_io.prediction.bulk import read_list
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.raster_checks import DECLARE, check_channels, warn_lacking
from atomizer_io.prediction.rasters import MOST_ATOMS, map_grid_of
from atomizer_io.progress import watched
from atomizer_io.texts import csv_text, write_output

COMPARED = 64  # scenes whose values are compared with the training data
OTHER_EXTENT = 0.5  # of the extent in training: scenes that differ by more are warned of
CUT = "one prediction stands for all of a scene, so give patches of the size of the training data"

NO_PATCH = (
    f"has {{:,}} values, and one prediction is made from at most {MOST_ATOMS:,}: cut it into patches like those of the "
    "training data (gdal_retile.py)"
)


@dataclass(frozen=True, slots=True)
class LabelsProduct:
    """The table that was written, the number of its scenes, and why some of them have no prediction."""

    path: Path
    count: int
    seconds: float
    failed: Mapping[str, Exception] = field(default_factory=dict)


def predict_labels(
    model: Model | str | Path,
    scenes: str | Path | Mapping[str, Any],
    output: str | Path,
    *,
    cost: Cost = Cost(),
    fail_fast: bool = False,
    execution: Execution = Execution(),
) -> LabelsProduct:
    """Write a CSV file with a row for each scene: its class and the probability of each, or the predicted value.

    ``scenes`` maps names to rasters as :func:`predict_raster` takes them, all of a scene seen together, or is a CSV
    file that lists them as for :func:`predict_scenes`. A scene that cannot be read has a row without a prediction,
    unless ``fail_fast``.
    """
    began, output = time.monotonic(), Path(output)
    own = model if isinstance(model, Model) else loaded(str(model))
    named = scenes if isinstance(scenes, Mapping) else read_list(Path(scenes))
    check(own, named, output, execution)
    with limited_cache():
        opened, failed = sources_of(own, named, fail_fast)
        warn_of(own, opened)
        header = ["scene", *columns_of(own.task_spec)]
        rows = []
        for name in watched(named, len(named), title="predicting", unit=" scenes", show=execution.progress):
            cells = [""] * len(header[1:])
            try:
                cells = predicted(own, opened[name], cost) if name in opened else cells
            except AtomizerError as error:
                if fail_fast:
                    raise
                failed[name] = error
            rows.append([name, *cells])
    write_output(output, csv_text([header, *rows]))
    return LabelsProduct(output, len(named), round(time.monotonic() - began, 2), failed)


def check(model: Model, scenes: Mapping[str, Any], output: Path, execution: Execution) -> None:
    """Refuse what cannot work before anything is read."""
    if model.task_spec.dense:
        raise ConfigError(f"the model is for {model.task_spec.task}: it makes maps (-o map.tif), not one label a scene")
    if output.suffix.casefold() != ".csv":
        raise ConfigError(f"{output}: one prediction a scene is a table, so its name must end in .csv")
    if not scenes:
        raise ConfigError("no scene was given: name at least one raster")
    if execution.resume:
        raise ConfigError("--resume is for maps and point clouds: leave it out, scenes are predicted anew")
    if output.exists() and not execution.overwrite:
        raise ConfigError(f"{output} exists: --overwrite replaces it")


def named_scenes(rasters: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the scenes of rasters that a user names: all are one scene, but each file of a folder is one."""
    folders = [raster for raster in rasters if Path(raster["path"]).is_dir()]
    if not folders:
        return {Path(rasters[0]["path"]).name: list(rasters)}
    folder = Path(folders[0]["path"])
    if len(rasters) > 1:
        raise ConfigError(f"{folder} is a folder of patches: name no other raster, or list all of them (--list)")
    paths = sorted(path for path in folder.iterdir() if SUFFIX.search(path.name) and path.name[0] != ".")
    if not paths:
        raise DataError(folder, "has no GeoTIFF")
    return {path.name: [{**folders[0], "path": path}] for path in paths}


def sources_of(
    model: Model, scenes: Mapping[str, Any], fail_fast: bool
) -> tuple[dict[str, list[RasterSource]], dict[str, Exception]]:
    """Open the rasters of all scenes; return them, and what is wrong with those that cannot be used."""
    opened: dict[str, list[RasterSource]] = {}
    failed: dict[str, Exception] = {}
    for name, rasters in scenes.items():
        try:
            sources = open_rasters(
                rasters if isinstance(rasters, list | tuple) else [rasters], model.task_spec.channels
            )
            check_channels(model, sources)
            values = sum(source.height * source.width * len(source.channels) for source in sources)
            if values > MOST_ATOMS:
                raise DataError(sources[0].path, NO_PATCH.format(values))
            opened[name] = sources
        except AtomizerError as error:
            if fail_fast or len(scenes) == 1:
                raise
            failed[name] = error
    return opened, failed


def warn_of(model: Model, scenes: Mapping[str, Sequence[RasterSource]]) -> None:
    """Warn of values unlike the training data, over the first scenes together, and of channels that are missing."""
    compared = list(itertools.islice(scenes.values(), COMPARED))
    opened = list(itertools.chain.from_iterable(compared))
    if compared:
        warn_lacking(model.task_spec, itertools.chain.from_iterable(source.channels for source in opened))
    images = [Image(source.path.name, source.overview(), source.channels) for source in opened]
    faults = misfits(images, model.task_spec.statistics())
    usual_m = model.task_spec.extent_m
    if usual_m is not None:
        extents = {}
        for sources in compared:
            side_m = max(length * step for s in sources for length, step in zip(s.shape[::-1], s.pixel_m, strict=True))
            if abs(side_m - usual_m) > OTHER_EXTENT * usual_m:
                text = f"covers {side_m:.4g} m; the model was trained on scenes of {usual_m:.4g} m"
                extents[sources[0].path.name] = text
        faults |= {"extent": extents} if extents else {}
    for text in sentences(faults, {"fill": DECLARE, "extent": CUT}):
        warnings.warn(text, stacklevel=3)


@torch.no_grad()
def predicted(model: Model, sources: Sequence[RasterSource], cost: Cost) -> list[str]:
    """Return the cells of one scene."""
    inputs = model.eval().preparer()(atoms_of(sources), None, cost)
    outputs_C = model.predict([inputs])[0].flatten()
    if not bool(outputs_C.isfinite().all()):
        raise DataError(sources[0].path, "gets NaN or infinity from the model: are its values what it was trained on?")
    return cells_of(model.task_spec, probabilities(outputs_C, not model.task_spec.regression).numpy())


def atoms_of(sources: Sequence[RasterSource]) -> AtomSet:
    """Return what the rasters of a scene observed, around the middle of the first."""
    first = map_grid_of(sources[0], None)
    frame, _ = first.frame(0, 0, first.height, first.width)
    atoms = AtomSet()
    for source in sources:
        x, y = outline(source.bounds, source.crs, source.crs)
        x, y = frame.metres(x, y) if source.crs == frame.crs else frame.metres_from(source.crs, x, y)
        part = source.atoms(frame, (float(x.min()), float(y.min()), float(x.max()), float(y.max())))
        atoms = atoms if part is None else atoms + part
    if not atoms.num_atoms:
        raise DataError(sources[0].path, "has no valid measurement: everything is nodata, NaN or masked")
    return atoms
