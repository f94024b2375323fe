"""Figures of a sample and of the predictions of models for it, kept as small files.

Shapes: H × W pixels of a map.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Sample, unknown
from atomizer_io.datasets.crop import cropped
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.decoding import quadtree
from atomizer_io.figures.class_colours import class_colours
from atomizer_io.figures.samples import SamplePoints
from atomizer_io.io.tables import evenly
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.geometry.partition import geometry_of
from atomizer_io.models.base import Model
from atomizer_io.training.data import EvaluationSamples, evaluation_loader
from atomizer_io.training.evaluate import keep_of
from atomizer_io.training.metrics import Scores
from atomizer_lab.report import images

MOST_INPUTS = 4  # acquisitions that are shown
WIDEST = 320  # pixels of the longer side of what was seen
MOST_POSITIONS = 4096  # at which attention is looked at
MOST_CHANNELS = 4  # of which attention is drawn as a map
CLOSE = 96  # pixels of the part whose cells, quadtree and attention are drawn
START = 16  # pixels of the largest blocks of the quadtree
File = Mapping[str, str]  # the name of a figure, and the folder that it is in: results or work


@dataclass(frozen=True, slots=True)
class Album:
    """A folder of figures: those of synthetic data and MNIST lie with the results, others with the runs (``work``)."""

    folder: Path
    kept: bool

    def add(self, name: str, figure: images.Floats | bytes) -> dict[str, str]:
        """Write a figure, and return how it is found again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".png"
        (self.folder / file).write_bytes(figure if isinstance(figure, bytes) else images.png(figure))
        return {"file": file, "in": "results" if self.kept else "work"}


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Predictions: the confusion matrix of all samples (None of regressions), and the first sample with its own.

    ``samples`` is how many there were.
    """

    confusion: list[list[int]] | None
    samples: int
    sample: Sample
    outputs: Tensor


@torch.no_grad()
def predict(model: Model, dataset: Dataset, channels: str, limit: int | None) -> Predicted | None:
    """Return the predictions for samples of a dataset, at most ``limit``, with the channels of a configuration.

    None where there are no samples.
    """
    model.eval()
    scores, first, count = Scores(model.task_spec, everywhere=False), None, 0
    for batch in evaluation_loader(
        EvaluationSamples(dataset, keep_of(dataset, channels), channels, limit), model.preparer(), 0
    ):
        if batch.samples:
            outputs = batch.outputs(model)
            scores.add(batch.samples, outputs, [model.in_context(scene) for scene in batch.inputs])
            first, count = first or (batch.samples[0], batch.by_sample(outputs)[0]), count + len(batch)
    scores.finish()
    if first is None:
        return None
    matrix = scores.confusion.compute().tolist() if scores.classes else None
    return Predicted(matrix, count, *first)


def about_data(sample: Sample, info: Info, album: Album, name: str) -> dict[str, Any]:
    """Draw what was seen and the target, and return the figures with the names of the classes."""
    data: dict[str, Any] = {"classes": list(info.classes), "unit": info.unit or "", "inputs": []}
    for number, acquisition in enumerate(evenly(sample.atoms.acquisitions, MOST_INPUTS)):
        figure = images.seen(acquisition)
        if figure is not None:
            file = album.add(f"{name}-input-{number}", images.shrunk(figure, WIDEST))
            data["inputs"].append({**file, "title": acquisition.sensor, "note": when(acquisition)})
    target = target_of(sample)
    if target is not None:
        data["target"] = album.add(f"{name}-target", drawn(target, sample, info))
    return data


def when(acquisition: Acquisition) -> str:
    """Return the date of an acquisition and how many channels it has, in words."""
    day = acquisition.date or ("" if acquisition.day_of_year is None else f"day {acquisition.day_of_year:g}")
    count = len(acquisition.channels)
    return f"{count} channel{'s' * (count > 1)}{f', {day}' if day else ''}"


def target_of(sample: Sample) -> Tensor | None:
    """Return the target at the pixels of a map (H, W), unknown as −1 or NaN; None where there is no map."""
    queries = sample.queries
    if queries is None or queries.grid is None:
        return None
    nothing = torch.nan if sample.target.is_floating_point() else -1
    return sample.target.masked_fill(queries.ignore | unknown(sample.target), nothing).reshape(queries.grid.shape)


def drawn(values: Tensor, sample: Sample, info: Info, *, errors: bool = False) -> images.Floats:
    """Draw a map of classes, pink where it is wrong with ``errors``, or of a regression target."""
    target = target_of(sample)
    assert target is not None
    if info.classes:
        return images.class_map(values, np.array(class_colours(info.classes)), target if errors else None)
    known = target[~target.isnan()]
    low, high = (float(known.quantile(share)) for share in (0.02, 0.98)) if len(known) else (0.0, 1.0)
    return images.value_map(values.where(~target.isnan(), torch.nan), low, high)


def prediction(predicted: Predicted, info: Info, album: Album, name: str, model: Model) -> dict[str, Any]:
    """Draw the prediction for the first sample, as a map or as a point cloud; nothing where it is a scene."""
    sample, target = predicted.sample, target_of(predicted.sample)
    if target is not None:
        values = predicted.outputs.argmax(dim=-1) if info.classes else predicted.outputs[:, 0]
        values = values.reshape(target.shape)
        if info.classes:
            known = target >= 0
            note = f"{100 * float((values == target)[known].double().mean()):.1f} % right"
        else:
            error = (values - target)[~target.isnan()].double()
            note = f"RMSE {float(error.square().mean().sqrt()):.3g} {info.unit or ''}".strip()
        preview = album.add(name, drawn(values, sample, info, errors=True))
        return {"picture": preview, "note": note}  # old name
    points = None if sample.queries is None else SamplePoints.of(sample)
    if points is None or points.points_M is None:
        return {}
    geometry = geometry_of(model.config, sample.atoms) if isinstance(model, AtomizerIO) else None
    return {"cloud": album.add(name, images.point_cloud(sample, info, predicted.outputs, geometry))}


@torch.no_grad()
def inner_life(model: AtomizerIO, sample: Sample, info: Info, album: Album, name: str) -> dict[str, Any]:
    """Draw the cells of latents, where a quadtree decodes, and which channels get attention, for a sample of a map."""
    if sample.queries is None or sample.queries.grid is None:
        return {}
    sample = middle_of(sample, sample.queries.grid)
    assert sample.queries is not None and sample.queries.grid is not None
    grid, latents = sample.queries.grid, model.encode([sample.atoms])
    seen = [images.seen(acquisition) for acquisition in sample.atoms.acquisitions]
    ground = next((figure for figure in reversed(seen) if figure is not None), None)
    quick = quadtree(model, latents, grid, start=START)
    decoded = images.decoded_map(quick.queried.reshape(grid.shape))
    note = f"{quick.decoded:,} of {quick.queried.numel():,} positions"
    count = len(latents.geometries[0].anchors_L2)
    return {
        "place": f"the middle of the scene, {grid.height} × {grid.width} pixels",
        "cells": {**album.add(f"{name}-cells", images.cell_map(latents.geometries[0], grid, ground)), "latents": count},
        "quadtree": {**album.add(f"{name}-quadtree", decoded), "note": note},
        "attention": _attention(model, latents, grid, album, name),
    }


def middle_of(sample: Sample, grid: Grid) -> Sample:
    """Return the middle of a sample with a map: enough to look at, and quickly encoded."""
    (x, y), (across, down) = grid.center_m, grid.pixel_m
    half_x, half_y = CLOSE / 2 * across, CLOSE / 2 * down
    return cropped(sample, (x - half_x, y - half_y, x + half_x, y + half_y))


def _attention(model: AtomizerIO, latents: Any, grid: Grid, album: Album, name: str) -> dict[str, Any]:
    """Return the mean attention of each channel, here and around, and maps of those that receive the most here."""
    step = max(1, round((grid.height * grid.width / MOST_POSITIONS) ** 0.5))
    positions = grid.positions().reshape(*grid.shape, 2)[::step, ::step]
    shares = model.explain(latents, [positions.reshape(-1, 2)])[0].by_channel()
    most = sorted(shares, key=lambda channel: -float(shares[channel][0].mean()))[:MOST_CHANNELS]
    return {
        "shares": {channel: [float(part.mean()) for part in pair] for channel, pair in shares.items()},
        "maps": [
            {**album.add(f"{name}-attention-{channel}", _map(shares[channel][0], positions)), "title": channel}
            for channel in most
        ],
    }


def _map(share: Tensor, positions: Tensor) -> images.Floats:
    return images.share_map(share.reshape(positions.shape[:2]))
