"""How many parameters the models have (the paper's table on model capacity), counted without weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from atomizer_io.models.registry import create_model
from atomizer_lab.bench.model_inputs import PAPER_INPUTS
from atomizer_lab.bench.models import settings_for
from atomizer_lab.matrix import Task
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale, Where
from atomizer_lab.paper.models import (
    ATOMIZER,
    MAPS,
    PERCEIVER,
    RAMEN,
    RESNET,
    SERIES,
    SMALL_SCENES,
    UNIVERSAT,
    VIT,
    row_numbers,
)

COLUMNS = ("classification", "segmentation", "multitemporal")
# the dataset whose channels and size are taken, and the presets
COUNTED: dict[str, tuple[str, Mapping[str, str]]] = {
    "classification": ("eurosat", SMALL_SCENES),
    "segmentation": ("burnscars", MAPS),
    "multitemporal": ("pastis", SERIES),
}
DIGITS = {"MNIST, Atomizer-IO": "atomizer_io_mnist", "MNIST, ViT": "vit_mnist"}


def count(column: str) -> dict[str, Any]:
    """Return the parameters, in millions, of all models for a kind of task."""
    name, presets = COUNTED[column]
    given, found = PAPER_INPUTS[name], {}
    with torch.device("meta"):  # no weights are needed to count
        for row, preset in presets.items():
            model = create_model(preset, task_spec=given.task_spec, **settings_for(preset, given))
            found[row] = {column: model.num_parameters / 1e6}
        if column == "classification":
            found |= {row: {column: create_model(name).num_parameters / 1e6} for row, name in DIGITS.items()}
    return {"numbers": found, "presets": dict(presets)}


def _runs(where: Where, seeds: Sequence[int]) -> list[Task]:
    return [Task(column, count, {"column": column}, 0.1) for column in COLUMNS]


_SCALE = Scale("counted on the models of the paper; the same at every scale, seconds", _runs, reads_data=False)
PARAMETERS = Item(
    name="parameters",
    label="tab:model_parameters, tab:mnist_hparams",
    unit="millions of parameters",
    paper={
        **row_numbers(
            COLUMNS,
            {
                RESNET: (23.6, 37.3, 37.3),
                VIT: (21.7, 30.3, 31.5),
                PERCEIVER: (19.7, 34.5, 34.5),
                RAMEN: (23.1, 33.7, 33.7),
                UNIVERSAT: (36.1, 36.1, 36.1),
                ATOMIZER: (19.2, 33.5, 34.8),
            },
        ),
        "MNIST, Atomizer-IO": {"classification": 7.40},
        "MNIST, ViT": {"classification": 7.44},
    },
    digits=2,
    scales=dict.fromkeys((PAPER, SMALL, SMOKE), _SCALE),
)
