"""Datasets by name; the module of one is imported when it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from atomizer_io.channels import plain_name
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.errors import ConfigError
from atomizer_io.sensors.sensor import near_matches

# name -> module and class
DATASETS: dict[str, str] = {
    "forestnet": "forestnet.ForestNet",
    "m-forestnet": "forestnet.MForestNet",
    "burnscars": "burnscars.BurnScars",
    "eurosat": "eurosat.EuroSAT",
    "m-eurosat": "eurosat.MEuroSAT",
    "cashew": "cashew.Cashew",
    "m-cashew-plant": "cashew.MCashewPlant",
    "sen1floods11": "sen1floods11.Sen1Floods11",
    "xview2": "xview2.XView2",
    "biomassters": "biomassters.BioMassters",
    "pastis-r": "pastis.PastisR",
    "dales": "dales.Dales",
    "fractal": "fractal.Fractal",
    "mnist": "mnist.Mnist",
}
ALIASES = {
    "hls-burn-scars": "burnscars",
    "xbd": "xview2",
    "pastis": "pastis-r",
    "m-cashew-plantation": "m-cashew-plant",
}


def list_datasets() -> list[str]:
    """Names that :func:`create` knows."""
    return list(DATASETS)


def canonical(name: str) -> str:
    """The name of a dataset as the registry has it, whatever the case and separators."""
    known = {plain_name(key): key for key in DATASETS} | {plain_name(key): name for key, name in ALIASES.items()}
    if plain_name(name) not in known:
        raise ConfigError(f"{name!r} is not a known dataset; {near_matches(name, {key: key for key in DATASETS})}")
    return known[plain_name(name)]


def dataset_class(name: str) -> type[Dataset]:
    """The class of a dataset."""
    module, _, attribute = DATASETS[canonical(name)].partition(".")
    found: type[Dataset] = getattr(importlib.import_module(f"atomizer_io.datasets.{module}"), attribute)
    return found


def describe(name: str) -> Info:
    """What a dataset is."""
    return dataset_class(name).info


def create(name: str, root: str | Path, split: str = "train", **options: Any) -> Dataset:
    """The samples of one split of the dataset ``name`` in the folder ``root``; options: see the class."""
    return dataset_class(name)(root, split, **options)
