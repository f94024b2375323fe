"""Atomizer-IO: any sensor's observations in, answers at any position out."""

__version__ = "0.1.0"

from typing import Any

from atomizer_io import datasets, decoding, sensors
from atomizer_io.atoms import Acquisition, AtomSet
from atomizer_io.channels import Channel
from atomizer_io.errors import AtomizerError
from atomizer_io.grid import Grid
from atomizer_io.model.atomizer import AtomizerIO, Latents
from atomizer_io.model.cache import GeometryCache
from atomizer_io.model.config import LEARNED_CHANNELS, AtomizerConfig
from atomizer_io.model.presets import create_model, list_models

__all__ = [
    "LEARNED_CHANNELS",
    "Acquisition",
    "AtomSet",
    "AtomizerConfig",
    "AtomizerError",
    "AtomizerIO",
    "Channel",
    "GeometryCache",
    "Grid",
    "Latents",
    "create_model",
    "datasets",
    "decoding",
    "list_models",
    "predict_at",
    "predict_clouds",
    "predict_points",
    "predict_raster",
    "predict_scenes",
    "predict_xarray",
    "sensors",
]

# found when they are asked for: they bring more than a network needs
_LATE = {"predict_at": "places", "predict_points": "clouds", "predict_raster": "rasters", "predict_xarray": "arrays"}
_LATE |= {"predict_clouds": "many", "predict_scenes": "many"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"atomizer_io.prediction.{_LATE[name]}"), name)
