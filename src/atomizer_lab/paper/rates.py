"""Learning rates of the rivals, by what each gets on validation data (ours: the paper does not say how it chose any).

A comparison is worth what its weakest side is worth: a rival for which another than the usual rate is clearly better
gets it for all small maps (:data:`atomizer_lab.paper.models.TUNED`). Atomizer-IO has that of its recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from atomizer_lab.matrix import Task
from atomizer_lab.paper import networks
from atomizer_lab.paper.item import SMALL, SMOKE, Item, Scale, Where
from atomizer_lab.paper.models import RESNET, RIVALS, UNET
from atomizer_lab.paper.trainings import Document

TRIED = (3e-4, 1e-3, 3e-3, 1e-2)
MODELS = (*RIVALS, UNET)
BIOMASS = networks.BIOMASS_COLUMNS[0]
# data, what they are called in the table, models and rates; the UNet's best was the highest, so it gets another one
SEARCH = (
    (networks.CHIP, "", MODELS, TRIED),
    (networks.CHIP, "", (UNET,), (3e-2,)),
    (BIOMASS, BIOMASS.title, MODELS, (1e-3, 3e-3)),
    (BIOMASS, BIOMASS.title, (UNET,), (1e-2,)),
)


def train_and_validate(
    row: str,
    rate: float,
    metric: str,
    key: str,
    document: Document,
    data: str,
    work: str,
    results: str,
    title: str = "",
) -> dict[str, Any]:
    """Train one network at a learning rate, and return its best score on the validation data.

    ``title`` names the data in the column of the table.
    """
    done = networks.train(key, document, data, work, results)
    column = f"{title}, {rate:g}" if title else f"{rate:g}"
    numbers = {row: {column: networks.shown(metric, done.metrics["best"]["score"])}}
    return {"numbers": numbers, "metric": metric, "best": done.metrics["best"], **done.cost}


def runs_of(
    column: networks.Column,
    models: Sequence[str],
    rates: Sequence[float],
    length: networks.Changes,
    minutes: float,
    title: str = "",
) -> Callable[[Where, Sequence[int]], list[Task]]:
    """Return what lists the runs of models at rates for some seeds; ``title`` names the data in the table."""

    def task(where: Where, seed: int, model: str, rate: float) -> Task:
        document = column.document(model, length, seed, {"training": {"learning_rate": rate}})
        arguments = {"row": model, "rate": rate, "metric": column.task.metric, "key": column.key, "document": document}
        if title:  # runs without it that are there keep their arguments, and are not made again
            arguments["title"] = title
        name = f"{model}, {rate:g}, {column.key}, seed {seed}"
        return Task(name, train_and_validate, arguments, minutes, networks.places(where))

    def runs(where: Where, seeds: Sequence[int]) -> list[Task]:
        # all models at one rate before the next, so that an interrupted call leaves rows of equal length
        return [task(where, seed, model, rate) for seed in seeds for rate in rates for model in models]

    return runs


def _small(where: Where, seeds: Sequence[int]) -> list[Task]:
    found = []
    for column, title, models, rates in SEARCH:
        found += runs_of(column, models, rates, networks.TIME, networks.MINUTES + 1, title)(where, seeds)
    return found


RATES = Item(
    name="rates",
    label="not in the paper",
    unit="mIoU (%) on validation data by the learning rate; of biomass the RMSE (lower is better)",
    paper={},
    scales={
        SMALL: Scale(
            f"the Sen1Floods11 chip and that of BioMassters, {networks.MINUTES} minutes of one core for a training",
            _small,
        ),
        SMOKE: Scale(
            "two steps on a made-up scene", runs_of(networks.MADE_UP, (RESNET,), TRIED[:2], networks.TWO_STEPS, 0.1)
        ),
    },
)
