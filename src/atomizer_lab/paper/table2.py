"""Single-task scores of all models (the paper's table of eight datasets)."""

from __future__ import annotations

from atomizer_lab.paper import networks, protocol
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale
from atomizer_lab.paper.models import (
    ATOMIZER,
    MODELS,
    PERCEIVER,
    RAMEN,
    RESNET,
    UNET,
    UNIVERSAT,
    VIT,
    row_numbers,
)

COLUMNS = ("EuroSAT", "ForestNet", "BurnScars", "Sen1Floods11", "PASTIS", "xView2", "Cashew", "BioMassters")
SMALL_COLUMNS = (
    *(networks.CHIP, networks.SERIES, networks.MADE_UP_FLOODS, networks.THREE_SENSORS),
    *networks.BIOMASS_COLUMNS,
    *networks.PATCH_FOLDS,
)
ALL = (RESNET, VIT, UNET, PERCEIVER, RAMEN, UNIVERSAT, ATOMIZER)
_SCENES = tuple(model for model in ALL if model != UNET)  # a UNet answers at positions


def small_cells() -> list[networks.Cell]:
    """Return the cells of all models on the small tasks."""
    return [
        networks.Cell(column, model)
        for column in SMALL_COLUMNS
        for model in (_SCENES if column in networks.PATCH_FOLDS else ALL)
    ]


TABLE2 = Item(
    name="table2",
    label="tab:single_task_results",
    unit="macro F1 (%) of scenes, mIoU (%) of maps, RMSE of biomass (lower is better)",
    paper=row_numbers(
        COLUMNS,
        {
            RESNET: (90.9, 43.8, 82.8, 87.8, 30.0, 53.8, 69.9, 46.3),
            VIT: (90.7, 39.1, 87.5, 85.0, 35.1, 52.4, 47.5, 52.7),
            RAMEN: (92.1, 40.4, 88.2, 89.1, 45.5, 53.3, 64.2, 44.7),
            UNIVERSAT: (90.8, 44.3, 88.1, 86.8, 42.9, 56.3, 62.4, 46.0),
            PERCEIVER: (90.9, 35.4, 83.4, 92.2, 17.9, 43.8, 26.2, 52.2),
            ATOMIZER: (90.2, 35.8, 88.8, 93.2, 44.1, 54.6, 72.0, 42.4),
        },
    ),
    scales={
        PAPER: Scale(
            "eight datasets, six models, from scratch: 48 runs",
            protocol.runs_of([protocol.Cell(dataset, model) for dataset in COLUMNS for model in MODELS]),
        ),
        SMALL: Scale(
            "small tasks on real data and on made-up floods, models of about 1 M parameters, "
            f"{networks.MINUTES} minutes of one core to train each (the patches in five folds, whose spread is shown)",
            networks.runs_of(small_cells()),
        ),
        SMOKE: Scale(
            "two steps on a made-up scene",
            networks.runs_of(
                [networks.Cell(networks.MADE_UP, model) for model in (RESNET, ATOMIZER)], networks.TWO_STEPS, 0.1
            ),
        ),
    },
)
