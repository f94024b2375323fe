"""The model card: ``README.md`` beside a saved model, for people and for the Hugging Face hub.

It is no part of the seal. One that somebody edited, or wrote, is never replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import Channel
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import listed
from atomizer_io.models.base import Model
from atomizer_io.texts import read_text, write_text

CARD = "README.md"
MARK = re.compile(r"\n<!-- written by atomizer-io ([0-9a-f]{16}) -->\n")
PIPELINES = {"segmentation": "image-segmentation", "classification": "image-classification"}


def write(model: Model, folder: Path, training: Mapping[str, Any] | None = None) -> None:
    """Write the card of a model into its folder, unless there is one that is not as it was written.

    ``training`` has what a model does not know of itself: ``data``, ``checkpoint``, ``steps``, ``seed``, ``scores`` by
    split and ``note``.
    """
    path = folder / CARD
    if path.exists() and not _ours(path):
        return
    text = text_of(model, training or {})
    head, _, body = text.partition("\n\n")
    write_text(path, f"{head}\n<!-- written by atomizer-io {_digest(text)} -->\n\n{body}")


def text_of(model: Model, training: Mapping[str, Any]) -> str:
    """Return the card: what the model predicts and reads, from what it was trained, its scores and its limits."""
    task_spec, name = model.task_spec, model.preset or model.family
    sections = {
        "Predicts": [_target(task_spec)],
        "Reads": [_reads(task_spec)],
        "Training": [_training(training)],
        "Scores": [_scores(training.get("scores", {})), training.get("note") or ""],
        "Limits": ["\n".join(f"- {limit}" for limit in _limits(model))],
        "Use": [_use(task_spec)],
    }
    sensors = dict.fromkeys(channel.sensor for channel in task_spec.channels)
    front = ["---", "library_name: atomizer-io"]
    front += [f"pipeline_tag: {PIPELINES[task_spec.task]}"] if task_spec.task in PIPELINES else []
    front += ["tags:", *(f"- {tag}" for tag in ("earth-observation", "remote-sensing", *map(_tag, sensors))), "---"]
    parts = ["\n".join(front), f"# {name}: {task_spec.task} from {listed(sensors) or 'any sensor'}"]
    parts.append(f"A model of atomizer-io with {model.num_parameters:,} parameters.")
    for title, paragraphs in sections.items():
        parts += [f"## {title}", *filter(None, paragraphs)]
    return "\n\n".join(parts) + "\n"


def _ours(path: Path) -> bool:
    text = read_text(path)
    mark = MARK.search(text)
    return mark is not None and _digest(MARK.sub("\n", text, count=1)) == mark[1]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _tag(sensor: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", sensor.casefold()).strip("-")


def _target(task_spec: TaskSpec) -> str:
    where = "at any position" if task_spec.dense else "for a whole scene"
    if task_spec.regression:
        unit = f" in {task_spec.target_unit}" if task_spec.target_unit else ""
        known = f"in the training data {task_spec.target_mean:.4g} ± {task_spec.target_std:.4g}"
        return f"{task_spec.target_name or 'A number'}{unit}, {where}; {known}."
    names = ", ".join(f"{code} {name}" for code, name in zip(task_spec.codes, task_spec.names, strict=True))
    return f"One of {task_spec.num_outputs} classes, {where} (code and name): {names}."


def _reads(task_spec: TaskSpec) -> str:
    """Return a table with a row for each sensor; values are in the units of the training data."""
    if not task_spec.channels:
        return "The channels of its training data are not known."
    rows = [
        "| sensor | channels | wavelength (µm) | pixels (m) | mean values | standard deviations |",
        "|---|---|---|---|---|---|",
    ]
    for sensor in dict.fromkeys(channel.sensor for channel in task_spec.channels):
        own = [channel for channel in task_spec.channels if channel.sensor == sensor]
        columns = (_range(getattr(c, name) for c in own) for name in ("wavelength_um", "gsd_m", "mean", "std"))
        rows.append(f"| {sensor} | {listed(channel.name for channel in own)} | {' | '.join(columns)} |")
    dates = "The day of the year is used." if task_spec.dates else "Dates are not used."
    return (
        "\n".join(rows) + f"\n\nValues are read in the units of the training data, whose range the table shows. {dates}"
    )


def _range(values: Iterable[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "–"
    low, high = f"{known[0]:.4g}", f"{known[-1]:.4g}"
    return low if low == high else f"{low} to {high}"


def _training(training: Mapping[str, Any]) -> str:
    if not training:
        return "Not recorded."
    begun = f" It began from `{training['checkpoint']}`." if training.get("checkpoint") else ""
    return f"{training['data']}; {training['steps']:,} steps, seed {training['seed']}.{begun}"


def _scores(scores: Mapping[str, Mapping[str, Any]]) -> str:
    rows = {
        split: {name: value for name, value in values.items() if isinstance(value, float)}
        for split, values in scores.items()
    }
    names = list(dict.fromkeys(name for values in rows.values() for name in values))
    if not names:
        return "None were recorded."
    lines = [f"| split | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for split, values in rows.items():
        lines.append(f"| {split} | {' | '.join(f'{values[n]:.4g}' if n in values else '–' for n in names)} |")
    return "\n".join(lines)


def _limits(model: Model) -> Sequence[str]:
    """Return what the model was not trained for, as far as it is known."""
    task_spec: TaskSpec = model.task_spec
    limits = ["Scores hold for the data that they were measured on; other regions and seasons were not tested."]
    gsd = [channel.gsd_m for channel in task_spec.channels if channel.gsd_m is not None]
    if gsd:
        limits.append(f"Trained on pixels of {_range(gsd)} m; others were not tested.")
    if task_spec.extent_m is not None:
        limits.append(f"Scenes of the training data are about {task_spec.extent_m:,.0f} m wide.")
    if task_spec.complete:
        limits.append("Every training sample had all channels: without one of them predictions may be far off.")
    new = Channel("other", "band", 0.6, 0.1)
    limits.append(
        "Bands that it was not trained on are read by their wavelength, untested."
        if not model.unreadable([new])
        else "It reads no other channels than those above."
    )
    return limits


def _use(task_spec: TaskSpec) -> str:
    product = "map.tif" if task_spec.dense else "labels.csv"
    return f"```bash\natomizer predict --model FOLDER --raster scene.tif -o {product}\n```"
