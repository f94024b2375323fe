"""Figures of point clouds: from above, and a cross-section below it, coloured by whatever is known of the points.

Shapes: P points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.figures.class_colours import RIGHT, UNKNOWN, WRONG, Colour, class_colours, rgb

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POINTS = 60_000  # drawn at most in one view
STRIP_M = 2.0  # width of a cross-section
LONGEST_M = 200.0  # of a cross-section: more is too flat to see
FEW = 200  # a cross-section with fewer points is made wider
FLAT = 5.0  # times longer than high: from there on heights are stretched
ACROSS_IN, ABOVE_IN, BESIDE_IN, LEGEND_IN = 3.6, 3.5, 1.7, 0.9  # inches of a column and of its parts


@dataclass(frozen=True, slots=True)
class Strip:
    """A vertical slice along x (``axis`` 0) or y (1) from ``start`` to ``end``, ``width`` wide around ``middle``."""

    axis: int
    start: float
    end: float
    middle: float
    width: float = STRIP_M

    @classmethod
    def through(cls, xyz: Floats) -> Strip:
        """Return the slice along the longer side of points (P, 3), through the middle unless that is nearly empty.

        Then it is the densest slice. It is 2 m wide, or wider where it had only a few points.
        """
        low, high = xyz[:, :2].min(axis=0), xyz[:, :2].max(axis=0)
        axis = int(high[1] - low[1] > high[0] - low[0])
        half = min(high[axis] - low[axis], LONGEST_M) / 2
        centre, across = (low + high)[axis] / 2, (low + high)[1 - axis] / 2
        there = xyz[np.abs(xyz[:, axis] - centre) <= half][:, 1 - axis]
        there = there if len(there) else xyz[:, 1 - axis]
        number, count = np.unique(np.round((there - across) / STRIP_M), return_counts=True)
        in_middle = count[number == 0].sum()
        middle = across if 2 * in_middle >= count.mean() else across + STRIP_M * number[count.argmax()]
        width, whole = STRIP_M, 2 * (high - low)[1 - axis]
        while width < whole and (np.abs(there - middle) <= width / 2).sum() < FEW:
            width *= 2
        return cls(axis, float(centre - half), float(centre + half), float(middle), width)

    def inside(self, xyz: Floats) -> NDArray[np.bool_]:
        """Return which points (P, 3) lie in the slice."""
        along, across = xyz[:, self.axis], xyz[:, 1 - self.axis]
        inside: NDArray[np.bool_] = (along >= self.start) & (along <= self.end)
        return inside & (np.abs(across - self.middle) <= self.width / 2)


@dataclass(frozen=True, slots=True, eq=False)
class PointView:
    """Points (P, 3) in metres: ``above`` numbers those drawn from above, ``beside`` those of the cross-section."""

    xyz: Floats
    above: Ints
    beside: Ints
    strip: Strip

    @classmethod
    def of(cls, xyz: Floats) -> PointView:
        """Return the view of points in memory; of many points a sample is drawn, always the same ones."""
        strip = Strip.through(xyz)
        return cls(xyz, subsample(np.arange(len(xyz))), subsample(np.flatnonzero(strip.inside(xyz))), strip)


@dataclass(frozen=True, slots=True, eq=False)
class PointLayer:
    """A colour (P, 3) for each point, and what it means: a ``legend``, or a ``scale`` of low, high and a name.

    ``front`` (P,) marks points that are drawn over the others; ``marks`` (L, 2) are marked by a dot from above.
    """

    title: str
    colours: Floats
    legend: Mapping[str, Colour] = field(default_factory=dict)
    scale: tuple[float, float, str, str] | None = None  # low, high, name, colour map
    front: NDArray[np.bool_] | None = None
    marks: Floats | None = None


def by_class(title: str, labels: Ints, names: Sequence[str], colours: Sequence[Colour] | None = None) -> PointLayer:
    """Colour points by their class (P,), a number in ``names``; negative is unknown, and pale grey."""
    colours = class_colours(names) if colours is None else colours
    table = np.array([*colours, rgb(UNKNOWN)])
    present = [number for number in range(len(names)) if (labels == number).any()]
    legend = {names[number]: colours[number] for number in present}
    if (labels < 0).any():
        legend["no class"] = rgb(UNKNOWN)
    return PointLayer(title, table[np.where(labels < 0, len(names), labels)], legend)


def by_error(
    wrong: NDArray[np.bool_],
    known: NDArray[np.bool_],
    title: str = "error",
    words: tuple[str, str] = ("right", "wrong"),
    share: float | None = None,
) -> PointLayer:
    """Colour points by whether their prediction is ``wrong`` (P,), where that is ``known`` (P,); ``words`` for both.

    ``share`` is that of the points that are wrong, where these points are only some of all.
    """
    wrong = wrong & known
    colours = np.where(known[:, None], np.where(wrong[:, None], rgb(WRONG), rgb(RIGHT)), rgb(UNKNOWN))
    share = wrong.sum() / max(1, known.sum()) if share is None else share
    legend = {words[0]: rgb(RIGHT), f"{words[1]}: {100 * share:.1f} %": rgb(WRONG)}
    if not known.all():
        legend["not known"] = rgb(UNKNOWN)
    return PointLayer(title, colours, legend, front=wrong)


def by_value(title: str, values: NDArray[Any], unit: str = "", *, centred: bool = False) -> PointLayer:
    """Colour points by values (P,), NaN where it is unknown; ``centred`` puts zero in the middle of the scale."""
    from matplotlib import colormaps

    values, name = np.asarray(values, np.float64), "RdBu_r" if centred else "viridis"
    known = np.isfinite(values)
    low, high = np.percentile(values[known], (1, 99)) if known.any() else (0.0, 1.0)
    if centred:
        low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
    high = high if high > low else low + 1.0
    share = np.clip((np.where(known, values, low) - low) / (high - low), 0, 1)
    colours = np.where(known[:, None], colormaps[name](share)[:, :3], rgb(UNKNOWN))
    return PointLayer(title, colours, scale=(float(low), float(high), unit, name))


def by_cell(title: str, cells: Ints, anchors: Floats) -> PointLayer:
    """Colour points by the number of their latent's cell (P,), negative where they are in none; mark the anchors."""
    from matplotlib.colors import hsv_to_rgb

    hue = (cells * 0.618034) % 1.0  # neighbours, whose numbers are near each other, differ
    brightness, depth = 0.55 + 0.2 * (cells % 3), 0.55 + 0.2 * (cells // 3 % 2)
    colours = np.where((cells >= 0)[:, None], hsv_to_rgb(np.stack([hue, depth, brightness], axis=1)), rgb(UNKNOWN))
    legend = {"in no cell": rgb(UNKNOWN)} if (cells < 0).any() else {}
    return PointLayer(title, colours, legend, front=cells >= 0, marks=anchors)


def subsample(numbers: Ints) -> Ints:
    """Return at most ``POINTS`` of these numbers, always the same ones."""
    if len(numbers) <= POINTS:
        return numbers
    return np.sort(np.random.default_rng(0).choice(numbers, POINTS, replace=False))


def new_figure(width_in: float, height_in: float) -> Any:
    """Return an empty figure that is drawn without a screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def size_in(layers: int) -> tuple[float, float]:
    """Return width and height in inches of a figure with so many layers."""
    return ACROSS_IN * layers, (ABOVE_IN + BESIDE_IN + LEGEND_IN) * bool(layers)


def draw(figure: Any, view: PointView, layers: Sequence[PointLayer]) -> None:
    """Draw each layer into a column of a figure: the points from above, their cross-section, and what colours mean."""
    axes = figure.subplots(3, len(layers), squeeze=False, height_ratios=(ABOVE_IN, BESIDE_IN, LEGEND_IN))
    for column, layer in enumerate(layers):
        draw_above(axes[0, column], view, layer)
        draw_beside(axes[1, column], view, layer)
        _explain(axes[2, column], layer)


def draw_above(axis: Any, view: PointView, layer: PointLayer) -> None:
    """Draw the points from above, the highest over the others, and where the cross-section lies."""
    from matplotlib.patches import Rectangle

    x, y, z = view.xyz[view.above].T
    _scatter(axis, layer, view.above, x, y, z)
    if layer.marks is not None:
        axis.plot(*layer.marks.T, ".", markersize=2.5, color="black")
    strip = view.strip
    corner, sides = (strip.start, strip.middle - strip.width / 2), (strip.end - strip.start, strip.width)
    if strip.axis:
        corner, sides = corner[::-1], sides[::-1]
    axis.add_patch(Rectangle(corner, *sides, fill=False, edgecolor="black", linewidth=0.6))
    axis.set_title(layer.title, fontsize=9)
    axis.set_aspect("equal", adjustable="datalim")


def draw_beside(axis: Any, view: PointView, layer: PointLayer) -> None:
    """Draw the points of the cross-section as seen from its side; height is up."""
    strip = view.strip
    along, z = view.xyz[view.beside, strip.axis], view.xyz[view.beside, 2]
    _scatter(axis, layer, view.beside, along, z, np.zeros(len(z)), 6.0)
    axis.set_xlabel(f"{'xy'[strip.axis]} (m); a strip of {strip.width:g} m", fontsize=6)
    if len(z):
        flat = (strip.end - strip.start) / max(float(np.ptp(z)), 1e-9)
        stretched = max(1, math.floor(flat / FLAT)) if flat < 1e6 else 1
        axis.set_aspect(stretched, adjustable="datalim")
        axis.set_ylabel("height (m)" + (f", × {stretched}" if stretched > 1 else ""), fontsize=6)


def _scatter(
    axis: Any, layer: PointLayer, numbers: Ints, right: Floats, up: Floats, near: Floats, most: float = 16.0
) -> None:
    """Draw some points of a layer, those with larger ``near`` over the others, and those in front over all."""
    front = np.zeros(len(numbers), bool) if layer.front is None else layer.front[numbers]
    order = np.lexsort((near, front))
    dot = {"s": dot_size(len(numbers), most), "linewidths": 0, "rasterized": True}
    axis.scatter(right[order], up[order], c=layer.colours[numbers][order], **dot)
    axis.ticklabel_format(useOffset=False, style="plain")
    axis.tick_params(labelsize=6)


def _explain(axis: Any, layer: PointLayer) -> None:
    """Write what the colours of a layer mean."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Patch

    axis.axis("off")
    if layer.scale is not None:
        low, high, unit, name = layer.scale
        bar = axis.inset_axes((0.1, 0.6, 0.8, 0.2))
        axis.figure.colorbar(ScalarMappable(Normalize(low, high), name), cax=bar, orientation="horizontal")
        bar.tick_params(labelsize=6)
        bar.set_title(unit, fontsize=6)
    elif layer.legend:
        patches = [Patch(color=colour, label=text) for text, colour in layer.legend.items()]
        columns = 1 if len(patches) <= 2 else 2 if len(patches) <= 8 else 3
        axis.legend(handles=patches, loc="upper center", ncols=columns, fontsize=7, frameon=False)


def dot_size(count: int, most: float = 16.0) -> float:
    """Return the size of a point: large enough that few are seen, small enough that many do not hide each other."""
    return min(most, max(0.8, 80_000 / max(count, 1)))
