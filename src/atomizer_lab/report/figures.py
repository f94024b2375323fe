"""Charts of items: FLOPs against the score, sensitivity, ablations, and scores by channels, dates or pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from atomizer_lab.bench.decode_plots import VARIED, line_of, value_of
from atomizer_lab.bench.decode_ways import USUAL
from atomizer_lab.paper.decoding import FOLDED, LITERAL, SCORE, dataset_of, first_measured, strategy_of
from atomizer_lab.paper.experiments import GAIN
from atomizer_lab.paper.item import Item
from atomizer_lab.report.charts import Axes, Chart, Series, chart, colour_of, dots
from atomizer_lab.report.results import ResultFile
from atomizer_lab.report.tables import is_error

COUNTS = {FOLDED: "as computed here", LITERAL: "as the paper writes it"}
Numbers = Mapping[str, Mapping[str, float]]
Charts = list[Chart | None]


def charts(item: Item, file: ResultFile) -> list[Chart]:
    """Return the charts of an item; none where it has none."""
    drawn = CHARTS[item.name](item, file) if item.name in CHARTS else []
    return [one for one in drawn if one is not None]


def means(file: ResultFile) -> dict[str, dict[str, float]]:
    """Return the measured means by row and column, without those that are not a number."""
    return {
        row: {column: cell["mean"] for column, cell in columns.items() if not math.isnan(cell["mean"])}
        for row, columns in file.document["found"].items()
    }


def transposed(numbers: Numbers) -> dict[str, dict[str, float]]:
    """Return numbers by column and row."""
    columns = dict.fromkeys(column for cells in numbers.values() for column in cells)
    return {column: {row: cells[column] for row, cells in numbers.items() if column in cells} for column in columns}


def by_column(item: Item, file: ResultFile, start: str = "", unit: str = "%") -> Charts:
    """Return two charts with a track for each column and a dot for each row: the paper's, and ours.

    Only columns whose names begin with ``start`` are drawn, as others are in another unit.
    """
    sides = {"In the paper": transposed(item.paper), f"Here, {file.scale}": transposed(means(file))}
    return [
        dots(title, {column: rows for column, rows in numbers.items() if column.startswith(start)}, unit)
        for title, numbers in sides.items()
    ]


def scores(item: Item, file: ResultFile) -> Charts:
    """Return the charts of table 2; heights have one of their own, as theirs are errors in metres."""
    paper, ours = transposed(item.paper), transposed(means(file))

    def part(numbers: Numbers, errors: bool) -> dict[str, Mapping[str, float]]:
        return {column: rows for column, rows in numbers.items() if is_error(column) == errors}

    return [
        dots("In the paper", part(paper, errors=False), "%"),
        dots(f"Here, {file.scale}", part(ours, errors=False), "%"),
        dots(f"Here, {file.scale}: errors of canopy height", part(ours, errors=True), "m, less is better"),
    ]


def lines(title: str, numbers: Numbers, x: str, y: str, *, dashed: bool = False) -> Chart | None:
    """Return a chart with a line for each row over the columns."""
    columns = list(transposed(numbers))
    series = []
    for number, (row, cells) in enumerate(numbers.items()):
        points = tuple((columns.index(column), value) for column, value in cells.items())
        series.append(Series(row, points, colour_of(row, number), dashed=dashed))
    return chart(title, series, Axes(x, y, names=tuple(columns)))


def sparse(item: Item, file: ResultFile) -> Charts:
    """Return accuracy by the share of background pixels: the paper's with hollow dots, and ours."""
    x, y = "background pixels kept", "accuracy (%)"
    return [lines("In the paper", item.paper, x, y, dashed=True), lines(f"Here, {file.scale}", means(file), x, y)]


def dates(item: Item, file: ResultFile) -> Charts:
    """Return for each dataset the score by the number of dates, and the gain by aggregation: the paper's, and ours."""
    ours, paper = means(file), item.paper.get(GAIN, {})
    gains = {row: ours.pop(row) for row in list(ours) if row.startswith(GAIN)}
    drawn = [lines("Gain by aggregation, in the paper", {"paper": paper}, "dates", "points of mIoU", dashed=True)]
    for data in dict.fromkeys(_before_dates(column) for columns in ours.values() for column in columns):
        here = f"{file.scale}{f', {data}' if data else ''}"
        drawn += [
            lines(f"Here, {here}", _of_data(ours, data), "dates", "mIoU (%)"),
            lines(f"Gain by aggregation, here, {here}", _of_data(gains, data), "dates", "points of mIoU"),
        ]
    return drawn


