"""The cells of tables: a network trained on the data of a column, and its score; and the GPU hours of the protocol."""

from __future__ import annotations

import math
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
from atomizer_lab.paper.columns import COLUMNS, DATASETS, INPUTS, Changes, Column, PaperDataset, merged
from atomizer_lab.paper.item import Scale, Where
from atomizer_lab.paper.models import ATOMIZER
from atomizer_lab.paper.staging import staged
from atomizer_lab.paper.trainings import Document, Trained, trained

MINUTES = 10  # of one core at most for each small training: all models of a column have the same time
TRIED_MINUTES = 2  # of a training that only chooses the learning rate
RATES = (3e-4, 1e-3, 3e-3, 1e-2)  # of which each model has the best on the validation data of a column
PAPER_MINUTES = 600.0  # of a run at the full protocol, where nothing is known
TIME: Changes = {"max_time": f"0:{MINUTES:02d}:00"}
TRIED: Changes = {"max_time": f"0:{TRIED_MINUTES:02d}:00"}
TWO_STEPS: Changes = {"max_steps": 2}
SHARES = ("miou", "macro_f1", "accuracy")  # scores that are shown as percent
BACKWARD = 3.0  # FLOPs of a training step, in forward passes
HOUR_S = 3600.0
Runs = Callable[[Where, Sequence[int]], list[Task]]


def train(key: str, document: Document, rates: Sequence[float] = (), tried: Changes = TRIED, **places: str) -> Trained:
    """Stage the data of the column with this key, and train on them; without a key ``data`` holds them as they are.

    Of several ``rates`` the best on the validation data is taken, by trainings of the length ``tried``. ``places`` are
    those of :func:`folders`.
    """
    done = at_best_rate(trained, document, *_placed(key, document, **places), rates, tried)
    assert done is not None
    return done


def find(
    key: str, document: Document, rates: Sequence[float] = (), tried: Changes = TRIED, **places: str
) -> Trained | None:
    """Return what :func:`train` trained before; None if it did not."""
    return at_best_rate(trainings.find, document, *_placed(key, document, **places), rates, tried)


def at_best_rate(
    obtain: Callable[..., Trained | None],
    document: Document,
    label: str,
    places: Sequence[str],
    rates: Sequence[float],
    tried: Changes,
) -> Trained | None:
    """Return the training at the best of ``rates``, by what ``obtain`` (``trained`` or ``find``) gives; None without.

    ``places`` are the folders of the data, of runs and of results.
    """
    trials: dict[float, Trained] = {}
    for rate in rates:
        done = obtain(trial(document, rate, tried), label, *places)
        if done is None:
            return None
        trials[rate] = done
    return obtain(chosen(document, trials), label, *places)


def trial(document: Document, rate: float, length: Changes) -> dict[str, Any]:
    """Return the settings of a training that shows what a learning rate is worth: short, and with the first seed."""
    changes = {"training": {"learning_rate": rate, **length}, "data": {"test": None}, "seed": 0}
    return merged(document, changes)


def chosen(document: Document, trials: Mapping[float, Trained]) -> Document:
    """Return settings with the learning rate whose trial was the best on the validation data, if there are trials."""
    if not trials:
        return document

    def merit(rate: float) -> float:
        best = trials[rate].metrics["best"]
        score = best["score"] if best["of"] != "rmse" else -best["score"]
        return -math.inf if math.isnan(score) else float(score)

    return merged(document, {"training": {"learning_rate": max(trials, key=merit)}})


def _placed(key: str, document: Document, data: str, work: str, results: str) -> tuple[str, tuple[str, str, str]]:
    """Return what the folder of a training is called, and the folders of its data, of runs and of results."""
    label = "".join(letter if letter.isalnum() else "-" for letter in document["model"]["preset"])
    return f"{key or document['data']['name']}-{label}", (root_of(key, document, data, work), work, results)


def root_of(key: str, document: Document, data: str, work: str) -> str:
    """Return the folder of the data of the column with this key, which are staged; nothing for scenes made on the spot.

    Without a key it is the folder of the dataset in ``data``.
    """
    column, name = COLUMNS.get(key), document["data"]["name"]
    if name == "synthetic":
        return ""
    if column is None:
        return str(Path(data) / name)
    folder, _, inside = (column.folder or column.config or column.key).partition("/")
    root = Path(data) / folder
    if column.stage is not None:
        root = staged(folder, column.stage, root, Path(work))
    return str(root / inside)


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
    rate = {"learning_rate": done.run.training.learning_rate}
    return {"numbers": {row: numbers}, "metric": metric, "scores": scores, **rate, **done.cost}


def by_class(row: str, **arguments: Any) -> dict[str, Any]:
    """Train and score one network, and return its IoU, from 0 to 1, by class."""
    result = train_and_score(row=row, **arguments)
    scores = result["scores"]["all"]
    return {**result, "numbers": {row: {"mean": scores["miou"], **scores["iou"]}}}


def train_and_validate(row: str, title: str, metric: str, **training: Any) -> dict[str, Any]:
    """Train one network, and return its best score on the validation data in the column ``title``.

    ``training`` are the arguments of :func:`train`.
    """
    done = train(**training)
    numbers = {row: {title: shown(metric, done.metrics["best"]["score"])}}
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
        arguments: dict[str, Any] = {"row": row, "columns": titles, "metric": self.data.metric, "key": self.data.key}
        if self.average is not None:
            arguments["average"] = self.average
        if isinstance(self.data, PaperDataset):
            minutes = PAPER_MINUTES
        elif length is TIME:
            arguments["rates"], minutes = RATES, minutes + TRIED_MINUTES * len(RATES)
        arguments["document"] = self.data.document(self.model, seed, self.changes, length, where.configs)
        return Task(f"{row}, {self.data.label(titles)}, seed {seed}", self.run, arguments, minutes, folders(where))


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
