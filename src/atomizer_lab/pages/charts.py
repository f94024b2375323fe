"""Charts as SVG inside a page: lines and points over two axes, and dots on tracks. Colours follow the page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 440, 290
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 12, 44
ROW, TRACK_LEFT, DOT = 30, 165, 6  # of dots on tracks
ASIDE = (0, -8, 8)  # where a dot may lie across its track, so that others do not hide it
LETTER = 7.2  # width of a character in the units of a picture, rather too much than too little
FEW_TICKS = 5

# models and ways that have a colour of their own wherever they occur
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


def colour_of(name: str, number: int = 0) -> str:
    """Return the colour of a name; a name without one gets that of its ``number``."""
    return COLOURS.get(name) or OTHERS[number % len(OTHERS)]


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one name: joined by a line, dashed, or single ones with their ``labels`` beside them."""

    name: str
    points: Sequence[tuple[float, float]] = field(hash=False)
    colour: str
    line: bool = True
    dashed: bool = False
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Axes:
    """What the axes are: their titles, whether x is logarithmic, and names of places along x that has no numbers."""

    x: str
    y: str
    x_log: bool = False
    places: Sequence[str] = ()


def ticks(low: float, high: float, count: int = FEW_TICKS) -> list[float]:
    """Return round numbers between two, about as many as ``count``."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 10) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def powers(low: float, high: float) -> list[float]:
    """Return numbers for a logarithmic axis: 1, 2 and 5 times powers of ten, or only these where they are many."""
    every = [times * 10.0**power for power in range(-6, 16) for times in (1, 2, 5)]
    inside = [number for number in every if low * 0.999 <= number <= high * 1.001]
    return inside if len(inside) <= FEW_TICKS + 1 else [n for n in inside if math.log10(n) % 1 < 1e-9]


def chart(title: str, series: Sequence[Series], axes: Axes) -> str:
    """Return a figure of some series, with what their colours mean; nothing where there are no points."""
    points = [point for each in series for point in each.points]
    if not points:
        return ""
    across, down = _Axis.of([x for x, _ in points], axes.x_log), _Axis.of([y for _, y in points], False)
    parts = [_grid(across, down, axes)]
    for each in series:
        spots = [(LEFT + across.at(x) * _wide(), TOP + (1 - down.at(y)) * _high()) for x, y in each.points]
        if each.line and len(spots) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            dashed = ' stroke-dasharray="5 4"' if each.dashed else ""
            parts.append(f'<polyline class="s-{each.colour}" points="{path}"{dashed}/>')
        for number, ((x, y), (real_x, real_y)) in enumerate(zip(spots, each.points, strict=True)):
            label = each.labels[number] if number < len(each.labels) else ""
            hollow = " hollow" if each.dashed else ""
            parts.append(
                _circle(x, y, 4, f"{each.colour}{hollow}", f"{label or each.name}: {_short(real_x)}, {_short(real_y)}")
            )
            if label and not each.line:
                anchor, shift = ("end", -7) if x > WIDTH * 0.75 else ("start", 7)
                parts.append(_text(x + shift, y + 4, label, anchor))
    keys = "".join(
        f'<li><i class="{each.colour}{" hollow" if each.dashed else ""}"></i>{html.escape(each.name)}</li>'
        for each in series
        if each.points and each.name
    )
    return _figure(title, f'viewBox="0 0 {WIDTH} {HEIGHT}"', "".join(parts), keys)


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis from ``low`` to ``high``, with its ticks."""

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, numbers: Sequence[float], log: bool) -> _Axis:
        low, high = min(numbers), max(numbers)
        if log:
            return cls(low / 1.15, high * 1.15, True)
        room = 0.06 * (high - low) or max(abs(high) * 0.05, 0.5)
        return cls(low - room, high + room, False)

    def at(self, number: float) -> float:
        if self.log:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        return powers(self.low, self.high) if self.log else ticks(self.low, self.high)


