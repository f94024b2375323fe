"""The tables and figures of the paper that train networks: which cells they have at each scale.

The paper's numbers stand in ``tables.yaml``. What is not in the paper, and why it is here, stands beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from atomizer_io.datasets.dales import Dales
from atomizer_io.io.tables import evenly
from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_lab.lidar.tiles import FILTER_TEST, LIDAR_HD
from atomizer_lab.matrix import Task
from atomizer_lab.paper import decoding, digits, lidar, tabular
from atomizer_lab.paper.columns import (
    CHANGE,
    CHIP,
    DATASETS,
    EUROSAT,
    HEIGHTS,
    HEIGHTS_BY_PLOT,
    HEIGHTS_RGB,
    HEIGHTS_SPECTRA,
    HYPERSPECTRAL,
    MARIDA,
    MODIS,
    RONDONIA,
    SENTINEL2,
    SYNTHETIC,
    SYNTHETIC_FIELDS,
    SYNTHETIC_FLOODS,
    SYNTHETIC_POINTS,
    WATER,
    Column,
    settings_in,
)
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale, Summary, Where
from atomizer_lab.paper.models import ATOMIZER, MODELS, PERCEIVER, RESNET, UNET
from atomizer_lab.paper.networks import (
    MINUTES,
    RATES,
    TRIED,
    TRIED_MINUTES,
    TWO_STEPS,
    Cell,
    Runs,
    by_class,
    folders,
    runs_of,
    smoke,
    train_and_validate,
    trial,
)

ALL = (*MODELS[:2], UNET, *MODELS[2:])
Changes = Mapping[str, Any]
Variants = dict[str, dict[str, Any]]  # what each row changes of the settings


def varied(data: Sequence[str | Column], variants: Variants) -> list[Cell]:
    """Return a cell for each of the datasets, or columns, and each variant of Atomizer-IO."""
    columns = [DATASETS[one] if isinstance(one, str) else one for one in data]
    return [Cell(column, row=row, changes=changes) for column in columns for row, changes in variants.items()]


def together(*parts: Runs) -> Runs:
    """Return what lists the runs of all parts."""
    return lambda where, seeds: [task for part in parts for task in part(where, seeds)]


EQUAL = (
    f"models of about 1 M parameters, {MINUTES} minutes of one core to train each, at the best of {len(RATES)} "
    "learning rates on validation data"
)
SEEDS = (0, 1, 2)

# ---- scores of all models
TABLE2_COLUMNS = ("EuroSAT", "ForestNet", "BurnScars", "Sen1Floods11", "PASTIS", "xView2", "Cashew", "BioMassters")
_HEIGHTS = (HEIGHTS_BY_PLOT, HEIGHTS, HEIGHTS_RGB, HEIGHTS_SPECTRA)
_MAPS = (MARIDA, WATER, CHANGE, *_HEIGHTS, SYNTHETIC_FLOODS, SYNTHETIC_FIELDS, CHIP, RONDONIA)
_SCENES = (EUROSAT, MODIS, SENTINEL2)
MULTI_SCENE = tuple(column.title for column in (MARIDA, WATER, CHANGE, EUROSAT, HEIGHTS, SENTINEL2))
TABLE2 = Item(
    "table2",
    {
        PAPER: Scale(
            "eight datasets, six models, from scratch: 48 runs",
            runs_of([Cell(DATASETS[name], model) for name in TABLE2_COLUMNS for model in MODELS]),
        ),
        SMALL: Scale(
            "sets of many scenes with whole ones held out, synthetic scenes, and two single scenes cut in parts; "
            f"{EQUAL}",
            together(
                tabular.runs_of((*_MAPS, *_SCENES)),
                runs_of(
                    [Cell(column, model) for column in _MAPS for model in ALL]
                    # a UNet predicts at positions
                    + [Cell(column, model) for column in _SCENES for model in ALL if model != UNET]
                ),
            ),
            SEEDS,
        ),
        SMOKE: Scale(
            "two steps on a synthetic scene",
            together(
                tabular.runs_of([SYNTHETIC]), smoke([Cell(SYNTHETIC, model) for model in (RESNET, ATOMIZER)]).runs
            ),
            reads_data=False,
        ),
    },
)

# ---- channels that are gone at test
TABLE3_DATASETS = {"Sen1Floods11": "S1F", "BioMassters": "BioM"}


MARIDA_CHANNELS = {"all": "all", "RGB": "rgb-only", "no SWIR": "no-swir", "no red edge": "no-red-edge"}
MARIDA_CHANNELS |= {"RGB + NIR": "rgb-only+nir-only", "every 2nd band": "every-2nd"}
SENSORS = {"both": "all", "RGB": "aerial-only", "hyperspectral": "neon-only"}
ALL_CHANNELS = {name: name for name in CONFIGURATIONS}


def _channels(data: Any, short: str, models: Sequence[str], channels: Changes = ALL_CHANNELS) -> list[Cell]:
    """Return the cells of models that train with channel dropout, with a column for each set of channels."""
    dropout: Changes = {"scheme": "sensors" if channels is SENSORS else "groups"}
    if isinstance(data, Column):
        dropout = {**dropout, "alone": 0.3}
    changes = {"training": {"channel_dropout": dropout}}
    titles = {f"{short} {title}": name for title, name in channels.items()}
    return [Cell(data, model, changes=changes, titles=titles, average=f"{short} average") for model in models]


def _fitted(column: Column, short: str, channels: Changes) -> Runs:
    """Return what lists the tabular baselines, which are fitted anew for each set of channels."""
    titles = {f"{short} {title}": name for title, name in channels.items()}
    return tabular.runs_of([column], titles, f"{short} average")


TABLE3 = Item(
    "table3",
    {
        PAPER: Scale(
            "both datasets, six models with the same band dropout (groups of bands): 12 runs",
            runs_of([c for name, short in TABLE3_DATASETS.items() for c in _channels(DATASETS[name], short, MODELS)]),
        ),
        SMALL: Scale(
            "MARIDA with groups of bands dropped, canopy heights of new sites with each of two images; "
            f"{EQUAL}. Tabular baselines are fitted for each set of channels",
            together(
                _fitted(MARIDA, "MARIDA", MARIDA_CHANNELS),
                _fitted(HEIGHTS, "height", SENSORS),
                runs_of(_channels(MARIDA, "MARIDA", ALL, MARIDA_CHANNELS) + _channels(HEIGHTS, "height", ALL, SENSORS)),
            ),
            SEEDS,
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
            f"EnMAP tiles of Potsdam, 224 bands; {EQUAL}",
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
            f"MARIDA, HLS water, OSCD and synthetic floods; {EQUAL}",
            runs_of(varied((MARIDA, WATER, CHANGE, SYNTHETIC_FLOODS), _LOCAL)),
            SEEDS,
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
            f"a network; MARIDA, HLS water and EuroSAT in RGB; {EQUAL}",
            _rope(SMALL, more=varied((MARIDA, WATER, EUROSAT), _ROPE)),
            SEEDS,
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
_WAYS: Variants = {
    JOINT: {"model": {"settings": {"temporal": False}}},
    AGGREGATED: {"model": {"settings": {"temporal": True}}},
}
_PRESETS = {
    JOINT: "atomizer_io_seg",
    AGGREGATED: "atomizer_io_seg_temporal",
}  # without aggregation that of single dates


def with_gain(summary: Summary) -> Summary:
    """Return a summary with what aggregation gains in each column: the paper reports only this."""
    joint, aggregated, gains = summary.get(JOINT, {}), summary.get(AGGREGATED, {}), {}
    for column in (name for name in joint if name in aggregated):
        before, after = joint[column], aggregated[column]
        paired = len(before["values"]) == len(after["values"])  # else some seeds are not there yet
        values = [b - a for a, b in zip(before["values"], after["values"], strict=True)] if paired else []
        std = statistics.stdev(values) if len(values) > 1 else None
        gains[column] = {"values": values, "mean": after["mean"] - before["mean"], "spread": std}  # old name
    return {**summary, GAIN: gains} if gains else summary


def _paper_dates(way: str, count: int) -> Cell:
    changes = {"data": {"options": {"dates": count}}, "model": {"preset": _PRESETS[way], "settings": {}}}
    return Cell(DATASETS["PASTIS"], row=way, changes=changes, titles={f"T = {count}": "all"})


def _dates(column: Column, way: str, count: int) -> Cell:
    """Return the cell with so many dates of a column, spread over all; with fewer of them crops are wider."""
    options: Changes = {"dates": count}
    if column is RONDONIA:
        sensors = settings_in(Path("configs/small"), "rondonia")["data"]["options"]["sensor"]
        used = evenly(list(sensors), count)
        options = {"sensor": {date: name if date in used else "-" for date, name in sensors.items()}}
    titles = {f"{column.title}, T = {count}": "all"}
    return Cell(column, row=way, changes={"data": {"options": options}, **_WAYS[way]}, titles=titles)


SMALL_DATES = {MODIS: DATES, SENTINEL2: DATES, RONDONIA: DATES[:2], SYNTHETIC_FIELDS: DATES}
TEMPORAL = Item(
    "temporal",
    {
        PAPER: Scale(
            "PASTIS with 3, 6 and 12 dates: 6 runs",
            runs_of([_paper_dates(way, count) for count in DATES for way in _WAYS]),
        ),
        SMALL: Scale(
            "series at points of MODIS and of Sentinel-2, Rondônia (whose classes are another model's opinion), "
            f"synthetic fields; {EQUAL}",
            runs_of([_dates(data, way, n) for data, counts in SMALL_DATES.items() for n in counts for way in _WAYS]),
            SEEDS,
        ),
        SMOKE: smoke(varied((SYNTHETIC,), _WAYS)),
    },
    derive=with_gain,
)

# What each model gets on validation data at each learning rate: the trainings of the other items take the best.
_SEARCHED = (MARIDA, WATER, CHANGE, HEIGHTS, EUROSAT, MODIS, SENTINEL2)


def _rates(columns: Sequence[Column], models: Sequence[str], length: Changes = TRIED, minutes: float = 3.0) -> Runs:
    """Return what lists the runs of a search; all models run at one rate before the next, so that rows grow alike."""

    def task(where: Where, column: Column, model: str, rate: float) -> Task:
        document = trial(column.document(model, 0, {}, {}, where.configs), rate, length)
        arguments = {"row": model, "title": f"{column.title}, {rate:g}", "metric": column.metric, "key": column.key}
        name = f"{model}, {rate:g}, {column.key}"
        return Task(name, train_and_validate, {**arguments, "document": document}, minutes, folders(where))

    return lambda where, seeds: [
        task(where, column, model, rate)
        for column in columns
        for rate in RATES
        for model in models
        if model != UNET or column not in _SCENES
    ]


RATES_ITEM = Item(
    "rates",
    {
        SMALL: Scale(
            f"all sets of many scenes, {TRIED_MINUTES} minutes of one core for a training", _rates(_SEARCHED, ALL)
        ),
        SMOKE: Scale("two steps on a synthetic scene", _rates([SYNTHETIC], (RESNET,), TWO_STEPS, 0.1)),
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
            f"MARIDA, one checkpoint of Atomizer-IO, baselines as points; trainings of table2: {EQUAL}",
            _decoded("compute", (MARIDA,), ALL),
        ),
        SMOKE: Scale("two steps on a synthetic scene", _decoded("smoke", (SYNTHETIC,), (ATOMIZER, RESNET), TWO_STEPS)),
    },
)
SENSITIVITY = Item(
    "sensitivity",
    {
        PAPER: Scale(
            "Sen1Floods11 and BurnScars, one checkpoint each, of table2",
            _decoded("sensitivity", (DATASETS["Sen1Floods11"], DATASETS["BurnScars"]), (ATOMIZER,)),
        ),
        SMALL: Scale(
            f"MARIDA and synthetic floods, a checkpoint each, of table2: {EQUAL}",
            _decoded("sensitivity", (MARIDA, SYNTHETIC_FLOODS), (ATOMIZER,)),
        ),
        SMOKE: Scale("two steps on a synthetic scene", _decoded("smoke", (SYNTHETIC,), (ATOMIZER,), TWO_STEPS)),
    },
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
            "six tiles of LiDAR HD in six folds, also on two other places, and the ISPRS filter test by site; "
            f"{lidar.STEPS} steps at the best of {len(RATES)} rates on validation data, 8 minutes of one core each",
            lidar.runs_of((LIDAR_HD, FILTER_TEST), lidar.BY_TEST),
            SEEDS,
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
            "six tiles of LiDAR HD in six folds, whose classes are other ones; the trainings of lidar "
            f"({lidar.STEPS} steps)",
            lidar.runs_of((LIDAR_HD,), lidar.BY_CLASS),
            SEEDS,
        ),
        SMOKE: smoke([replace(cell, run=by_class) for cell in _POINTS], "point cloud"),
    },
)
