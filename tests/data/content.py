"""Content of fixtures: smooth patches of classes, and bands in which each class has its own level."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from atomizer_io.data.channels import Channel


def patches(rng: np.random.Generator, height: int, width: int, classes: int) -> NDArray[np.int64]:
    """Return a map (H, W) of the classes 0 … C−1 in patches of some pixels; every class occurs."""
    fields = ndimage.gaussian_filter(rng.standard_normal((classes, height, width)), (0, 2.5, 2.5), mode="wrap")
    labels = fields.argmax(axis=0)
    labels.flat[:classes] = np.arange(classes)
    return labels


def bands(rng: np.random.Generator, labels: NDArray[np.int64], channels: Iterable[Channel], dtype: Any) -> NDArray[Any]:
    """Return values (C, H, W) around the statistics of ``channels``: a level per class and channel, and noise."""
    layers = []
    for channel in channels:
        own = np.random.default_rng(zlib.crc32(f"{channel.sensor} {channel.name}".encode()))
        levels = own.uniform(-1.5, 1.5, int(labels.max()) + 1)
        mean, std = (
            (channel.mean, channel.std) if channel.mean is not None and channel.std is not None else (100.0, 40.0)
        )
        layers.append(mean + std * 0.5 * (levels[labels] + 0.3 * rng.standard_normal(labels.shape)))
    values = np.stack(layers)
    if np.issubdtype(np.dtype(dtype), np.integer):
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), max(limits.min, 1), limits.max)  # 0 means nodata in many files
    return values.astype(dtype)


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Apply ``change`` to the document of a file."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
