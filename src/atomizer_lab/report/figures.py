"""Curves of items: operations against the score, sensitivity, ablations, and scores by channels, dates or pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from atomizer_lab.bench.decode_plots import VARIED, line_of, value_of
from atomizer_lab.bench.read_outs import USUAL
from atomizer_lab.pages.charts import Axes, Series, chart, colour_of, dots
from atomizer_lab.paper.item import Item
from atomizer_lab.paper.read_outs import FOLDED, LITERAL, SCORE, dataset_of, first_measured, strategy_of
from atomizer_lab.paper.temporal import GAIN
from atomizer_lab.report.comparison import LOWER
from atomizer_lab.report.results import ResultFile

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
    """Return the charts of table 2; biomass has one of its own, as it is an error in tonnes."""
    paper, ours = turned(item.paper), turned(means(file))

    def of(numbers: Numbers, errors: bool) -> dict[str, Mapping[str, float]]:
        return {column: rows for column, rows in numbers.items() if (LOWER in column) == errors}

    return [
        dots("In the paper", of(paper, errors=False), "%"),
        dots(f"Here, {file.scale}", of(ours, errors=False), "%"),
        dots(f"Here, {file.scale}: errors of biomass", of(ours, errors=True), "t/ha, less is better"),
    ]


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
    """Return for each dataset the score by the number of dates, and what aggregation gains: the paper's, and ours."""
    ours, paper = means(file), item.paper.get(GAIN, {})
    gains = {row: ours.pop(row) for row in list(ours) if row.startswith(GAIN)}
    found = [lines("Gain by aggregation, in the paper", {"paper": paper}, "dates", "points of mIoU", dashed=True)]
    for data in dict.fromkeys(_before_dates(column) for columns in ours.values() for column in columns):
        here = f"{file.scale}{f', {data}' if data else ''}"
        found += [
            lines(f"Here, {here}", _of_data(ours, data), "dates", "mIoU (%)"),
            lines(f"Gain by aggregation, here, {here}", _of_data(gains, data), "dates", "points of mIoU"),
        ]
    return found


def _before_dates(column: str) -> str:
    """Return the dataset that a column names before its number of dates, as in "made-up, T = 3"; "" for none."""
    return column.rpartition("T = ")[0].removesuffix(", ")


def _of_data(rows: Numbers, data: str) -> dict[str, dict[str, float]]:
    """Return the cells of one dataset by their number of dates alone, of all rows that have some."""
    found = {
        row: {c.removeprefix(data).removeprefix(", "): cells[c] for c in cells if _before_dates(c) == data}
        for row, cells in rows.items()
    }
    return {row: cells for row, cells in found.items() if cells}


def trade_off(item: Item, file: ResultFile) -> list[str]:
    """Return operations against the score, counted in two ways, for each dataset; rivals are single points."""
    by_data: dict[str, dict[str, Mapping[str, float]]] = {}
    for row, cells in means(file).items():
        data = dataset_of(row)
        by_data.setdefault(data, {})[row.removeprefix(f"{data}: ")] = cells
    return [
        _costs(f"Here, {file.scale}{f', {data}' if data else ''}: operations {title}", rows, column)
        for data, rows in by_data.items()
        for column, title in WAYS.items()
    ]


def _costs(title: str, rows: Numbers, column: str) -> str:
    """Return the chart of one dataset: a cloud of points for each strategy, and a named point for each rival."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row, cells in rows.items():
        if cells.keys() >= {column, SCORE} and cells[column] > 0:
            series.setdefault(strategy_of(row) or row, []).append((cells[column], cells[SCORE]))
    known = []
    for number, (name, points) in enumerate(series.items()):
        rival = not strategy_of(name)  # hollow dots with a name: the colours of strategies are those of rivals, too
        labels = [name] if rival else []
        known.append(Series(name, sorted(points), colour_of(name, number), line=False, dashed=rival, labels=labels))
    return chart(title, known, Axes("GFLOP per scene", "mIoU (%)", x_log=True))


def sensitivity(item: Item, file: ResultFile) -> list[str]:
    """Return score and operations against κ, m and k, a line for each strategy, from the first run on each dataset."""
    return [
        _against(decode, name, f"{data}: {title}" if data else title, what, y)
        for data, decode in first_measured(file.results).items()
        for name, title in VARIED.items()
        for what, y in (("score", "mIoU (%)"), ("operations", "GFLOP per scene"))
    ]


def _against(decode: dict[str, Any], name: str, title: str, what: str, y: str) -> str:
    """Return score or operations against one setting, which stands at even distances."""
    rows = {strategy: line_of(decode, strategy, name) for strategy in USUAL}
    values = sorted({value_of(row, name) for line in rows.values() for row in line})
    series = []
    for strategy, line in rows.items():
        numbers = [100 * row[decode["score"]] if what == "score" else row["gflops"]["total"] for row in line]
        points = [(values.index(value_of(row, name)), number) for row, number in zip(line, numbers, strict=True)]
        shown = strategy.replace("_", "-")
        series.append(Series(shown, points, colour_of(shown)))
    named = ["all" if math.isinf(value) else f"{value:g}" for value in values]
    return chart(f"{y} against {title}", series, Axes(title, y, places=named))


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
