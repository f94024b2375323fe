"""Classes of LiDAR points on small tiles: networks, forests, and what the settings are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atomizer_lab.lidar import lidar
from atomizer_lab.lidar.tiles import class_names
from atomizer_lab.matrix import Task
from atomizer_lab.paper.item import Where
from atomizer_lab.paper.models import ATOMIZER, PERCEIVER
from atomizer_lab.paper.networks import Runs, folders

STEPS = 700
FOREST, THINNED, PHOTO = "forest", "forest, thinned copies too", "points and orthophoto"
BY_TEST, BY_CLASS = "test", "class"
# an Atomizer-IO as the paper has it is the variant that changes nothing
ROWS: dict[str, dict[str, Any]] = {
    ATOMIZER: {},
    PERCEIVER: lidar.PERCEIVER,
    **{
        f"{PERCEIVER}, rate {rate:g}": {**lidar.PERCEIVER, "training.learning_rate": rate} for rate in lidar.OTHER_RATES
    },
    **{f"{ATOMIZER}, {name}": changes for name, changes in lidar.VARIANTS.items() if changes},
}
Numbers = dict[str, float]


def numbers_of(scores: Mapping[str, Any], by: str) -> Numbers:
    """Return mIoU (%) by test, or on the undisturbed tile the IoU, from 0 to 1, by class."""
    if by == BY_TEST:
        return {name: 100 * test["miou"] for name, test in scores.items()}
    plain = scores[lidar.PLAIN]
    return {"mean": plain["miou"], **{name: plain["iou"][name] for name in class_names()}}


def network(row: str, by: str, **arguments: Any) -> dict[str, Any]:
    """Train and score one network on the tiles."""
    result = lidar.network(**arguments)
    return {"numbers": {row: numbers_of(result["scores"], by)}, **result}


def forest(row: str, by: str, **arguments: Any) -> dict[str, Any]:
    """Fit and score one forest on the tiles."""
    result = lidar.forests(**arguments)
    return {"numbers": {row: numbers_of(result["scores"], by)}, **result}


def photo(row: str, **arguments: Any) -> dict[str, Any]:
    """Train on points and orthophoto, and score with both and without either."""
    result = lidar.fused(**arguments)
    numbers = {f"photo tile: {name}": 100 * test["miou"] for name, test in result["scores"].items()}
    return {"numbers": {row: numbers}, **result}


def runs_of(rows: Mapping[str, Mapping[str, Any]], by: str, tests: Sequence[str], with_photo: bool = False) -> Runs:
    """Return what lists the runs on the tiles: networks for each seed, two forests, and points with an orthophoto."""

    def runs(where: Where, seeds: Sequence[int]) -> list[Task]:
        paths, scored = folders(where), {"by": by, "tests": list(tests)}
        tasks = [
            Task(
                f"{row}, seed {seed}",
                network,
                {"row": row, **scored, "changes": dict(changes), "steps": STEPS, "seed": seed},
                5.0,
                paths,
            )
            for seed in seeds
            for row, changes in rows.items()
        ]
        for row, thinning in ((FOREST, False), (THINNED, True)):
            tasks.append(Task(row, forest, {"row": row, **scored, "thinning": thinning}, 3.0, paths))
        if with_photo:
            tasks.append(Task(PHOTO, photo, {"row": PHOTO, "steps": STEPS // 4, "seed": 0}, 3.0, paths))
        return tasks

    return runs
