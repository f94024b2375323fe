"""The cells of latents over a point cloud (the paper's figure of a partition on DALES)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.registry import create
from atomizer_io.errors import AtomizerError
from atomizer_io.figures import samples
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.partition import geometry_of
from atomizer_lab.matrix import Task
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Results, Scale, Where

LAYOUT = "hexagonal"
KAPPA = 1000  # atoms per latent, as in the paper's 3D experiments
MADE_UP: dict[str, Any] = {"like": "dales", "length": 1}


def cloud(name: str, options: dict[str, Any], root: str) -> tuple[Dataset, Sample]:
    """Return a dataset of clouds and its first test sample."""
    dataset = create(name, root or None, "test", **options)
    found = dataset[0]
    if not isinstance(found, Sample):
        raise AtomizerError(f"the first sample of {name} cannot be read")
    return dataset, found


def count(name: str, options: dict[str, Any], kappa: int, root: str) -> dict[str, Any]:
    """Return how many latents a cloud gets and how many atoms their cells have."""
    _, sample = cloud(name, options, root)
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
    return {"numbers": {LAYOUT: numbers}, "sample": sample.meta.id}


def _runs(name: str, options: dict[str, Any], kappa: int, where: Where, seeds: Sequence[int]) -> list[Task]:
    root = "" if name == "synthetic" else str(where.data / name)
    return [Task(LAYOUT, count, {"name": name, "options": options, "kappa": kappa}, 0.2, {"root": root})]


def draw(results: Results, where: Where, path: Path, scale: str) -> None:
    """Draw the cloud, its classes and its cells."""
    name, options, kappa = DATA[scale]
    dataset, sample = cloud(name, options, "" if name == "synthetic" else str(where.data / name))
    samples.save(sample, dataset.info, path, kappa)


DATA: dict[str, tuple[str, dict[str, Any], int]] = {
    PAPER: ("dales", {}, KAPPA),
    SMALL: ("synthetic", {**MADE_UP, "size": 50}, KAPPA),
    SMOKE: ("synthetic", {**MADE_UP, "size": 20}, 200),
}
PARTITION = Item(
    name="partition",
    label="fig:latent_partition",
    unit="atoms in the cells of latents, with κ = 1000; the paper shows a picture and gives no numbers",
    paper={},
    digits=0,
    scales={
        PAPER: Scale("the first test window of DALES", partial(_runs, *DATA[PAPER])),
        SMALL: Scale(
            "a made-up cloud of 50 × 50 m in the shape of DALES, seconds",
            partial(_runs, *DATA[SMALL]),
            reads_data=False,
        ),
        SMOKE: Scale("a made-up cloud of 20 × 20 m, κ = 200", partial(_runs, *DATA[SMOKE])),
    },
    draw=draw,
)
