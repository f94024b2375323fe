"""Classes of points on LiDAR HD tiles: layouts of latents, what each part of the recipe is worth, and a forest.

Four tiles train, one validates, one tests. The test tile is also scored disturbed: with stray points below the ground,
on slopes, with another sensor's intensities, thinned, on another day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from atomizer_io.data.sample import Sample
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.registry import create
from atomizer_io.models.registry import load_model
from atomizer_io.training.baselines import Baselines
from atomizer_io.training.draws import generator
from atomizer_io.training.evaluate import evaluate, score
from atomizer_io.training.point_augmentation import only_points
from atomizer_lab.lidar.tiles import (
    CLASSES,
    DISTURBANCES,
    IGNORED,
    OTHER,
    OTHERS,
    disturbed,
    stage,
    stage_others,
    stage_photo,
)
from atomizer_lab.paper.trainings import Trained, alone, find, trained

PLAIN = "undisturbed"
FOREST = "random forest"
DENSITIES = (1.0, 1 / 2, 1 / 10, 1 / 50)  # of the forest that is fitted on thinned tiles
LAST = "last"  # one tile is too little to choose a step by
PHOTO_CHANNELS = ("all", "lidar-only", "aerial-only")
OPTIONS: dict[str, Any] = {"classes": CLASSES, "other": OTHER, "ignore": list(IGNORED), "colour": False}
RECIPE: dict[str, Any] = {
    "data": {"name": "las-folder", "options": OPTIONS, "test": None, "workers": 0, "keep": 4},
    "model": {
        "preset": "atomizer_io_tiny",
        "settings": {
            "atoms_per_latent": 192,
            "offset_scale_m": 5.0,
            "max_points": 16000,
            "observation_mlp": True,
            "feedforward_dropout": 0.15,
        },
    },
    "training": {
        "batch_size": 2,
        "repeat": 25,
        "learning_rate": 1e-3,
        "weight_decay": 0.2,
        "ema": 0.0,
        "baselines": False,  # the forests of this experiment are its own
        "queries": 4096,
        "crop_m": 45.0,
        "class_weights": "sqrt",
        "point_augmentation": {"slope": 0.05, "height_m": 0.2, "intensity": 0.5, "thinning": 0.01, "returns": 0.1},
        "loggers": ["csv"],
        "figures": 0,
        "devices": 1,
    },
}
# what each variant changes of the recipe
VARIANTS: dict[str, dict[str, Any]] = {
    "hexagonal": {},
    "elevation and height": {"data.options.heights": "both"},
    "elevation above the lowest point": {"data.options.heights": "elevation"},
    "no draws of terrain and density": {"training.point_augmentation": {}},
    "raw observations": {"model.settings.observation_mlp": False},
    "no class weights": {"training.class_weights": "none"},
    "queries drawn by class": {"training.class_weights": "none", "training.query_sampling": "classes"},
}
# its queries see their point, as those of Atomizer-IO do
PERCEIVER: dict[str, Any] = {
    "model": {
        "preset": "perceiver_io_small",
        "settings": {"max_points": 16000, "position_scale_m": 25.0, "point_tokens": True},
    }
}
OTHER_RATES = (3e-4, 3e-3)  # learning rates tried with it beside that of the recipe, which was chosen for Atomizer-IO


def staged_tests(data: Path, work: Path, names: Sequence[str]) -> tuple[Path, dict[str, Path]]:
    """Return the folder of the tiles, and that of each test of these names; files are written once."""
    tiles, place = data / "lidar-hd" / "tiles", work / "data" / "lidar-hd"
    with alone(place):
        plain = stage(tiles, place)
        others = stage_others(tiles, place) if set(names) & set(OTHERS) else {}
        changed_tests = {name: disturbed(plain, place, name) for name in names if name in DISTURBANCES}
    return plain, {name: {PLAIN: plain, **changed_tests, **others}[name] for name in names}


def network(
    changes: Mapping[str, Any], steps: int, seed: int, tests: Sequence[str], data: str, work: str, results: str
) -> dict[str, Any]:
    """Train one variant of the recipe, and return its scores on each of ``tests``."""
    plain, folders = staged_tests(Path(data), Path(work), tests)
    document = settings_of(changes, steps, seed)
    done = trained(document, _label(document), str(plain), work, results)
    model = load_model(done.model.parent / LAST)
    scores = {name: score(model, test_of(document, root), progress=False) for name, root in folders.items()}
    return {"parameters": model.num_parameters, "scores": scores, **done.cost}


def settings_of(changes: Mapping[str, Any], steps: int, seed: int) -> dict[str, Any]:
    """Return the recipe with these changes."""
    return changed(RECIPE, {"training.max_steps": steps, "training.accelerator": "cpu", "seed": seed, **changes})


def test_of(document: Mapping[str, Any], root: Path) -> Dataset:
    """Return the test tile in a folder as the settings of a training read it."""
    return create("las-folder", root, "test", **document["data"]["options"]).for_evaluation()


def find_network(document: Mapping[str, Any], data: str, work: str, results: str) -> tuple[Trained, Dataset] | None:
    """Return a network that was trained before with these settings, and the undisturbed test tile; None if none was."""
    plain, _ = staged_tests(Path(data), Path(work), (PLAIN,))
    done = find(document, _label(document), str(plain), work, results)
    return None if done is None else (replace(done, model=done.model.parent / LAST), test_of(document, plain))


def _label(document: Mapping[str, Any]) -> str:
    return f"lidar-hd-{document['model']['preset']}"


def forests(thinning: bool, tests: Sequence[str], data: str, work: str, results: str) -> dict[str, Any]:
    """Fit the forest, and return its scores on each of ``tests``."""
    plain, folders = staged_tests(Path(data), Path(work), tests)
    return forest(plain, folders, thinning=thinning)


def forest(plain: Path, tests: Mapping[str, Path], thinning: bool = False) -> dict[str, Any]:
    """Fit a random forest on the training tiles, choose its leaves on the validation tile, score it on ``tests``.

    With ``thinning`` the forest also learns from thinned copies of the training tiles, as much from each density.
    """
    train, val = (create("las-folder", plain, use, **OPTIONS) for use in ("train", "val"))
    task_spec = TaskSpec(task=train.info.task, num_outputs=train.info.num_outputs, class_names=train.info.classes)
    samples: Any = Thinned(train) if thinning else train
    baselines = Baselines(task_spec, samples, val=val.for_evaluation(), only=(FOREST,))
    (fitted,) = baselines.models
    scores = {
        name: baselines.score(create("las-folder", root, "test", **OPTIONS).for_evaluation())[FOREST]
        for name, root in tests.items()
    }
    return {"leaf": fitted.setting, "val": fitted.val, "scores": scores}


class Thinned:
    """Each sample of a dataset at every density of :data:`DENSITIES`, with the points drawn at random."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset) * len(DENSITIES)

    def __getitem__(self, index: int) -> Any:
        number, thinner = divmod(index, len(DENSITIES))
        sample = self.dataset[number]
        if not thinner or not isinstance(sample, Sample):
            return sample
        random = generator(number, thinner)
        kept = {
            position: torch.rand(len(part.positions), generator=random) < DENSITIES[thinner]
            for position, part in enumerate(sample.atoms)
        }
        return only_points(sample, kept)


