"""A sensor of 224 bands of which every second is gone at test (ours: the paper has no hyperspectral data)."""

from __future__ import annotations

from typing import Any

from atomizer_lab.paper import networks
from atomizer_lab.paper.item import SMALL, SMOKE, Item, Scale
from atomizer_lab.paper.models import ATOMIZER, RESNET

TITLES = {"all bands": "all", "every 2nd band": "every-2nd", "every 4th band": "every-4th"}
DRAWS: dict[str, Any] = {"training": {"channel_dropout": {"scheme": "bands"}}}
ALL_BANDS = "trained with all bands"  # what a model is worth without draws of bands


def cells_of(column: networks.Column) -> list[networks.Cell]:
    """Return the cells of both models, trained with subsets of the bands and with all of them."""
    return [
        networks.Cell(column, model, row=f"{model}{row}", changes=changes, titles=TITLES)
        for row, changes in (("", DRAWS), (f", {ALL_BANDS}", {}))
        for model in (ATOMIZER, RESNET)
    ]


HYPERSPECTRAL = Item(
    name="hyperspectral",
    label="not in the paper",
    unit="mIoU (%) by the bands that are there at test; training draws subsets of them unless a row says otherwise",
    paper={},
    scales={
        SMALL: Scale(
            f"EnMAP tiles of Potsdam, 224 bands, {networks.MINUTES} minutes of one core for a training",
            networks.runs_of(cells_of(networks.HYPERSPECTRAL)),
        ),
        SMOKE: Scale(
            "two steps on a made-up scene", networks.runs_of(cells_of(networks.MADE_UP), networks.TWO_STEPS, 0.1)
        ),
    },
)
