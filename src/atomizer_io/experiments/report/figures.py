"""Curves of items: operations against the score, sensitivity, ablations, and scores by channels, dates or pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from atomizer_io.experiments.bench.decode_plots import VARIED, line_of
from atomizer_io.experiments.bench.read_outs import USUAL
from atomizer_io.experiments.paper.item import Item
from atomizer_io.experiments.paper.read_outs import FOLDED, LITERAL, SCORE
from atomizer_io.experiments.paper.temporal import GAIN
from atomizer_io.experiments.report.comparison import with_gain
from atomizer_io.experiments.report.results import ResultFile
from atomizer_io.pages.charts import Axes, Series, chart, colour_of, dots

WAYS = {FOLDED: "as computed here", LITERAL: "as the paper writes it"}
Numbers = Mapping[str, Mapping[str, float]]


def figures(item: Item, file: ResultFile) -> str:
    """Return the charts of an item, side by side; nothing where it has none."""
    drawn = CHARTS.get(item.name)
    charts = drawn(item, file) if drawn is not None else []
    charts = [each for each in charts if each]
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def means(file: ResultFile) -> dict[str, dict[str, float]]:
    """Return the measured means by row and column, without those that are not a number."""
    return {
        row: {column: cell["mean"] for column, cell in columns.items() if not math.isnan(cell["mean"])}
        for row, columns in file.document["found"].items()
    }


def turned(numbers: Numbers) -> dict[str, dict[str, float]]:
    """Return numbers by column and row."""
    columns = dict.fromkeys(column for cells in numbers.values() for column in cells)
    return {column: {row: cells[column] for row, cells in numbers.items() if column in cells} for column in columns}


def by_column(item: Item, file: ResultFile, start: str = "", unit: str = "%") -> list[str]:
    """Return two charts with a track for each column and a dot for each row: the paper's, and ours.

    Only columns whose names begin with ``start`` are drawn, as others are in another unit.
    """

    def kept(numbers: Numbers) -> dict[str, dict[str, float]]:
        return {column: rows for column, rows in turned(numbers).items() if column.startswith(start) and rows}

    paper = {row: dict(columns) for row, columns in item.paper.items()}
    return [
        dots("In the paper", kept(paper), unit),
        dots(f"Here, {file.scale}", kept(means(file)), unit),
    ]


def scores(item: Item, file: ResultFile) -> list[str]:
    """Return the charts of table 2 without biomass, which is an error in tonnes."""
    paper = {row: {c: v for c, v in columns.items() if "BioM" not in c} for row, columns in item.paper.items()}
    ours = {row: {c: v for c, v in columns.items() if "BioM" not in c} for row, columns in means(file).items()}
    return [dots("In the paper", turned(paper), "%"), dots(f"Here, {file.scale}", turned(ours), "%")]


def channels(item: Item, file: ResultFile) -> list[str]:
    """Return scores by the channels that are there at test."""
    return by_column(item, file, "S1F", "mIoU (%)")


def lines(title: str, numbers: Numbers, x: str, y: str, *, dashed: bool = False) -> str:
    """Return a chart with a line for each row over the columns."""
    columns = list(turned(numbers))
    series = [
        Series(
            row,
            [(columns.index(column), value) for column, value in cells.items()],
            colour_of(row, number),
            dashed=dashed,
        )
        for number, (row, cells) in enumerate(numbers.items())
    ]
    return chart(title, series, Axes(x, y, places=columns))


def sparse(item: Item, file: ResultFile) -> list[str]:
    """Return accuracy by the share of background pixels: the paper's with hollow dots, and ours."""
    x, y = "background pixels kept", "accuracy (%)"
    return [lines("In the paper", item.paper, x, y, dashed=True), lines(f"Here, {file.scale}", means(file), x, y)]


def bands(item: Item, file: ResultFile) -> list[str]:
    """Return the score by the bands that are there at test."""
    return [lines(f"Here, {file.scale}", means(file), "bands at test", "mIoU (%)")]


def dates(item: Item, file: ResultFile) -> list[str]:
    """Return the score by the number of dates, and how much aggregation gains: the paper's, and ours."""
    ours, paper = means(file), item.paper.get(GAIN, {})
    gain = {column: cell["mean"] for column, cell in with_gain(file.document["found"]).get(GAIN, {}).items()}
    return [
        lines(f"Here, {file.scale}", ours, "dates", "mIoU (%)"),
        lines("Gain by aggregation, in the paper", {"paper": paper}, "dates", "points of mIoU", dashed=True),
        lines(f"Gain by aggregation, here, {file.scale}", {f"here, {file.scale}": gain}, "dates", "points of mIoU"),
    ]


def trade_off(item: Item, file: ResultFile) -> list[str]:
    """Return operations against the score, counted in two ways; rivals are single points."""
    found = []
    for column, title in WAYS.items():
        series: dict[str, list[tuple[float, float]]] = {}
        for row, cells in means(file).items():
            if cells.keys() >= {column, SCORE} and cells[column] > 0:
                series.setdefault(_strategy(row) or row, []).append((cells[column], cells[SCORE]))
        known = [
            Series(name, sorted(points), colour_of(name, number), line=False, labels=[] if _strategy(name) else [name])
            for number, (name, points) in enumerate(series.items())
        ]
        found.append(chart(f"Here, {file.scale}: operations {title}", known, Axes("GFLOP per scene", "mIoU (%)", True)))
    return found


def _strategy(row: str) -> str | None:
    """Return the strategy of a row; None where it is a rival's."""
    names = [name.replace("_", "-") for name in USUAL]
    return next((name for name in names if row.rpartition(": ")[2].startswith(name)), None)


def sensitivity(item: Item, file: ResultFile) -> list[str]:
    """Return the score, and the operations, against κ, m and k, a line for each strategy; from the first run."""
    measured = [run["decode"] for run in file.results.values() if "decode" in run]
    if not measured:
        return []
    found = []
    for name, title in VARIED.items():
        for what, y in (("score", "mIoU (%)"), ("operations", "GFLOP per scene")):
            found.append(_against(measured[0], name, title, what, y))
    return found


def _against(decode: dict[str, Any], name: str, title: str, what: str, y: str) -> str:
    """Return score or operations against one setting, which stands at even distances."""
    rows = {strategy: line_of(decode, strategy, name) for strategy in USUAL}
    values = sorted({_value(row, name) for line in rows.values() for row in line})
    series = []
    for strategy, line in rows.items():
        points = [
            (values.index(_value(row, name)), 100 * row[decode["score"]] if what == "score" else row["gflops"]["total"])
            for row in line
        ]
        shown = strategy.replace("_", "-")
        series.append(Series(shown, points, colour_of(shown)))
    named = ["all" if math.isinf(value) else f"{value:g}" for value in values]
    return chart(f"{y} against {title}", series, Axes(title, y, places=named))


def _value(row: Mapping[str, Any], name: str) -> float:
    """Return the value of a setting; no budget counts as an infinite one."""
    value = {**row, **row["settings"]}[name]
    return math.inf if value is None else float(value)


CHARTS: dict[str, Callable[[Item, ResultFile], list[str]]] = {
    "table2": scores,
    "table3": channels,
    "compute": trade_off,
    "sensitivity": sensitivity,
    "rope": by_column,
    "local-observations": by_column,
    "temporal": dates,
    "mnist-sparse": sparse,
    "hyperspectral": bands,
}
