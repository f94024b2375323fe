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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.mapping.held_out import DIGITS, HeldOut, held_out
from atomizer_io.mapping.label_map import LabelMap, MapRequest, report
from atomizer_io.mapping.runs import begin, inside, mark_of, opened, run_of, trained, with_options
from atomizer_io.models.registry import load_model
from atomizer_io.models.storage import seal_at
from atomizer_io.prediction import qgis_style
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.parts_folder import is_done
from atomizer_io.prediction.prediction_sets import write_sets
from atomizer_io.prediction.products import MapClasses, RasterProduct, check_names, files_of
from atomizer_io.prediction.rasters import predict_raster
from atomizer_io.texts import json_text, parse_json, read_text, write_text
from atomizer_io.training import config
from atomizer_io.training.area_accuracy import Accuracy, area_adjusted, lacking, of_labels
from atomizer_io.training.conformal import PredictionSets, check_coverage, least_labels
from atomizer_io.training.folder import BEST, SETTINGS

LAYERS = ("probabilities", "confidence")
OWN = {"sets.tif": "sets.tif", "accuracy.json": "accuracy.json", "report.html": "html"}  # names beside the map
STYLES = {"map.qml": "qml", "probabilities.qml": "probabilities.qml", "confidence.qml": "confidence.qml"}
STYLES |= {"sets.qml": "sets.qml"}


def map_from_labels(
    request: MapRequest, execution: Execution = Execution(), *, began_s: float | None = None
) -> LabelMap:
    """Train on labels and write the map, its uncertainty and a report; an interrupted call goes on with ``resume``."""
    began_s = time.monotonic() if began_s is None else began_s
    check(request, execution)
    runs = [run_of(request, fold) for fold in range(request.folds or 1)]
    dataset = opened(runs[0])
    labels, notes, classes = inside(dataset)
    if classes is not None:
        runs = [with_options(run, classes=classes) for run in runs]
    begin(runs, request, execution, mark_of(dataset))
    for line in notes:
        execution.report(f"note: {line}")
    scores = [trained(run, request, execution, began_s) for run in runs]
    model = config.folder_of(runs[0]) / BEST
    product = mapped(model, request, execution)
    again = dataclasses.replace(execution, overwrite=True, log=None)
    tested = HeldOut.together([held_out(run, request.rasters, again) for run in runs])
    made = finished(request, product, load_model(model).task_spec, tested, labels, described(dataset, request, tested))
    made = dataclasses.replace(
        made, scores=scores[0], notes=[*notes, *made.notes], seconds=round(time.monotonic() - began_s, 1)
    )
    write_text(made.files["accuracy.json"], json_text(made.summary(), 1) + "\n")
    write_text(made.files["report.html"], report(made))
    return made


def check(request: MapRequest, execution: Execution) -> None:
    """Refuse what cannot work before any work, and files that are there already."""
    check_names(request.output, LAYERS)
    check_coverage(request.coverage)
    if request.folds is not None and request.folds < 3:
        raise ConfigError(f"--folds is {request.folds}; training, validation and testing need at least 3")
    if not request.rasters:
        raise ConfigError("there is no raster: name at least one (--raster)")
    if not request.labels.is_file():
        raise DataError(request.labels, "no such file")
    folder = request.beside("run")
    if execution.resume:
        return
    there = [request.output, *(request.beside(name) for name in (*OWN.values(), *STYLES.values()))]
    there += [run / SETTINGS for run in sorted(folder.glob("fold-*"))]
    there = [path for path in there if path.exists()]
    if there and not execution.overwrite:
        begun = there[0].name == SETTINGS
        raise ConfigError(
            f"{folder} has an unfinished map: --resume continues it, --overwrite starts again"
            if begun
            else f"{there[0]} exists: --overwrite replaces it"
        )


def mapped(model: Path, request: MapRequest, execution: Execution) -> RasterProduct:
    """Predict the map, or take the one that an interrupted call had finished with this model."""
    task_spec = load_model(model).task_spec
    files = files_of(request.output, LAYERS, task_spec)
    if execution.resume and is_done(request.output) and all(path.is_file() for path in files.values()):
        try:
            known = parse_json(read_text(files["areas.json"]))
            if known["model_seal"] == seal_at(model):
                return RasterProduct(request.output, files, known["hectares"], known["codes"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        execution = dataclasses.replace(execution, overwrite=True)
    return predict_raster(model, request.rasters, request.output, layers=LAYERS, execution=execution)


def finished(
    request: MapRequest,
    product: RasterProduct,
    task_spec: TaskSpec,
    tested: HeldOut,
    labels: Sequence[int],
    tested_on: str,
) -> LabelMap:
    """Compute what the held-out labels say of a map, and write the sets and the styles."""
    legend, names = MapClasses.of(task_spec).legend, task_spec.names
    confusion = tested.confusion()
    area = np.array([product.hectares[name] for name in names])
    accuracy, unadjusted = estimated(request, confusion, area, tested, names)
    rounding = 0.5 * 10.0**-DIGITS
    sets = PredictionSets.calibrated(
        tested.probabilities, tested.target, tested.label, request.coverage, rounding=rounding
    )
    notes = []
    if not sets.informative:
        notes.append(
            f"{sets.labels} held-out labels are too few for prediction sets of {request.coverage:.0%} coverage, which "
            f"take {least_labels(request.coverage)}: every set has all classes. Use --folds, or more labels"
        )
    untested = [name for name, count in zip(names, confusion.sum(axis=0), strict=True) if not count]
    if untested:
        notes.append(f"no held-out label of class {listed(untested)}: nothing is known of how well it is found")
    files = {**product.files, **{kind: request.beside(name) for kind, name in (OWN | STYLES).items()}}
    stated = f"at least {request.coverage:g} of labels like the {sets.labels} held-out ones are in their set"
    sizes = write_sets(product.files["probabilities.tif"], files["sets.tif"], names, sets.members, stated)
    write_text(files["map.qml"], qgis_style.paletted(legend))
    write_text(files["probabilities.qml"], qgis_style.ramp(0.0, 1.0))
    write_text(files["confidence.qml"], qgis_style.ramp(0.0, 1.0))
    write_text(files["sets.qml"], qgis_style.sizes(len(names)))
    return LabelMap(
        request, product, files, legend, labels, tested_on, confusion, accuracy, unadjusted, sets, sizes, notes=notes
    )


def described(dataset: Any, request: MapRequest, tested: HeldOut) -> str:
    """Return which labels the accuracy is of."""
    count = f"{len(np.unique(tested.label)):,} held-out labels"
    if dataset.split_column is not None:
        return f"{count} of the split test in column {dataset.split_column!r}"
    if request.folds:
        return (
            f"{count} of {request.folds} folds, each predicted by a model trained without its fold (cross-validation)"
        )
    return f"{count} of one of {dataset.folds} folds of spatial blocks, on which the model was not trained"


def estimated(
    request: MapRequest, confusion: NDArray[np.int64], area: NDArray[np.float64], tested: HeldOut, names: Sequence[str]
) -> tuple[Accuracy, str | None]:
    """Return the accuracy, and why it and the areas are not adjusted (None: they are)."""
    predicted, true = tested.by_label()
    own = of_labels(confusion, predicted == true, tested.block)
    if not request.random_sample:
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
