"""One model of each kind with six sets of channels at test (the paper's table on flexible input composition)."""

from __future__ import annotations

from typing import Any

from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_lab.paper import networks, protocol
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale
from atomizer_lab.paper.models import (
    ATOMIZER,
    MODELS,
    PERCEIVER,
    RAMEN,
    RESNET,
    UNIVERSAT,
    VIT,
    row_numbers,
)
from atomizer_lab.paper.table2 import ALL

DATASETS = {"Sen1Floods11": "S1F", "BioMassters": "BioM"}
COLUMNS = tuple(f"{short} {name}" for short in DATASETS.values() for name in (*CONFIGURATIONS, "average"))
DRAWS: dict[str, Any] = {"training": {"channel_dropout": {"scheme": "groups"}}}
SMALL_DRAWS: dict[str, Any] = {"training": {"channel_dropout": {"scheme": "groups", "alone": 0.3}}}


def titles(short: str) -> dict[str, str]:
    """Return the columns of a dataset with the channels that are shown in each."""
    return {f"{short} {name}": name for name in CONFIGURATIONS}


TABLE3 = Item(
    name="table3",
    label="tab:modality_drop",
    unit="mIoU (%) on Sen1Floods11, RMSE on BioMassters (lower is better), by the channels that are there at test",
    paper=row_numbers(
        COLUMNS,
        {
            ATOMIZER: (92.9, 92.8, 80.0, 44.8, 87.8, 92.9, 81.9, 41.5, 45.8, 48.1, 71.0, 43.0, 42.2, 48.6),
            RESNET: (88.1, 86.4, 66.4, 43.7, 49.0, 85.3, 69.8, 47.6, 55.9, 52.1, 73.8, 49.1, 49.8, 54.7),
            VIT: (84.5, 84.4, 75.3, 43.8, 75.1, 80.5, 73.9, 52.9, 55.5, 55.5, 71.4, 54.0, 53.8, 57.2),
            PERCEIVER: (92.1, 92.2, 77.2, 43.8, 81.8, 89.1, 79.4, 52.0, 57.7, 58.6, 70.4, 53.4, 54.0, 57.7),
            RAMEN: (87.0, 87.8, 75.1, 44.5, 63.7, 85.9, 74.0, 43.4, 48.4, 49.2, 71.9, 46.0, 45.4, 50.7),
            UNIVERSAT: (88.7, 88.6, 79.4, 43.8, 85.2, 88.0, 78.9, 45.7, 49.1, 49.1, 70.8, 46.7, 46.4, 51.3),
        },
    ),
    scales={
        PAPER: Scale(
            "both datasets, six models with the same band dropout (groups of bands): 12 runs",
            protocol.runs_of(
                [
                    protocol.Cell(dataset, model, changes=DRAWS, titles=titles(short), average=f"{short} average")
                    for dataset, short in DATASETS.items()
                    for model in MODELS
                ]
            ),
        ),
        SMALL: Scale(
            f"the western half of a Sen1Floods11 chip to train, the east to test, models of about 1 M parameters, "
            f"{networks.MINUTES} minutes of one core to train each, with groups of bands dropped",
            networks.runs_of(
                [
                    networks.Cell(
                        networks.CHIP, model, changes=SMALL_DRAWS, titles=titles("S1F"), average="S1F average"
                    )
                    for model in ALL
                ],
            ),
            (0, 1, 2),
        ),
        SMOKE: Scale(
            "two steps on a made-up scene",
            networks.runs_of(
                [
                    networks.Cell(networks.MADE_UP, model, changes=DRAWS, titles=titles("S1F"), average="S1F average")
                    for model in (RESNET, ATOMIZER)
                ],
                networks.TWO_STEPS,
                0.1,
            ),
        ),
    },
)
