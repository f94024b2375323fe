"""The training runs of a map: their settings, which labels they learn, and how they are resumed."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.datasets.registry import create
from atomizer_io.errors import ConfigError, DataError, NoSampleError, listed
from atomizer_io.mapping.label_map import MapRequest
from atomizer_io.prediction.options import Execution
from atomizer_io.texts import parse_json, read_text, write_text
from atomizer_io.training import config
from atomizer_io.training.config import Run
from atomizer_io.training.folder import BEST, SETTINGS
from atomizer_io.training.run import train

METRICS = "metrics.json"
MARK = "labels.txt"  # in the folder of the runs: a checksum of the labels


def run_of(request: MapRequest, fold: int) -> Run:
    """Return the settings of the run that holds a fold out."""
    rasters = [
        {name: str(value) if name == "path" else value for name, value in raster.items()}
        for raster in ({**raster, "path": Path(raster["path"]).absolute()} for raster in request.rasters)
    ]
    labels = request.labels.absolute()
    options = {"labels": str(labels), "column": request.column, "rasters": rasters, "fold": fold}
    options |= {"folds": request.folds} if request.folds else {}
    document: dict[str, Any] = {
        "data": {"name": "labels", "root": str(labels.parent), "options": options},
        "model": {"preset": "atomizer_io_tiny"},
        "training": {"figures": 0, "class_weights": "sqrt"},
        "output": str(request.beside("run").absolute()),
        "name": f"fold-{fold}",
    }
    if request.max_time_s is not None:
        seconds = max(1, int(request.max_time_s / (request.folds or 1)))
        minutes, rest = divmod(seconds, 60)
        document["training"]["max_time"] = f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"
    config.override(document, request.settings)
    return config.parse(document)


def with_options(run: Run, **options: Any) -> Run:
    """Return a run with further options of its dataset."""
    return dataclasses.replace(run, data=dataclasses.replace(run.data, options={**run.data.options, **options}))


def opened(run: Run) -> Any:
    """Open the dataset of all labels of a run that lie inside of the rasters."""
    options, data = run.data.options, run.data
    try:
        dataset: Any = create(data.name, data.root, "all", on_error=data.on_error, **options)
    except NoSampleError as error:
        raise DataError(
            options["labels"],
            "none of its labels lies inside the rasters: do both show the same area, and is the coordinate system of "
            "each the right one?",
        ) from error
    if dataset.split_column is None:
        _ = dataset.fold_of  # refuses blocks that are too few for the folds
    return dataset


def inside(dataset: Any) -> tuple[list[int], list[str], list[str] | None]:
    """Return how many labels inside the rasters each class has, what is worth knowing, and the classes to learn.

    Classes without such a label are left out (None: there are none), unless the user named the classes. One class
    alone, or a class with a single label, is an error.
    """
    vector = dataset.vector
    own = np.concatenate([item.labels for item in dataset.items])
    pairs = np.unique(np.stack([vector.target[own], vector.feature[own]]), axis=1)
    counts = np.bincount(pairs[0], minlength=len(vector.classes)).tolist()
    of_class = dict(zip(vector.classes, counts, strict=True))
    notes, absent = [], [name for name, count in of_class.items() if not count]
    if len(of_class) - len(absent) < 2:
        only = [name for name, count in of_class.items() if count]
        raise DataError(
            vector.path,
            f"has one class only inside the rasters, {only[0]!r}, in column {vector.column!r}: a map takes two or more",
        )
    single = {name: int(pairs[1][pairs[0] == number][0]) for number, name in enumerate(of_class) if counts[number] == 1}
    if single:
        named = listed(f"{name!r} (feature {number})" for name, number in single.items())
        raise DataError(
            vector.path,
            f"has a single label inside the rasters of class {named}, but one is needed for training and another for "
            "testing: add labels, or name the classes to map without it (data.options.classes=[...])",
        )
    if len(dataset.outside):
        outside = len(np.unique(vector.feature[dataset.outside]))
        notes.append(f"{outside:,} of {len(np.unique(vector.feature)):,} labels lie outside of the rasters: not used")
    if not absent:
        return counts, notes, None
    if dataset.classes is not None:
        raise DataError(vector.path, f"has no label inside the rasters of class {listed(absent)}: leave it out")
    notes.append(f"no label inside the rasters of class {listed(absent)}: not on the map")
    kept = [number for number, count in enumerate(counts) if count]
    values = [vector.classes[number] for number in kept]
    return [counts[number] for number in kept], notes, values


def begin(runs: Sequence[Run], request: MapRequest, execution: Execution, mark: str) -> None:
    """Note of which labels the map is, or with ``resume`` refuse to go on with others, or with other settings.

    Other labels are in other folds: the models were trained on some that are held out now.
    """
    folder = request.beside("run")
    if not execution.resume:
        for old in folder.glob("fold-*"):
            if (old / SETTINGS).is_file():
                shutil.rmtree(old)
    for run in runs:
        path = config.folder_of(run) / SETTINGS
        if not path.is_file():
            continue
        stored = config.load(path)
        known = folder / MARK
        changed = [name for name in ("data", "model", "seed") if getattr(stored, name) != getattr(run, name)]
        changed += ["the labels"] if not known.is_file() or known.read_text(encoding="utf-8") != mark else []
        if changed:
            raise ConfigError(
                f"{folder}: cannot continue with other labels, rasters or settings than it was begun with "
                f"({listed(changed)}): --overwrite starts again"
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / MARK, mark)


def mark_of(dataset: Any) -> str:
    """Return a checksum of the labels as they are used."""
    vector = dataset.vector
    arrays = (vector.xy, vector.target, vector.feature, vector.weight, vector.day.astype(np.int64), vector.split)
    digest = hashlib.blake2b(repr((vector.classes, vector.codes, vector.splits)).encode(), digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def trained(run: Run, request: MapRequest, execution: Execution, began_s: float) -> dict[str, Any]:
    """Train a run, or finish it, unless that was done before; return its ``metrics.json``."""
    folder = config.folder_of(run)
    if execution.resume and (metrics := finished_run(folder)) is not None:
        execution.report(f"trained before: {folder}")
        return metrics
    if request.folds:
        execution.report(f"fold {run.data.options['fold'] + 1} of {request.folds}")
    first = run.data.options["fold"] == 0
    began = began_s if first else time.monotonic()
    resume = execution.resume and (folder / SETTINGS).exists()
    try:
        return train(run, resume=resume, progress=execution.progress, began_s=began)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note("the same `atomizer map` command with --resume goes on from there, too")
        raise


def finished_run(folder: Path) -> dict[str, Any] | None:
    """Return the ``metrics.json`` of a run that has made all of its steps, None otherwise."""
    try:
        metrics = parse_json(read_text(folder / METRICS))
    except (OSError, ValueError):
        return None
    return metrics if isinstance(metrics, dict) and metrics.get("finished") and (folder / BEST).is_dir() else None
