"""Operations against the score, for three strategies of decoding and all rivals (the paper's compute figure)."""

from __future__ import annotations

from functools import partial

from atomizer_lab.paper import networks, read_outs
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale
from atomizer_lab.paper.models import ATOMIZER, MODELS, RESNET
from atomizer_lab.paper.table2 import ALL

COMPUTE = Item(
    name="compute",
    label="fig:compute_tradeoff",
    unit="mIoU (%), operations of a scene in 10⁹ (a multiply-add counts as two), share of positions that is asked; "
    "the paper shows a picture and gives no numbers",
    paper={},
    scales={
        PAPER: Scale(
            "Sen1Floods11 and BurnScars, one checkpoint of Atomizer-IO, rivals as points; trainings of table2",
            partial(read_outs.paper_tasks, "compute", ("Sen1Floods11", "BurnScars"), MODELS),
        ),
        SMALL: Scale(
            f"the Sen1Floods11 chip, one checkpoint of Atomizer-IO, rivals as points; trainings of table2, else "
            f"{networks.MINUTES} minutes of one core for a model, and four more to read it out",
            partial(read_outs.small_tasks, "compute", (networks.CHIP,), ALL, networks.TIME),
        ),
        SMOKE: Scale(
            "two steps on a made-up scene",
            partial(read_outs.small_tasks, "smoke", (networks.MADE_UP,), (ATOMIZER, RESNET), networks.TWO_STEPS),
        ),
    },
    draw=read_outs.draw_trade_off,
)
