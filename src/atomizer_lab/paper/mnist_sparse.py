"""Digits of which dark pixels are removed at test (the paper's table on unseen input geometries)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from atomizer_lab.matrix import Task
from atomizer_lab.paper.digits import ATOMIZER, KEPT, VIT, tasks
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale, Where


def _runs(scale: str, where: Where, seeds: Sequence[int]) -> list[Task]:
    return tasks((ATOMIZER, VIT), scale, where, seeds, KEPT)


MNIST_SPARSE = Item(
    name="mnist-sparse",
    label="tab:mnist_token_drop_darkonly",
    unit="accuracy on MNIST (%), by the share of background pixels that is kept",
    paper={
        ATOMIZER: dict(zip(KEPT, (99.26, 98.72, 98.37, 94.93, 74.36), strict=True)),
        VIT: dict(zip(KEPT, (98.11, 97.65, 94.85, 72.17, 37.24), strict=True)),
    },
    digits=2,
    scales={
        PAPER: Scale("28 × 28 pixels, 7.4 M parameters, 50 epochs of 55 000 images", partial(_runs, PAPER)),
        SMALL: Scale(
            "14 × 14 pixels, 0.21 M parameters, 3 epochs of 58 000 images for both, all 10 000 test images; "
            "50 minutes of one core for each network, less than two minutes of two cores with the kept models",
            partial(_runs, SMALL),
        ),
        SMOKE: Scale("one step on made-up digits, seconds", partial(_runs, SMOKE)),
    },
)
