"""Registry of the datasets by name; the module of a dataset is imported when it is used.

A package adds a dataset by an entry point of the group ``atomizer_io.datasets`` that names its class, as
``atomizer_lab`` does for the synthetic one.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import plain_name
from atomizer_io.data.sensors.sensor import near_matches
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.errors import ConfigError

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
    "labels": "labels.Labelled",
    "otb-patches": "otb_patches.OtbPatches",
    "presto-series": "presto_series.PrestoSeries",
    "series-folder": "series_folder.SeriesFolder",
}
ALIASES = {
    "hls-burn-scars": "burnscars",
    "xbd": "xview2",
    "pastis": "pastis-r",
    "m-cashew-plantation": "m-cashew-plant",
}


# options by their former names, still read
FORMER_OPTIONS = {"las-folder": {"quantity": "target_name"}}  # old name


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
    name = canonical(name)
    if name not in DATASETS:
        installed: type[Dataset] = _installed()[name].load()
        return installed
    module, _, attribute = DATASETS[name].partition(".")
    own: type[Dataset] = getattr(importlib.import_module(f"atomizer_io.datasets.{module}"), attribute)
    return own


def describe(name: str) -> Info:
    """Return what a dataset is: its task, classes, channels, splits and layout."""
    return dataset_class(name).info


def create(name: str, root: str | Path | None = None, split: str = "train", **options: Any) -> Dataset:
    """Return the samples of one split of the dataset ``name`` in the folder ``root``; for options see its class.

    The synthetic dataset needs no folder: ``create("synthetic", like="sen1floods11")``.
    """
    name = canonical(name)
    dataset = dataset_class(name)
    former = FORMER_OPTIONS.get(name, {})
    options = {former.get(option, option): value for option, value in options.items()}
    check_options(name, dataset, options)
    if not dataset.on_disk:
        if root not in (None, "-"):
            raise ConfigError(f"{name} is made on the spot and has no folder; got {root}")
        return dataset(split=split, **options)
    if root is None:
        raise ConfigError(
            f"{name} needs the folder it lies in: create({name!r}, root). To try without a download: "
            f"create('synthetic', like={name!r})"
        )
    if not isinstance(root, str | os.PathLike):
        raise ConfigError(f"the folder of {name} is {root!r}; pass a path")
    return dataset(Path(root), split, **options)


def options_of(dataset: type[Dataset]) -> list[str]:
    """Return the options that a dataset takes beside its folder and split."""
    return [name for name in inspect.signature(dataset).parameters if name not in ("root", "split")]


def check_options(name: str, dataset: type[Dataset], options: dict[str, Any]) -> None:
    """Refuse options that a dataset does not have; and name one that it needs."""
    known = options_of(dataset)
    for key in options:
        if key not in known:
            near = near_matches(key, {option: option for option in known})
            raise ConfigError(f"{name} has no option {key!r}; {near}")
    for parameter in inspect.signature(dataset).parameters.values():
        needed = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if needed and parameter.name not in options:
            raise ConfigError(f"{name} needs the option {parameter.name}; see `atomizer data describe {name}`")


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="atomizer_io.datasets") if point.name not in DATASETS}
