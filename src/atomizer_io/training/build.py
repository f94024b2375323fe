"""What the training data say, and the model for them: statistics, class weights, channels, dates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atomizer_io.channels import Channel
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.loading import each
from atomizer_io.datasets.statistics import Statistics, measure
from atomizer_io.datasets.summary import Summary
from atomizer_io.errors import AtomizerError, ConfigError, listed
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import SITE_FIELDS, SiteField
from atomizer_io.models.registry import create_model
from atomizer_io.sample import Sample
from atomizer_io.training.config import MEASURED, PUBLISHED, Run
from atomizer_io.training.objective import balanced_weights

FEW_VALUES = 1000  # of a channel: its measured statistics are not believed where there are published ones
FAR_MEAN, FAR_SPREAD = 1.0, 2.0  # means apart by more than a spread, spreads by more than this factor


@dataclass(frozen=True, slots=True)
class Looked:
    """What some samples of the training data say."""

    statistics: Statistics
    summary: Summary

    @property
    def dates(self) -> bool:
        """Whether a model can learn what a date means."""
        return self.summary.several_days


def look(run: Run, train: Dataset) -> Looked:
    """Look at some training samples, drawn at random; the statistics are theirs or those of a file that is named."""
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(run.seed))[: max(1, run.data.measure)]
    samples: Iterator[Any] = (train[i] for i in order.tolist())
    summary = Summary()
    found = measure(summary.watch(samples), classes=len(train.info.classes))
    if not found.samples:
        raise AtomizerError(f"{train!r}: none of {len(order)} training samples could be read: {found.skipped[0]}")
    named = run.data.statistics not in (None, MEASURED, PUBLISHED)
    return Looked(Statistics.load(str(run.data.statistics)) if named else found, summary)


def described(run: Run, train: Dataset, found: Statistics) -> tuple[Channel, ...]:
    """The channels with the statistics that the settings want: measured, published, or of a file that they name.

    Measured ones give way to published ones where there are few values, published ones to measured ones where there
    are none.
    """
    published = {(c.sensor, c.name): c for c in train.channels if c.mean is not None and c.std is not None}
    wanted = run.data.statistics or PUBLISHED

    def chosen(channel: Channel, count: int) -> Channel:
        measured = wanted not in (MEASURED, PUBLISHED) or (wanted == MEASURED and count >= FEW_VALUES and channel.std)
        return channel if measured else published.get((channel.sensor, channel.name), channel)

    return tuple(chosen(channel, count) for channel, count in zip(found.channels, found.counts, strict=True))


def notes_of(run: Run, train: Dataset, looked: Looked) -> list[str]:
    """What somebody who starts this training should know of the data."""
    found = looked.statistics
    notes = [
        f"class {name!r} does not occur in the {found.samples} training samples that were looked at"
        for name, count in zip(train.info.classes, found.classes, strict=False)
        if not count
    ]
    if looked.summary.days and not looked.dates:
        several = " of a sensor" if len(looked.summary.days) > 1 else ""
        notes.append(f"all training samples{several} are of one day of the year, so dates are not used")
    published = {(c.sensor, c.name): c for c in train.channels}
    apart = [text for c in found.channels if (text := _apart(c, published.get((c.sensor, c.name))))]
    if apart:
        used, other = (PUBLISHED, MEASURED) if run.data.statistics in (None, PUBLISHED) else (MEASURED, PUBLISHED)
        notes.append(
            f"measured and published statistics are far apart: {listed(apart)}; the {used} ones are used, "
            f"data.statistics={other} takes the others"
        )
    return notes


def _apart(measured: Channel, published: Channel | None) -> str:
    """How statistics differ, where they do by much."""
    if published is None or published.mean is None or not published.std or measured.mean is None:
        return ""
    spread = measured.std or 0.0
    near = 1 / FAR_SPREAD <= spread / published.std <= FAR_SPREAD
    if near and abs(measured.mean - published.mean) <= FAR_MEAN * published.std:
        return ""
    return (
        f"{measured.sensor} {measured.name} {measured.mean:.4g} ± {spread:.3g} measured, "
        f"{published.mean:.4g} ± {published.std:.3g} published"
    )


def build(run: Run, train: Dataset, looked: Looked) -> AtomizerIO:
    """The model for a dataset: outputs, class names, channels and extent are the data's, all else the preset's."""
    if run.model.start is not None:
        return started(run.model.start, looked.dates)
    info, found = train.info, looked.statistics
    sample = next(item for item in each(train, limit=16) if isinstance(item, Sample))
    task = info.task if sample.queries is not None else {"regression": "scene_regression"}.get(info.task, info.task)
    channels = described(run, train, found)
    settings: dict[str, Any] = {
        "task": task,
        "num_outputs": info.num_outputs,
        "class_names": info.classes,
        "target_name": info.target_name,
        "target_unit": info.unit,
        "channels": channels,
        "site_fields": tuple(
            field if field.name not in found.fields or not field.fourier else _measured(field, found.fields[field.name])
            for field in SITE_FIELDS
        ),
        "dates": looked.dates,
        "point_density": found.density,
    }
    if task in ("regression", "scene_regression") and found.target is not None:
        settings |= {"target_mean": found.target[0], "target_std": found.target[1] or 1.0}
    if run.training.configurations:
        kappa, budget = run.training.configurations[-1]
        settings |= {"atoms_per_latent": kappa, "budget": budget}
    return create_model(run.model.preset, **{"extent_m": info.extent_m or None, **settings, **run.model.settings})


def started(source: str, dates: bool) -> AtomizerIO:
    """A saved model to train on; it uses dates if it did before, or if there are several in the training data."""
    model = AtomizerIO.from_pretrained(source)
    if dates and not model.config.dates:
        weights = model.state_dict()
        model = AtomizerIO(model.config.replace(dates=True), preset=model.preset)
        model.load_state_dict(weights)
    return model.train()


def _measured(field: SiteField, statistics: tuple[float, float]) -> SiteField:
    return dataclasses.replace(field, mean=statistics[0], std=statistics[1] or 1.0)


def weights_of(run: Run, train: Dataset, found: Statistics) -> Tensor | None:
    """Class weights as the settings want them."""
    wanted, classes = run.training.class_weights, train.info.classes
    if wanted in ("none", None):
        return None
    if not classes:
        raise ConfigError("training.class_weights: the target is a quantity, which has no classes")
    if wanted == "balanced":
        return balanced_weights(found.classes[: len(classes)])
    if isinstance(wanted, list | tuple) and len(wanted) == len(classes):
        return torch.tensor([float(weight) for weight in wanted])
    raise ConfigError(f"training.class_weights is {wanted!r}; use none, balanced, or a list of {len(classes)} numbers")
