"""Scores of a model on a split, under one or several channel configurations."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from atomizer_io.data.acquisition import Acquisition, varying_fields
from atomizer_io.data.channels import Channel
from atomizer_io.data.misfits import images_of, misfits, sentences
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset, Info, read_items
from atomizer_io.datasets.summary import Summary
from atomizer_io.decoding.scene_decoder import BatchDecoder, Decoding
from atomizer_io.errors import AtomizerError, UnknownChannelError, listed
from atomizer_io.machine import machine
from atomizer_io.models.base import Model
from atomizer_io.models.registry import load_model
from atomizer_io.progress import watched
from atomizer_io.training.bands import CONFIGURATIONS, Keep, configuration, observed
from atomizer_io.training.batches import explained_worker_death
from atomizer_io.training.config import Run
from atomizer_io.training.data import EvaluationSamples, evaluation_loader
from atomizer_io.training.metrics import Scores
from atomizer_io.training.splits import open_split

FEW = 4  # samples that show which channels a dataset has, and whether its values are like those of training
DECLARE = "if it means that nothing was observed, it has to be declared (geotiff-folder: data.options.nodata=...)"


def evaluate(
    run: Run,
    folder: Path,
    *,
    use: str = "test",
    channels: Sequence[str] = ("all",),
    decoding: Decoding = Decoding(),
    limit: int | None = None,
) -> dict[str, Any]:
    """Return scores by channel configuration of the model in ``folder`` on what ``run`` uses for ``use``."""
    model = load_model(folder)
    decoding = decoding.checked(model, folder)
    dataset = open_split(run, use).for_evaluation()
    compare(model, dataset, channels)
    with explained_worker_death("run it again with data.workers=0"):
        how: dict[str, Any] = {"workers": run.data.workers, "decoding": decoding, "limit": limit}
        scores = {name: score(model, dataset, name, **how) for name in channels}
    return {
        "model": str(folder),
        "data": dataset.info.name,
        "split": dataset.split,
        "decoding": asdict(decoding),
        "scores": scores,
        "machine": machine(),
    }


def compare(model: Model, dataset: Dataset, channels: Sequence[str] = ("all",)) -> None:
    """Warn where the data and the model do not fit; what cannot work at all is an error.

    ``channels`` are the channel configurations under which the data will be shown.
    """
    check_task(model, dataset.info)
    samples = few(dataset)
    had = met(samples)
    lacking = {}
    for name in channels:
        keep = keep_of(dataset, name)  # one that matches no channel is an error before anything is scored
        shown = [channel for channel in had if keep is None or keep(channel)]
        check_channels(model, shown, dataset.info.name)
        if shown and (text := model.task_spec.lacking(shown)) is not None:
            lacking[name] = text
    if lacking:
        first, *others = lacking
        likewise = f"; likewise with {listed(others)}" if others else ""
        warnings.warn(f"channels {first}: {lacking[first]}{likewise}", stacklevel=2)
    fields = met_fields(dataset) if model.task_spec.complete_fields else set()
    if (text := model.task_spec.lacking_fields(fields)) is not None:
        warnings.warn(f"{dataset.info.name}, split {dataset.split}: {text}", stacklevel=2)
    images = [image for sample in samples for image in images_of(sample)]
    for text in sentences(misfits(images, model.task_spec.statistics()), {"fill": DECLARE}):
        warnings.warn(text, stacklevel=2)
    known = model.task_spec.statistics() if model.capabilities.new_channels else {}
    new = [f"{c.sensor} {c.name}" for c in dataset.channels if known and (c.sensor, c.name) not in known]
    if new:
        warnings.warn(f"the model was trained without {listed(new)}; see how it does without them", stacklevel=2)


def check_task(model: Model, info: Info, task: str | None = None) -> None:
    """Refuse data of another task than that of the model; ``task`` is that of the data where it is known.

    A regression dataset may be of positions or of scenes: without ``task`` both are accepted.
    """
    task_spec = model.task_spec
    tasks = {task} if task else {info.task} | ({"scene_regression"} if info.task == "regression" else set())
    if task_spec.task not in tasks:
        raise AtomizerError(f"the task of the model is {task_spec.task}, that of {info.name} is {task or info.task}")
    if info.num_outputs != task_spec.num_outputs:
        outputs = f"{len(info.classes)} classes" if info.classes else "one regression target"
        raise AtomizerError(f"the model has {task_spec.num_outputs} outputs, {info.name} has {outputs}")
    if info.classes and task_spec.class_names and tuple(task_spec.class_names) != tuple(info.classes):
        raise AtomizerError(
            f"the model knows the classes {listed(task_spec.class_names)}; {info.name} has {listed(info.classes)}"
        )


def check_channels(model: Model, channels: Iterable[Channel], name: str) -> None:
    """Refuse channels of the data called ``name`` for which a model with fixed inputs has none."""
    new = [] if model.capabilities.new_channels else model.unreadable(channels)
    if new:
        raise UnknownChannelError(
            f"the model has no input for {listed(f'{c.sensor} {c.name}' for c in new)} of {name}: it reads only what "
            "it was trained on; leave these channels out, or train a model with them"
        )


@torch.no_grad()
def score(
    model: Model,
    dataset: Dataset,
    channels: str = "all",
    *,
    workers: int = 0,
    decoding: Decoding = Decoding(),
    limit: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Return the scores of ``model`` over a dataset, with the channels of one configuration, decoded by ``decoding``.

    The share of positions that were decoded is added where it is not all of them.
    """
    samples = EvaluationSamples(dataset, keep_of(dataset, channels), channels, limit)
    decoder = BatchDecoder(model, decoding)
    loader = evaluation_loader(samples, decoder.preparer(), workers, cost=decoding.cost)
    model.eval()
    scores, skipped = Scores(model.task_spec, everywhere=False), {}
    shown: dict[str, Any] = {"title": f"scoring {channels}", "unit": " samples", "show": progress, "stay": False}
    for batch in watched(loader, loader.samples, **shown, count=operator.attrgetter("read")):
        skipped.update({item.path: item.cause for item in batch.skipped})
        if batch.samples:
            scores.add(batch.samples, decoder(batch), decoder.contexts(batch))
    result = scores.compute()
    if decoder.share is not None:
        result["asked"] = decoder.share  # old name
    return {**result, "skipped": skipped} if skipped else result


