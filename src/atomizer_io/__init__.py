"""Atomizer-IO: any sensor's observations in, predictions at any position out."""

__version__ = "0.2.0"

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atomizer_io import datasets, decoding
    from atomizer_io.data import sensors
    from atomizer_io.data.acquisition import Acquisition
    from atomizer_io.data.atoms import AtomSet
    from atomizer_io.data.channels import Channel
    from atomizer_io.data.grid import Grid
    from atomizer_io.data.task_spec import TaskSpec
    from atomizer_io.errors import AtomizerError
    from atomizer_io.io.ground import height_above_ground
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.models.atomizer.config import LEARNED_CHANNELS, AtomizerConfig
    from atomizer_io.models.atomizer.geometry.cache import GeometryCache
    from atomizer_io.models.atomizer.latents import Latents
    from atomizer_io.models.base import Cost, Model
    from atomizer_io.models.registry import create_model, list_models, load_model, register_model
    from atomizer_io.prediction.arrays import predict_xarray
    from atomizer_io.prediction.at_positions import predict_at
    from atomizer_io.prediction.bulk import predict_point_clouds, predict_scenes
    from atomizer_io.prediction.embeddings import embed_raster, find_alike
    from atomizer_io.prediction.options import Decoding, Execution, PointCloudClasses, PointCloudWindows, Windows
    from atomizer_io.prediction.point_maps import predict_point_cloud_map
    from atomizer_io.prediction.points import predict_points
    from atomizer_io.prediction.rasters import predict_raster
    from atomizer_io.prediction.scene_labels import predict_labels

__all__ = [
    "LEARNED_CHANNELS",
    "Acquisition",
    "AtomSet",
    "AtomizerConfig",
    "AtomizerError",
    "AtomizerIO",
    "Channel",
    "Cost",
    "Decoding",
    "Execution",
    "GeometryCache",
    "Grid",
    "Latents",
    "Model",
    "PointCloudClasses",
    "PointCloudWindows",
    "TaskSpec",
    "Windows",
    "create_model",
    "datasets",
    "decoding",
    "embed_raster",
    "find_alike",
    "height_above_ground",
    "list_models",
    "load_model",
    "predict_at",
    "predict_labels",
    "predict_point_cloud_map",
    "predict_point_clouds",
    "predict_points",
    "predict_raster",
    "predict_scenes",
    "predict_xarray",
    "register_model",
    "sensors",
]

# The names of each module, imported when they are first used: torch alone takes seconds, and `atomizer --help` needs
# none of it. The imports above are the same for type checkers and editors.
_PACKAGES = {"datasets": "datasets", "decoding": "decoding", "sensors": "data.sensors"}
_NAMES = {
    "data.atoms": ("Acquisition", "AtomSet"),
    "data.channels": ("Channel",),
    "data.grid": ("Grid",),
    "data.task_spec": ("TaskSpec",),
    "errors": ("AtomizerError",),
    "io.ground": ("height_above_ground",),
    "models.atomizer.atomizer": ("AtomizerIO",),
    "models.atomizer.config": ("LEARNED_CHANNELS", "AtomizerConfig"),
    "models.atomizer.geometry.cache": ("GeometryCache",),
    "models.atomizer.latents": ("Latents",),
    "models.base": ("Cost", "Model"),
    "models.registry": ("create_model", "list_models", "load_model", "register_model"),
    "prediction.arrays": ("predict_xarray",),
    "prediction.at_positions": ("predict_at",),
    "prediction.bulk": ("predict_point_clouds", "predict_scenes"),
    "prediction.embeddings": ("embed_raster", "find_alike"),
    "prediction.options": ("Decoding", "Execution", "PointCloudClasses", "PointCloudWindows", "Windows"),
    "prediction.point_maps": ("predict_point_cloud_map",),
    "prediction.points": ("predict_points",),
    "prediction.rasters": ("predict_raster",),
    "prediction.scene_labels": ("predict_labels",),
}
_HOMES = _PACKAGES | {name: home for home, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # or type checkers would believe in any name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
        value = home if name in _PACKAGES else getattr(home, name)
        globals()[name] = value  # the next time it is an ordinary name
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
