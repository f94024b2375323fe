"""The items that only count: pairs of latent and atom, parameters, and the cells of latents over a point cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.registry import create
from atomizer_io.errors import AtomizerError
from atomizer_io.figures import samples
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.partition import build_geometry, geometry_of
from atomizer_io.models.registry import create_model
from atomizer_lab.bench.model_inputs import PAPER_INPUTS
from atomizer_lab.bench.models import settings_for
from atomizer_lab.matrix import Task
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Results, Scale, Where
from atomizer_lab.paper.models import MAPS, SERIES, SMALL_SCENES

# ---- how many pairs of latent and atom the encoder looks at: the paper gives bounds, here cells are built and counted
LATENTS, BUDGETS = 2000, (500, 1000, 2000)
COLUMNS = ("bound, millions", "equivalent drop, %", "context of a query")


def pairs(side: int, latents: int, budgets: Sequence[int]) -> dict[str, Any]:
    """Count the pairs of a scene of Sentinel-1 and Sentinel-2 with ``side`` pixels along a side.

    Beside the bounds of the paper stand the pairs that there are, in the hexagonal cells of about ``latents`` latents.
    """
    channels = (*SENTINEL1.pick("VV", "VH"), *SENTINEL2.channels)
    atoms = AtomSet.from_raster(torch.zeros(len(channels), side, side), channels, 10.0)
    total = atoms.num_atoms
    cells = build_geometry(atoms, atoms_per_latent=-(-total // latents)).cells[0]

    def row(bound: int, drop: float, context: int, counted: float) -> dict[str, float]:
        numbers = zip(COLUMNS, (bound / 1e6, 100 * drop, float(context)), strict=True)
        return {**dict(numbers), "counted, millions": counted / 1e6}

    rows = {"global": row(latents * total, 0.0, total, len(cells) * total)}
    for budget in budgets:
        counted = int(cells.counts_L.clamp(max=budget).sum())
        bound = min(total, latents * budget)
        rows[f"local, m = {budget}"] = row(bound, 1 - budget / total, budget, counted)
    return {"numbers": rows, "atoms": total, "latents": len(cells), "largest_cell": int(cells.counts_L.max())}


def _pairs(side: int, latents: int, where: Where, seeds: Sequence[int]) -> list[Task]:
    arguments = {"side": side, "latents": latents, "budgets": list(BUDGETS)}
    return [Task(f"{side} × {side} pixels", pairs, arguments, 0.2)]


_WHOLE = Scale(
    "512 × 512 pixels, 15 channels, 2000 latents, as in the paper; seconds",
    partial(_pairs, 512, LATENTS),
    reads_data=False,
)
COMPLEXITY = Item(
    "complexity", {PAPER: _WHOLE, SMALL: _WHOLE, SMOKE: Scale("64 × 64 pixels, 30 latents", partial(_pairs, 64, 30))}
)

# ---- parameters: for each kind of task the dataset whose channels and size are taken, and the presets
COUNTED: dict[str, tuple[str, Mapping[str, str]]] = {
    "classification": ("eurosat", SMALL_SCENES),
    "segmentation": ("burnscars", MAPS),
    "multitemporal": ("pastis", SERIES),
}
DIGITS = {"MNIST, Atomizer-IO": "atomizer_io_mnist", "MNIST, ViT": "vit_mnist"}


def parameters(column: str) -> dict[str, Any]:
    """Return the parameters, in millions, of all models for a kind of task, counted without weights."""
    name, presets = COUNTED[column]
    scene = PAPER_INPUTS[name]
    with torch.device("meta"):
        models = {
            row: create_model(preset, task_spec=scene.task_spec, **settings_for(preset, scene))
            for row, preset in presets.items()
        }
        if column == "classification":
            models |= {row: create_model(preset) for row, preset in DIGITS.items()}
    numbers = {row: {column: model.num_parameters / 1e6} for row, model in models.items()}
    return {"numbers": numbers, "presets": dict(presets)}


def _parameters(where: Where, seeds: Sequence[int]) -> list[Task]:
    return [Task(column, parameters, {"column": column}, 0.1) for column in COUNTED]


_SAME = Scale("counted on the models of the paper; the same at every scale, seconds", _parameters, reads_data=False)
PARAMETERS = Item("parameters", dict.fromkeys((PAPER, SMALL, SMOKE), _SAME))

# ---- the cells of latents over a point cloud
DATA: dict[str, tuple[str, dict[str, Any], int]] = {  # dataset, options, κ as in the paper's 3D experiments
    PAPER: ("dales", {}, 1000),
    SMALL: ("synthetic", {"like": "dales", "length": 1, "size": 50}, 1000),
    SMOKE: ("synthetic", {"like": "dales", "length": 1, "size": 20}, 200),
}


def point_cloud(name: str, options: dict[str, Any], root: str) -> tuple[Dataset, Sample]:
    """Return a dataset of point clouds and its first test sample."""
    dataset = create(name, root or None, "test", **options)
    sample = dataset[0]
    if not isinstance(sample, Sample):
        raise AtomizerError(f"the first sample of {name} cannot be read")
    return dataset, sample


def partition(name: str, options: dict[str, Any], kappa: int, root: str) -> dict[str, Any]:
    """Return how many latents a point cloud gets and how many atoms their cells have."""
    _, sample = point_cloud(name, options, root)
    geometry = geometry_of(AtomizerConfig(atoms_per_latent=kappa), sample.atoms)
    counts = geometry.cells[0].counts_L
    numbers = {
        "atoms": sample.atoms.num_atoms,
        "latents": len(counts),
        "empty cells": int((counts == 0).sum()),
        "smallest": int(counts.min()),
        "median": int(counts.median()),
        "largest": int(counts.max()),
    }
    return {"numbers": {"hexagonal": numbers}, "sample": sample.meta.id}


def _root(name: str, where: Where) -> str:
    return "" if name == "synthetic" else str(where.data / name)


def _partition(scale: str, where: Where, seeds: Sequence[int]) -> list[Task]:
    name, options, kappa = DATA[scale]
    arguments = {"name": name, "options": options, "kappa": kappa}
    return [Task("hexagonal", partition, arguments, 0.2, {"root": _root(name, where)})]


def draw(results: Results, where: Where, path: Path, scale: str) -> None:
    """Draw the point cloud, its classes and its cells."""
    name, options, kappa = DATA[scale]
    dataset, sample = point_cloud(name, options, _root(name, where))
    samples.save(sample, dataset.info, path, kappa)


_SMALL = "a synthetic point cloud of 50 × 50 m in the shape of DALES, seconds"
PARTITION = Item(
    "partition",
    {
        PAPER: Scale("the first test window of DALES", partial(_partition, PAPER)),
        SMALL: Scale(_SMALL, partial(_partition, SMALL), reads_data=False),
        SMOKE: Scale("a synthetic point cloud of 20 × 20 m, κ = 200", partial(_partition, SMOKE)),
    },
    draw=draw,
)
