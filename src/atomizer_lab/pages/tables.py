"""Tables of a page that a reader can sort, and confusion matrices."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from atomizer_io.figures.class_colours import Colour, class_colours

DEEP = 55  # percent of colour from which text on it is light


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its text, what it is sorted by (None: nothing is there), a longer text on demand, and its style."""

    text: str
    value: float | str | None = None
    title: str = ""
    style: str = ""

    def __str__(self) -> str:
        title = f' title="{html.escape(self.title)}"' if self.title else ""
        style = f' class="{self.style}"' if self.style else ""
        value = "" if self.value is None else html.escape(str(self.value))
        return f'<td data-value="{value}"{title}{style}>{html.escape(self.text)}</td>'


NOTHING = Cell("–", None, style="none")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column, and of which group of columns it is."""

    text: str
    group: str = ""
    style: str = ""


def table(heads: Sequence[Head], rows: Sequence[Sequence[Cell]], *, style: str = "", name: str = "") -> str:
    """Return a table with heads to sort by; neighbours of the same group stand below its name."""
    buttons = "".join(
        f'<th scope="col" class="{head.style}"><button data-column="{number}">{html.escape(head.text)}</button></th>'
        for number, head in enumerate(heads)
    )
    groups = f"<tr>{_groups(heads)}</tr>" if any(head.group for head in heads) else ""
    body = "".join(f"<tr{_mark(row)}>{''.join(str(cell) for cell in row)}</tr>" for row in rows)
    label = f' aria-label="{html.escape(name)}"' if name else ""
    return (
        f'<div class="card scroll {style}"><table class="sortable"{label}><thead>{groups}<tr>{buttons}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _groups(heads: Sequence[Head]) -> str:
    """Return the row above the heads: each run of columns of one group has one cell."""
    found: list[tuple[str, str, int]] = []
    for head in heads:
        if found and found[-1][0] == head.group:
            style = head.style if found[-1][1] == head.style else ""
            found[-1] = (head.group, style, found[-1][2] + 1)
        else:
            found.append((head.group, head.style, 1))
    return "".join(
        f'<th class="group {style}" colspan="{count}">{html.escape(group)}</th>' for group, style, count in found
    )


def _mark(row: Sequence[Cell]) -> str:
    return ' class="own"' if row and row[0].style == "own" else ""


def confusion(matrix: Sequence[Sequence[int]], names: Sequence[str], name: str) -> str:
    """Return a confusion matrix: rows are the truth, columns the answers, cells percent of a row with their counts."""
    marks = [css_colour(colour) for colour in class_colours(names)]
    swatches = [
        "" if text.isdigit() else f'<i style="background:{colour}"></i>'  # a number has no colour that means something
        for text, colour in zip(names, marks, strict=True)
    ]
    titles = [f"{swatch}{html.escape(text)}" for swatch, text in zip(swatches, names, strict=True)]
    heads = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = []
    for title, counts in zip(titles, matrix, strict=True):
        total = sum(counts)
        cells = "".join(_share(count, total) for count in counts)
        rows.append(f'<tr><th scope="row">{title}</th>{cells}<td>{total:,}</td></tr>')
    return (
        f'<figure class="matrix"><figcaption><b>{html.escape(name)}</b></figcaption><div class="scroll">'
        f'<table><thead><tr><th scope="col">true ↓ answer →</th>{heads}<th scope="col">all</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></figure>"
    )


def css_colour(colour: Colour) -> str:
    """Return a colour as a page writes it."""
    return f"rgb({', '.join(str(round(255 * part)) for part in colour)})"


def _share(count: int, total: int) -> str:
    """Return a cell with the percent of a row; of a class that does not occur nothing is known."""
    if not total:
        return '<td class="none">–</td>'
    share = 100 * count / total
    deep = ' class="deep"' if share > DEEP else ""
    return f'<td{deep} style="--share:{share:.0f}%" title="{count:,} of {total:,}">{share:.1f}</td>'
