"""The score and the operations against κ, m and k (the paper's figure of compute and performance sensitivity)."""

from __future__ import annotations

from functools import partial

from atomizer_lab.paper import networks, read_outs
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale
from atomizer_lab.paper.models import ATOMIZER

COLUMNS = (networks.CHIP, networks.MADE_UP_FLOODS)

SENSITIVITY = Item(
    name="sensitivity",
    label="fig:Ablat_GLFOPS",
    unit="mIoU (%), operations of a scene in 10⁹ (a multiply-add counts as two), share of positions that is asked; "
    "the paper shows a picture and gives no numbers",
    paper={},
    scales={
        PAPER: Scale(
            "Sen1Floods11 and BurnScars, one checkpoint each, of table2",
            partial(read_outs.paper_tasks, "sensitivity", ("Sen1Floods11", "BurnScars"), (ATOMIZER,)),
        ),
        SMALL: Scale(
            f"the Sen1Floods11 chip and made-up floods, a checkpoint each, of table2; else {networks.MINUTES} minutes "
            "of one core to train it, and one to four more to read it out",
            partial(read_outs.small_tasks, "sensitivity", COLUMNS, (ATOMIZER,), networks.TIME),
        ),
        SMOKE: Scale(
            "two steps on a made-up scene",
            partial(read_outs.small_tasks, "smoke", (networks.MADE_UP,), (ATOMIZER,), networks.TWO_STEPS),
        ),
    },
    draw=read_outs.draw_sensitivity,
)