def keep_of(dataset: Dataset, channels: str) -> Keep | None:
    """Return which channels of a dataset a configuration keeps; None keeps all.

    It chooses from the channels of the first readable samples, and others that the dataset is known to have.
    """
    if channels == "all" or channels in CONFIGURATIONS:
        return None if channels == "all" else CONFIGURATIONS[channels]
    known = {(c.sensor, c.name): c for c in (*dataset.channels, *met(few(dataset)))}
    return configuration(channels, list(known.values()))


def few(dataset: Dataset) -> list[Sample]:
    """Return the first readable samples of a dataset."""
    return [item for item in read_items(dataset, limit=FEW) if isinstance(item, Sample)]


def met(samples: Iterable[Sample]) -> list[Channel]:
    """Return the channels of some samples."""
    channels: dict[tuple[str, str], Channel] = {}
    for channel in (channel for sample in samples for channel in observed(sample.atoms)):
        channels.setdefault((channel.sensor, channel.name), channel)
    return list(channels.values())


def met_fields(dataset: Dataset) -> set[str]:
    """The site fields that each of a few samples from all over a dataset has, and that differ between its sites."""
    summary, parts = Summary(), list[Acquisition]()
    for index in sorted({number * (len(dataset) - 1) // max(1, FEW - 1) for number in range(FEW)}):
        item = dataset[index]
        if isinstance(item, Sample):
            summary.add(item)
            parts += item.atoms
    return summary.fields_in_all & varying_fields(parts)


def table(result: dict[str, Any]) -> str:
    """Return the scores as text: a row per configuration, and the classes below."""
    rows = result["scores"]
    first = next(iter(rows.values()))
    numbers = [{name: value for name, value in row.items() if isinstance(value, float)} for row in rows.values()]
    names = list(dict.fromkeys(name for row in numbers for name in row))
    lines = [f"{'channels':14} " + " ".join(f"{name:>12}" for name in names)]
    for kind, row in zip(rows, numbers, strict=True):
        lines.append(f"{kind:14} " + " ".join(f"{row.get(name, math.nan):12.4f}" for name in names))
    if "iou" in first:
        lines += ["", f"{'IoU':24} " + " ".join(f"{kind:>12}" for kind in rows)]
        lines += [
            f"{name:24} " + " ".join(f"{row['iou'][name]:12.4f}" for row in rows.values()) for name in first["iou"]
        ]
    for kind, row in rows.items():
        lines += [f"skipped ({kind}) {path}: {cause}" for path, cause in row.get("skipped", {}).items()]
    return "\n".join(lines)
