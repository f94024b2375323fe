"""With and without the rotary encoding of latent positions (the paper's RoPE ablation)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from atomizer_io.experiments.matrix import Task
from atomizer_io.experiments.paper.digits import ATOMIZER, NO_ROPE, tasks
from atomizer_io.experiments.paper.item import PAPER, SMALL, SMOKE, Item, Scale, Where

_COLUMNS = ("MNIST", "Cashew", "PASTIS", "BurnScars", "Sen1Floods11")


def _runs(scale: str, where: Where, seeds: Sequence[int]) -> list[Task]:
    return tasks((ATOMIZER, NO_ROPE), scale, where, seeds, {"MNIST": 1.0})


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
        PAPER: Scale("MNIST: 28 × 28 pixels, 7.4 M parameters, 50 epochs", partial(_runs, PAPER)),
        SMALL: Scale(
            "MNIST: 14 × 14 pixels, 0.21 M parameters, 3 epochs, 35 minutes of one core for each network",
            partial(_runs, SMALL),
        ),
        SMOKE: Scale("one step on made-up digits, seconds", partial(_runs, SMOKE)),
    },
)
