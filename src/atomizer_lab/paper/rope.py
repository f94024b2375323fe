"""With and without the rotary encoding of latent positions (the paper's RoPE ablation)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from atomizer_lab.matrix import Task
from atomizer_lab.paper import networks, protocol
from atomizer_lab.paper.digits import ATOMIZER, NO_ROPE, tasks
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale, Where

_MAPS = ("Cashew", "PASTIS", "BurnScars", "Sen1Floods11")
_COLUMNS = ("MNIST", *_MAPS)
_CHANGES: dict[str, dict[str, Any]] = {NO_ROPE: {"model": {"settings": {"rope": False}}}, ATOMIZER: {}}


def _runs(scale: str, where: Where, seeds: Sequence[int]) -> list[Task]:
    return tasks((ATOMIZER, NO_ROPE), scale, where, seeds, {"MNIST": 1.0})


def _paper(where: Where, seeds: Sequence[int]) -> list[Task]:
    cells = [protocol.Cell(name, row=row, changes=changes) for name in _MAPS for row, changes in _CHANGES.items()]
    return [*_runs(PAPER, where, seeds), *protocol.runs_of(cells)(where, seeds)]


def _small(where: Where, seeds: Sequence[int]) -> list[Task]:
    cells = [networks.Cell(networks.CHIP, row=row, changes=changes) for row, changes in _CHANGES.items()]
    return [*_runs(SMALL, where, seeds), *networks.runs_of(cells)(where, seeds)]


ROPE = Item(
    name="rope",
    label="tab:rope_ablation",
    unit="accuracy (%) on MNIST, mIoU (%) elsewhere",
    paper={
        NO_ROPE: dict(zip(_COLUMNS, (29.48, 62.65, 40.65, 86.16, 92.42), strict=True)),
        ATOMIZER: dict(zip(_COLUMNS, (99.37, 72.01, 44.10, 88.81, 93.17), strict=True)),
    },
    digits=2,
    scales={
        PAPER: Scale("MNIST of 28 × 28 pixels, 7.4 M parameters, 50 epochs; four datasets of maps: 10 runs", _paper),
        SMALL: Scale(
            "MNIST of 14 × 14 pixels, 0.21 M parameters, 3 epochs, all 10 000 test images, 50 minutes of one core for "
            f"a network; a Sen1Floods11 chip, {networks.MINUTES} minutes",
            _small,
        ),
        SMOKE: Scale("one step on made-up digits, seconds", partial(_runs, SMOKE)),
    },
)
