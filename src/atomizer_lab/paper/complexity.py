"""How many pairs of latent and atom the encoder looks at (the paper's table on global and local sampling).

The paper gives bounds; here the cells of a scene of the same size are built and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.models.atomizer.geometry.partition import build_geometry
from atomizer_lab.matrix import Task
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale, Where
from atomizer_lab.paper.models import row_numbers

LATENTS, BUDGETS = 2000, (500, 1000, 2000)
COLUMNS = ("bound, millions", "equivalent drop, %", "context of a query")
GSD_M = 10.0


def count(side: int, latents: int, budgets: Sequence[int]) -> dict[str, Any]:
    """Count the pairs of a scene of Sentinel-1 and Sentinel-2 with ``side`` pixels along a side.

    Beside the bounds of the paper stand the pairs that there are, in the hexagonal cells of about ``latents`` latents.
    """
    channels = (*SENTINEL1.pick("VV", "VH"), *SENTINEL2.channels)
    atoms = AtomSet.from_raster(torch.zeros(len(channels), side, side), channels, GSD_M)
    total = atoms.num_atoms
    cells = build_geometry(atoms, atoms_per_latent=-(-total // latents)).cells[0]
    found = {"global": {**_row(latents * total, 0.0, total), "counted, millions": len(cells) * total / 1e6}}
    for budget in budgets:
        pairs = int(cells.counts_L.clamp(max=budget).sum())
        row = _row(min(total, latents * budget), 1 - budget / total, budget)
        found[f"local, m = {budget}"] = {**row, "counted, millions": pairs / 1e6}
    return {"numbers": found, "atoms": total, "latents": len(cells), "largest_cell": int(cells.counts_L.max())}


def _row(pairs: int, drop: float, context: int) -> dict[str, float]:
    return dict(zip(COLUMNS, (pairs / 1e6, 100 * drop, float(context)), strict=True))


def _runs(side: int, latents: int, where: Where, seeds: Sequence[int]) -> list[Task]:
    arguments = {"side": side, "latents": latents, "budgets": list(BUDGETS)}
    return [Task(f"{side} × {side} pixels", count, arguments, 0.2)]


_WHOLE = Scale(
    "512 × 512 pixels, 15 channels, 2000 latents, as in the paper; seconds",
    partial(_runs, 512, LATENTS),
    reads_data=False,
)
COMPLEXITY = Item(
    name="complexity",
    label="tab:complexity",
    unit="pairs of latent and atom in the encoder's attention",
    paper=row_numbers(
        COLUMNS,
        {
            "global": (7860.0, 0.0, 3.93e6),
            "local, m = 500": (1.0, 99.987, 500.0),
            "local, m = 1000": (2.0, 99.975, 1000.0),
            "local, m = 2000": (3.93, 99.949, 2000.0),
        },
    ),
    digits=3,
    scales={
        PAPER: _WHOLE,
        SMALL: _WHOLE,
        SMOKE: Scale("64 × 64 pixels, 30 latents", partial(_runs, 64, 30)),
    },
)
