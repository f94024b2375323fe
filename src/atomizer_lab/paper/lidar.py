"""Classes of LiDAR points by place: networks and tabular baselines on each fold of the sets of point clouds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atomizer_lab.lidar import lidar
from atomizer_lab.lidar.tiles import SETS, PointSet
from atomizer_lab.matrix import Task
from atomizer_lab.paper.item import Where
from atomizer_lab.paper.models import ATOMIZER, PERCEIVER
from atomizer_lab.paper.networks import Runs, folders

STEPS, MINUTES = 700, 9.0
FOREST = "random forest"
BY_TEST, BY_CLASS = "test", "class"
ROWS: dict[str, dict[str, Any]] = {ATOMIZER: {}, PERCEIVER: lidar.PERCEIVER}
Numbers = dict[str, float]


def numbers_of(scores: Mapping[str, Any], by: str, points: PointSet) -> Numbers:
    """Return mIoU (%) by test, or on the fold's own test the IoU, from 0 to 1, by class."""
    if by == BY_TEST:
        return {name: 100 * test["miou"] for name, test in scores.items()}
    own = scores[points.title]
    return {"mean": own["miou"], **{name: own["iou"][name] for name in points.class_names}}


def network(row: str, by: str, key: str, **arguments: Any) -> dict[str, Any]:
    """Train and score one network on a fold."""
    result = lidar.network(key, **arguments)
    return {"numbers": {row: numbers_of(result["scores"], by, SETS[key])}, **result}


def tabular(by: str, key: str, **arguments: Any) -> dict[str, Any]:
    """Fit and score the tabular baselines on a fold."""
    result = lidar.tabular(key, **arguments)
    return {"numbers": {name: numbers_of(own, by, SETS[key]) for name, own in result["scores"].items()}, **result}


def runs_of(sets: Sequence[PointSet], by: str) -> Runs:
    """Return what lists the runs on each fold of the sets: networks for each seed, and tabular baselines."""

    def runs(where: Where, seeds: Sequence[int]) -> list[Task]:
        paths, tasks = folders(where), []
        for points in sets:
            for fold in range(len(points.folds)):
                of_fold = {"by": by, "key": points.folder, "fold": fold}
                name = f"{points.title}, fold {fold}"
                tasks.append(Task(f"tabular baselines, {name}", tabular, of_fold, 3.0, paths))
                for seed in seeds:
                    for row, changes in ROWS.items():
                        how = {"row": row, **of_fold, "changes": dict(changes), "steps": STEPS, "seed": seed}
                        tasks.append(Task(f"{row}, {name}, seed {seed}", network, how, MINUTES, paths))
        return tasks

    return runs
