"""The tables of the report: the paper's numbers beside the measured ones, and files as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from atomizer_lab.paper.item import Item
from atomizer_lab.paper.models import ATOMIZER
from atomizer_lab.report.pages import NOTHING, Cell, Head, Table, cell, render
from atomizer_lab.report.results import ResultFile

PAPER, HERE = "paper", "here"
ERRORS = ("BioM", "height")  # columns of these are errors: the lowest is the best
UNJUDGED = ("compute", "sensitivity", "complexity", "parameters", "partition")  # numbers that are no scores
LISTS = ("rows", "reading", "scores", "strategies", "runs")  # parts of other files that are tables
MOST_COLUMNS, DEEPEST = 12, 3  # of such a table, and of nested values in it
SHOWN = ("miou", "rmse")  # the scores that are shown of each of many tests
Column = tuple[str, str]  # its name, and whether it is the paper's or ours
Rows = Mapping[str, Mapping[str, Any]]


def beside(item: Item, file: ResultFile) -> Table:
    """Return the table of an item: the paper's columns and those measured at one scale."""
    measured, paper = file.document["found"], item.paper
    columns, heads = ordered(paper, measured, f"paper ({item.label})", f"here ({file.scale})")
    best = {} if item.name in UNJUDGED else {column: _best(column, paper, measured) for column in columns}
    rows = []
    for row in dict.fromkeys([*paper, *measured]):
        cells = [_cell(item, column, row, paper, measured, best.get(column)) for column in columns]
        rows.append([Cell(row, row, style="own" if row == ATOMIZER else ""), *cells])
    return Table(f"{item.name}, {file.scale}", [Head("row"), *heads], rows)


def ordered(paper: Rows, measured: Rows, paper_title: str, here_title: str) -> tuple[list[Column], list[Head]]:
    """Return columns with their heads: those that both have side by side first, averages before all, then ours.

    What only the paper has comes last, so that what was measured is seen without scrolling.
    """
    theirs, ours = _names(paper), _names(measured)
    shared = sorted((name for name in theirs if name in ours), key=lambda name: "average" not in name)
    pairs = [(name, side) for name in shared for side in (PAPER, HERE)]
    rest = [(name, HERE) for name in ours if name not in shared]
    rest += [(name, PAPER) for name in theirs if name not in shared]
    titles = {PAPER: paper_title, HERE: here_title}
    heads = [Head(side, name, side) for name, side in pairs] + [Head(name, titles[side], side) for name, side in rest]
    return [*pairs, *rest], heads


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(column for columns in rows.values() for column in columns))


def is_error(name: str) -> bool:
    """Whether the numbers of a column are errors, of which the lowest is the best."""
    return any(word in name for word in ERRORS)


def _best(column: Column, paper: Rows, measured: Rows) -> float | None:
    """Return the best number of a column that has more than one."""
    name, side = column
    if side == PAPER:
        values = [columns[name] for columns in paper.values() if name in columns]
    else:
        means = [columns[name]["mean"] for columns in measured.values() if name in columns]
        values = [mean for mean in means if not math.isnan(mean)]
    if len(values) < 2:
        return None
    return min(values) if is_error(name) else max(values)


def _cell(item: Item, column: Column, row: str, paper: Rows, measured: Rows, best: float | None) -> Cell:
    name, side = column
    number = (paper if side == PAPER else measured).get(row, {}).get(name)
    if number is None:
        return NOTHING
    if side == PAPER:
        value, text, title = number, item.number(number), f"{row}, {name}: as in the paper"
    else:
        value, text, values = number["mean"], item.text(number), number.get("values", [])
        title = f"{len(values)} runs: {', '.join(map(item.number, values))}" if len(values) > 1 else "one run"
        if math.isnan(value):
            return NOTHING
    return Cell(text, value, title, f"{side} best" if value == best else side)


