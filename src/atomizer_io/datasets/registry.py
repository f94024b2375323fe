"""Registry of the datasets by name; the module of a dataset is imported when it is asked for.

A package adds a dataset by an entry point of the group ``atomizer_io.datasets`` that names its class, as
``atomizer_lab`` does for the synthetic one.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import typing
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import plain_name
from atomizer_io.data.sensors.sensor import near_matches
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.errors import ConfigError
from atomizer_io.option_types import fits, in_words

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
    "geotiff-folder": "geotiff_folder.GeoTiffFolder",
    "las-folder": "las_folder.LasFolder",
    "otb-patches": "otb_patches.OtbPatches",
    "presto-series": "presto_series.PrestoSeries",
}
ALIASES = {
    "hls-burn-scars": "burnscars",
    "xbd": "xview2",
    "pastis": "pastis-r",
    "m-cashew-plantation": "m-cashew-plant",
}


def list_datasets() -> list[str]:
    """Return the names that :func:`create` knows."""
    return [*DATASETS, *_installed()]


def canonical(name: str) -> str:
    """Return the name of a dataset as the registry has it, whatever the case and separators."""
    names = list_datasets()
    known = {plain_name(key): key for key in names} | {plain_name(key): name for key, name in ALIASES.items()}
    if plain_name(name) not in known:
        raise ConfigError(f"{name!r} is not a known dataset; {near_matches(name, {key: key for key in names})}")
    return known[plain_name(name)]


def dataset_class(name: str) -> type[Dataset]:
    """Return the class of a dataset."""
    name, found = canonical(name), None
    if name in DATASETS:
        module, _, attribute = DATASETS[name].partition(".")
        found = getattr(importlib.import_module(f"atomizer_io.datasets.{module}"), attribute)
    dataset: type[Dataset] = found or _installed()[name].load()
    return dataset


def describe(name: str) -> Info:
    """Return what a dataset is: its task, classes, channels, splits and layout."""
    return dataset_class(name).info


def create(name: str, root: str | Path | None = None, split: str = "train", **options: Any) -> Dataset:
    """Return the samples of one split of the dataset ``name`` in the folder ``root``; for options see its class.

    The synthetic dataset needs no folder: ``create("synthetic", like="sen1floods11")``.
    """
    name = canonical(name)
    found = dataset_class(name)
    check_options(name, found, options)
    if not found.on_disk:
        if root not in (None, "-"):
            raise ConfigError(f"{name} is made on the spot and has no folder; got {root}")
        return found(split=split, **options)
    if root is None:
        raise ConfigError(
            f"{name} needs the folder it lies in: create({name!r}, root). To try without a download: "
            f"create('synthetic', like={name!r})"
        )
    if not isinstance(root, str | os.PathLike):
        raise ConfigError(f"the folder of {name} is {root!r}; pass a path")
    return found(root, split, **options)


def options_of(dataset: type[Dataset]) -> list[str]:
    """Return the keywords that a dataset takes beside its folder and split."""
    taken = [name for kind in dataset.__mro__ if "__init__" in vars(kind) for name in _keywords(kind)]
    return list(dict.fromkeys(name for name in taken if name not in ("self", "root", "split", "common")))


def check_options(name: str, dataset: type[Dataset], options: dict[str, Any]) -> None:
    """Refuse options that a dataset does not have, that are missing, or that are of the wrong kind."""
    known = options_of(dataset)
    hints: dict[str, Any] = {}
    for kind in reversed(dataset.__mro__):
        if "__init__" in vars(kind):
            hints |= typing.get_type_hints(kind.__init__)  # type: ignore[misc]
    for key, value in options.items():
        if key not in known:
            near = near_matches(key, {option: option for option in known})
            raise ConfigError(f"{name} has no option {key!r}; {near}")
        if key in hints and not fits(value, hints[key]):
            raise ConfigError(f"{name}: {key} is {value!r}; it has to be {in_words(hints[key])}")
    needed = [
        p.name
        for p in inspect.signature(dataset.__init__).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name not in options
    ]
    if needed:
        raise ConfigError(f"{name} needs the option {needed[0]}; see `atomizer data describe {name}`")


def _keywords(kind: type) -> list[str]:
    parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="atomizer_io.datasets") if point.name not in DATASETS}
