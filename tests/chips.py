"""Small rasters as files, and a small model, that the tests of prediction share."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import torch
from rasterio.errors import NotGeoreferencedWarning
from rasterio.transform import Affine

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from scenes import SMALL

NAMES = ("B02", "B03", "B08")
UTM = "EPSG:32631"
CORNER = (500000.0, 4650000.0)


def values(height: int, width: int, seed: int = 0, names: tuple[str, ...] = NAMES) -> np.ndarray:
    """Smooth ground with noise, in the numbers of Sentinel-2."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / 9.0
    ground = np.stack([np.sin(x + i) + np.cos(y * 1.3 - i) for i in range(len(names))])
    ground = ground + 0.5 * rng.standard_normal(ground.shape)
    channels = SENTINEL2.pick(*names)
    mean, std = (np.array([getattr(c, key) for c in channels])[:, None, None] for key in ("mean", "std"))
    return np.clip(np.round(mean + std * ground), 1, 60000).astype(np.uint16)


def write(
    path: Path,
    array: np.ndarray,
    *,
    crs: Any = UTM,
    transform: Affine | None = None,
    names: tuple[str, ...] | None = NAMES,
    mask: np.ndarray | None = None,
    **profile: Any,
) -> Path:
    """A GeoTIFF of (C, H, W) values."""
    transform = Affine(10, 0, CORNER[0], 0, -10, CORNER[1]) if transform is None else transform
    count, height, width = array.shape
    known = {"driver": "GTiff", "count": count, "height": height, "width": width, "dtype": array.dtype}
    if crs is not None:
        known |= {"crs": crs, "transform": transform}
    with warnings.catch_warnings(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        target = rasterio.open(path, "w", **known, **profile)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), target:
        target.write(array)
        if names is not None:
            target.descriptions = names
        if mask is not None:
            target.write_mask(mask)
    return path


def without_crs(path: Path, array: np.ndarray) -> Path:
    """A georeferenced GeoTIFF without a coordinate system."""
    write(path, array, crs=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        target = rasterio.open(path, "r+")
    with target:
        target.transform = Affine(10, 0, CORNER[0], 0, -10, CORNER[1])
    return path


def scene(folder: Path, height: int = 20, width: int = 30, seed: int = 0, **how: Any) -> dict[str, Any]:
    """A Sentinel-2 raster as a user names it."""
    path = write(folder / f"scene{seed}.tif", values(height, width, seed), **how)
    return {"path": path, "sensor": "sentinel2"}


@functools.cache
def model_folder(**settings: Any) -> Path:
    """A small model with random weights, large enough that predictions differ between positions."""
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "class_names": ("dry", "wet", "bare"), **settings})
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(8)
    folder = Path(tempfile.mkdtemp(prefix="atomizer-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model.save_pretrained(folder)
    return folder


def regression_folder() -> Path:
    """A regression model of a target around 100."""
    return model_folder(task="regression", num_outputs=1, class_names=(), target_mean=100.0, target_std=20.0)


def read(path: Path) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        source = rasterio.open(path)
    with source:
        return source.read()