def as_it_is(file: ResultFile) -> Markup:
    """Return the numbers of an older file, or of one of a benchmark."""
    document, name = file.document, file.path.name
    facts = {key: value for key, value in document.items() if isinstance(value, str | int | float)}
    tables = [_table(f"{name}: {part}", document[part]) for part in LISTS if part in document]
    if "whole" in document:
        tables.append(_table(f"{name}: whole predictions", document["whole"]["rows"]))
    machines = file.machines or [{}]
    when = [f"{one.get('date', 'date unknown')}, commit {one.get('commit') or 'unknown'}" for one in machines]
    return render(
        "other.html",
        file=file,
        facts=", ".join(f"{key} {_text(value)}" for key, value in facts.items()),
        when="; ".join(dict.fromkeys(when)),
        tables=[table for table in tables if table is not None],
    )


def _table(name: str, part: Any) -> Table | None:
    """Return a list of values, or values by name, as a table; None for anything else."""
    if isinstance(part, Mapping):
        rows = [(key, _flat(value)) for key, value in part.items() if isinstance(value, Mapping)]
    elif isinstance(part, Sequence) and not isinstance(part, str):
        rows = [(str(number), _row(value)) for number, value in enumerate(part) if isinstance(value, Mapping)]
    else:
        return None
    columns = list(dict.fromkeys(key for _, values in rows for key in values))
    if len(columns) > MOST_COLUMNS:  # of many tests one score each
        columns = [column for column in columns if " " not in column or column.endswith(SHOWN)]
    columns = columns[:MOST_COLUMNS]
    body = [
        [Cell(key, key), *(Cell(_text(values[c]), values[c]) if c in values else NOTHING for c in columns)]
        for key, values in rows
    ]
    return Table(name, [Head(""), *map(Head, columns)], body) if columns else None


def _row(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return single values of a row, and the day and the commit of one that was measured on its own."""
    machine = values.get("machine")
    own = {"day": str(machine.get("date", ""))[:10], "commit": machine.get("commit")} if machine else {}
    return _flat({**values, **own})


def _flat(values: Mapping[str, Any], path: str = "", depth: int = 0) -> dict[str, Any]:
    """Return single values by their path; arguments, machines and limits say nothing about results."""
    single: dict[str, Any] = {}
    for key, value in values.items():
        own = f"{path} {key}".strip()
        if (
            isinstance(value, Mapping)
            and depth < DEEPEST
            and key not in ("arguments", "machine", "limits", "iou", "f1")
        ):
            single |= _flat(value, "" if key == "result" else own, depth + 1)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            single[own] = value
    return single


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def log(files: Sequence[ResultFile]) -> Table:
    """Return the table of all result files: what, at which scale, when, how long, at which commit, by which command."""
    heads = ("what", "scale", "runs", "seeds", "minutes", "when", "commit", "machine", "command")
    return Table("what was run", [Head(text) for text in heads], [_logged(file) for file in files], "words")


def _logged(file: ResultFile) -> list[Cell]:
    machines = file.machines
    dates = [str(machine.get("date", ""))[:16].replace("T", " ") for machine in machines]
    commits = list(dict.fromkeys(str(machine.get("commit") or "") for machine in machines))
    on = list(dict.fromkeys(f"{m.get('processor', '')}, threads: {m.get('threads', '?')}" for m in machines))
    return [
        cell(file.item or file.path.stem),
        cell(file.scale),
        cell(len(file.runs) or None),
        Cell(", ".join(map(str, file.seeds)), len(file.seeds)) if file.seeds else NOTHING,
        cell(file.minutes, "{:.1f}"),
        Cell(dates[-1], dates[-1], f"from {dates[0]} to {dates[-1]}") if dates else NOTHING,
        Cell(", ".join(commits), commits[0]) if commits else NOTHING,
        Cell("; ".join(on), on[0]) if on else NOTHING,
        cell(file.command),
    ]


def runs(file: ResultFile) -> Table:
    """Return the runs of an item with what they took."""
    rows = []
    for name, run in file.runs.items():
        result, machine = run["result"], run.get("machine", {})
        date, commit = str(machine.get("date", "")), str(machine.get("commit") or "")
        took = [cell(run.get("minutes"), "{:.2f}"), *(cell(result.get(key), "{:,}") for key in ("steps", "seconds"))]
        rows.append([Cell(name, name), *took, Cell(date[:16].replace("T", " "), date), Cell(commit, commit)])
    heads = ("run", "minutes", "steps", "seconds of training", "when", "commit")
    return Table(f"runs of {file.path.stem}", [Head(text) for text in heads], rows)
