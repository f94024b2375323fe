"""A sensor of 224 bands of which every second is gone at test (ours: the paper has no hyperspectral data)."""

from __future__ import annotations

from atomizer_io.experiments.paper import networks
from atomizer_io.experiments.paper.item import SMALL, SMOKE, Item, Scale
from atomizer_io.experiments.paper.models import ATOMIZER, RESNET

TITLES = {"all bands": "all", "every 2nd band": "every-2nd", "every 4th band": "every-4th"}
CELLS = [networks.Cell(networks.HYPERSPECTRAL, model, titles=TITLES) for model in (ATOMIZER, RESNET)]
MADE_UP = [networks.Cell(networks.MADE_UP, model, titles=TITLES) for model in (ATOMIZER, RESNET)]

HYPERSPECTRAL = Item(
    name="hyperspectral",
    label="not in the paper",
    unit="mIoU (%) by the bands that are there at test; training has all",
    paper={},
    scales={
        SMALL: Scale(
            f"EnMAP tiles of Potsdam, 224 bands, {networks.STEPS} steps with all bands, about 6 minutes of one "
            "core for a run",
            networks.runs_of(CELLS, networks.STEPS, 6.0),
            (0, 1, 2),
        ),
        SMOKE: Scale("two steps on a made-up scene", networks.runs_of(MADE_UP, 2, 0.1)),
    },
)
