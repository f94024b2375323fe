"""IoU of LiDAR points by class (the paper's table of DALES by class)."""

from __future__ import annotations

from typing import Any

from atomizer_io.datasets.dales import Dales
from atomizer_lab.lidar import lidar
from atomizer_lab.matrix import Task
from atomizer_lab.paper import networks, protocol
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item, Scale
from atomizer_lab.paper.lidar import BY_CLASS, ROWS, STEPS, small_runs
from atomizer_lab.paper.models import ATOMIZER, PERCEIVER, row_numbers

COLUMNS = ("mean", "ground", "buildings", "cars", "trucks", "poles", "power lines", "fences", "vegetation")


def by_class(row: str, **arguments: Any) -> dict[str, Any]:
    """Train and score one network, and return its IoU, from 0 to 1, by class."""
    result = networks.train_and_score(row=row, **arguments)
    found = result["scores"]["all"]
    return {**result, "numbers": {row: {"mean": found["miou"], **found["iou"]}}}


def _by_class(task: Task) -> Task:
    return Task(task.name, by_class, task.arguments, task.minutes, task.places)


_PAPER = protocol.runs_of([protocol.Cell("DALES", model) for model in (PERCEIVER, ATOMIZER)])
_SMOKE = networks.runs_of(
    [networks.Cell(networks.MADE_UP_CLOUD, model) for model in (PERCEIVER, ATOMIZER)], networks.TWO_STEPS, 0.1
)
DALES_CLASSES = Item(
    name="dales-classes",
    label="tab:dales_per_class",
    unit="IoU from 0 to 1",
    paper=row_numbers(
        COLUMNS,
        {
            "KPConv": (0.811, 0.971, 0.966, 0.853, 0.419, 0.750, 0.955, 0.635, 0.941),
            "PointNet++": (0.683, 0.941, 0.891, 0.754, 0.303, 0.400, 0.799, 0.462, 0.912),
            "ConvPoint": (0.674, 0.969, 0.963, 0.755, 0.217, 0.403, 0.867, 0.296, 0.919),
            ATOMIZER: (0.667, 0.962, 0.941, 0.670, 0.095, 0.549, 0.829, 0.395, 0.895),
            "SuperPoint": (0.606, 0.947, 0.934, 0.629, 0.187, 0.285, 0.652, 0.336, 0.879),
            "PointCNN": (0.584, 0.975, 0.957, 0.406, 0.048, 0.576, 0.267, 0.526, 0.917),
            "ShellNet": (0.574, 0.960, 0.954, 0.322, 0.396, 0.200, 0.274, 0.600, 0.884),
            PERCEIVER: (0.487, 0.944, 0.895, 0.362, 0.032, 0.144, 0.453, 0.228, 0.840),
        },
    ),
    digits=3,
    scales={
        PAPER: Scale(
            f"DALES, classes {', '.join(Dales.info.classes)}; the trainings of lidar",
            lambda where, seeds: [_by_class(task) for task in _PAPER(where, seeds)],
        ),
        SMALL: Scale(
            f"the undisturbed tile of LiDAR HD, whose classes are other ones; the trainings of lidar ({STEPS} steps), "
            "else about 5 minutes of one core for a network",
            small_runs({row: ROWS[row] for row in (ATOMIZER, PERCEIVER)}, BY_CLASS, (lidar.PLAIN,), False),
        ),
        SMOKE: Scale(
            "two steps on a made-up cloud", lambda where, seeds: [_by_class(task) for task in _SMOKE(where, seeds)]
        ),
    },
)
