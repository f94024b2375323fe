"""The paper's numbers and the measured ones in one table, column by column where both have the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from atomizer_lab.pages.tables import NOTHING, Cell, Head, table
from atomizer_lab.paper.item import Item
from atomizer_lab.paper.models import ATOMIZER
from atomizer_lab.report.results import ResultFile

PAPER, HERE = "paper", "here"
LOWER = "BioM"  # columns of biomass are errors: the lowest is the best
UNJUDGED = ("compute", "sensitivity", "complexity", "parameters", "partition")  # numbers that are no scores
Column = tuple[str, str]  # its name, and whether it is the paper's or ours


def beside(item: Item, file: ResultFile) -> str:
    """Return the table of an item: the paper's columns and those measured at one scale."""
    found, paper = file.document["found"], item.paper
    rows = list(dict.fromkeys([*paper, *found]))
    columns, heads = ordered(paper, found, f"paper ({item.label})", f"here ({file.scale})")
    best = {} if item.name in UNJUDGED else {column: _best(column, paper, found) for column in columns}
    body = []
    for row in rows:
        cells = [Cell(row, row, style="own" if row == ATOMIZER else "")]
        for column in columns:
            cells.append(_cell(item, column, row, paper, found, best.get(column)))
        body.append(cells)
    return table([Head("row"), *heads], body, name=f"{item.name}, {file.scale}")


def ordered(
    paper: Mapping[str, Any], found: Mapping[str, Any], paper_title: str, here_title: str
) -> tuple[list[Column], list[Head]]:
    """Return columns with their heads: those that both have side by side first, averages before all, then ours.

    What only the paper has comes last, so that what was measured is seen without scrolling.
    """
    theirs, ours = _names(paper), _names(found)
    shared = sorted((name for name in theirs if name in ours), key=lambda name: "average" not in name)
    pairs = [(name, side) for name in shared for side in (PAPER, HERE)]
    heads = [Head(side, name, side) for name, side in pairs]
    mine = [(name, HERE) for name in ours if name not in shared]
    other = [(name, PAPER) for name in theirs if name not in shared]
    rest = [*mine, *other]
    titles = {PAPER: paper_title, HERE: here_title}
    return [*pairs, *rest], [*heads, *(Head(name, titles[side], side) for name, side in rest)]


def _names(rows: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(column for columns in rows.values() for column in columns))


def _values(column: Column, paper: Mapping[str, Any], found: Mapping[str, Any]) -> list[float]:
    name, side = column
    if side == PAPER:
        return [columns[name] for columns in paper.values() if name in columns]
    means = [columns[name]["mean"] for columns in found.values() if name in columns]
    return [mean for mean in means if not math.isnan(mean)]


def _best(column: Column, paper: Mapping[str, Any], found: Mapping[str, Any]) -> float | None:
    """Return the best number of a column that has more than one."""
    values = _values(column, paper, found)
    if len(values) < 2:
        return None
    return min(values) if LOWER in column[0] else max(values)


def _cell(
    item: Item, column: Column, row: str, paper: Mapping[str, Any], found: Mapping[str, Any], best: float | None
) -> Cell:
    name, side = column
    if side == PAPER:
        value = paper.get(row, {}).get(name)
        text, title = ("", "") if value is None else (item.number(value), f"{row}, {name}: as in the paper")
    else:
        cell = found.get(row, {}).get(name)
        value = None if cell is None or math.isnan(cell["mean"]) else cell["mean"]
        text = "" if cell is None else item.text(cell)
        title = "" if cell is None else _seeds(item, cell)
    if value is None:
        return NOTHING
    return Cell(text, value, title, f"{side} best" if value == best else side)


def _seeds(item: Item, cell: Mapping[str, Any]) -> str:
    values = cell.get("values", [])
    shown = ", ".join(map(item.number, values))
    return f"{len(values)} runs: {shown}" if len(values) > 1 else "one run"
