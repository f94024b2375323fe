"""The paper's full protocol: a run for each model and dataset from the files in ``configs``, and its GPU hours.

All models of a dataset share its batch size, epochs and schedule. Sizes and settings of rivals are those of the paper's
tables. Band dropout in training and the six channel configurations at test are those of the table on missing channels.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from atomizer_io.data.sensors import GRAYSCALE
from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.models.registry import create_model
from atomizer_io.training.config import read_yaml, shipped
from atomizer_lab.bench.model_inputs import PAPER_INPUTS, ModelInput
from atomizer_lab.bench.models import settings_for
from atomizer_lab.matrix import Task
from atomizer_lab.paper.item import Where
from atomizer_lab.paper.models import ATOMIZER, MAPS, SCENES, SERIES, SMALL_SCENES
from atomizer_lab.paper.networks import places, train_and_score
from atomizer_lab.small_data.tasks import merged

BACKWARD = 3.0  # operations of a training step, in forward passes
HOUR_S = 3600.0
MINUTES = 600.0  # of a run, where nothing is known
INPUTS = {
    **PAPER_INPUTS,
    "mnist": ModelInput("mnist", "classification", 10, (GRAYSCALE.channels,), (28, 28), 1.0),
}
CLOUD = {ATOMIZER: "atomizer_io_3d", "Perceiver-IO": "perceiver_io_seg"}
Changes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset of the paper: its file in ``configs``, its entry among the benchmark inputs, its score, its size."""

    title: str
    config: str
    input: str
    metric: str
    samples: int  # of an epoch, as published or as counted by our reader
    presets: Mapping[str, str] = field(hash=False)


DATASETS = {
    dataset.title: dataset
    for dataset in (
        Dataset("EuroSAT", "m-eurosat", "eurosat", "macro_f1", 2000, SMALL_SCENES),
        Dataset("ForestNet", "m-forestnet", "forestnet", "macro_f1", 6464, SCENES),
        Dataset("BurnScars", "burnscars", "burnscars", "miou", 486, MAPS),
        Dataset("Sen1Floods11", "sen1floods11", "sen1floods11", "miou", 252, MAPS),
        Dataset("PASTIS", "pastis-r", "pastis", "miou", 1455, SERIES),
        Dataset("xView2", "xview2-pangaea", "xview2", "miou", 4 * 8251, SERIES),
        Dataset("Cashew", "m-cashew-plant", "cashew", "miou", 1350, MAPS),
        Dataset("BioMassters", "biomassters", "biomassters", "rmse", 7821, SERIES),
        Dataset("DALES", "dales", "dales", "miou", 26 * 100, CLOUD),
        Dataset("FRACTAL", "fractal", "fractal", "miou", 80_000, CLOUD),
        Dataset("MNIST", "mnist", "mnist", "accuracy", 55_000, {}),
    )
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table at the full protocol; ``titles`` are columns and the channels that are shown in each."""

    dataset: str
    model: str = ATOMIZER
    row: str | None = None  # None: the name of the model
    changes: Changes = field(default_factory=dict, hash=False)
    titles: Mapping[str, str] | None = field(default=None, hash=False)  # None: that of the dataset, with all channels
    average: str | None = None  # the column of the mean over titles

    def document(self, configs: Path, seed: int) -> dict[str, Any]:
        """Return the settings of the training, without where the data lie."""
        dataset = DATASETS[self.dataset]
        path = shipped(configs / f"{dataset.config}.yaml")
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; name the folder of the paper's settings with --configs")
        found = merged(read_yaml(path), {"seed": seed, "training": {"baselines": False, "figures": 0}})
        found["data"].pop("root", None)
        if self.model != ATOMIZER:
            preset = dataset.presets[self.model]
            found["model"] = {"preset": preset, "settings": settings_for(preset, INPUTS[dataset.input])}
            found["training"].pop("configurations", None)
        return merged(found, self.changes)

    def task(self, where: Where, seed: int) -> Task:
        """Return the run of this cell."""
        row, titles = self.row or self.model, dict(self.titles or {self.dataset: "all"})
        document = self.document(where.configs, seed)
        arguments = {"row": row, "columns": titles, "metric": DATASETS[self.dataset].metric, "key": ""}
        if self.average is not None:
            arguments["average"] = self.average
        known = f", {next(iter(titles))}" if len(titles) == 1 and self.dataset not in titles else ""
        name = f"{row}, {self.dataset}{known}, seed {seed}"
        return Task(name, train_and_score, {**arguments, "document": document}, MINUTES, places(where))


def runs_of(cells: Sequence[Cell]) -> Callable[[Where, Sequence[int]], list[Task]]:
    """Return what lists the runs of cells for some seeds."""

    def runs(where: Where, seeds: Sequence[int]) -> list[Task]:
        return [cell.task(where, seed) for seed in seeds for cell in cells]

    return runs


def gpu_hours(task: Task, flops: float) -> float | None:
    """Return the hours that a run trains on a device with so many operations a second; None where it is not known.

    The operations of a forward pass are counted for a scene of the paper's size, without running it, and taken three
    times for a step: with the mean κ of the training configurations, asked at all positions. Validation and reading
    are not in it.
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
    return BACKWARD * operations(model["preset"], dataset.input, settings) * dataset.samples * epochs / flops / HOUR_S


def operations(preset: str, name: str, settings: Mapping[str, Any]) -> float:
    """Return the operations of one forward pass on an input of the paper; a multiply-add counts as two."""
    given = INPUTS[name]
    atoms, queries = given.made()
    try:
        with torch.device("meta"):  # no weights are needed to count
            model = create_model(preset, task_spec=given.task_spec, **settings).eval()
        return float(model.flops([model.preparer()(atoms, queries)]))
    except AtomizerError as error:
        raise AtomizerError(f"the operations of {preset} on {name} cannot be counted: {error}") from error
