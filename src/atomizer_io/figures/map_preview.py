"""The preview of a map for the eye: the map with a legend or a colour bar, and a scale bar in metres.

The map is drawn pixel by pixel, enlarged by a whole number if it is small. Lengths below are pixels of the preview, and
places are counted from its lower left corner. Shapes: H × W pixels of the map.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import printable
from atomizer_io.figures.class_colours import Colour

MARGIN, ROW, SWATCH, BELOW = 16, 22, 14, 40  # around everything; of the legend; below the map, for the scale bar
LEAST = 400  # the longer side of a map that is enlarged
DPI, POINTS = 100, 9  # of the text, which is then LETTER wide a letter
LETTER, LONGEST = 7.5, 36  # pixels of a letter, letters of a name
BAR = (18, 180)  # width and height of a colour bar
COLOUR_MAP = "viridis"
WITHOUT = "no data"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the colours of a map mean: a ``legend`` of classes, or a ``scale`` of low, high and a name with its unit."""

    legend: Mapping[str, Colour] = field(default_factory=dict)
    scale: tuple[float, float, str] | None = None

    @property
    def texts(self) -> list[str]:
        """All that is written beside the map."""
        if self.scale is None:
            return [*self.legend, WITHOUT]
        low, high, name = self.scale
        return [name, *map(number, (low, (low + high) / 2, high)), WITHOUT]


def values_in_colour(values: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    """Return a quantity (H, W) as colours (H, W, 4), transparent where it is NaN."""
    from matplotlib import colormaps

    known = np.isfinite(values)
    share = np.clip((np.where(known, values, low) - low) / max(high - low, 1e-12), 0, 1)
    image: NDArray[np.uint8] = colormaps[COLOUR_MAP](share, bytes=True)
    image[~known] = 0
    return image


def save(path: Path, image: NDArray[np.uint8], meaning: Meaning, pixel_m: float) -> None:
    """Write the preview of a map in colours (H, W, 4), transparent without data, whose pixels are ``pixel_m`` wide."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    times = max(1, LEAST // max(image.shape[:2]))
    large = image.repeat(times, axis=0).repeat(times, axis=1)
    down, across = large.shape[:2]
    height = max(down + BELOW, BAR[1] + 4 * ROW) + 2 * MARGIN
    rows = (height - 2 * MARGIN) // ROW
    columns = 1 if meaning.scale else math.ceil(len(meaning.texts) / rows)
    column = 2 * SWATCH + math.ceil(LETTER * min(LONGEST, max(map(len, meaning.texts))))
    width = max(across, 200) + columns * column + 3 * MARGIN
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    sheet = Sheet(figure)
    sheet.image(large, MARGIN, height - MARGIN - down)
    sheet.box(MARGIN - 1, height - MARGIN - down - 1, across + 1, down + 1, edge="grey")
    sheet.scale_bar(MARGIN, height - MARGIN - down - BELOW + 12, across, pixel_m / times)
    beside = max(across, 200) + 2 * MARGIN
    texts = [*meaning.legend.items(), *([(WITHOUT, None)] if not image[..., 3].all() else [])]
    if meaning.scale is not None:
        sheet.colour_bar(beside, height - MARGIN, meaning.scale)
        height -= BAR[1] + 2 * ROW + SWATCH
    for index, (text, colour) in enumerate(texts):
        x, y = beside + index // rows * column, height - MARGIN - (index % rows + 1) * ROW
        sheet.entry(x, y, text, colour)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names in letters that the font lacks are drawn as boxes
        figure.savefig(path, format="png", dpi=DPI)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A figure that is drawn on in pixels."""

    figure: Any

    def image(self, image: NDArray[np.uint8], x: float, y: float) -> None:
        """Put an image there, pixel by pixel."""
        self.figure.figimage(image, xo=x, yo=y, origin="upper")

    def box(self, x: float, y: float, width: float, height: float, face: Any = "none", edge: Any = "none") -> None:
        """Draw a rectangle."""
        from matplotlib.patches import Rectangle
        from matplotlib.transforms import IdentityTransform

        looks = {"facecolor": face, "edgecolor": edge, "linewidth": 0.7, "transform": IdentityTransform()}
        self.figure.add_artist(Rectangle((x, y), width, height, **looks), clip=False)

    def text(self, x: float, y: float, text: str) -> None:
        """Write a text as it is; dollars are no formulas."""
        from matplotlib.transforms import IdentityTransform

        short = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
        plain = " ".join(printable(short).split())
        self.figure.text(x, y, plain, fontsize=POINTS, transform=IdentityTransform(), parse_math=False, va="center")

    def entry(self, x: float, y: float, text: str, colour: Colour | None) -> None:
        """Write a line of the legend; white is without data."""
        self.box(x, y, SWATCH, SWATCH, face="white" if colour is None else colour, edge="grey")
        self.text(x + SWATCH + 6, y + SWATCH / 2, text)

    def colour_bar(self, x: float, top: float, scale: tuple[float, float, str]) -> None:
        """Draw the colours of a quantity from high to low, with the numbers that they stand for."""
        (width, height), (low, high, name) = BAR, scale
        ramp = np.repeat(np.linspace(1.0, 0.0, height)[:, None], width, axis=1)
        self.text(x, top - ROW / 2, name)
        top -= SWATCH
        self.image(values_in_colour(ramp, 0.0, 1.0), x, top - ROW - height)
        for share in (0.0, 0.5, 1.0):
            self.text(x + width + 6, top - ROW - height * (1 - share), number(low + share * (high - low)))

    def scale_bar(self, x: float, y: float, across: int, pixel_m: float) -> None:
        """Draw a bar of a round length in metres, about a third of the width of the map."""
        length_m = round_length(across * pixel_m / 3)
        width = length_m / pixel_m
        self.box(x, y, width, 5, face="black")
        self.text(x + width + 6, y + 2, metres(length_m))


def round_length(most: float) -> float:
    """Return the largest of 1, 2, 5, 10, 20, … (and of tenths) that is not above ``most``."""
    step = 10.0 ** math.floor(math.log10(most))
    return max(times * step for times in (1, 2, 5) if times * step <= most * (1 + 1e-9))


def metres(length_m: float) -> str:
    """Return a length in words: 500 m, 2 km."""
    return f"{length_m / 1000:g} km" if length_m >= 1000 else f"{length_m:g} m"


def number(value: float) -> str:
    """Return a number of a scale."""
    return f"{value:.4g}"
