"""The items of the paper by name; what an item needs is imported on use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from atomizer_io.errors import ConfigError

if TYPE_CHECKING:
    from atomizer_lab.paper.item import Item

# name -> module and variable, and what the item shows
ITEMS: dict[str, tuple[str, str]] = {
    "table2": ("experiments.TABLE2", "scores of all models, each trained on one dataset"),
    "table3": ("experiments.TABLE3", "scores of all models with six sets of channels at test"),
    "compute": ("experiments.COMPUTE", "FLOPs against the score: strategies of decoding, and baselines"),
    "lidar": ("experiments.LIDAR", "classes of LiDAR points"),
    "dales-classes": ("experiments.DALES_CLASSES", "classes of LiDAR points, one by one"),
    "rope": ("experiments.ROPE", "with and without the rotary encoding of latent positions"),
    "mnist-sparse": ("experiments.MNIST_SPARSE", "digits of which background pixels are removed at test only"),
    "temporal": ("experiments.TEMPORAL", "dates encoded together, or one by one and then aggregated"),
    "local-observations": ("experiments.LOCAL_OBSERVATIONS", "with and without what was observed at a query"),
    "hyperspectral": ("experiments.BANDS_ITEM", "224 bands of which every second is gone at test"),
    "labels": ("point_labels.LABELS", "maps from few point labels, beside forests that learn the same labels"),
    "rates": ("experiments.RATES_ITEM", "learning rates of all models, tried on validation data"),
    "sensitivity": ("experiments.SENSITIVITY", "score and FLOPs against κ, m and k"),
    "complexity": ("counts.COMPLEXITY", "pairs of latent and atom with global and with local attention"),
    "parameters": ("counts.PARAMETERS", "parameters of all models"),
    "partition": ("counts.PARTITION", "the cells of latents over a point cloud, as a figure"),
}


def item(name: str) -> Item:
    """Return an item by its name."""
    if name not in ITEMS:
        raise ConfigError(f"there is no item {name!r}; there are {', '.join(ITEMS)}")
    module, _, variable = ITEMS[name][0].partition(".")
    chosen: Item = getattr(importlib.import_module(f"atomizer_lab.paper.{module}"), variable)
    return chosen
