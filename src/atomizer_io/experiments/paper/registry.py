"""The items of the paper by name; what an item needs is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from atomizer_io.errors import ConfigError

if TYPE_CHECKING:
    from atomizer_io.experiments.paper.item import Item

# name -> module and variable, and what the item shows
ITEMS: dict[str, tuple[str, str]] = {
    "rope": ("rope.ROPE", "with and without the rotary encoding of latent positions"),
    "complexity": ("complexity.COMPLEXITY", "pairs of latent and atom with global and with local attention"),
    "parameters": ("parameters.PARAMETERS", "parameters of all models"),
    "partition": ("partition.PARTITION", "the cells of latents over a point cloud, as a picture"),
    "mnist-sparse": ("mnist_sparse.MNIST_SPARSE", "digits of which background pixels are removed at test only"),
}


def item(name: str) -> Item:
    """Return an item by its name."""
    if name not in ITEMS:
        raise ConfigError(f"there is no item {name!r}; there are {', '.join(ITEMS)}")
    module, _, variable = ITEMS[name][0].partition(".")
    found: Item = getattr(importlib.import_module(f"atomizer_io.experiments.paper.{module}"), variable)
    return found
