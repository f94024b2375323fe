"""Charts as SVG inside a page, drawn by matplotlib: lines and points over two axes, and dots on tracks.

Their colours are the page's (``page.css``), so that they are readable in light and in dark.
"""

from __future__ import annotations

import io
import math
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup

WIDTH_IN, HEIGHT_IN, ROW_IN = 4.6, 3.0, 0.32
TRACK_PT, DOT_PT = 260, 6  # length of a track and radius of a dot, by which dots are kept apart
OFFSETS_PT = (0, -8, 8)  # where a dot may lie across its track, so that others do not hide it

# models and strategies that have a colour of their own wherever they occur
COLOURS = {
    "Atomizer-IO": "ours",
    "UNet": "unet",
    "ResNet": "c1",
    "ViT": "c2",
    "ViT 1×1": "c2",
    "Perceiver-IO": "c3",
    "RAMEN": "c4",
    "UniverSat": "c5",
    "full model": "ours",
    "aggregated": "ours",
    "forest": "pixels",
    "dense": "ours",
    "zone-probe": "c1",
    "quadtree": "c4",
    "sketch": "c3",
}
OTHERS = ("unet", "pixels", "c2", "c5", "c1", "c3", "c4")
# what matplotlib draws with, by the page's name of the colour that replaces it
_INKS = {name: f"#0000{number:02x}" for number, name in enumerate(("ours", *OTHERS, "quiet", "line", "card"), start=16)}
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "charts", "text.parse_math": False, "font.size": 9.0}
_SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one name: joined by a line, dashed or not, or single ones, ``labelled`` with the name."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str
    line: bool = True
    dashed: bool = False
    labelled: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """The titles of both axes, whether x is logarithmic, and the names along an x that has no numbers."""

    x: str
    y: str
    x_log: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart, with the classes of its colours by what they stand for."""

    title: str
    svg: Markup
    keys: tuple[tuple[str, str], ...]


def colour_of(name: str, number: int = 0) -> str:
    """Return the colour of a name; a name without one gets that of its ``number``."""
    return COLOURS.get(name) or OTHERS[number % len(OTHERS)]


def chart(title: str, series: Sequence[Series], axes: Axes) -> Chart | None:
    """Return a chart of some series; None where there are no points."""
    drawn = tuple(entry for entry in series if entry.points)
    keys = tuple((entry.name, f"{entry.colour}{' hollow' * entry.dashed}") for entry in drawn if entry.name)
    return Chart(title, _lines(title, drawn, axes), keys) if drawn else None


def dots(title: str, rows: Mapping[str, Mapping[str, float]], unit: str) -> Chart | None:
    """Return a chart with a track for each row, and on it a dot for each name; None where there are no numbers."""
    tracks = tuple((row, tuple(values.items())) for row, values in rows.items() if values)
    names = list(dict.fromkeys(name for _, values in tracks for name, _ in values))
    own = {name: COLOURS[name] for name in names if name in COLOURS}
    free = iter([colour for colour in OTHERS if colour not in own.values()] + list(OTHERS) * len(names))
    keys = tuple((name, own.get(name) or next(free)) for name in names)
    return Chart(title, _dots(title, tracks, keys, unit), keys) if tracks else None


@lru_cache(maxsize=1024)
def _lines(title: str, series: tuple[Series, ...], axes: Axes) -> Markup:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    canvas = _Canvas(HEIGHT_IN)
    axis = canvas.axis
    for entry in series:
        ink = _INKS[entry.colour]
        if entry.line:
            axis.plot(*zip(*entry.points, strict=True), "--" if entry.dashed else "-", color=ink, linewidth=1.6)
        for x, y in entry.points:
            canvas.dot(x, y, entry.colour, f"{entry.name}: {_short(x)}, {_short(y)}", hollow=entry.dashed)
            if entry.labelled:
                axis.annotate(_plain(entry.name), (x, y), (6, -3), textcoords="offset points")
    if axes.names:
        axis.set_xticks(range(len(axes.names)), [_plain(name) for name in axes.names])
    elif axes.x_log:
        values = [x for entry in series for x, _ in entry.points]
        axis.set_xscale("log")
        few = max(values) < 200 * min(values)
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set(xlabel=_plain(axes.x), ylabel=_plain(axes.y))
    return canvas.svg(title)


@lru_cache(maxsize=1024)
def _dots(title: str, tracks: tuple[Any, ...], keys: tuple[tuple[str, str], ...], unit: str) -> Markup:
    canvas, colours = _Canvas(0.6 + ROW_IN * len(tracks)), dict(keys)
    axis, numbers = canvas.axis, [value for _, values in tracks for _, value in values]
    low, length = min(numbers), (max(numbers) - min(numbers)) or 1.0
    for index, (row, values) in enumerate(tracks):
        ends = [value for _, value in values]
        axis.plot([min(ends), max(ends)], [index, index], color=_INKS["quiet"], alpha=0.5, linewidth=1.2, zorder=1)
        ordered = sorted(values, key=lambda pair: colours[pair[0]] != "ours")  # ours first: it stays on the track
        across = _apart([TRACK_PT * (value - low) / length for _, value in ordered])
        for (name, value), aside in reversed(list(zip(ordered, across, strict=True))):  # and is drawn above all
            y = index + aside / (72 * ROW_IN)
            canvas.dot(value, y, colours[name], f"{name}, {row}: {_short(value)}", size=8)
    axis.set_yticks(range(len(tracks)), [_plain(row) for row, _ in tracks])
    axis.set_ylim(len(tracks) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set(xlabel=_plain(unit))
    return canvas.svg(title)


def _apart(at_pt: Sequence[float]) -> list[float]:
    """Return how far across a track each dot at ``at_pt`` of it is drawn.

    A dot that another would hide is moved aside; where there is no room left, to where most of it is seen.
    """
    spots: list[tuple[float, float]] = []
    for x in at_pt:
        near = {y: min((math.dist((x, y), spot) for spot in spots), default=math.inf) for y in OFFSETS_PT}
        free = (y for y in OFFSETS_PT if near[y] > DOT_PT)
        spots.append((x, next(free, max(OFFSETS_PT, key=lambda y: near[y]))))
    return [y for _, y in spots]


class _Canvas:
    """A figure of one axis in the inks of the page; its dots tell their numbers when pointed at."""

    def __init__(self, height_in: float) -> None:
        import matplotlib
        from matplotlib.figure import Figure

        with matplotlib.rc_context(_STYLE):
            self.axis: Any = Figure(figsize=(WIDTH_IN, height_in)).add_axes((0.0, 0.0, 1.0, 1.0))
        self.axis.grid(color=_INKS["line"], linewidth=0.8)
        self.axis.set_axisbelow(True)
        self.axis.spines[:].set_visible(False)
        self.axis.tick_params(length=0, colors=_INKS["quiet"])
        self.hints: list[tuple[float, str]] = []

    def dot(self, x: float, y: float, colour: str, hint: str, *, size: float = 6, hollow: bool = False) -> None:
        """Draw a dot with a hint."""
        ink, name = _INKS[colour], f"dot{len(self.hints)}"
        style = {"markeredgecolor": ink} if hollow else {"markeredgecolor": _INKS["card"], "markeredgewidth": 1.0}
        face = _INKS["card"] if hollow else ink
        self.axis.plot([x], [y], "o", markersize=size, markerfacecolor=face, gid=name, zorder=3, **style)
        self.hints.append((size / 2, hint))

    def svg(self, title: str) -> Markup:
        """Return the chart as an element of a page: without addresses, and with the page's colours."""
        import matplotlib

        with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # glyphs that the font of this machine does not have
            buffer = io.BytesIO()
            self.axis.figure.savefig(buffer, format="svg", bbox_inches="tight", pad_inches=0.05, transparent=True)
        root = ET.fromstring(buffer.getvalue())
        root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": _plain(title)}
        for parent in list(root.iter()):
            for child in list(parent):
                if child.tag in (f"{_SVG}metadata", f"{_SVG}defs") or child.get("id", "").startswith("figure_patch"):
                    parent.remove(child)
            _adopt(parent)
            name = parent.attrib.pop("id", "")
            if name.startswith("dot"):
                self._as_circle(parent, *self.hints[int(name[3:])])
        return Markup(ET.tostring(root, encoding="unicode"))  # the serialiser has escaped every text

    @staticmethod
    def _as_circle(group: ET.Element, radius: float, hint: str) -> None:
        """Turn the reference to a marker that a group holds into a circle with a hint."""
        (mark,) = (element for element in group.iter() if element.tag.removeprefix(_SVG) == "use")
        circle = ET.Element("circle", cx=mark.attrib["x"], cy=mark.attrib["y"], r=f"{radius:g}")
        circle.attrib["style"] = _inked(mark.attrib["style"])
        ET.SubElement(circle, "title").text = _plain(hint)
        group[:] = [circle]


def _adopt(element: ET.Element) -> None:
    """Make an element of an SVG file one of a page, where its texts have the font of the page."""
    element.tag = element.tag.removeprefix(_SVG)
    element.attrib.pop("clip-path", None)
    style = [part for part in element.attrib.pop("style", "").split("; ") if part and not part.startswith("font")]
    if style:
        element.attrib["style"] = _inked("; ".join(style))


def _inked(style: str) -> str:
    """Return a style with the page's colours instead of those that matplotlib drew with."""
    for name, ink in _INKS.items():
        style = style.replace(ink, f"var(--{name})")
    return style


def _plain(text: str) -> str:
    """Return a text without characters that an XML file cannot hold."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def _short(number: float) -> str:
    """Return a number with the digits that count."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
