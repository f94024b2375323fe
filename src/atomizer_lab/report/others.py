"""Results that are not of the paper: the small tasks beside forests, and files of benchmarks and single runs."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from atomizer_lab.pages.charts import dots
from atomizer_lab.pages.tables import NOTHING, Cell, Head, table
from atomizer_lab.paper.models import ATOMIZER
from atomizer_lab.report.results import ResultFile
from atomizer_lab.report.seen import made_by
from atomizer_lab.small_data.small_data import CHANNELS, DATES, FOREST, seeds_of, spread
from atomizer_lab.small_data.tasks import TASKS

LISTS = ("rows", "reading", "scores", "strategies", "runs")  # parts of files that are tables
MOST = 12  # columns of such a table
TOLD = ("miou", "rmse")  # scores that are told of each of many tests
DEEP = 3


def small_data(file: ResultFile) -> str:
    """Return the section of the small tasks: the network beside a forest, a regression and a constant."""
    results = file.results
    body = []
    for name, task in TASKS.items():
        rival = results.get(f"{name}, {FOREST}", {})
        own = [run[task.metric] for run in seeds_of(results, name)]
        if not own and not rival:
            continue
        mean = statistics.mean(own) if own else None
        simple = [rival.get("forest", {}).get(task.metric), rival.get("regression", {}).get(task.metric)]
        numbers = [mean, *simple, rival.get("constant")]
        known = [number for number in numbers if number is not None]
        best = min(known) if task.metric == "rmse" else max(known)
        texts = [spread(own) if own else "", *("" if n is None else f"{n:.3f}" for n in numbers[1:])]
        cells = [
            NOTHING if number is None else Cell(text, number, style="best" if number == best else "")
            for number, text in zip(numbers, texts, strict=True)
        ]
        body.append([Cell(name, name), Cell(task.metric, task.metric), *cells])
    heads = [Head(text) for text in ("task", "score", ATOMIZER, "forest", "regression", "constant")]
    charts = [_fewer(results, name, title) for name, title in ((CHANNELS, "channels"), (DATES, "dates"))]
    return f"""<section><span class="tag">not in the paper · small</span>
<h2>Small tasks beside forests and regressions</h2>
<p>{html.escape(str(file.document.get("what", "")))}. Forests and regressions are fitted anew for each row; the network
is the same for all channels and dates. RMSE is better when it is lower.</p>
{table(heads, body, name="small tasks") if body else ""}
<div class="charts">{"".join(charts)}</div>{made_by(file.command)}</section>"""


def _fewer(results: Mapping[str, Any], name: str, title: str) -> str:
    """Return scores with fewer channels or dates at test: one network, and forests fitted for each."""
    rival, runs = results.get(f"{name}, {FOREST}"), [run["scores"] for run in seeds_of(results, name)]
    if rival is None or not runs:
        return ""
    rows = {
        kind: {ATOMIZER: statistics.mean(run[kind] for run in runs), "forest": simple}
        for kind, simple in rival["scores"].items()
        if all(kind in run for run in runs)
    }
    return dots(f"{name}: {title} at test", rows, "score")


def other(file: ResultFile) -> str:
    """Return what an older file, or one of a benchmark, says: its numbers as they are."""
    document = file.document
    facts = {key: value for key, value in document.items() if isinstance(value, str | int | float)}
    told = ", ".join(f"{key} {_text(value)}" for key, value in facts.items())
    tables = "".join(_table(f"{file.path.name}: {part}", document[part]) for part in LISTS if part in document)
    if "whole" in document:
        tables += _table(f"{file.path.name}: whole predictions", document["whole"]["rows"])
    when = "; ".join(dict.fromkeys(_when(machine) for machine in file.machines or [{}]))
    return f"""<details><summary>{html.escape(file.path.name)}</summary><p>{html.escape(told)}</p>
<p class="made">{html.escape(when)}</p>{tables}</details>"""


def _when(machine: Mapping[str, Any]) -> str:
    return f"{machine.get('date', 'date unknown')}, commit {machine.get('commit') or 'unknown'}"


def _table(name: str, part: Any) -> str:
    """Return a list of values, or values by name, as a table; what is no such thing is left out."""
    if isinstance(part, Mapping):
        rows = [(key, _flat(value)) for key, value in part.items() if isinstance(value, Mapping)]
    elif isinstance(part, Sequence) and not isinstance(part, str):
        rows = [(str(number), _row(value)) for number, value in enumerate(part) if isinstance(value, Mapping)]
    else:
        return ""
    columns = list(dict.fromkeys(key for _, values in rows for key in values))
    if len(columns) > MOST:  # of many tests one score each
        columns = [column for column in columns if " " not in column or column.endswith(TOLD)]
    columns = columns[:MOST]
    if not columns:
        return ""
    body = [
        [Cell(key, key), *(Cell(_text(values[c]), values[c]) if c in values else NOTHING for c in columns)]
        for key, values in rows
    ]
    return table([Head(""), *(Head(column) for column in columns)], body, name=name)


def _row(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return single values of a row, and the day and the commit of one that was measured on its own."""
    machine = values.get("machine")
    own = {"day": str(machine.get("date", ""))[:10], "commit": machine.get("commit")} if machine else {}
    return _flat({**values, **own})


def _flat(values: Mapping[str, Any], before: str = "", depth: int = 0) -> dict[str, Any]:
    """Return single values by their path; arguments, machines and limits say nothing about results."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{before} {key}".strip()
        if isinstance(value, Mapping) and depth < DEEP and key not in ("arguments", "machine", "limits", "iou", "f1"):
            found |= _flat(value, "" if key == "result" else path, depth + 1)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            found[path] = value
    return found


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
