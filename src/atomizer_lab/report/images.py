"""Small images that a page enlarges pixel by pixel: maps of classes, values, shares, and what sensors saw.

Functions that draw return colours (H, W, 3) from 0 to 1; :func:`png` makes a file of them, :func:`source` what a page
can hold. Shapes: H × W pixels of a map, C classes.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Info
from atomizer_io.figures import point_clouds
from atomizer_io.figures.class_colours import UNKNOWN, WRONG, rgb
from atomizer_io.figures.point_clouds import new_figure
from atomizer_io.figures.samples import BLUE_UM, GREEN_UM, RED_UM, SamplePoints, borders, lattice_of, stretched
from atomizer_io.models.atomizer.geometry.partition import Geometry

Floats = NDArray[np.floating[Any]]
ABSENT = "#c9c3cf"
DECODED, LEFT = "#1f2430", "#e9e6df"
INFRARED_UM = 0.86
CELL_PIXELS = 320  # width of a image of cells


def png(image: Floats) -> bytes:
    """Return colours (H, W, 3) from 0 to 1 as a PNG."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, np.clip(image, 0, 1), format="png")
    return buffer.getvalue()


def source(image: Floats | bytes) -> str:
    """Return an image, or the bytes of a PNG, as an address that holds the image itself."""
    content = image if isinstance(image, bytes) else png(image)
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def class_map(labels: Tensor, colours: Floats, target: Tensor | None = None) -> Floats:
    """Draw a map of classes (H, W) in their ``colours`` (C, 3); where it differs from a known ``target``, it is pink.

    Negative labels are unknown, and pale grey; so is everything where the target is not known.
    """
    table = np.concatenate([np.asarray(colours), [rgb(UNKNOWN)]])
    shown = labels if target is None else labels.where(target >= 0, -1)
    image: Floats = table[np.where(shown.numpy() < 0, len(colours), shown.numpy())]
    if target is not None:
        image = np.where(((labels != target) & (target >= 0)).numpy()[..., None], rgb(WRONG), image)
    return image


def value_map(values: Tensor, low: float, high: float) -> Floats:
    """Draw values (H, W) between ``low`` and ``high``, from dark to bright; NaN is unknown, and pale grey."""
    from matplotlib import colormaps

    numbers = values.double().numpy()
    share = np.clip((np.nan_to_num(numbers, nan=low) - low) / max(high - low, 1e-12), 0, 1)
    image: Floats = np.where(np.isfinite(numbers)[..., None], colormaps["viridis"](share)[..., :3], rgb(UNKNOWN))
    return image


def decoded_map(decoded: Tensor) -> Floats:
    """Draw where a strategy decoded (H, W): dark where it did."""
    image: Floats = np.where(decoded.numpy()[..., None], rgb(DECODED), rgb(LEFT))
    return image


def share_map(share: Tensor) -> Floats:
    """Draw shares (H, W) between their smallest and largest, from dark to bright."""
    from matplotlib import colormaps

    values = share.double().numpy()
    extent = max(float(np.ptp(values)), 1e-9)
    image: Floats = colormaps["cividis"]((values - values.min()) / extent)[..., :3]
    return image


def seen(acquisition: Acquisition) -> Floats | None:
    """Draw what a sensor saw: in true colour where it can, else in its longest, middle and shortest band; radar grey.

    What is absent is mauve. None where its sites are no regular lattice.
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
    image = np.stack([stretched(values[:, band]) for band in bands], axis=-1).reshape(*shape, 3)
    absent = np.isnan(image).any(axis=-1, keepdims=True)
    drawn: Floats = np.where(absent, rgb(ABSENT), np.nan_to_num(image))
    return drawn


def shrunk(image: Floats, most: int) -> Floats:
    """Return an image of at most about ``most`` pixels a side: whole blocks of pixels become their mean."""
    times = -(-max(image.shape[:2]) // most)
    high, wide = (side // times * times for side in image.shape[:2])
    blocks = image[:high, :wide].reshape(high // times, times, wide // times, times, -1)
    means: Floats = blocks.mean(axis=(1, 3))
    return means


def cell_map(geometry: Geometry, grid: Grid, ground: Floats | None = None) -> Floats:
    """Draw the borders of the cells of latents over a grid, on a image of it or on pale ground."""
    anchors = (geometry.anchors_L2[:, :2] + geometry.center_2[:2]).numpy()
    across, down = grid.size_m
    step = across / CELL_PIXELS
    x = grid.center_m[0] - across / 2 + step * (np.arange(CELL_PIXELS) + 0.5)
    y = grid.center_m[1] + down / 2 - step * (np.arange(max(1, round(down / step))) + 0.5)
    border = borders(anchors, x, y)
    below: Floats = np.broadcast_to(rgb(LEFT), (*border.shape, 3))
    if ground is not None:
        rows, columns = (np.arange(n) * size // n for n, size in zip(border.shape, ground.shape[:2], strict=True))
        below = 0.35 + 0.65 * ground[rows][:, columns]  # paler, so that borders stand out
    image: Floats = np.where(border[..., None], rgb(DECODED), below)
    return image


def point_cloud(sample: Sample, info: Info, outputs: Tensor, geometry: Geometry | None = None) -> bytes:
    """Draw points from above and from the side by height, class, prediction and error, and by cell; return a PNG."""
    points = SamplePoints.of(sample)
    assert points is not None
    layers = [points.height_layer(), *points.target_layers(sample, info, outputs)]
    if geometry is not None:
        layers.append(points.cell_layer(geometry))
    figure = new_figure(*point_clouds.size_in(len(layers)))
    point_clouds.draw(figure, points.view, layers)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
