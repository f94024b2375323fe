"""Small pictures that a page enlarges pixel by pixel: maps of classes, quantities, shares, and what sensors saw.

Functions that draw return colours (H, W, 3) from 0 to 1; :func:`png` makes a file of them, :func:`source` what a page
can hold. Shapes: H × W pixels of a map, C classes.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Info
from atomizer_io.figures import clouds
from atomizer_io.figures.class_colours import UNKNOWN, WRONG, rgb
from atomizer_io.figures.sample_clouds import SampleCloud
from atomizer_io.models.atomizer.geometry.partition import Geometry

Floats = NDArray[np.floating[Any]]
ABSENT = "#c9c3cf"
ASKED, LEFT = "#1f2430", "#e9e6df"
RED_UM, GREEN_UM, BLUE_UM, INFRARED_UM = 0.66, 0.56, 0.48, 0.86
CELL_PIXELS = 320  # width of a picture of cells


def png(picture: Floats) -> bytes:
    """Return colours (H, W, 3) from 0 to 1 as a PNG."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, np.clip(picture, 0, 1), format="png")
    return buffer.getvalue()


def source(picture: Floats | bytes) -> str:
    """Return a picture, or the bytes of a PNG, as an address that holds the picture itself."""
    content = picture if isinstance(picture, bytes) else png(picture)
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def class_map(labels: Tensor, colours: Floats, truth: Tensor | None = None) -> Floats:
    """Draw a map of classes (H, W) in their ``colours`` (C, 3); where it differs from a known ``truth``, it is pink.

    Negative labels are unknown, and pale grey; so is everything where the truth is not known.
    """
    table = np.concatenate([np.asarray(colours), [rgb(UNKNOWN)]])
    shown = labels if truth is None else labels.where(truth >= 0, -1)
    picture: Floats = table[np.where(shown.numpy() < 0, len(colours), shown.numpy())]
    if truth is not None:
        picture = np.where(((labels != truth) & (truth >= 0)).numpy()[..., None], rgb(WRONG), picture)
    return picture


def value_map(values: Tensor, low: float, high: float) -> Floats:
    """Draw a quantity (H, W) between ``low`` and ``high``, from dark to bright; NaN is unknown, and pale grey."""
    from matplotlib import colormaps

    numbers = values.double().numpy()
    share = np.clip((np.nan_to_num(numbers, nan=low) - low) / max(high - low, 1e-12), 0, 1)
    found: Floats = np.where(np.isfinite(numbers)[..., None], colormaps["viridis"](share)[..., :3], rgb(UNKNOWN))
    return found


def asked_map(asked: Tensor) -> Floats:
    """Draw where a strategy asked the model (H, W): dark where it did."""
    found: Floats = np.where(asked.numpy()[..., None], rgb(ASKED), rgb(LEFT))
    return found


def share_map(share: Tensor) -> Floats:
    """Draw shares (H, W) between their smallest and largest, from dark to bright."""
    from matplotlib import colormaps

    values = share.double().numpy()
    spread = max(float(np.ptp(values)), 1e-9)
    found: Floats = colormaps["cividis"]((values - values.min()) / spread)[..., :3]
    return found


def seen(acquisition: Acquisition) -> Floats | None:
    """Draw what a sensor saw: in true colour where it can, else in its longest, middle and shortest band; radar grey.

    What is absent is mauve. None where the places that it saw are no regular lattice.
    """
    lattice = lattice_of(acquisition.positions.numpy())
    if lattice is None:
        return None
    order, shape, _ = lattice
    values = acquisition.observed().double().numpy()[order]
    waves = np.array([channel.wavelength_um or np.nan for channel in acquisition.channels])
    if np.isnan(waves).any():
        bands = [0, 0, 0]
    elif waves.max() < 1.0 or len(waves) < 4:
        bands = [int(np.abs(waves - colour).argmin()) for colour in (RED_UM, GREEN_UM, BLUE_UM)]
    else:
        longest, shortest = int(waves.argmax()), int(waves.argmin())
        bands = [longest, int(np.abs(waves - INFRARED_UM).argmin()), shortest]
    picture = np.stack([stretched(values[:, band]) for band in bands], axis=-1).reshape(*shape, 3)
    absent = np.isnan(picture).any(axis=-1, keepdims=True)
    found: Floats = np.where(absent, rgb(ABSENT), np.nan_to_num(picture))
    return found