def fused(steps: int, seed: int, data: str, work: str, results: str) -> dict[str, Any]:
    """Train on points and orthophoto of the western half of a tile; score the eastern with both, and without either."""
    place = Path(work) / "data" / "lidar-hd-photo"
    with alone(place):
        root = stage_photo(Path(data) / "lidar-hd" / "tiles", place)
    changes = {
        "data.options.sensor": "aerial",
        "data.options.bands": ["R", "G", "B"],
        "data.parts": {"train": [0.0, 0.0, 0.5, 1.0], "test": [0.5, 0.0, 1.0, 1.0]},
        **{f"data.{use}": name for use, name in (("train", "all"), ("val", None), ("test", "all"))},
        "training.crop_m": 20.0,
        "training.channel_dropout": {"scheme": "sensors"},
        "training.max_steps": steps,
        "training.accelerator": "cpu",
        "seed": seed,
    }
    done = trained(changed(RECIPE, changes), "lidar-hd-photo", str(root), work, results)
    result = evaluate(done.run, done.model, channels=PHOTO_CHANNELS)
    return {"scores": result["scores"], **done.cost}


def changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested settings with some of them, named ``group.group.key``, set."""
    copy: dict[str, Any] = {
        name: changed(value, {}) if isinstance(value, Mapping) else value for name, value in document.items()
    }
    for name, value in changes.items():
        *groups, last = name.split(".")
        settings = copy
        for group in groups:
            settings = settings.setdefault(group, {})
        settings[last] = value
    return copy
