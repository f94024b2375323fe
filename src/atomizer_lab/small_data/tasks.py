"""The seven tasks: where the files of each come from, how they are split, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atomizer_lab.small_data.staging import (
    Stage,
    linked,
    north_to_south,
    stage_enmap,
    stage_patches,
    stage_rondonia,
    stage_site,
    west_to_east,
)

# The training has the defaults of `atomizer train`; these settings only concern the machine: one thread, no figures.
SETTINGS: dict[str, Any] = {
    "data": {"workers": 0},
    "model": {"preset": "atomizer_io_tiny"},
    "training": {"loggers": ["csv"], "figures": 0, "devices": 1, "baselines": False},
}


@dataclass(frozen=True)
class SmallTask:
    """One task: ``data`` are the settings of its dataset, ``metric`` the score by which it is judged.

    ``series``: there are several dates, which some models need to know.
    """

    name: str
    metric: str
    stage: Stage
    data: Mapping[str, Any] = field(hash=False)
    series: bool = False

    def document(self, root: str, seed: int, **training: Any) -> dict[str, Any]:
        """Return the settings of a run on the staged folder ``root``; ``training`` is its length."""
        own: dict[str, Any] = {"data": {"root": root, **self.data}, "training": training, "seed": seed}
        return merged(SETTINGS, own)


def merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with ``changes`` added or put in their place."""
    values = {key: merged(value, {}) if isinstance(value, Mapping) else value for key, value in document.items()}
    for key, value in changes.items():
        own = values.get(key)
        values[key] = merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return values


FLOODS = SmallTask(
    name="sen1floods11",
    metric="miou",
    stage=linked("sen1floods11"),
    data={
        "name": "sen1floods11",
        "options": {"chips": ["Spain_7370579"]},
        "train": "test",  # the official split in which the chip is
        "val": "test",
        "test": "test",
        "parts": west_to_east(512, 256, 336),
    },
)
PATCHES = SmallTask(
    name="s2-patches",
    metric="macro_f1",
    stage=stage_patches,
    data={
        "name": "geotiff-folder",
        "options": {
            "task": "classification",
            "sensor": "sentinel2_l2a",
            "bands": ["B8A", "B12", "B07", "B05", "B11", "B06"],  # inferred from their means
            "classes": 6,
            "gsd_m": 20.0,
        },
    },
)
RONDONIA = SmallTask(
    name="rondonia",
    metric="miou",
    stage=stage_rondonia,
    data={
        "name": "geotiff-folder",
        "options": {
            "sensor": {f"2021{day}": "sentinel2_l2a" for day in ("0704", "0720", "0805", "0821", "0906", "0922")},
            "classes": ["water", "burnt", "soil", "regrowth", "forest", "wetland"],
        },
        "train": "all",
        "val": "all",
        "test": "all",
        "parts": north_to_south(750, 340, 445),  # in the east are 5 pixels of water
    },
    series=True,
)
BIOMASS = SmallTask(
    name="biomassters",
    metric="rmse",
    stage=linked("biomassters"),
    data={
        "name": "biomassters",
        "train": "train",
        "val": "train",
        "test": "train",
        "parts": west_to_east(256, 130, 165),
    },
    series=True,
)
ENMAP = SmallTask(
    name="enmap",
    metric="miou",
    stage=stage_enmap,
    data={
        "name": "geotiff-folder",
        "options": {
            "classes": {1: "roof", 2: "pavement", 3: "low vegetation", 4: "tree", 5: "soil", 6: "water"},
            "ignore": [0],
        },
    },
)
SITE = SmallTask(
    name="terramind-433D",
    metric="miou",
    stage=stage_site,
    data={
        "name": "geotiff-folder",
        "options": {
            "sensor": {"s1": "sentinel1", "s2": "sentinel2_l2a"},
            "bands": {
                "s1": ["VV", "VH"],
                "s2": ["B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12"],
            },
            "classes": {number: f"class {number}" for number in (1, 2, 4, 5, 9)},
            "ignore": [0, 3],  # class 3 has 90 pixels in all
        },
        "train": "all",
        "val": "all",
        "test": "all",
        "parts": west_to_east(224, 115, 147),
    },
)
SERIES = SmallTask(
    name="presto-series",
    metric="rmse",
    stage=linked("presto-series"),
    data={"name": "presto-series"},
    series=True,
)
TASKS = {task.name: task for task in (FLOODS, PATCHES, RONDONIA, BIOMASS, ENMAP, SITE, SERIES)}
