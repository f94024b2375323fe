"""Classes of LiDAR points (the paper's table of DALES and FRACTAL), and on small tiles what the settings are worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atomizer_lab.lidar import lidar
from atomizer_lab.lidar.tiles import DISTURBANCES, OTHERS, class_names
from atomizer_lab.matrix import Task
from atomizer_lab.paper import networks, protocol
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale, Where
from atomizer_lab.paper.models import ATOMIZER, PERCEIVER

STEPS = 700
DATASETS = ("DALES", "FRACTAL")
FOREST, THINNED, PHOTO = "forest", "forest, thinned copies too", "points and orthophoto"
TESTS = (lidar.PLAIN, *DISTURBANCES, *OTHERS)
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
        return {name: 100 * found["miou"] for name, found in scores.items()}
    found = scores[lidar.PLAIN]
    return {"mean": found["miou"], **{name: found["iou"][name] for name in class_names()}}


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
    numbers = {f"photo tile: {name}": 100 * found["miou"] for name, found in result["scores"].items()}
    return {"numbers": {row: numbers}, **result}


def small_runs(
    rows: Mapping[str, Mapping[str, Any]], by: str, tests: Sequence[str], with_photo: bool
) -> Callable[[Where, Sequence[int]], list[Task]]:
    """Return what lists the runs on the tiles: networks for each seed, two forests, and points with an orthophoto."""

    def runs(where: Where, seeds: Sequence[int]) -> list[Task]:
        places, scored = networks.places(where), {"by": by, "tests": list(tests)}
        found = [
            Task(
                f"{row}, seed {seed}",
                network,
                {"row": row, **scored, "changes": dict(changes), "steps": STEPS, "seed": seed},
                5.0,
                places,
            )
            for seed in seeds
            for row, changes in rows.items()
        ]
        for row, thinning in ((FOREST, False), (THINNED, True)):
            found.append(Task(row, forest, {"row": row, **scored, "thinning": thinning}, 3.0, places))
        if with_photo:
            found.append(Task(PHOTO, photo, {"row": PHOTO, "steps": STEPS // 4, "seed": 0}, 3.0, places))
        return found

    return runs


LIDAR = Item(
    name="lidar",
    label="tab:lidar_results",
    unit="mIoU (%)",
    paper={
        "KPConv": {"DALES": 81.1},
        "SPT": {"DALES": 79.6},
        "PointNet++": {"DALES": 68.3},
        "ConvPoint": {"DALES": 67.4},
        ATOMIZER: {"DALES": 66.7, "FRACTAL": 78.4},
        "SPG": {"DALES": 60.6},
        "PointCNN": {"DALES": 58.4},
        "ShellNet": {"DALES": 57.4},
        PERCEIVER: {"DALES": 48.7, "FRACTAL": 78.1},
        "RandLA-Net": {"FRACTAL": 77.5},
    },
    scales={
        PAPER: Scale(
            "DALES and FRACTAL, Atomizer-IO and Perceiver-IO: 4 runs",
            protocol.runs_of([protocol.Cell(d, model) for d in DATASETS for model in (PERCEIVER, ATOMIZER)]),
        ),
        SMALL: Scale(
            f"six tiles of LiDAR HD, {STEPS} steps, about 5 minutes of one core for a network; the test tile also "
            "disturbed, and two clouds of other places",
            small_runs(ROWS, BY_TEST, TESTS, True),
        ),
        SMOKE: Scale(
            "two steps on a made-up cloud",
            networks.runs_of(
                [networks.Cell(networks.MADE_UP_CLOUD, model) for model in (PERCEIVER, ATOMIZER)],
                networks.TWO_STEPS,
                0.1,
            ),
        ),
    },
)
