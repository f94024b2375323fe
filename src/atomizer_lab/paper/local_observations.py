"""With and without what was observed where a query asks (the paper's ablation of local observation conditioning)."""

from __future__ import annotations

from atomizer_lab.paper import networks, protocol
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale
from atomizer_lab.paper.models import row_numbers

COLUMNS = ("Sen1Floods11", "Cashew", "PASTIS", "BurnScars")
FULL, WITHOUT = "full model", "without local observations"
CHANGES = {WITHOUT: {"model": {"settings": {"observation_conditioning": False}}}, FULL: {}}

LOCAL_OBSERVATIONS = Item(
    name="local-observations",
    label="tab:local_observation_ablation",
    unit="mIoU (%)",
    paper=row_numbers(COLUMNS, {WITHOUT: (89.26, 70.58, 43.30, 88.20), FULL: (93.17, 72.01, 44.10, 88.81)}),
    digits=2,
    scales={
        PAPER: Scale(
            "four datasets: 8 runs, of which those of the full model are those of table2",
            protocol.runs_of(
                [protocol.Cell(d, row=row, changes=changes) for d in COLUMNS for row, changes in CHANGES.items()]
            ),
        ),
        SMALL: Scale(
            f"a Sen1Floods11 chip, Rondônia and made-up floods, {networks.MINUTES} minutes of one core for a training",
            networks.runs_of(
                [
                    networks.Cell(column, row=row, changes=changes)
                    for column in (networks.CHIP, networks.SERIES, networks.MADE_UP_FLOODS)
                    for row, changes in CHANGES.items()
                ],
            ),
        ),
        SMOKE: Scale(
            "two steps on a made-up scene",
            networks.runs_of(
                [networks.Cell(networks.MADE_UP, row=r, changes=c) for r, c in CHANGES.items()], networks.TWO_STEPS, 0.1
            ),
        ),
    },
)