def _grid(across: _Axis, down: _Axis, axes: Axes) -> str:
    """Return lines and numbers of both axes, and their titles."""
    parts, bottom = [], HEIGHT - BOTTOM
    for number in down.ticks():
        y = TOP + (1 - down.at(number)) * _high()
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 7, y + 4, _short(number), "end"))
    named: dict[float, str] = dict(enumerate(axes.places)) or {number: _short(number) for number in across.ticks()}
    for place, name in named.items():
        x = LEFT + across.at(place) * _wide()
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        half = len(name) * LETTER / 2
        parts.append(_text(min(max(x, half), WIDTH - half), bottom + 16, name))  # all of it within the picture
    middle = TOP + _high() / 2
    parts.append(_text(LEFT + _wide() / 2, HEIGHT - 6, axes.x, style="name"))
    turned = f'transform="translate(11 {middle}) rotate(-90)"'
    parts.append(f'<text class="name" {turned} text-anchor="middle">{html.escape(axes.y)}</text>')
    return "".join(parts)


def dots(title: str, rows: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """Return a figure with a track for each row, and on it a dot for each name; nothing where there are no numbers."""
    numbers = [value for row in rows.values() for value in row.values()]
    if not numbers:
        return ""
    axis, bottom = _Axis.of(numbers, False), 8 + ROW * len(rows)
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    colours = _colours(names)
    wide, parts = WIDTH - RIGHT - TRACK_LEFT, []
    for number in axis.ticks():
        x = TRACK_LEFT + axis.at(number) * wide
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{bottom}"/>')
        parts.append(_text(x, bottom + 16, _short(number)))
    for place, (row, values) in enumerate(rows.items()):
        y = 8 + ROW * (place + 0.5)
        ends = [TRACK_LEFT + axis.at(value) * wide for value in (min(values.values()), max(values.values()))]
        parts.append(_text(TRACK_LEFT - 12, y + 4, row, "end", "name"))
        parts.append(f'<line class="track" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y}" y2="{y}"/>')
        found = sorted(values.items(), key=lambda pair: colours[pair[0]] != "ours")  # ours first: it has its place
        spots = _apart([TRACK_LEFT + axis.at(value) * wide for _, value in found])
        for (name, value), (x, aside) in reversed(list(zip(found, spots, strict=True))):  # and is drawn above all
            parts.append(_circle(x, y + aside, DOT, f"{colours[name]} ring", f"{name}, {row}: {_short(value)}"))
    parts.append(_text(TRACK_LEFT + wide / 2, bottom + 34, unit, style="name"))
    keys = "".join(f'<li><i class="{colours[name]}"></i>{html.escape(name)}</li>' for name in names)
    return _figure(title, f'viewBox="0 0 {WIDTH} {bottom + 42}"', "".join(parts), keys)


def _apart(places: Sequence[float]) -> list[tuple[float, float]]:
    """Return where dots at ``places`` of a track are drawn, along and across it.

    A dot that another would hide is moved aside; where there is no room left, to where most of it is seen.
    """
    found: list[tuple[float, float]] = []
    for x in places:
        near = {y: min((math.dist((x, y), other) for other in found), default=math.inf) for y in ASIDE}
        free = (y for y in ASIDE if near[y] > DOT)
        found.append((x, next(free, max(ASIDE, key=lambda y: near[y]))))
    return found


def _colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name: its own, or one that no other name here has."""
    own = {name: COLOURS[name] for name in names if name in COLOURS}
    free = iter([colour for colour in OTHERS if colour not in own.values()] + list(OTHERS) * len(names))
    return {name: own.get(name) or next(free) for name in names}


def _figure(title: str, box: str, content: str, keys: str) -> str:
    return (
        f'<figure class="chart"><figcaption><b>{html.escape(title)}</b></figcaption>'
        f'<svg {box} role="img" aria-label="{html.escape(title)}">{content}</svg><ul class="keys">{keys}</ul></figure>'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _circle(x: float, y: float, radius: float, style: str, told: str) -> str:
    return (
        f'<circle class="f-{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{html.escape(told)}</title></circle>'
    )


def _wide() -> int:
    return WIDTH - LEFT - RIGHT


def _high() -> int:
    return HEIGHT - TOP - BOTTOM


def _short(number: float) -> str:
    """Return a number with the digits that count."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
