"""The seven tasks: what each is, and the one recipe with which all are trained.

A task describes its data and nothing else: where files come from, how they are split, how large a pixel is and how
many values it has. All other settings follow from :data:`RECIPE` and the rules beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atomizer_io.experiments.small_data.staging import (
    Stage,
    linked,
    stage_enmap,
    stage_patches,
    stage_rondonia,
    stage_site,
    west_to_east,
)

RECIPE: dict[str, Any] = {
    "data": {"statistics": "measured", "measure": 500, "workers": 0, "keep": 6000},
    "model": {"preset": "atomizer_io_tiny"},
    "training": {
        "batch_size": 4,
        "learning_rate": 1e-3,
        "weight_decay": 0.05,
        "clip": 1.0,
        "configurations": [[256, 128]],
        "queries": 2000,
        "loggers": ["csv"],
        "pictures": 0,
        "devices": 1,
    },
}
# rules by which the data set what remains
OFFSET_PX = 6  # offset_scale_m
ROPE_PX = 32  # rope_scale_m
CROP_ATOMS = 64_000  # of a random square of a scene
CROP_STEP_PX = 4  # sides of squares are multiples of this
EPOCH_SAMPLES = 800  # few scenes are repeated until an epoch, after which there is a validation, has so many


@dataclass(frozen=True)
class SmallTask:
    """One task: ``data`` are the settings of its dataset, ``metric`` the score by which it is judged.

    ``pixel_m`` is the size of a pixel, ``values`` how many measurements one has over all channels and dates, ``side``
    the shorter side of a training scene in pixels (None where scenes are too small to be cropped), ``samples`` the
    number of training scenes. ``temporal`` says that there are several dates.
    """

    name: str
    metric: str
    stage: Stage
    data: Mapping[str, Any] = field(hash=False)
    pixel_m: float
    values: int
    side: int | None
    samples: int
    temporal: bool = False

    def document(self, root: str, steps: int, seed: int) -> dict[str, Any]:
        """Return the settings of a training run on the staged folder ``root``."""
        own: dict[str, Any] = {
            "data": {"root": root, **self.data},
            "model": {
                "settings": {
                    "offset_scale_m": OFFSET_PX * self.pixel_m,
                    "rope_scale_m": ROPE_PX * self.pixel_m,
                    "temporal": self.temporal,
                }
            },
            "training": {"max_steps": self.steps(steps), "repeat": self.repeat, "crop_m": self.crop_m},
            "seed": seed,
        }
        return merged(RECIPE, own)

    @property
    def crop_m(self) -> float | None:
        """The side of a random square in metres: the one with :data:`CROP_ATOMS` atoms, within the scene."""
        if self.side is None:
            return None
        pixels = CROP_STEP_PX * round(math.sqrt(CROP_ATOMS / self.values) / CROP_STEP_PX)
        return self.pixel_m * min(pixels, self.side)

    @property
    def repeat(self) -> int:
        """How often a scene comes in an epoch."""
        return max(1, round(EPOCH_SAMPLES / self.samples))

    def steps(self, steps: int) -> int:
        """Return ``steps`` rounded up to whole epochs, so that a validation sees the end; fewer than one stay so."""
        epoch = self.samples * self.repeat // int(RECIPE["training"]["batch_size"])
        return steps if steps < epoch else epoch * math.ceil(steps / epoch)


def merged(document: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with those of ``other`` added or put in their place."""
    found = {key: merged(value, {}) if isinstance(value, Mapping) else value for key, value in document.items()}
    for key, value in other.items():
        own = found.get(key)
        found[key] = merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return found


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
    pixel_m=10.0,
    values=15,
    side=256,
    samples=1,
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
    pixel_m=20.0,
    values=6,
    side=None,
    samples=4070,
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
        "parts": west_to_east(750, 340, 445),
    },
    pixel_m=20.0,
    values=36,
    side=340,
    samples=1,
    temporal=True,
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
    pixel_m=10.0,
    values=86,
    side=130,
    samples=1,
    temporal=True,
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
    pixel_m=30.0,
    values=224,
    side=32,
    samples=7,
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
    pixel_m=10.0,
    values=15,
    side=115,
    samples=1,
)
SERIES = SmallTask(
    name="presto-series",
    metric="rmse",
    stage=linked("presto-series"),
    data={"name": "presto-series"},
    pixel_m=10.0,
    values=194,
    side=None,
    samples=582,
    temporal=True,
)
TASKS = {task.name: task for task in (FLOODS, PATCHES, RONDONIA, BIOMASS, ENMAP, SITE, SERIES)}
