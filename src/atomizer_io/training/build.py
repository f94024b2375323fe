"""The training data inspected, the model built for them, and what a run leaves to the data filled in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from atomizer_io.data.channels import Channel
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.statistics import Statistics, measure
from atomizer_io.datasets.summary import Summary
from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.models.base import Cost, Model
from atomizer_io.models.registry import create_model, preset
from atomizer_io.progress import watched
from atomizer_io.training.config import AUTO, EVEN, FROM_DATA, MEASURED, PUBLISHED, Run
from atomizer_io.training.data import ResumableLoader
from atomizer_io.training.draws import Draws, generator
from atomizer_io.training.losses import class_weights_of_counts
from atomizer_io.training.transfer import FROM_SCRATCH, Transfer, transferred

INITIALISED, INITIALISED_ATOMS = 32, 2_000_000  # samples from which weights are initialised, and their atoms, at most
FEW_VALUES = 1000  # of a channel: its measured statistics are not believed where there are published ones
POWERS = {"balanced": 1.0, "sqrt": 0.5}  # of how rare a class is, for its weight
FAR_MEAN, FAR_STD = 1.0, 2.0  # means apart by more than a standard deviation, deviations by more than this factor
CROP_ATOMS = 32_000
WHOLE = 1.5  # a sample of no more than so many crops stays whole
SIDE_PIXELS = 4  # sides are multiples of so many pixels
MOST_DRAWS = 64  # of one sample in an epoch
FEWEST, MOST = 4, 64  # samples of a batch
QUERIES = 250  # positions of a sample, of models that decode positions one by one


@dataclass(frozen=True, slots=True)
class Inspection:
    """Statistics and a summary of some training samples."""

    statistics: Statistics
    summary: Summary


def inspect(run: Run, train: Dataset, progress: bool = False) -> Inspection:
    """Inspect some training samples, drawn at random; the statistics are theirs or those of a file that is named."""
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(run.seed))[: max(1, run.data.measure)]
    samples: Iterator[Any] = (train[i] for i in order.tolist())
    shown = watched(samples, len(order), title="statistics", unit=" samples", show=progress, stay=False)
    summary = Summary()
    statistics = measure(summary.watch(shown), classes=len(train.info.classes))
    if not statistics.samples:
        raise AtomizerError(f"{train!r}: none of {len(order)} training samples could be read: {statistics.skipped[0]}")
    named = run.data.statistics not in (None, MEASURED, PUBLISHED)
    return Inspection(Statistics.load(str(run.data.statistics)) if named else statistics, summary)


def described(run: Run, train: Dataset, statistics: Statistics) -> tuple[Channel, ...]:
    """Return the channels that the model is made for, with the statistics of the settings.

    These are measured, published, or those of a file. Measured ones give way to published ones where there are few
    values, published ones to measured ones where there are none. A model that reads only channels it was made for also
    gets those that the dataset is known to have: a rare sensor need not be among the samples that were inspected.
    """
    published = {(c.sensor, c.name): c for c in train.channels if c.mean is not None and c.std is not None}
    source = run.data.statistics or PUBLISHED
    channels = {}
    for channel, count in zip(statistics.channels, statistics.counts, strict=True):
        own = source not in (MEASURED, PUBLISHED) or (source == MEASURED and count >= FEW_VALUES and channel.std)
        key = channel.sensor, channel.name
        channels[key] = channel if own else published.get(key, channel)
    if run.model.checkpoint is None and not preset(run.model.preset)[0].capabilities.new_channels:
        channels |= {(c.sensor, c.name): c for c in train.channels if (c.sensor, c.name) not in channels}
    return tuple(channels.values())


def notes_of(run: Run, train: Dataset, inspection: Inspection) -> list[str]:
    """Return notes on the data that somebody who starts this training should read."""
    statistics = inspection.statistics
    notes = [
        f"class {name!r} does not occur in the {statistics.samples} training samples that were inspected"
        for name, count in zip(train.info.classes, statistics.classes, strict=False)
        if not count
    ]
    if inspection.summary.days and not inspection.summary.several_days:
        several = " of a sensor" if len(inspection.summary.days) > 1 else ""
        notes.append(f"all training samples{several} are of one day of the year, so dates are not used")
    published = {(c.sensor, c.name): c for c in train.channels}
    apart = {c: by for c in statistics.channels if (by := far_apart(c, published.get((c.sensor, c.name))))}
    if apart:
        used, unused = (PUBLISHED, MEASURED) if run.data.statistics in (None, PUBLISHED) else (MEASURED, PUBLISHED)
        worst = max(apart, key=lambda c: apart[c])
        both = ", published ".join(
            f"{channel.mean:.4g} ± {channel.std or 0.0:.3g}" for channel in (worst, published[worst.sensor, worst.name])
        )
        notes.append(
            f"measured and published statistics of {len(apart)} of {len(statistics.channels)} channels are far apart, "
            f"most for {worst.sensor} {worst.name} ({both}); the {used} ones are used, data.statistics={unused} takes "
            "the others (`atomizer data stats` lists all)"
        )
    return notes


def far_apart(measured: Channel, published: Channel | None) -> float:
    """Return by how many times the limit two statistics differ, more than 1; 0 where they are close."""
    if published is None or published.mean is None or not published.std or measured.mean is None:
        return 0.0
    ratio = (measured.std or 0.0) / published.std
    stds = max(ratio, 1 / ratio) / FAR_STD if ratio else math.inf
    means = abs(measured.mean - published.mean) / published.std / FAR_MEAN
    return excess if (excess := max(stds, means)) > 1 else 0.0


def build(run: Run, train: Dataset, inspection: Inspection) -> tuple[Model, Transfer]:
    """Build the model that the settings name for the task of the data; return what it has from a checkpoint, too."""
    if run.training.query_sampling != EVEN and not train.info.classes:
        raise ConfigError("training.query_sampling: a regression target has no classes; use even")
    task_spec, transfer = task_spec_of(run, train, inspection), FROM_SCRATCH
    if run.model.checkpoint is None:
        model: Model = create_model(run.model.preset, task_spec=task_spec, **run.model.settings)
    else:
        model, transfer = transferred(run.model, task_spec, train.info.name)
    cost = costs_of(run, model)[-1]
    if cost.atoms_per_latent is not None:
        model.keep_cost(cost)
    return model, transfer


def initialise(run: Run, model: Model, loader: ResumableLoader, transfer: Transfer = FROM_SCRATCH) -> None:
    """Initialise the fresh stages of a model from some training samples; those of a checkpoint stay.

    All processes of a run draw the same samples, fewer where they are large.
    """
    keeps_weights = type(model).initialise is Model.initialise
    stages = transfer.fresh if run.model.checkpoint else frozenset(model.stages)
    if keeps_weights or run.training.initialisation != FROM_DATA or not stages:
        return
    inputs: list[Any] = []
    atoms = 0
    for draws in Draws(len(loader.samples), 1, run.seed, round=min(INITIALISED, len(loader.samples))):
        batch = loader.collate([loader.samples[draw] for draw in draws])
        inputs, atoms = [*inputs, *batch.inputs], atoms + batch.num_atoms
        if atoms >= INITIALISED_ATOMS:
            break
    if inputs:
        torch.manual_seed(generator(run.seed, "initialisation").initial_seed())
        model.initialise(inputs, stages)


def task_of(train: Dataset, inspection: Inspection) -> str:
    """Return the task of the training data; a regression without queries is one of scenes."""
    task = train.info.task
    return "scene_regression" if task == "regression" and not any(inspection.summary.queries) else task


def shows_all(run: Run, inspection: Inspection, channels: Iterable[Channel]) -> bool:
    """Whether a training always shows all of these channels, so that nothing is learned of doing without any."""
    return not run.training.channel_dropout.hide and {(c.sensor, c.name) for c in channels} <= inspection.summary.in_all


def shown_fields(run: Run, inspection: Inspection) -> tuple[str, ...]:
    """Return the site fields that a training always shows, so that nothing is learned of doing without them."""
    if run.training.point_augmentation.field_dropout:
        return ()
    fields = inspection.statistics.fields
    return tuple(name for name in fields if name in inspection.summary.fields_in_all and fields[name][1] > 0)


def task_spec_of(run: Run, train: Dataset, inspection: Inspection) -> TaskSpec:
    """Return the task of the training data: its outputs, class names, channels and statistics."""
    info, statistics = train.info, inspection.statistics
    channels = described(run, train, statistics)
    task_spec = TaskSpec(
        task=task_of(train, inspection),
        num_outputs=info.num_outputs,
        class_names=info.classes,
        class_codes=info.codes,
        label_codes=info.label_codes,
        las_standard=info.las_standard,
        target_name=info.target_name,
        target_unit=info.unit,
        channels=channels,
        complete=shows_all(run, inspection, channels),
        fields=statistics.fields,
        complete_fields=shown_fields(run, inspection),
        point_density=statistics.density,
        thinning=run.training.point_augmentation.thinning,
        dates=inspection.summary.several_days,
        extent_m=info.extent_m or None,
        pixel_m=None if inspection.summary.points else inspection.summary.pixel_m,
        timesteps=tuple(sorted(inspection.summary.timesteps)),
    )
    if task_spec.regression and statistics.target is not None:
        task_spec = task_spec.replace(target_mean=statistics.target[0], target_std=statistics.target[1] or 1.0)
    return task_spec


def costs_of(run: Run, model: Model) -> list[Cost]:
    """Return the costs of which one is drawn for each training batch: the configurations (κ, m) of the settings.

    A model without κ has no cells that m could cut, so it trains at its own cost. How many points become context is
    not among the configurations: it is the model's own setting.
    """
    usual = model.training_cost()
    if "atoms_per_latent" not in model.capabilities.cost or not run.training.configurations:
        return [usual]
    pairs = run.training.configurations
    return [replace(usual, atoms_per_latent=kappa, budget=budget) for kappa, budget in pairs]


def class_weights(run: Run, train: Dataset, statistics: Statistics) -> Tensor | None:
    """Return the class weights of the settings, or None; ``statistics`` has counted the classes."""
    weighting, classes = run.training.class_weights, train.info.classes
    if weighting is None or weighting == "none":
        return None
    if not classes:
        raise ConfigError("training.class_weights: a regression target has no classes")
    if isinstance(weighting, str) and weighting in POWERS:
        return class_weights_of_counts(statistics.classes[: len(classes)], POWERS[weighting])
    if isinstance(weighting, list | tuple) and len(weighting) == len(classes):
        return torch.tensor([float(weight) for weight in weighting])
    raise ConfigError(
        f"training.class_weights is {weighting!r}; use none, {', '.join(POWERS)}, or a list of {len(classes)} numbers"
    )


def fitted(run: Run, summary: Summary, model: Model) -> Run:
    """Return ``run`` with what it leaves open filled in from ``model`` and the ``summary`` of training samples.

    One recipe serves all data that way. Large maps are cut to crops of about :data:`CROP_ATOMS` measurements, so that a
    step takes about as long for any sensor, and a sample is drawn as often as crops fit into it. Small samples come in
    larger batches, until a batch holds as many measurements as one of crops. A model of images gets crops of the size
    that it needs, with any number of bands, and is trained on all pixels, since it predicts all of them anyway.
    """
    t = run.training
    crop_m = t.crop_m
    if crop_m == AUTO:  # a scene with one label stays whole: a part of it may not show why
        crop_m = crop_side(summary, model.least_side_px, model.crop_m) if model.task_spec.dense else None
    assert not isinstance(crop_m, str)
    repeat = t.repeat
    if repeat is None and crop_m is not None:  # as often as crops fit into a sample, on average
        area = mean(width * height for width, height in summary.sides_m)
        repeat = min(MOST_DRAWS, max(1, round(area / crop_m**2)))
    batch_size = t.batch_size
    if batch_size is None:  # as many as hold the measurements of the fewest crops of a batch
        atoms = max(1.0, mean(summary.atoms)) if crop_m is None and summary.atoms else CROP_ATOMS
        batch_size = min(MOST, max(FEWEST, round(FEWEST * CROP_ATOMS / atoms)))
    queries = t.queries if t.queries is not None or model.whole_maps else QUERIES
    filled = replace(t, crop_m=crop_m, repeat=repeat or 1, batch_size=batch_size, queries=queries)
    return replace(run, training=filled)


def crop_side(summary: Summary, least_px: int = 1, needed_m: float | None = None) -> float | None:
    """Return the side of training crops in metres; None where samples are small, or have points.

    It is what a model needs (``needed_m``), however small samples are, or else at least ``least_px`` pixels, where
    samples have so many.
    """
    if summary.pixel_m is None or summary.points or not summary.atoms_per_m2:
        return None
    narrowest_m = min(min(sides) for sides in summary.sides_m)
    if needed_m is not None:
        return needed_m if needed_m < narrowest_m else None
    if mean(summary.atoms) <= WHOLE * CROP_ATOMS:
        return None
    step_m = SIDE_PIXELS * summary.pixel_m
    side_m = step_m * max(1, round(math.sqrt(CROP_ATOMS / summary.atoms_per_m2) / step_m))
    return min(max(side_m, least_px * summary.pixel_m), narrowest_m)
