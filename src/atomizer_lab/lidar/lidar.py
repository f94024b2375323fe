"""Classes of points on terrain that training did not have: networks and tabular baselines, fold by fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.registry import create
from atomizer_io.models.registry import load_model
from atomizer_io.training.baselines import Baselines
from atomizer_io.training.evaluate import score
from atomizer_lab.lidar.tiles import SETS
from atomizer_lab.paper.networks import RATES, at_best_rate
from atomizer_lab.paper.trainings import Trained, find, trained

LAST = "last"  # one tile is too little to choose a step by
TRIED_STEPS = 0.2  # of the steps, to choose the learning rate
RECIPE: dict[str, Any] = {
    "data": {"name": "las-folder", "test": None, "workers": 0, "keep": 4},
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
        "accelerator": "cpu",
    },
}
# its queries see their point, as those of Atomizer-IO do
PERCEIVER: dict[str, Any] = {
    "model": {
        "preset": "perceiver_io_small",
        "settings": {"max_points": 16000, "position_scale_m": 25.0, "point_tokens": True},
    }
}


def settings_of(key: str, changes: Mapping[str, Any], steps: int, seed: int) -> dict[str, Any]:
    """Return the recipe for a set of point clouds with these changes."""
    own = {"data.options": dict(SETS[key].options), "training.max_steps": steps, "seed": seed}
    suited = {} if "model" in changes else SETS[key].changes
    return changed(RECIPE, {**own, **suited, **changes})


def network(
    key: str, fold: int, changes: Mapping[str, Any], steps: int, seed: int, data: str, work: str, results: str
) -> dict[str, Any]:
    """Train a network on a fold, at the rate that is best on its validation part; return its scores on each test."""
    root, tests = SETS[key].stage(fold, Path(data), Path(work))
    done = _obtained(trained, key, fold, settings_of(key, changes, steps, seed), (str(root), work, results))
    assert done is not None
    model = load_model(done.model)
    scores = {name: score(model, test_of(key, folder), progress=False) for name, folder in tests.items()}
    rate = {"learning_rate": done.run.training.learning_rate}
    return {"parameters": model.num_parameters, "scores": scores, **rate, **done.cost}


def find_network(
    key: str, fold: int, changes: Mapping[str, Any], steps: int, seed: int, data: str, work: str, results: str
) -> tuple[Trained, Dataset] | None:
    """Return a network that :func:`network` trained before, and the test part of its fold; None if none was."""
    root, _ = SETS[key].stage(fold, Path(data), Path(work))
    done = _obtained(find, key, fold, settings_of(key, changes, steps, seed), (str(root), work, results))
    return None if done is None else (done, test_of(key, root))


def _obtained(
    obtain: Callable[..., Trained | None], key: str, fold: int, document: Mapping[str, Any], places: Sequence[str]
) -> Trained | None:
    """Return a training with its last weights, by ``trained`` or ``find``."""
    tried = {"max_steps": max(1, round(TRIED_STEPS * document["training"]["max_steps"]))}
    label = f"{key}-{fold}-{document['model']['preset']}"
    done = at_best_rate(obtain, document, label, places, RATES, tried)
    return None if done is None else replace(done, model=done.model.parent / LAST)


def test_of(key: str, root: Path) -> Dataset:
    """Return the test part in a folder as the set is read."""
    return create("las-folder", root, "test", **SETS[key].options).for_evaluation()


def tabular(key: str, fold: int, data: str, work: str, results: str) -> dict[str, Any]:
    """Fit the tabular baselines on a fold, settings chosen on its validation part; return their scores by name."""
    root, tests = SETS[key].stage(fold, Path(data), Path(work))
    train, val = (create("las-folder", root, use, **SETS[key].options) for use in ("train", "val"))
    task_spec = TaskSpec(task=train.info.task, num_outputs=train.info.num_outputs, class_names=train.info.classes)
    baselines = Baselines(task_spec, train, val=val.for_evaluation())
    scores = {title: baselines.score(test_of(key, folder)) for title, folder in tests.items()}
    names = [model.name for model in baselines.models]
    return {"scores": {name: {title: own[name] for title, own in scores.items()} for name in names}}


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
