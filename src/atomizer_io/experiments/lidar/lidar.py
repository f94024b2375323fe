"""Classes of points on LiDAR HD tiles: layouts of latents, what each part of the recipe is worth, and a forest.

Four tiles train, one validates, one tests. The test tile is also scored disturbed: with stray points below the ground,
on slopes, with another sensor's intensities, thinned, on another day.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atomizer_io.datasets.registry import create
from atomizer_io.experiments.lidar.forest import forest
from atomizer_io.experiments.lidar.tiles import (
    CLASSES,
    DISTURBANCES,
    IGNORED,
    OTHER,
    OTHERS,
    class_names,
    disturbed,
    stage,
    stage_others,
    stage_photo,
)
from atomizer_io.experiments.matrix import Task, run_all
from atomizer_io.models.registry import load_model
from atomizer_io.training.config import folder_of, parse
from atomizer_io.training.evaluate import evaluate, score
from atomizer_io.training.run import train

PLAIN = "undisturbed"
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
        "averaging": 0.0,
        "rival": False,  # the forests of this experiment are its own
        "queries": 4096,
        "crop_m": 45.0,
        "class_weights": "sqrt",
        "cloud_draws": {"slope": 0.05, "height_m": 0.2, "intensity": 0.5, "thinning": 0.01, "returns": 0.1},
        "loggers": ["csv"],
        "pictures": 0,
        "devices": 1,
    },
}
# what each variant changes of the recipe
VARIANTS: dict[str, dict[str, Any]] = {
    "hexagonal": {},
    "balanced anchors": {"model.settings.layout": "balanced"},
    "3-D anchors": {"model.settings.layout": "balanced", "model.settings.dimensions": 3},
    "query height": {"model.settings.query_height": True},
    "elevation and height": {"data.options.heights": "both"},
    "elevation above the lowest point": {"data.options.heights": "elevation"},
    "no draws of terrain and density": {"training.cloud_draws": {}},
    "raw observations": {"model.settings.observation_mlp": False},
    "no class weights": {"training.class_weights": "none"},
    "queries drawn by class": {"training.class_weights": "none", "training.query_sampling": "classes"},
}


def lidar(
    tiles: Path, output: Path, work: Path, *, steps: int, seeds: Sequence[int] = (0,), jobs: int = 1
) -> dict[str, Any]:
    """Run all variants and the forests, and return their scores by name and test."""
    plain = stage(tiles, work)
    tests = {PLAIN: str(plain)} | {name: str(disturbed(plain, work, name)) for name in DISTURBANCES}
    tests |= {name: str(place) for name, place in stage_others(tiles, work).items()}
    tasks = [
        Task(
            f"{name}, seed {seed}",
            network,
            {
                "plain": str(plain),
                "tests": tests,
                "changes": changes,
                "steps": steps,
                "seed": seed,
                "folder": str(work / "runs" / f"{name.replace(' ', '-')}-{seed}"),
            },
            minutes=10.0,
        )
        for seed in seeds
        for name, changes in VARIANTS.items()
    ]
    tasks += [
        Task("forest", forest, {"plain": str(plain), "tests": tests}, 2.0),
        Task("forest, thinned copies too", forest, {"plain": str(plain), "tests": tests, "thinning": True}, 3.0),
    ]
    photo = {"root": str(stage_photo(tiles, work)), "steps": max(1, steps // 4), "seed": 0}
    fusion = Task("points and orthophoto", fused, {**photo, "folder": str(work / "runs" / "fused")}, 3.0)
    about = {
        "what": "IoU of points by class on a LiDAR HD tile, undisturbed and disturbed",
        "command": "atomizer reproduce lidar",
        "classes": class_names(),
        "recipe": RECIPE,
        "steps": steps,
    }
    return run_all([*tasks, fusion], output, jobs=jobs, about=about)


def network(
    plain: str, tests: Mapping[str, str], changes: Mapping[str, Any], steps: int, seed: int, folder: str
) -> dict[str, Any]:
    """Train one variant of the recipe, and score it on each of ``tests``; an interrupted training goes on."""
    document = changed(RECIPE, {"data.root": plain, "training.max_steps": steps, "seed": seed, **changes})
    place = Path(folder)
    run = parse({**document, "output": str(place.parent), "name": place.name})
    resume = (folder_of(run) / "state.safetensors").exists()
    if not resume and place.exists():
        shutil.rmtree(place)  # it was stopped before anything was saved
    result = train(run, resume=resume, progress=False)
    model = load_model(place / "last")  # one tile is too little to choose a step by: it only chose the recipe
    options = {**OPTIONS, **{key.split(".")[-1]: value for key, value in changes.items() if "data.options" in key}}
    scores = {
        name: score(model, create("las-folder", root, "test", **options).for_evaluation(), progress=False)
        for name, root in tests.items()
    }
    validation = create("las-folder", plain, "val", **options).for_evaluation()
    return {
        "val": score(model, validation, progress=False)["miou"],
        "seconds": result["seconds"],
        "parameters": model.num_parameters,
        "scores": scores,
    }


def fused(root: str, steps: int, seed: int, folder: str) -> dict[str, Any]:
    """Train on points and orthophoto of the western half of a tile; score the eastern with both, and without either."""
    place = Path(folder)
    changes = {
        "data.root": root,
        "data.options.sensor": "aerial",
        "data.options.bands": ["R", "G", "B"],
        "data.parts": {"train": [0.0, 0.0, 0.5, 1.0], "test": [0.5, 0.0, 1.0, 1.0]},
        **{f"data.{use}": name for use, name in (("train", "all"), ("val", None), ("test", "all"))},
        "training.crop_m": 20.0,
        "training.channel_draws": {"scheme": "sensors"},
        "training.max_steps": steps,
        "seed": seed,
    }
    run = parse({**changed(RECIPE, changes), "output": str(place.parent), "name": place.name})
    shutil.rmtree(place, ignore_errors=True)
    result = train(run, progress=False)
    found = evaluate(run, place / "best", channels=["all", "lidar-only", "aerial-only"])
    return {"seconds": result["seconds"], "scores": found["scores"]}


def changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested settings with some of them, named ``group.group.key``, set."""
    found: dict[str, Any] = {
        name: changed(value, {}) if isinstance(value, Mapping) else value for name, value in document.items()
    }
    for name, value in changes.items():
        *groups, last = name.split(".")
        place = found
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return found


def table(results: Mapping[str, Any]) -> str:
    """Return mIoU of all runs on all tests as text, and the IoU of each class on the undisturbed tile."""
    tests = [PLAIN, *DISTURBANCES, *OTHERS]
    lines = [f"{'mIoU':40} " + " ".join(f"{name.replace(' ', '-')[:12]:>12}" for name in tests)]
    results = dict(results)
    both = results.pop("points and orthophoto")["scores"]
    for name, result in results.items():
        lines.append(f"{name:40} " + " ".join(f"{100 * result['scores'][test]['miou']:12.1f}" for test in tests))
    classes = class_names()
    lines += ["", f"{'IoU, undisturbed':40} " + " ".join(f"{name:>12}" for name in classes)]
    for name, result in results.items():
        iou = result["scores"][PLAIN]["iou"]
        lines.append(f"{name:40} " + " ".join(f"{100 * iou[kind]:12.1f}" for kind in classes))
    lines += ["", "points and orthophoto, half a tile to train, the other half to test: mIoU"]
    lines += [f"{name:40} {100 * scores['miou']:12.1f}" for name, scores in both.items()]
    return "\n".join(lines)
