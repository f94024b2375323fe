"""Dates encoded together or one by one and then aggregated (the paper's figure of the temporal ablation)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from atomizer_lab.matrix import Task
from atomizer_lab.paper import networks, protocol
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Found, Item, Scale, Where
from atomizer_lab.small_data.tasks import RONDONIA, merged

JOINT, AGGREGATED, GAIN = "joint", "aggregated", "gain by aggregation"
DATES = (3, 6, 12)
SMALL_DATES = {1: ("20210805",), 3: ("20210704", "20210805", "20210922"), 6: tuple(RONDONIA.data["options"]["sensor"])}
WAYS: dict[str, dict[str, Any]] = {
    JOINT: {"model": {"settings": {"temporal": False}}},
    AGGREGATED: {"model": {"settings": {"temporal": True}}},
}


# Two experiments tell why the paper's shape does not show in Rondônia: there, queries may need no latents, as they see
# all dates of their own place; and its classes are a model's opinion of single pixels, those of made-up fields are not.
UNSEEN = ", queries without local observations"


def with_gain(found: Found) -> Found:
    """Return what was found, with what aggregation gains with each number of dates: the paper tells only this."""
    gains = {f"{GAIN}{kind}": _gain(found, kind) for kind in ("", UNSEEN)}
    return {**found, **{row: cells for row, cells in gains.items() if cells}}


def _gain(found: Found, kind: str) -> dict[str, dict[str, Any]]:
    """Return by how much the row of aggregated dates is ahead of that of joint ones; both names end with ``kind``."""
    joint, aggregated, gains = found.get(f"{JOINT}{kind}", {}), found.get(f"{AGGREGATED}{kind}", {}), {}
    for column in (name for name in joint if name in aggregated):
        before, after = joint[column], aggregated[column]
        paired = len(before["values"]) == len(after["values"])  # else some seeds are not there yet
        values = [b - a for a, b in zip(before["values"], after["values"], strict=True)] if paired else []
        spread = statistics.stdev(values) if len(values) > 1 else None
        gains[column] = {"values": values, "mean": after["mean"] - before["mean"], "spread": spread}
    return gains


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


def _unseen(way: str, count: int) -> networks.Cell:
    """Return the same cell, where queries do not see what was observed at their place."""
    cell, blind = _small(way, count), {"model": {"settings": {"observation_conditioning": False}}}
    return replace(cell, row=f"{way}{UNSEEN}", changes=merged(cell.changes, blind))


def _made_up(way: str, count: int) -> networks.Cell:
    """Return the cell with so many dates of made-up fields."""
    changes = {"data": {"options": {"dates": count}}, **WAYS[way]}
    return networks.Cell(
        networks.MADE_UP_FIELDS,
        row=way,
        changes=changes,
        titles={f"{networks.MADE_UP_FIELDS.title}, T = {count}": "all"},
    )


def _small_runs(where: Where, seeds: Sequence[int]) -> list[Task]:
    """Return the runs on Rondônia, and for the first seed those that tell why they come out as they do."""
    own = [_small(way, count) for count in SMALL_DATES for way in WAYS]
    causes = [_unseen(way, count) for count in SMALL_DATES for way in WAYS]
    causes += [_made_up(way, count) for count in DATES for way in WAYS]
    return networks.runs_of(own)(where, seeds) + networks.runs_of(causes)(where, seeds[:1])


TEMPORAL = Item(
    name="temporal",
    label="fig:temporal_ablation",
    unit="mIoU (%) by the number of dates; the paper's text gives the gains, its figure the rest",
    paper={GAIN: dict(zip((f"T = {count}" for count in DATES), (0.47, 4.85, 8.58), strict=True))},
    digits=2,
    derive=with_gain,
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
            f"Rondônia with 1, 3 and 6 dates of Sentinel-2, {networks.MINUTES} minutes of one core for a training; the "
            "classes are another model's opinion. With one seed also without local observations, and on made-up fields",
            _small_runs,
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
