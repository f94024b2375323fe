"""Datasets by name; the module of one is imported when it is asked for."""

from __future__ import annotations

import importlib
import inspect
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
    "geobench": "geobench.GeoBench",
    "geotiff-folder": "geotiffs.GeoTiffs",
    "las-folder": "clouds.Clouds",
    "otb-patches": "patches.Patches",
    "synthetic": "synthetic.Synthetic",
}
SYNTHETIC = "synthetic"
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


def create(name: str, root: str | Path | None = None, split: str = "train", **options: Any) -> Dataset:
    """The samples of one split of the dataset ``name`` in the folder ``root``; options: see the class.

    The synthetic dataset needs no folder: ``create("synthetic", like="sen1floods11")``.
    """
    name = canonical(name)
    found = dataset_class(name)
    unknown = sorted(set(options) - set(options_of(found)))
    if unknown:
        near = near_matches(unknown[0], {key: key for key in options_of(found)})
        raise ConfigError(f"{name} has no option {unknown[0]!r}; {near}")
    if name == SYNTHETIC:
        if root not in (None, "-"):
            raise ConfigError(f"{SYNTHETIC} is made on the spot and has no folder; got {root}")
        return found(split=split, **options)
    if root is None:
        raise ConfigError(
            f"{name} needs the folder it lies in: create({name!r}, root). To try without a download: "
            f"create({SYNTHETIC!r}, like={name!r})"
        )
    return found(root, split, **options)


def options_of(dataset: type[Dataset]) -> list[str]:
    """Keywords that a dataset takes beside its folder and split."""
    taken = [name for kind in dataset.__mro__ if "__init__" in vars(kind) for name in _keywords(kind)]
    return list(dict.fromkeys(name for name in taken if name not in ("self", "root", "split", "common")))


def _keywords(kind: type) -> list[str]:
    parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
