"""The items of the paper by name; what an item needs is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from atomizer_io.errors import ConfigError

if TYPE_CHECKING:
    from atomizer_lab.paper.item import Item

# name -> module and variable, and what the item shows
ITEMS: dict[str, tuple[str, str]] = {
    "table2": ("table2.TABLE2", "scores of all models, each trained on one dataset"),
    "table3": ("table3.TABLE3", "scores of all models with six sets of channels at test"),
    "compute": ("compute.COMPUTE", "operations against the score: strategies of decoding, and rivals"),
    "lidar": ("lidar.LIDAR", "classes of LiDAR points"),
    "dales-classes": ("dales_classes.DALES_CLASSES", "classes of LiDAR points, one by one"),
    "rope": ("rope.ROPE", "with and without the rotary encoding of latent positions"),
    "mnist-sparse": ("mnist_sparse.MNIST_SPARSE", "digits of which background pixels are removed at test only"),
    "temporal": ("temporal.TEMPORAL", "dates encoded together, or one by one and then aggregated"),
    "local-observations": (
        "local_observations.LOCAL_OBSERVATIONS",
        "with and without what was observed where a query asks",
    ),
    "hyperspectral": ("hyperspectral.HYPERSPECTRAL", "224 bands of which every second is gone at test"),
    "rates": ("rates.RATES", "learning rates of the rivals, tried on validation data"),
    "sensitivity": ("sensitivity.SENSITIVITY", "score and operations against κ, m and k"),
    "complexity": ("complexity.COMPLEXITY", "pairs of latent and atom with global and with local attention"),
    "parameters": ("parameters.PARAMETERS", "parameters of all models"),
    "partition": ("partition.PARTITION", "the cells of latents over a point cloud, as a picture"),
}


def item(name: str) -> Item:
    """Return an item by its name."""
    if name not in ITEMS:
        raise ConfigError(f"there is no item {name!r}; there are {', '.join(ITEMS)}")
    module, _, variable = ITEMS[name][0].partition(".")
    found: Item = getattr(importlib.import_module(f"atomizer_lab.paper.{module}"), variable)
    return found
