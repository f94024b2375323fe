"""Dates encoded together or one by one and then aggregated (the paper's figure of the temporal ablation)."""

from __future__ import annotations

from typing import Any

from atomizer_io.experiments.paper import networks, protocol
from atomizer_io.experiments.paper.item import PAPER, SMALL, SMOKE, Item, Scale
from atomizer_io.experiments.small_data.tasks import RONDONIA

JOINT, AGGREGATED, GAIN = "joint", "aggregated", "gain by aggregation"
DATES = (3, 6, 12)
SMALL_DATES = {1: ("20210805",), 3: ("20210704", "20210805", "20210922"), 6: tuple(RONDONIA.data["options"]["sensor"])}
WAYS: dict[str, dict[str, Any]] = {
    JOINT: {"model": {"settings": {"temporal": False}}},
    AGGREGATED: {"model": {"settings": {"temporal": True}}},
}


def _with_dates(way: str, count: int) -> dict[str, Any]:
    """Return the changes for PASTIS with so many dates; without aggregation the network is the one for single dates."""
    preset = "atomizer_io_seg_temporal" if way == AGGREGATED else "atomizer_io_seg"
    return {"data": {"options": {"dates": count}}, "model": {"preset": preset, "settings": {}}}


def _small(way: str, count: int) -> networks.Cell:
    """Return the cell with so many dates of Rondônia; with fewer of them squares are wider."""
    kept = SMALL_DATES[count]
    sensors = {name: sensor if name in kept else "-" for name, sensor in RONDONIA.data["options"]["sensor"].items()}
    changes = {"data": {"options": {"sensor": sensors}}, **WAYS[way]}
    return networks.Cell(networks.SERIES, row=way, changes=changes, titles={f"T = {count}": "all"})


TEMPORAL = Item(
    name="temporal",
    label="fig:temporal_ablation",
    unit="mIoU (%) by the number of dates; the paper's text gives the gains, its figure the rest",
    paper={GAIN: dict(zip((f"T = {count}" for count in DATES), (0.47, 4.85, 8.58), strict=True))},
    digits=2,
    scales={
        PAPER: Scale(
            "PASTIS with 3, 6 and 12 dates: 6 runs",
            protocol.runs_of(
                [
                    protocol.Cell("PASTIS", row=way, changes=_with_dates(way, count), titles={f"T = {count}": "all"})
                    for count in DATES
                    for way in WAYS
                ]
            ),
        ),
        SMALL: Scale(
            f"Rondônia with 1, 3 and 6 dates of Sentinel-2, {networks.MINUTES} minutes of one core for a "
            "training; the classes are another model's opinion",
            networks.runs_of([_small(way, count) for count in SMALL_DATES for way in WAYS]),
            (0, 1, 2),
        ),
        SMOKE: Scale(
            "two steps on a made-up scene",
            networks.runs_of(
                [networks.Cell(networks.MADE_UP, row=way, changes=changes) for way, changes in WAYS.items()],
                networks.TWO_STEPS,
                0.1,
            ),
        ),
    },
)
