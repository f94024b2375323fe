"""The preview of a map that was written: classes in their colours or a quantity, what they mean, and a scale."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.figures.map_preview import Meaning, save, values_in_colour
from atomizer_io.io.raster_files import open_raster
from atomizer_io.prediction.map_classes import MapClasses

PICTURE = 1024  # pixels of the longer side of the map in its preview
Array = NDArray[Any]


def draw(written: Path, picture: Path, across_m: float, task_spec: TaskSpec, classes: MapClasses | None) -> None:
    """Draw the map ``written``, which is ``across_m`` metres wide, into ``picture``.

    Classes have their colours, and a quantity is drawn from dark to bright.
    """
    with open_raster(written) as source:
        share = min(1.0, PICTURE / max(source.shape))
        shape = tuple(max(1, round(side * share)) for side in source.shape)
        values = source.read(1, out_shape=shape)
    with_text = importlib.util.find_spec("matplotlib") is not None
    image, meaning = np.zeros((*shape, 4), dtype=np.uint8), Meaning()
    if classes is not None:
        image, meaning = _coloured(values, classes)
    elif np.isfinite(values).any():
        low, high = (float(value) for value in np.nanpercentile(values, (2, 98)))
        image = values_in_colour(values, low, high) if with_text else _grey(values, low, high)
        unit = f" ({task_spec.target_unit})" if task_spec.target_unit else ""
        meaning = Meaning(scale=(low, high, f"{task_spec.target_name or 'value'}{unit}"))
    if with_text:
        save(picture, image, meaning, across_m / shape[1])
    else:
        _plain_png(picture, image)


def _coloured(values: Array, classes: MapClasses) -> tuple[NDArray[np.uint8], Meaning]:
    """Return a map of codes (H, W) in colours (H, W, 4), and what those mean that occur."""
    image = np.zeros((*values.shape, 4), dtype=np.uint8)
    legend = {}
    for name, (code, colour) in zip(classes.names, classes.colours.items(), strict=True):
        here = values == code
        if here.any():
            image[here] = (*(round(255 * part) for part in colour), 255)
            legend[f"{code} {name}"] = colour
    return image, Meaning(legend)


def _grey(values: Array, low: float, high: float) -> NDArray[np.uint8]:
    """Return a quantity (H, W) in grey (H, W, 4), transparent where it is NaN."""
    known = np.isfinite(values)
    grey = np.clip((np.where(known, values, low) - low) / max(high - low, 1e-12), 0, 1) * 255
    return np.stack([grey, grey, grey, known * 255.0], axis=-1).astype(np.uint8)


def _plain_png(path: Path, image: NDArray[np.uint8]) -> None:
    """Write the colours alone, where matplotlib is not there to write what they mean."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    height, width, count = image.shape
    profile = {"driver": "PNG", "count": count, "height": height, "width": width, "dtype": "uint8"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # a preview is nowhere
        with rasterio.open(path, "w", **profile) as target:
            target.write(image.transpose(2, 0, 1))
