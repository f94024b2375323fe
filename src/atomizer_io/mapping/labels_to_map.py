"""The steps from labels to a map: check the labels, train, predict, test on held-out labels, write every product.

map.tif                    classes, with map.tif.aux.xml, map.png, map.areas.json and map.areas.csv
map.probabilities.tif      a band per class
map.confidence.tif         lead of the first class, entropy
map.sets.tif               conformal prediction sets: their size, and a band per class that is 1 inside the set
map.qml, map.*.qml         styles of QGIS for these
map.accuracy.json          confusion matrix, accuracies and areas with confidence intervals
map.html                   the report
map.run/fold-0             the training run, whose model made the map; with cross-validation one for each fold
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.registry import create
from atomizer_io.errors import ConfigError, DataError, NoSampleError, listed
from atomizer_io.mapping.held_out import DIGITS, HeldOut, held_out
from atomizer_io.mapping.report import report
from atomizer_io.models.registry import load_model
from atomizer_io.models.storage import seal_at
from atomizer_io.prediction import qgis_style
from atomizer_io.prediction.map_classes import MapClasses
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.parts_folder import is_done
from atomizer_io.prediction.prediction_sets import write_sets
from atomizer_io.prediction.products import RasterProduct, beside, check_names, files_of
from atomizer_io.prediction.rasters import predict_raster
from atomizer_io.texts import json_text, parse_json, read_text, write_text
from atomizer_io.training import config
from atomizer_io.training.area_accuracy import Accuracy, area_adjusted, lacking, of_labels
from atomizer_io.training.config import Run
from atomizer_io.training.conformal import PredictionSets, check_coverage, least_labels
from atomizer_io.training.folder import BEST, SETTINGS
from atomizer_io.training.run import train

LAYERS = ("probabilities", "confidence")
METRICS = "metrics.json"
OWN = {"sets.tif": "sets.tif", "accuracy.json": "accuracy.json", "report.html": "html"}  # names beside the map
STYLES = {"map.qml": "qml", "probabilities.qml": "probabilities.qml", "confidence.qml": "confidence.qml"}
STYLES |= {"sets.qml": "sets.qml"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be mapped, from what, and how it is tested.

    ``rasters`` are those of :class:`~atomizer_io.io.raster_sources.RasterInput` as plain values. ``coverage`` is what
    the prediction sets promise. ``random_sample`` says that the labels are a random sample of the mapped area, so that
    accuracy and areas are adjusted. ``cross_validate`` trains a model for each of the ``folds``, otherwise one, which
    is tested on one of them. ``max_time_s`` is the limit of all training; ``settings`` are further ``key=value`` of a
    run.
    """

    rasters: Sequence[dict[str, Any]]
    labels: Path
    column: str | None
    output: Path
    coverage: float = 0.9
    random_sample: bool = False
    cross_validate: bool = False
    folds: int = 5
    max_time_s: float | None = None
    settings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LabelMap:
    """What was made: the map, the ``files`` beside it, and what the held-out labels say of it.

    ``confusion`` counts labels by map class (row) and label (column); the areas of ``accuracy`` are empty unless they
    are adjusted, and ``unadjusted`` says why not. ``sizes`` counts the pixels by the size of their set, from 0 on.
    """

    wanted: Wanted
    product: RasterProduct
    files: Mapping[str, Path]
    classes: MapClasses
    labels: Sequence[int]  # of each class inside the rasters
    confusion: NDArray[np.int64]
    accuracy: Accuracy
    unadjusted: str | None
    sets: PredictionSets
    sizes: Sequence[int]
    scores: Mapping[str, Any] = field(default_factory=dict)  # of the first run
    notes: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def tested_on(self) -> str:
        """Which labels the accuracy is of."""
        folds = self.wanted.folds
        count = f"{int(self.confusion.sum()):,} held-out labels"
        if self.wanted.cross_validate:
            return f"{count} of {folds} folds, each predicted by a model trained without its fold (cross-validation)"
        return f"{count} of one of {folds} folds of spatial blocks, on which the model was not trained"

    def summary(self) -> dict[str, Any]:
        """Return all numbers as plain values."""
        names, total = self.classes.names, sum(self.product.hectares.values())
        accuracy, areas = self.accuracy, self.accuracy.areas
        hectares = {name: {"mapped": self.product.hectares[name]} for name in names}
        for name, area in zip(names, areas, strict=False):
            hectares[name] |= {key: round(value * total, 6) for key, value in dataclasses.asdict(area).items()}
        return {
            "classes": self.classes.by_name,
            "labels": dict(zip(names, self.labels, strict=True)),
            "tested_on": self.tested_on,
            "confusion": {"rows": "map", "columns": "labels", "counts": self.confusion.tolist()},
            "area_adjusted": bool(areas),
            "overall_accuracy": dataclasses.asdict(accuracy.overall),
            "users_accuracy": {n: dataclasses.asdict(e) for n, e in zip(names, accuracy.users, strict=True)},
            "producers_accuracy": {n: dataclasses.asdict(e) for n, e in zip(names, accuracy.producers, strict=True)},
            "hectares": hectares,
            "prediction_sets": {
                "coverage": self.sets.coverage,
                "least_probability": max(0.0, self.sets.least),
                "labels": self.sets.labels,
                "pixels_by_size": list(self.sizes),
            },
            "notes": list(self.notes),
        }


