"""The preview of a map that was written: classes in their colours or values from dark to bright, a legend and a scale.

Each pixel of a small map is enlarged by a whole number. Without matplotlib the preview is the map alone.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import printable
from atomizer_io.figures.class_colours import Colour
from atomizer_io.io.raster_files import open_raster, write_png

LONGEST = 1024  # pixels of the longer side of a map, of which larger ones are thinned out
LEAST = 400  # pixels of the longer side below which a map is enlarged
DPI, MARGIN, TEXT_POINTS, LETTERS = 100, 16, 9, 36  # pixels around everything; size of the text, letters of a name
BAR = (18, 180)  # pixels of a colour bar, width and height
COLOUR_MAP = "viridis"

Classes = Mapping[int, tuple[str, Colour]]  # name and colour by the code in the file
Scale = tuple[float, float, str]  # lowest and highest value in colour, and what they are


def draw(written: Path, preview: Path, across_m: float, classes: Classes | None, value_name: str = "value") -> None:
    """Draw the map ``written``, which is ``across_m`` metres wide, into the PNG ``preview``."""
    with open_raster(written) as source:
        share = min(1.0, LONGEST / max(source.shape))
        values = source.read(1, out_shape=tuple(max(1, round(side * share)) for side in source.shape))
    with_matplotlib = importlib.util.find_spec("matplotlib") is not None
    image, legend, scale = np.zeros((*values.shape, 4), dtype=np.uint8), dict[str, Colour](), None
    for code, (name, colour) in (classes or {}).items():
        if (here := values == code).any():
            image[here] = (*(round(255 * part) for part in colour), 255)
            legend[f"{code} {name}"] = colour
    if classes is None and np.isfinite(values).any():
        low, high = (float(value) for value in np.nanpercentile(values, (2, 98)))
        image, scale = _shaded(values, low, high, with_matplotlib), (low, high, value_name)
    if with_matplotlib:
        _save(preview, image, legend, scale, across_m / values.shape[1])
    else:
        write_png(preview, image)


def _shaded(values: NDArray[Any], low: float, high: float, in_colour: bool) -> NDArray[np.uint8]:
    """Return values (H, W) in colour or in grey (H, W, 4), transparent where they are NaN."""
    known = np.isfinite(values)
    share = np.clip((np.where(known, values, low) - low) / max(high - low, 1e-12), 0, 1)
    image: NDArray[np.uint8] = np.repeat((255 * share).astype(np.uint8)[..., None], 4, axis=-1)
    if in_colour:
        from matplotlib import colormaps

        image = colormaps[COLOUR_MAP](share, bytes=True)
    image[..., 3] = 255
    image[~known] = 0
    return image


def _save(
    path: Path, image: NDArray[np.uint8], legend: Mapping[str, Colour], scale: Scale | None, pixel_m: float
) -> None:
    """Write the map (H, W, 4) with a bar of a round length below it, and what its colours mean to the right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar  # type: ignore[import-untyped]

    times = max(1, LEAST // max(image.shape[:2]))
    down, across = (times * side for side in image.shape[:2])
    figure = Figure(figsize=(across / DPI, down / DPI), dpi=DPI)  # the map alone; saving adds what lies around it
    FigureCanvasAgg(figure)
    axis = figure.add_axes((0.0, 0.0, 1.0, 1.0), xticks=[], yticks=[])
    axis.imshow(image, interpolation="nearest")
    most = image.shape[1] * pixel_m / 3
    step = 10.0 ** math.floor(math.log10(most))
    length_m = max(times_step * step for times_step in (1, 2, 5) if times_step * step <= most * (1 + 1e-9))
    length = f"{length_m / 1000:g} km" if length_m >= 1000 else f"{length_m:g} m"
    below: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -MARGIN / down), "pad": 0, "borderpad": 0}
    looks = {"size_vertical": 5 / times, "bbox_transform": axis.transAxes, "frameon": False}
    axis.add_artist(AnchoredSizeBar(axis.transData, length_m / pixel_m, length, **below, **looks))
    top = 1.0
    if scale is not None:
        low, high, name = scale
        bar = figure.add_axes((1 + MARGIN / across, 1 - (BAR[1] + 24) / down, BAR[0] / across, BAR[1] / down))
        mapped = ScalarMappable(Normalize(low, high), COLOUR_MAP)
        figure.colorbar(mapped, cax=bar, ticks=[low, (low + high) / 2, high], format="%.4g")
        bar.tick_params(labelsize=TEXT_POINTS)
        bar.set_title(_plain(name), fontsize=TEXT_POINTS, loc="left", parse_math=False)
        top -= (BAR[1] + 32) / down
    handles = [Patch(facecolor=colour, edgecolor="grey", label=_plain(name)) for name, colour in legend.items()]
    if not image[..., 3].all():
        handles.append(Patch(facecolor="white", edgecolor="grey", label="no data"))
    if handles:
        columns = math.ceil(len(handles) / max(8, down // 20))
        at: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1 + MARGIN / across, top), "borderaxespad": 0}
        texts = axis.legend(handles=handles, fontsize=TEXT_POINTS, ncols=columns, frameon=False, **at).get_texts()
        for text in texts:
            text.set_parse_math(False)  # dollars are no formulas
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names in letters that the font lacks are drawn as boxes
        figure.savefig(path, format="png", dpi=DPI, facecolor="white", bbox_inches="tight", pad_inches=MARGIN / DPI)


def _plain(name: str) -> str:
    """Return a name that fits into one line."""
    short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
    return " ".join(printable(short).split())
