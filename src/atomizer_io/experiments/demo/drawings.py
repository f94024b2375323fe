"""Pictures of the report: maps as small images that the page enlarges pixel by pixel, and clouds of points.

Shapes: H × W pixels of a map, C channels.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.atoms import Acquisition
from atomizer_io.datasets.dataset import Info
from atomizer_io.pictures import clouds
from atomizer_io.pictures.class_colours import BLUES, WRONG, rgb
from atomizer_io.pictures.sample_clouds import SampleCloud
from atomizer_io.sample import Sample

Floats = NDArray[np.floating[Any]]
DRY, WATER = "#d8c59a", BLUES[0]
ABSENT = "#c9c3cf"
ASKED, LEFT = "#1f2430", "#e9e6df"
CLASSES = np.array([rgb(DRY), rgb(WATER)])
RED_UM, GREEN_UM, BLUE_UM, INFRARED_UM = 0.66, 0.56, 0.48, 0.86


def encoded(picture: Floats) -> str:
    """Return colours (H, W, 3) from 0 to 1 as a PNG that a page can hold."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, np.clip(picture, 0, 1), format="png")
    return _as_text(buffer)


def _as_text(buffer: io.BytesIO) -> str:
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def class_map(labels: Tensor, truth: Tensor | None = None) -> str:
    """Draw a map of dry and water (H, W); where it differs from ``truth`` (H, W), it is pink."""
    picture = CLASSES[labels.numpy()]
    if truth is not None:
        picture = np.where((labels != truth).numpy()[..., None], rgb(WRONG), picture)
    return encoded(picture)


def asked_map(asked: Tensor) -> str:
    """Draw where a strategy asked the model (H, W): dark where it did."""
    return encoded(np.where(asked.numpy()[..., None], rgb(ASKED), rgb(LEFT)))


def share_map(share: Tensor) -> str:
    """Draw shares (H, W) between their smallest and largest, from dark to bright."""
    from matplotlib import colormaps

    values = share.double().numpy()
    spread = max(float(np.ptp(values)), 1e-9)
    return encoded(colormaps["cividis"]((values - values.min()) / spread)[..., :3])


def seen(acquisition: Acquisition) -> str:
    """Draw what a sensor saw: in true colour where it can, else in its longest, middle and shortest band; radar grey.

    What is absent is mauve.
    """
    values = acquisition.observed().double().numpy()
    side = round(len(values) ** 0.5)
    waves = np.array([channel.wavelength_um or np.nan for channel in acquisition.channels])
    if np.isnan(waves).any():
        bands = [0, 0, 0]
    elif waves.max() < 1.0 or len(waves) < 4:
        bands = [int(np.abs(waves - colour).argmin()) for colour in (RED_UM, GREEN_UM, BLUE_UM)]
    else:
        order = np.argsort(waves)
        bands = [int(order[-1]), int(np.abs(waves - INFRARED_UM).argmin()), int(order[0])]
    picture = np.stack([stretched(values[:, band]) for band in bands], axis=-1).reshape(side, side, 3)
    absent = np.isnan(picture).any(axis=-1, keepdims=True)
    return encoded(np.where(absent, rgb(ABSENT), np.nan_to_num(picture)))


def stretched(column: Floats) -> Floats:
    """Return values scaled to 0 … 1 between their 2nd and 98th percentile; NaN stays."""
    known = column[np.isfinite(column)]
    if not known.size:
        return column
    low, high = np.percentile(known, (2, 98))
    return np.clip((column - low) / max(float(high - low), 1e-12), 0, 1)


def cloud(sample: Sample, info: Info, answers: Tensor) -> str:
    """Draw a cloud from above and from the side by height, class, prediction and error."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = SampleCloud.of(sample)
    assert found is not None
    layers = [found.height_layer(), *found.answer_layers(sample, info, answers)]
    figure = Figure(figsize=clouds.size_in(len(layers)), layout="constrained")
    FigureCanvasAgg(figure)
    clouds.draw(figure, found.view, layers)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return _as_text(buffer)