def map_from_labels(wanted: Wanted, execution: Execution = Execution(), *, began_s: float | None = None) -> LabelMap:
    """Train on labels and write the map, its uncertainty and a report; an interrupted call goes on with ``resume``."""
    began_s = time.monotonic() if began_s is None else began_s
    check(wanted, execution)
    runs = [run_of(wanted, fold) for fold in (range(wanted.folds) if wanted.cross_validate else (0,))]
    dataset: Any = opened(runs[0])
    labels, notes, classes = inside(dataset)
    if classes is not None:
        runs = [with_options(run, classes=classes) for run in runs]
    for line in notes:
        execution.report(f"note: {line}")
    scores = [trained(run, wanted, execution, began_s) for run in runs]
    model = config.folder_of(runs[0]) / BEST
    product = mapped(model, wanted, execution)
    again = dataclasses.replace(execution, overwrite=True, log=None)
    tested = HeldOut.together([held_out(run, wanted.rasters, again) for run in runs])
    made = finished(wanted, product, load_model(model).task_spec, tested, labels)
    made = dataclasses.replace(
        made, scores=scores[0], notes=[*notes, *made.notes], seconds=round(time.monotonic() - began_s, 1)
    )
    write_text(made.files["accuracy.json"], json_text(made.summary(), 1) + "\n")
    write_text(made.files["report.html"], report(made))
    return made


def check(wanted: Wanted, execution: Execution) -> None:
    """Refuse what cannot work before any work, and files that are there already."""
    check_names(wanted.output, LAYERS)
    check_coverage(wanted.coverage)
    if not wanted.rasters:
        raise ConfigError("there is no raster: name at least one")
    if not wanted.labels.is_file():
        raise DataError(wanted.labels, "no such file")
    folder = beside(wanted.output, "run")
    if execution.resume:
        return
    there = [wanted.output, *(beside(wanted.output, name) for name in (*OWN.values(), *STYLES.values()))]
    there += [run / SETTINGS for run in sorted(folder.glob("fold-*"))]
    there = [path for path in there if path.exists()]
    if there and not execution.overwrite:
        begun = there[0].name == SETTINGS
        raise ConfigError(
            f"{folder} has an unfinished map: --resume continues it, --overwrite starts again"
            if begun
            else f"{there[0]} exists: --overwrite replaces it"
        )
    for run in folder.glob("fold-*"):
        if (run / SETTINGS).is_file():
            shutil.rmtree(run)


def run_of(wanted: Wanted, fold: int) -> Run:
    """Return the settings of the run that holds a fold out."""
    rasters = [
        {name: str(value) if name == "path" else value for name, value in raster.items()}
        for raster in ({**raster, "path": Path(raster["path"]).absolute()} for raster in wanted.rasters)
    ]
    labels = wanted.labels.absolute()
    options = {"labels": str(labels), "column": wanted.column, "rasters": rasters, "folds": wanted.folds, "fold": fold}
    document: dict[str, Any] = {
        "data": {"name": "labels", "root": str(labels.parent), "options": options},
        "model": {"preset": "atomizer_io_tiny"},
        "training": {"figures": 0},
        "output": str(beside(wanted.output, "run").absolute()),
        "name": f"fold-{fold}",
    }
    if wanted.max_time_s is not None:
        seconds = max(1, int(wanted.max_time_s / (wanted.folds if wanted.cross_validate else 1)))
        minutes, rest = divmod(seconds, 60)
        document["training"]["max_time"] = f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"
    config.override(document, wanted.settings)
    return config.parse(document)