def shrunk(picture: Floats, most: int) -> Floats:
    """Return a picture of at most about ``most`` pixels a side: whole blocks of pixels become their mean."""
    times = -(-max(picture.shape[:2]) // most)
    high, wide = (side // times * times for side in picture.shape[:2])
    blocks = picture[:high, :wide].reshape(high // times, times, wide // times, times, -1)
    found: Floats = blocks.mean(axis=(1, 3))
    return found


def stretched(column: Floats) -> Floats:
    """Return values scaled to 0 … 1 between their 2nd and 98th percentile; NaN stays."""
    known = column[np.isfinite(column)]
    if not known.size:
        return column
    low, high = np.percentile(known, (2, 98))
    return np.clip((column - low) / max(float(high - low), 1e-12), 0, 1)


def lattice_of(places: Floats) -> tuple[NDArray[np.int64], tuple[int, int], tuple[float, float, float, float]] | None:
    """Return row-major order, shape and extent of sites that fill a regular lattice; None for any other sites."""
    places = places.round(6)  # rows of transformed pixels are level only up to rounding
    x, y = np.unique(places[:, 0]), np.unique(places[:, 1])
    if len(x) * len(y) != len(places):
        return None
    order = np.lexsort((places[:, 0], -places[:, 1]))
    half_x, half_y = (np.ptp(side) / max(len(side) - 1, 1) / 2 or 0.5 for side in (x, y))
    return order, (len(y), len(x)), (x[0] - half_x, x[-1] + half_x, y[0] - half_y, y[-1] + half_y)


def borders(anchors: Floats, x: Floats, y: Floats) -> NDArray[np.bool_]:
    """Return where, at columns ``x`` and rows ``y``, the cells of ``anchors`` (L, 2) meet: cells of the nearest one."""
    owner = cKDTree(anchors).query(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))[1].reshape(len(y), len(x))
    border = np.zeros(owner.shape, dtype=bool)
    border[:, 1:] |= owner[:, 1:] != owner[:, :-1]
    border[1:] |= owner[1:] != owner[:-1]
    return border


def cell_map(geometry: Geometry, grid: Grid, ground: Floats | None = None) -> Floats:
    """Draw the borders of the cells of latents over the place of a grid, on a picture of it or on pale ground."""
    anchors = (geometry.anchors_L2 + geometry.center_2).numpy()
    across, down = grid.size_m
    step = across / CELL_PIXELS
    x = grid.center_m[0] - across / 2 + step * (np.arange(CELL_PIXELS) + 0.5)
    y = grid.center_m[1] + down / 2 - step * (np.arange(max(1, round(down / step))) + 0.5)
    border = borders(anchors, x, y)
    below: Floats = np.broadcast_to(rgb(LEFT), (*border.shape, 3))
    if ground is not None:
        rows, columns = (np.arange(n) * size // n for n, size in zip(border.shape, ground.shape[:2], strict=True))
        below = 0.35 + 0.65 * ground[rows][:, columns]  # paler, so that borders stand out
    found: Floats = np.where(border[..., None], rgb(ASKED), below)
    return found


def cloud(sample: Sample, info: Info, answers: Tensor, geometry: Geometry | None = None) -> bytes:
    """Draw a cloud from above and from the side by height, class, prediction and error, and by cell; return a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = SampleCloud.of(sample)
    assert found is not None
    layers = [found.height_layer(), *found.answer_layers(sample, info, answers)]
    if geometry is not None:
        layers.append(found.cell_layer(geometry))
    figure = Figure(figsize=clouds.size_in(len(layers)), layout="constrained")
    FigureCanvasAgg(figure)
    clouds.draw(figure, found.view, layers)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
