"""Pages that need no other file, from the templates beside this module; they escape every text that they show."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from atomizer_io.figures.class_colours import Colour, class_colours
from atomizer_lab.report import images

TEMPLATES = Environment(
    loader=PackageLoader("atomizer_lab.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["mark"] = lambda name: f"{zlib.crc32(name.encode()):08x}"  # identifies a tab


def render(template: str, **values: Any) -> Markup:
    """Return a template with these values."""
    return Markup(TEMPLATES.get_template(template).render(values))


def tabs(panels: Mapping[str, Markup], name: str, style: str = "", chosen: str | None = None) -> Markup:
    """Return panels of which one is shown at a time, at first the ``chosen`` one, or the first."""
    part: Any = TEMPLATES.get_template("parts.html").module
    return Markup(part.tabs(panels, name, style, chosen))


class Figure(NamedTuple):
    """A figure of a page: its address, its name and a remark."""

    source: str
    name: str
    remark: str = ""


def figure(content: images.Floats | bytes, name: str, remark: str = "") -> Figure:
    """Return a figure that the page itself holds."""
    return Figure(images.source(content), name, remark)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its text, what it is sorted by (None: nothing is there), a longer text on demand, and its style."""

    text: str
    value: float | str | None = None
    title: str = ""
    style: str = ""


NOTHING = Cell("–", None, style="none")


def cell(value: float | str | None, form: str = "{}", **more: str) -> Cell:
    """Return a cell that shows and is sorted by ``value``; of None there is nothing to show."""
    return NOTHING if value is None or value == "" else Cell(form.format(value), value, **more)


class Head(NamedTuple):
    """The head of a column, and of which group of columns it is."""

    text: str
    group: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a reader can sort."""

    name: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    style: str = ""

    @property
    def groups(self) -> list[tuple[str, str, int]]:
        """The row above the heads: the name, style and width of each run of columns of one group; empty without any."""
        if not any(head.group for head in self.heads):
            return []
        runs = [(name, list(heads)) for name, heads in groupby(self.heads, key=lambda head: head.group)]
        styles = [{head.style for head in heads} for _, heads in runs]
        return [
            (name, style.pop() if len(style) == 1 else "", len(heads))
            for (name, heads), style in zip(runs, styles, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Confusion:
    """A confusion matrix: by row the class, its colour and the counts of predictions."""

    name: str
    rows: Sequence[tuple[str, str, Sequence[int]]]

    @classmethod
    def of(cls, name: str, classes: Sequence[str], matrix: Sequence[Sequence[int]]) -> Confusion:
        """Return the matrix of some classes; those whose names are numbers have no colour that means something."""
        colours = [
            "" if text.isdigit() else css_colour(c) for text, c in zip(classes, class_colours(classes), strict=True)
        ]
        return cls(name, list(zip(classes, colours, matrix, strict=True)))


def css_colour(colour: Iterable[float] | Colour) -> str:
    """Return a colour as a page writes it."""
    return f"rgb({', '.join(str(round(255 * part)) for part in colour)})"