def with_options(run: Run, **options: Any) -> Run:
    """Return a run with further options of its dataset."""
    return dataclasses.replace(run, data=dataclasses.replace(run.data, options={**run.data.options, **options}))


def opened(run: Run) -> Dataset:
    """Open all labels of a run that lie inside of the rasters."""
    options, data = run.data.options, run.data
    try:
        return create(data.name, data.root, "all", on_error=data.on_error, **options)
    except NoSampleError as error:
        raise DataError(
            options["labels"],
            "none of its labels lies inside the rasters: do both show the same area, and is the coordinate system of "
            "each the right one?",
        ) from error


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


def trained(run: Run, wanted: Wanted, execution: Execution, began_s: float) -> dict[str, Any]:
    """Train a run, or finish it, unless that was done before; return its ``metrics.json``."""
    folder = config.folder_of(run)
    if execution.resume and (metrics := finished_run(folder)) is not None:
        execution.report(f"trained before: {folder}")
        return metrics
    if wanted.cross_validate:
        execution.report(f"fold {run.data.options['fold'] + 1} of {wanted.folds}")
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


def mapped(model: Path, wanted: Wanted, execution: Execution) -> RasterProduct:
    """Predict the map, or take the one that an interrupted call had finished with this model."""
    task_spec = load_model(model).task_spec
    files = files_of(wanted.output, task_spec, LAYERS)
    if execution.resume and is_done(wanted.output) and all(path.is_file() for path in files.values()):
        try:
            known = parse_json(read_text(files["areas.json"]))
            if known["model_seal"] == seal_at(model):
                return RasterProduct(wanted.output, files, known["hectares"], known["codes"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        execution = dataclasses.replace(execution, overwrite=True)
    return predict_raster(model, wanted.rasters, wanted.output, layers=LAYERS, execution=execution)


def finished(
    wanted: Wanted, product: RasterProduct, task_spec: TaskSpec, tested: HeldOut, labels: Sequence[int]
) -> LabelMap:
    """Compute what the held-out labels say of a map, and write the sets and the styles."""
    classes = MapClasses(task_spec.names, task_spec.codes)
    confusion = tested.confusion()
    area = np.array([product.hectares[name] for name in classes.names])
    accuracy, unadjusted = estimated(wanted, confusion, area, tested, classes.names)
    rounding = 0.5 * 10.0**-DIGITS
    sets = PredictionSets.calibrated(
        tested.probabilities, tested.target, tested.label, wanted.coverage, rounding=rounding
    )
    notes = []
    if not sets.informative:
        notes.append(
            f"{sets.labels} held-out labels are too few for prediction sets of {wanted.coverage:.0%} coverage, which "
            f"take {least_labels(wanted.coverage)}: every set has all classes. Use --cross-validate, or more labels"
        )
    untested = [name for name, count in zip(classes.names, confusion.sum(axis=0), strict=True) if not count]
    if untested:
        notes.append(f"no held-out label of class {listed(untested)}: nothing is known of how well it is found")
    files = {**product.files, **{kind: beside(wanted.output, name) for kind, name in (OWN | STYLES).items()}}
    stated = f"at least {wanted.coverage:g} of labels like the {sets.labels} held-out ones are in their set"
    sizes = write_sets(product.files["probabilities.tif"], files["sets.tif"], classes.names, sets.members, stated)
    write_text(files["map.qml"], qgis_style.paletted(classes.legend))
    write_text(files["probabilities.qml"], qgis_style.ramp(0.0, 1.0))
    write_text(files["confidence.qml"], qgis_style.ramp(0.0, 1.0))
    write_text(files["sets.qml"], qgis_style.sizes(len(classes.names)))
    return LabelMap(wanted, product, files, classes, labels, confusion, accuracy, unadjusted, sets, sizes, notes=notes)


def estimated(
    wanted: Wanted, confusion: NDArray[np.int64], area: NDArray[np.float64], tested: HeldOut, names: Sequence[str]
) -> tuple[Accuracy, str | None]:
    """Return the accuracy, and why it and the areas are not adjusted (None: they are)."""
    predicted, true = tested.by_label()
    own = of_labels(confusion, predicted == true, tested.block)
    if not wanted.random_sample:
        return own, (
            "areas are those of the map and not adjusted for its errors: that takes labels that are a random sample of "
            "the mapped area (--random-sample)"
        )
    if few := lacking(confusion, area):
        return own, (
            f"areas are those of the map and not adjusted for its errors: fewer than two held-out labels lie where the "
            f"map has {listed(names[number] for number in few)}"
        )
    return area_adjusted(confusion, area), None