def _before_dates(column: str) -> str:
    """Return the dataset that a column names before its number of dates, as in "fields, T = 3"; "" for none."""
    return column.rpartition("T = ")[0].removesuffix(", ")


def _of_data(rows: Numbers, data: str) -> dict[str, dict[str, float]]:
    """Return the cells of one dataset by their number of dates alone, of all rows that have some."""
    own = {
        row: {c.removeprefix(data).removeprefix(", "): cells[c] for c in cells if _before_dates(c) == data}
        for row, cells in rows.items()
    }
    return {row: cells for row, cells in own.items() if cells}


def trade_off(item: Item, file: ResultFile) -> Charts:
    """Return FLOPs against the score, counted in two ways, for each dataset; baselines are single points."""
    by_data: dict[str, dict[str, Mapping[str, float]]] = {}
    for row, cells in means(file).items():
        data = dataset_of(row)
        by_data.setdefault(data, {})[row.removeprefix(f"{data}: ")] = cells
    return [
        _costs(f"Here, {file.scale}{f', {data}' if data else ''}: FLOPs {title}", rows, column)
        for data, rows in by_data.items()
        for column, title in COUNTS.items()
    ]


def _costs(title: str, rows: Numbers, column: str) -> Chart | None:
    """Return the chart of one dataset: the points of each strategy, and a named point for each baseline."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row, cells in rows.items():
        if cells.keys() >= {column, SCORE} and cells[column] > 0:
            points.setdefault(strategy_of(row) or row, []).append((cells[column], cells[SCORE]))
    series = []
    for number, (name, spots) in enumerate(points.items()):
        baseline = not strategy_of(name)  # hollow and named: strategies have the same colours
        colour = colour_of(name, number)
        series.append(Series(name, tuple(sorted(spots)), colour, line=False, dashed=baseline, labelled=baseline))
    return chart(title, series, Axes("GFLOP per scene", "mIoU (%)", x_log=True))


def sensitivity(item: Item, file: ResultFile) -> Charts:
    """Return score and FLOPs against κ, m and k, a line for each strategy, from the first run on each dataset."""
    return [
        _against(decode, name, f"{data}: {title}" if data else title, what, y)
        for data, decode in first_measured(file.results).items()
        for name, title in VARIED.items()
        for what, y in (("score", "mIoU (%)"), ("flops", "GFLOP per scene"))
    ]


def _against(decode: dict[str, Any], name: str, title: str, what: str, y: str) -> Chart | None:
    """Return score or FLOPs against one setting, whose values stand at even distances."""
    rows = {strategy: line_of(decode, strategy, name) for strategy in USUAL}
    values = sorted({value_of(row, name) for line in rows.values() for row in line})
    series = []
    for strategy, line in rows.items():
        numbers = [100 * row[decode["score"]] if what == "score" else row["gflops"]["total"] for row in line]
        points = tuple((values.index(value_of(row, name)), y) for row, y in zip(line, numbers, strict=True))
        shown = strategy.replace("_", "-")
        series.append(Series(shown, points, colour_of(shown)))
    names = tuple("all" if math.isinf(value) else f"{value:g}" for value in values)
    return chart(f"{y} against {title}", series, Axes(title, y, names=names))


def channels(item: Item, file: ResultFile) -> Charts:
    """Return the charts of table 3: mIoU by set of channels, in the paper and on MARIDA."""
    return [*by_column(item, file, "S1F", "mIoU (%)")[:1], *by_column(item, file, "MARIDA", "mIoU (%)")[1:]]


CHARTS: dict[str, Callable[[Item, ResultFile], Charts]] = {
    "table2": scores,
    "table3": channels,
    "compute": trade_off,
    "sensitivity": sensitivity,
    "rope": by_column,
    "local-observations": by_column,
    "temporal": dates,
    "mnist-sparse": sparse,
    "hyperspectral": lambda item, file: [lines(f"Here, {file.scale}", means(file), "bands at test", "mIoU (%)")],
}
