"""The tables and figures of the paper that train networks: which cells they have at each scale.

The paper's numbers stand in ``tables.yaml``. What is not in the paper, and why it is here, stands beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from atomizer_io.datasets.dales import Dales
from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_lab.lidar import lidar as tiles
from atomizer_lab.lidar.tiles import DISTURBANCES, OTHERS
from atomizer_lab.matrix import Task
from atomizer_lab.paper import decoding, digits, lidar
from atomizer_lab.paper.columns import (
    BIOMASS_COLUMNS,
    CHIP,
    DATASETS,
    HYPERSPECTRAL,
    PATCH_FOLDS,
    RONDONIA_DATES,
    SYNTHETIC,
    SYNTHETIC_FIELDS,
    SYNTHETIC_FLOODS,
    SYNTHETIC_POINTS,
    THREE_SENSORS,
    Column,
)
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale, Summary, Where
from atomizer_lab.paper.models import ATOMIZER, BASELINES, MODELS, PERCEIVER, RESNET, UNET
from atomizer_lab.paper.networks import (
    MINUTES,
    TIME,
    TWO_STEPS,
    Cell,
    Runs,
    by_class,
    folders,
    runs_of,
    smoke,
    train_and_validate,
)
from atomizer_lab.small_data.tasks import RONDONIA, merged

ALL = (*MODELS[:2], UNET, *MODELS[2:])
Changes = Mapping[str, Any]
Variants = dict[str, dict[str, Any]]  # what each row changes of the settings


def varied(data: Sequence[str | Column], variants: Variants) -> list[Cell]:
    """Return a cell for each of the datasets, or columns, and each variant of Atomizer-IO."""
    columns = [DATASETS[one] if isinstance(one, str) else one for one in data]
    return [Cell(column, row=row, changes=changes) for column in columns for row, changes in variants.items()]


# ---- scores of all models
TABLE2_COLUMNS = ("EuroSAT", "ForestNet", "BurnScars", "Sen1Floods11", "PASTIS", "xView2", "Cashew", "BioMassters")
_MAPS = (CHIP, RONDONIA_DATES, SYNTHETIC_FLOODS, THREE_SENSORS, *BIOMASS_COLUMNS)
TABLE2 = Item(
    "table2",
    {
        PAPER: Scale(
            "eight datasets, six models, from scratch: 48 runs",
            runs_of([Cell(DATASETS[name], model) for name in TABLE2_COLUMNS for model in MODELS]),
        ),
        SMALL: Scale(
            "small tasks on real data and on synthetic floods, models of about 1 M parameters, "
            f"{MINUTES} minutes of one core to train each (the patches in five folds, with their standard deviation)",
            runs_of(
                [Cell(column, model) for column in _MAPS for model in ALL]
                # a UNet predicts at positions
                + [Cell(column, model) for column in PATCH_FOLDS for model in ALL if model != UNET]
            ),
        ),
        SMOKE: smoke([Cell(SYNTHETIC, model) for model in (RESNET, ATOMIZER)]),
    },
)

# ---- channels that are gone at test
TABLE3_DATASETS = {"Sen1Floods11": "S1F", "BioMassters": "BioM"}


def _channels(data: Any, short: str, models: Sequence[str], **alone: float) -> list[Cell]:
    """Return the cells of models that train with channel dropout, with a column for each set of channels."""
    changes = {"training": {"channel_dropout": {"scheme": "groups", **alone}}}
    titles = {f"{short} {name}": name for name in CONFIGURATIONS}
    return [Cell(data, model, changes=changes, titles=titles, average=f"{short} average") for model in models]


TABLE3 = Item(
    "table3",
    {
        PAPER: Scale(
            "both datasets, six models with the same band dropout (groups of bands): 12 runs",
            runs_of([c for name, short in TABLE3_DATASETS.items() for c in _channels(DATASETS[name], short, MODELS)]),
        ),
        SMALL: Scale(
            f"the western half of a Sen1Floods11 chip to train, the east to test, models of about 1 M parameters, "
            f"{MINUTES} minutes of one core to train each, with groups of bands dropped",
            runs_of(_channels(CHIP, "S1F", ALL, alone=0.3)),
            (0, 1, 2),
        ),
        SMOKE: smoke(_channels(SYNTHETIC, "S1F", (RESNET, ATOMIZER))),
    },
)

# A sensor of 224 bands of which every second is gone at test: the paper has no hyperspectral data.
BANDS = {"all bands": "all", "every 2nd band": "every-2nd", "every 4th band": "every-4th"}


def _bands(column: Column) -> list[Cell]:
    """Return the cells of both models, trained with subsets of the bands and with all of them."""
    variants: Variants = {"": {"training": {"channel_dropout": {"scheme": "bands"}}}, ", trained with all bands": {}}
    return [
        Cell(column, model, row=f"{model}{row}", changes=changes, titles=BANDS)
        for row, changes in variants.items()
        for model in (ATOMIZER, RESNET)
    ]


BANDS_ITEM = Item(
    "hyperspectral",
    {
        SMALL: Scale(
            f"EnMAP tiles of Potsdam, 224 bands, {MINUTES} minutes of one core for a training",
            runs_of(_bands(HYPERSPECTRAL)),
        ),
        SMOKE: smoke(_bands(SYNTHETIC)),
    },
)

# ---- ablations
FULL, WITHOUT = "full model", "without local observations"
_LOCAL: Variants = {WITHOUT: {"model": {"settings": {"observation_conditioning": False}}}, FULL: {}}
LOCAL_OBSERVATIONS = Item(
    "local-observations",
    {
        PAPER: Scale(
            "four datasets: 8 runs, of which those of the full model are those of table2",
            runs_of(varied(("Sen1Floods11", "Cashew", "PASTIS", "BurnScars"), _LOCAL)),
        ),
        SMALL: Scale(
            f"a Sen1Floods11 chip, Rondônia and synthetic floods, {MINUTES} minutes of one core for a training",
            runs_of(varied((CHIP, RONDONIA_DATES, SYNTHETIC_FLOODS), _LOCAL)),
        ),
        SMOKE: smoke(varied((SYNTHETIC,), _LOCAL)),
    },
)

_ROPE: Variants = {digits.NO_ROPE: {"model": {"settings": {"rope": False}}}, ATOMIZER: {}}


def _digits(scale: str, models: Sequence[str], shares: digits.Shares, more: Sequence[Cell] = ()) -> Runs:
    """Return what lists the runs on MNIST, and then those of ``more`` cells."""
    return lambda where, seeds: [
        *digits.tasks(models, scale, where, seeds, shares),
        *(cell.task(where, seed) for seed in seeds for cell in more),
    ]


_rope = partial(_digits, models=(ATOMIZER, digits.NO_ROPE), shares={"MNIST": 1.0})
ROPE = Item(
    "rope",
    {
        PAPER: Scale(
            "MNIST of 28 × 28 pixels, 7.4 M parameters, 50 epochs; four datasets of maps: 10 runs",
            _rope(PAPER, more=varied(("Cashew", "PASTIS", "BurnScars", "Sen1Floods11"), _ROPE)),
        ),
        SMALL: Scale(
            "MNIST of 14 × 14 pixels, 0.21 M parameters, 3 epochs, all 10 000 test images, 50 minutes of one core for "
            f"a network; a Sen1Floods11 chip, {MINUTES} minutes",
            _rope(SMALL, more=varied((CHIP,), _ROPE)),
        ),
        SMOKE: Scale("one step on synthetic digits, seconds", _rope(SMOKE)),
    },
)

_sparse = partial(_digits, models=(ATOMIZER, digits.VIT), shares=digits.KEPT)
MNIST_SPARSE = Item(
    "mnist-sparse",
    {
        PAPER: Scale("28 × 28 pixels, 7.4 M parameters, 50 epochs of 55 000 images", _sparse(PAPER)),
        SMALL: Scale(
            "14 × 14 pixels, 0.21 M parameters, 3 epochs of 58 000 images for both, all 10 000 test images; "
            "50 minutes of one core for each network, less than two minutes of two cores with the kept models",
            _sparse(SMALL),
        ),
        SMOKE: Scale("one step on synthetic digits, seconds", _sparse(SMOKE)),
    },
)

# ---- dates encoded together, or one by one and then aggregated
JOINT, AGGREGATED, GAIN = "joint", "aggregated", "gain by aggregation"
DATES = (3, 6, 12)
SMALL_DATES = {1: ("20210805",), 3: ("20210704", "20210805", "20210922"), 6: tuple(RONDONIA.data["options"]["sensor"])}
# Two experiments tell why the paper's shape does not show in Rondônia: there, queries may need no latents, as they see
# all dates of their own position; and its classes are a model's opinion of single pixels, those of synthetic fields are
# not.
BLIND = ", queries without local observations"
_WAYS: Variants = {
    JOINT: {"model": {"settings": {"temporal": False}}},
    AGGREGATED: {"model": {"settings": {"temporal": True}}},
}
_PRESETS = {
    JOINT: "atomizer_io_seg",
    AGGREGATED: "atomizer_io_seg_temporal",
}  # without aggregation that of single dates


def with_gain(summary: Summary) -> Summary:
    """Return a summary with what aggregation gains with each number of dates: the paper reports only this."""
    gains = {f"{GAIN}{kind}": _gain(summary, kind) for kind in ("", BLIND)}
    return {**summary, **{row: cells for row, cells in gains.items() if cells}}


def _gain(summary: Summary, kind: str) -> dict[str, dict[str, Any]]:
    """Return by how much the row of aggregated dates is ahead of that of joint ones; both names end with ``kind``."""
    joint, aggregated, gains = summary.get(f"{JOINT}{kind}", {}), summary.get(f"{AGGREGATED}{kind}", {}), {}
    for column in (name for name in joint if name in aggregated):
        before, after = joint[column], aggregated[column]
        paired = len(before["values"]) == len(after["values"])  # else some seeds are not there yet
        values = [b - a for a, b in zip(before["values"], after["values"], strict=True)] if paired else []
        std = statistics.stdev(values) if len(values) > 1 else None
        gains[column] = {"values": values, "mean": after["mean"] - before["mean"], "spread": std}  # old name
    return gains


def _paper_dates(way: str, count: int) -> Cell:
    changes = {"data": {"options": {"dates": count}}, "model": {"preset": _PRESETS[way], "settings": {}}}
    return Cell(DATASETS["PASTIS"], row=way, changes=changes, titles={f"T = {count}": "all"})


def _small_dates(way: str, count: int) -> Cell:
    """Return the cell with so many dates of Rondônia; with fewer of them crops are wider."""
    all_dates = RONDONIA.data["options"]["sensor"]
    sensors = {name: sensor if name in SMALL_DATES[count] else "-" for name, sensor in all_dates.items()}
    changes = {"data": {"options": {"sensor": sensors}}, **_WAYS[way]}
    return Cell(RONDONIA_DATES, row=way, changes=changes, titles={f"T = {count}": "all"})


def _blind(way: str, count: int) -> Cell:
    """Return the same cell, where queries do not see what was observed at their position."""
    cell = _small_dates(way, count)
    return replace(cell, row=f"{way}{BLIND}", changes=merged(cell.changes, _LOCAL[WITHOUT]))


def _synthetic_dates(way: str, count: int) -> Cell:
    changes = {"data": {"options": {"dates": count}}, **_WAYS[way]}
    titles = {f"{SYNTHETIC_FIELDS.title}, T = {count}": "all"}
    return Cell(SYNTHETIC_FIELDS, row=way, changes=changes, titles=titles)


def _small_temporal(where: Where, seeds: Sequence[int]) -> list[Task]:
    """Return the runs on Rondônia, and for the first seed those that tell why they come out as they do."""
    own = [_small_dates(way, count) for count in SMALL_DATES for way in _WAYS]
    causes = [_blind(way, count) for count in SMALL_DATES for way in _WAYS]
    causes += [_synthetic_dates(way, count) for count in DATES for way in _WAYS]
    return runs_of(own)(where, seeds) + runs_of(causes)(where, seeds[:1])


TEMPORAL = Item(
    "temporal",
    {
        PAPER: Scale(
            "PASTIS with 3, 6 and 12 dates: 6 runs",
            runs_of([_paper_dates(way, count) for count in DATES for way in _WAYS]),
        ),
        SMALL: Scale(
            f"Rondônia with 1, 3 and 6 dates of Sentinel-2, {MINUTES} minutes of one core for a training; the classes "
            "are another model's opinion. With one seed also without local observations, and on synthetic fields",
            _small_temporal,
        ),
        SMOKE: smoke(varied((SYNTHETIC,), _WAYS)),
    },
    derive=with_gain,
)

# Learning rates of the baselines, by what each gets on validation data: the paper does not say how it chose any. A
# comparison is worth what its weakest side is worth: a baseline for which another than the usual rate is clearly better
# gets it for all small maps (``models.TUNED``). Atomizer-IO has that of its recipe.
RATES_TRIED = (3e-4, 1e-3, 3e-3, 1e-2)
_BIOMASS = BIOMASS_COLUMNS[0]
# data, what they are called in the table, models and rates; the UNet's best was the highest, so it gets another one
_SEARCH: tuple[tuple[Column, str, tuple[str, ...], tuple[float, ...]], ...] = (
    (CHIP, "", (*BASELINES, UNET), RATES_TRIED),
    (CHIP, "", (UNET,), (3e-2,)),
    (_BIOMASS, _BIOMASS.title, (*BASELINES, UNET), (1e-3, 3e-3)),
    (_BIOMASS, _BIOMASS.title, (UNET,), (1e-2,)),
)


def _rates(search: Sequence[Any], length: Changes = TIME, minutes: float = MINUTES + 1) -> Runs:
    """Return what lists the runs of a search; all models run at one rate before the next, so that rows grow alike."""

    def task(where: Where, seed: int, column: Column, title: str, model: str, rate: float) -> Task:
        changes = {"training": {"learning_rate": rate}}
        document = column.document(model, seed, changes, length, where.configs)
        arguments = {"row": model, "rate": rate, "metric": column.metric, "key": column.key, "document": document}
        if title:  # runs without it that are there keep their arguments, and are not made again
            arguments["title"] = title
        name = f"{model}, {rate:g}, {column.key}, seed {seed}"
        return Task(name, train_and_validate, arguments, minutes, folders(where))

    return lambda where, seeds: [
        task(where, seed, column, title, model, rate)
        for column, title, models, rates in search
        for seed in seeds
        for rate in rates
        for model in models
    ]


RATES = Item(
    "rates",
    {
        SMALL: Scale(
            f"the Sen1Floods11 chip and that of BioMassters, {MINUTES} minutes of one core for a training",
            _rates(_SEARCH),
        ),
        SMOKE: Scale(
            "two steps on a synthetic scene", _rates([(SYNTHETIC, "", (RESNET,), RATES_TRIED[:2])], TWO_STEPS, 0.1)
        ),
    },
)

# ---- one checkpoint, decoded in many ways
_decoded = decoding.tasks_of
COMPUTE = Item(
    "compute",
    {
        PAPER: Scale(
            "Sen1Floods11 and BurnScars, one checkpoint of Atomizer-IO, baselines as points; trainings of table2",
            _decoded("compute", (DATASETS["Sen1Floods11"], DATASETS["BurnScars"]), MODELS),
        ),
        SMALL: Scale(
            "the Sen1Floods11 chip, one checkpoint of Atomizer-IO, baselines as points; trainings of table2, else "
            f"{MINUTES} minutes of one core for a model, and four more to decode it",
            _decoded("compute", (CHIP,), ALL),
        ),
        SMOKE: Scale("two steps on a synthetic scene", _decoded("smoke", (SYNTHETIC,), (ATOMIZER, RESNET), TWO_STEPS)),
    },
    draw=decoding.draw_trade_off,
)
SENSITIVITY = Item(
    "sensitivity",
    {
        PAPER: Scale(
            "Sen1Floods11 and BurnScars, one checkpoint each, of table2",
            _decoded("sensitivity", (DATASETS["Sen1Floods11"], DATASETS["BurnScars"]), (ATOMIZER,)),
        ),
        SMALL: Scale(
            f"the Sen1Floods11 chip and synthetic floods, a checkpoint each, of table2; else {MINUTES} minutes of one "
            "core to train it, and one to four more to decode it",
            _decoded("sensitivity", (CHIP, SYNTHETIC_FLOODS), (ATOMIZER,)),
        ),
        SMOKE: Scale("two steps on a synthetic scene", _decoded("smoke", (SYNTHETIC,), (ATOMIZER,), TWO_STEPS)),
    },
    draw=decoding.draw_sensitivity,
)

# ---- points
_POINTS = [Cell(SYNTHETIC_POINTS, model) for model in (PERCEIVER, ATOMIZER)]
LIDAR = Item(
    "lidar",
    {
        PAPER: Scale(
            "DALES and FRACTAL, Atomizer-IO and Perceiver-IO: 4 runs",
            runs_of([Cell(DATASETS[d], model) for d in ("DALES", "FRACTAL") for model in (PERCEIVER, ATOMIZER)]),
        ),
        SMALL: Scale(
            f"six tiles of LiDAR HD, {lidar.STEPS} steps, about 5 minutes of one core for a network; the test tile "
            "also disturbed, and two point clouds of other regions",
            lidar.runs_of(lidar.ROWS, lidar.BY_TEST, (tiles.PLAIN, *DISTURBANCES, *OTHERS), with_photo=True),
        ),
        SMOKE: smoke(_POINTS, "point cloud"),
    },
)
_DALES = [Cell(DATASETS["DALES"], model, run=by_class) for model in (PERCEIVER, ATOMIZER)]
DALES_CLASSES = Item(
    "dales-classes",
    {
        PAPER: Scale(f"DALES, classes {', '.join(Dales.info.classes)}; the trainings of lidar", runs_of(_DALES)),
        SMALL: Scale(
            f"the undisturbed tile of LiDAR HD, whose classes are other ones; the trainings of lidar ({lidar.STEPS} "
            "steps), else about 5 minutes of one core for a network",
            lidar.runs_of({row: lidar.ROWS[row] for row in (ATOMIZER, PERCEIVER)}, lidar.BY_CLASS, (tiles.PLAIN,)),
        ),
        SMOKE: smoke([replace(cell, run=by_class) for cell in _POINTS], "point cloud"),
    },
)
