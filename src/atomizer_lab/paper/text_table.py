"""Tables as text for a terminal: two side by side with common rows, or parts of them one below the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

Texts = Mapping[str, Mapping[str, str]]  # by row and column
WIDE = 150  # characters of a line; what is wider is printed in parts
GAP, BAR = "  ", " | "


def beside(left: Texts, right: Texts, left_title: str, right_title: str) -> list[str]:
    """Return two tables as lines: side by side where there is room, else below each other; an empty one is left out."""
    rows = list(dict.fromkeys([*left, *right]))
    names = max([len(row) for row in rows], default=0)
    if left and right:
        first = block(left, columns_of(left), rows, left_title)
        second = block(right, columns_of(right), rows, right_title)
        if len(GAP) + len(BAR) + names + len(first[0]) + len(second[0]) <= WIDE:
            labels = [f"{name:{names}}" for name in ("", "", *rows)]
            return [f"{label}{GAP}{a}{BAR}{b}".rstrip() for label, a, b in zip(labels, first, second, strict=True)]
    lines = []
    for table, title in ((left, left_title), (right, right_title)):
        for columns in fitting(table, WIDE - names):
            shown = block(table, columns, list(table), title)
            labels = [f"{name:{names}}" for name in ("", "", *table)]
            lines += [f"{label}{GAP}{line}".rstrip() for label, line in zip(labels, shown, strict=True)]
            lines.append("")
    return lines[:-1]


def columns_of(table: Texts) -> list[str]:
    """Return the names of all columns."""
    return list(dict.fromkeys(column for cells in table.values() for column in cells))


def width_of(table: Texts, column: str) -> int:
    """Return how wide a column is."""
    return max(len(column), *(len(cells.get(column, "–")) for cells in table.values()))


def fitting(table: Texts, room: int) -> Iterator[list[str]]:
    """Yield the columns of a table, as many at a time as there is room for; one at least."""
    group: list[str] = []
    for column in columns_of(table):
        if group and sum(width_of(table, name) + len(GAP) for name in (*group, column)) > room:
            yield group
            group = []
        group.append(column)
    if group:
        yield group


def block(table: Texts, columns: Iterable[str], rows: Sequence[str], title: str) -> list[str]:
    """Return columns as lines of one width, below a title and their names; a cell without value is –."""
    widths = {column: width_of(table, column) for column in columns}
    lines = [GAP.join(f"{column:>{width}}" for column, width in widths.items())]
    lines += [GAP.join(f"{table.get(row, {}).get(c, '–'):>{width}}" for c, width in widths.items()) for row in rows]
    wide = max(len(title), len(lines[0]))
    return [f"{title:{wide}}", *(f"{line:{wide}}" for line in lines)]
