"""The cells of tables: a network trained on the data of a column, and its score; and the GPU hours of the protocol."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from atomizer_io.errors import AtomizerError
from atomizer_io.models.registry import create_model
from atomizer_io.training.evaluate import evaluate
from atomizer_lab.matrix import Task
from atomizer_lab.paper import trainings
from atomizer_lab.paper.columns import COLUMNS, DATASETS, INPUTS, Changes, Column, PaperDataset
from atomizer_lab.paper.item import Scale, Where
from atomizer_lab.paper.models import ATOMIZER
from atomizer_lab.paper.trainings import Document, Trained, trained
from atomizer_lab.small_data.staging import staged

MINUTES = 4  # of one core at most for each small training: all models of a column have the same time
PAPER_MINUTES = 600.0  # of a run at the full protocol, where nothing is known
TIME: Changes = {"max_time": f"0:{MINUTES:02d}:00"}
TWO_STEPS: Changes = {"max_steps": 2}
SHARES = ("miou", "macro_f1", "accuracy")  # scores that are shown as percent
BACKWARD = 3.0  # FLOPs of a training step, in forward passes
HOUR_S = 3600.0
Runs = Callable[[Where, Sequence[int]], list[Task]]


def train(key: str, document: Document, data: str, work: str, results: str) -> Trained:
    """Stage the data of the column with this key, and train on them; without a key ``data`` holds them as they are."""
    return trained(document, *_labelled(key, document, data, work), work, results)


def find(key: str, document: Document, data: str, work: str, results: str) -> Trained | None:
    """Return what :func:`train` trained before; None if it did not."""
    return trainings.find(document, *_labelled(key, document, data, work), work, results)


def _labelled(key: str, document: Document, data: str, work: str) -> tuple[str, str]:
    """Return what the folder of a training is called, and the folder of its data, which are staged."""
    preset, column = document["model"]["preset"], COLUMNS.get(key)
    label = "".join(letter if letter.isalnum() else "-" for letter in preset)
    name = document["data"]["name"]
    if column is None:
        return f"{name}-{label}", str(Path(data) / name)
    root = staged(column.key, column.stage, Path(data), Path(work))
    return f"{key}-{label}", "" if name == "synthetic" else str(root)


def train_and_score(
    row: str, columns: Mapping[str, str], metric: str, average: str | None = None, **training: Any
) -> dict[str, Any]:
    """Train one network, and return its test score in each of ``columns``, which name configurations of channels.

    ``average`` is the column of their mean; ``training`` are the arguments of :func:`train`.
    """
    done = train(**training)
    if set(columns.values()) == {"all"}:
        scores = {"all": done.metrics["scores"]["test"]}
    else:
        scores = evaluate(done.run, done.model, channels=list(columns.values()))["scores"]
    numbers = {title: shown(metric, scores[channels][metric]) for title, channels in columns.items()}
    if average is not None:
        numbers[average] = statistics.mean(numbers.values())
    return {"numbers": {row: numbers}, "metric": metric, "scores": scores, **done.cost}


def by_class(row: str, **arguments: Any) -> dict[str, Any]:
    """Train and score one network, and return its IoU, from 0 to 1, by class."""
    result = train_and_score(row=row, **arguments)
    scores = result["scores"]["all"]
    return {**result, "numbers": {row: {"mean": scores["miou"], **scores["iou"]}}}


def train_and_validate(row: str, rate: float, metric: str, title: str = "", **training: Any) -> dict[str, Any]:
    """Train one network at a learning rate, and return its best score on the validation data.

    ``title`` names the data in the column of the table; ``training`` are the arguments of :func:`train`.
    """
    done = train(**training)
    column = f"{title}, {rate:g}" if title else f"{rate:g}"
    numbers = {row: {column: shown(metric, done.metrics["best"]["score"])}}
    return {"numbers": numbers, "metric": metric, "best": done.metrics["best"], **done.cost}


def shown(metric: str, score: float) -> float:
    """Return a score as tables show it: shares as percent."""
    return 100 * score if metric in SHARES else score


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell, or several of one row: the model, what it is called there, and what it changes of the settings.

    ``titles`` are columns and the channels that are shown in each.
    """

    data: Column | PaperDataset
    model: str = ATOMIZER
    row: str | None = None  # None: the name of the model
    changes: Changes = field(default_factory=dict, hash=False)
    titles: Mapping[str, str] | None = field(default=None, hash=False)  # None: that of the data, with all channels
    average: str | None = None  # the column of the mean over titles
    run: Callable[..., dict[str, Any]] = train_and_score

    def task(self, where: Where, seed: int, length: Changes = TIME, minutes: float = MINUTES + 1) -> Task:
        """Return the run of this cell."""
        row, titles = self.row or self.model, dict(self.titles or {self.data.title: "all"})
        arguments = {"row": row, "columns": titles, "metric": self.data.metric, "key": self.data.key}
        if self.average is not None:
            arguments["average"] = self.average
        document = self.data.document(self.model, seed, self.changes, length, where.configs)
        minutes = PAPER_MINUTES if isinstance(self.data, PaperDataset) else minutes
        name = f"{row}, {self.data.label(titles)}, seed {seed}"
        return Task(name, self.run, {**arguments, "document": document}, minutes, folders(where))


def folders(where: Where) -> dict[str, str]:
    """Return where a run finds data and leaves things."""
    return {"data": str(where.data), "work": str(where.work), "results": str(where.results)}


def runs_of(cells: Sequence[Cell], length: Changes = TIME, minutes: float = MINUTES + 1) -> Runs:
    """Return what lists the runs of cells for some seeds; a training of this length and its test take ``minutes``."""
    return lambda where, seeds: [cell.task(where, seed, length, minutes) for seed in seeds for cell in cells]


def smoke(cells: Sequence[Cell], what: str = "scene") -> Scale:
    """Return the scale of seconds: the cells with two steps."""
    return Scale(f"two steps on a synthetic {what}", runs_of(cells, TWO_STEPS, 0.1))


def gpu_hours(task: Task, flops: float) -> float | None:
    """Return the hours that a run trains on a device with so many FLOPs a second; None where it is not known.

    The FLOPs of a forward pass are counted for a scene of the paper's size, without running it, and taken three times
    for a step: with the mean κ of the training configurations, and queries at all positions. Validation and reading are
    not in it.
    """
    document = task.arguments.get("document")
    if document is None:
        return None
    name = document["data"]["name"]
    dataset = next((d for d in DATASETS.values() if d.config.removesuffix("-pangaea") == name), None)
    epochs = document["training"].get("epochs")
    if dataset is None or epochs is None:
        return None
    model = document["model"]
    settings, pairs = dict(model.get("settings", {})), document["training"].get("configurations")
    if pairs:
        settings["atoms_per_latent"] = round(statistics.mean(kappa for kappa, _ in pairs))
    return (
        BACKWARD * forward_flops(model["preset"], dataset.input, settings) * dataset.samples * epochs / flops / HOUR_S
    )


def forward_flops(preset: str, name: str, settings: Mapping[str, Any]) -> float:
    """Return the FLOPs of one forward pass on an input of the paper; a multiply-add counts as two."""
    atoms, queries = INPUTS[name].made()
    try:
        with torch.device("meta"):  # no weights are needed to count
            model = create_model(preset, task_spec=INPUTS[name].task_spec, **settings).eval()
        return float(model.flops([model.preparer()(atoms, queries)]))
    except AtomizerError as error:
        raise AtomizerError(f"the FLOPs of {preset} on {name} cannot be counted: {error}") from error
