"""One cell of a table: a network trained on a dataset, and its score on the test part.

``small`` cells are the staged tasks of ``atomizer_lab/small_data`` with their recipe; rivals have the same data and
time, settings that suit them, and about the same size. ``smoke`` cells are the same on made-up scenes with two steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.errors import DataError
from atomizer_io.training.evaluate import evaluate
from atomizer_lab.baselines.dates import L_TAE, LINEAR
from atomizer_lab.matrix import Task
from atomizer_lab.paper import trainings
from atomizer_lab.paper.item import Where
from atomizer_lab.paper.models import ATOMIZER, RESNET, SMALL, TUNED, VIT
from atomizer_lab.paper.trainings import Document, Trained, trained
from atomizer_lab.small_data.staging import (
    PATCH_GAP,
    Stage,
    listed,
    stage_patches,
    staged,
    west_to_east,
)
from atomizer_lab.small_data.tasks import (
    BIOMASS,
    ENMAP,
    FLOODS,
    PATCHES,
    RONDONIA,
    SITE,
    SmallTask,
    merged,
)

Changes = Mapping[str, Any]
MINUTES = 4  # of one core at most for each small training: all models of a column have the same time
TIME: Changes = {"max_time": f"0:{MINUTES:02d}:00"}
TWO_STEPS: Changes = {"max_steps": 2}
SHARES = ("miou", "macro_f1", "accuracy")  # scores that are shown as percent
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Column:
    """The data of a column of a table: a small task, how its files are staged, and what it changes of the settings.

    ``key`` names the folder of the staged files; ``dates`` is how many dates every scene has, where all have as many.
    """

    title: str
    key: str
    task: SmallTask
    stage: Stage
    changes: Changes = field(default_factory=dict, hash=False)
    dates: int | None = None

    def document(self, model: str, length: Changes, seed: int, changes: Changes | None = None) -> dict[str, Any]:
        """Return the settings with which a model is trained for so long; where the data lie is not among them."""
        found = self.task.document("", seed, **length)
        found["training"]["accelerator"] = "cpu"
        del found["data"]["root"]
        if model != ATOMIZER:  # what remains of the recipe holds for any model
            found["model"] = {"preset": SMALL[model], "settings": self.settings(model)}
            if self.task is not PATCHES:
                found["training"] |= TUNED.get(model, {})
        return merged(merged(found, self.changes), changes or {})

    def settings(self, model: str) -> dict[str, Any]:
        """Return how a rival merges dates, as in the paper where it can: other rivals know by themselves."""
        if model == VIT and self.task.series:
            return {"temporal": L_TAE}
        if model == RESNET and self.dates is not None:
            return {"temporal": LINEAR, "num_dates": self.dates}
        return {}


def _of(title: str, task: SmallTask, **more: Any) -> Column:
    return Column(title, task.name, task, task.stage, **more)


def stage_months(sensor: str) -> Stage:
    """Return what links the chip of BioMassters with the files of one sensor only."""

    def stage(source: Path, folder: Path) -> None:
        place = source / "biomassters"
        if not place.is_dir():
            raise DataError(place, "no such folder: the data of a small task")
        for path in sorted(path for path in place.rglob("*") if path.is_file()):
            inside = path.relative_to(place)
            if "features" in inside.parts[0] and path.suffix == ".tif" and f"_{sensor}_" not in path.name:
                continue
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            (folder / inside).symlink_to(path.resolve())

    return stage


def stage_fold(fold: int) -> Stage:
    """Return what stages the patches with the test stretch of one of five folds.

    A fifth of the row of patches tests, the tenth before it (of the first fold: the last tenth) validates, and the
    rest trains; between them some are left out, as neighbours in the row are neighbours on the ground.
    """

    def stage(source: Path, folder: Path) -> None:
        stage_patches(source, folder)
        names = [line.partition(",")[0] for line in (folder / "labels.csv").read_text("utf-8").splitlines()[1:]]
        for split, numbers in fold_numbers(len(names), fold).items():
            listed(folder / f"{split}.txt", [names[number] for number in numbers])

    return stage


def nothing(source: Path, folder: Path) -> None:
    """Stage a folder without files, for scenes that are made on the spot."""
    folder.mkdir(parents=True)


def fold_numbers(count: int, fold: int, gap: int = PATCH_GAP) -> dict[str, list[int]]:
    """Return the numbers of patches in each split of a fold; the row is closed to a ring, so that folds are alike."""
    first, end = fold * count // FOLDS, (fold + 1) * count // FOLDS
    tenth = count // 10
    ring = [(end + step) % count for step in range(count - (end - first))]  # after the test stretch, to before it
    train, val = ring[gap : len(ring) - tenth - gap], ring[len(ring) - tenth : len(ring) - gap]
    return {"train": sorted(train), "val": sorted(val), "test": list(range(first, end))}


CHIP = _of("Sen1Floods11 chip", FLOODS)
SERIES = _of("Rondônia", RONDONIA, dates=6)
HYPERSPECTRAL = _of("EnMAP", ENMAP)
THREE_SENSORS = _of("S1 + S2 + DEM", SITE)
BIOMASS_COLUMNS = (
    _of("BioMassters chip", BIOMASS),
    Column("BioMassters, S1", "biomassters-s1", BIOMASS, stage_months("S1")),
    Column("BioMassters, S2", "biomassters-s2", BIOMASS, stage_months("S2")),
)
PATCH_FOLDS = tuple(Column("s2-patches", f"s2-patches-fold-{fold}", PATCHES, stage_fold(fold)) for fold in range(FOLDS))
# floods that single pixels cannot tell from dry ground, made on the spot: pictures of them may be published
MADE_UP_FLOODS = Column(
    "made-up floods",
    "made-up-floods",
    SmallTask(
        name="made-up-floods",
        metric="miou",
        stage=nothing,
        data={"name": "synthetic", "options": {"like": "hard-floods", "size": 64, "length": 100}},
    ),
    nothing,
    {"training": {"validation_samples": 20}},
)
MADE_UP_FIELDS = Column(
    "made-up fields",
    "made-up-fields",
    SmallTask(
        name="made-up-fields",
        metric="miou",
        stage=nothing,
        data={
            "name": "synthetic",
            "options": {"like": "pastis-r", "size": 32, "length": 60, "sensor": "sentinel2_l2a"},
        },
        series=True,
    ),
    nothing,
    {"training": {"validation_samples": 20}},
)
MADE_UP = Column(
    "made-up",
    "made-up",
    SmallTask(
        name="made-up",
        metric="miou",
        stage=nothing,
        data={
            "name": "synthetic",
            "options": {"like": "sen1floods11", "size": 32, "length": 1},
            "statistics": "published",
            "parts": west_to_east(32, 16, 22),
            **dict.fromkeys(("train", "val", "test"), "train"),
        },
    ),
    nothing,
    {"training": {"batch_size": 1, "repeat": 1, "loggers": []}},
)
MADE_UP_CLOUD = Column(
    "made-up cloud",
    "made-up-cloud",
    SmallTask(
        name="made-up-cloud",
        metric="miou",
        stage=nothing,
        data={
            "name": "synthetic",
            "options": {"like": "dales", "size": 16, "length": 1},
            "statistics": "published",
            **dict.fromkeys(("train", "val", "test"), "train"),
        },
    ),
    nothing,
    {"training": {"batch_size": 1, "repeat": 1, "loggers": []}},
)
_REAL = (CHIP, SERIES, HYPERSPECTRAL, THREE_SENSORS, *BIOMASS_COLUMNS, *PATCH_FOLDS)
COLUMNS = {column.key: column for column in (*_REAL, MADE_UP_FLOODS, MADE_UP_FIELDS, MADE_UP, MADE_UP_CLOUD)}


def train(key: str, document: Document, data: str, work: str, results: str) -> Trained:
    """Stage the data of the column with this key, and train on them; without a key ``data`` holds them as they are."""
    return trained(document, *_labelled(key, document, data, work), work, results)


def find(key: str, document: Document, data: str, work: str, results: str) -> Trained | None:
    """Return what :func:`train` trained before; None if it did not."""
    return trainings.find(document, *_labelled(key, document, data, work), work, results)


def _labelled(key: str, document: Document, data: str, work: str) -> tuple[str, str]:
    """Return what the folder of a training is called, and the folder of its data, which are staged."""
    label, column = plain(document["model"]["preset"]), COLUMNS.get(key)
    name = document["data"]["name"]
    if column is None:
        return f"{name}-{label}", str(Path(data) / name)
    root = staged(column.key, column.stage, Path(data), Path(work))
    return f"{key}-{label}", "" if name == "synthetic" else str(root)


def train_and_score(
    row: str,
    columns: Mapping[str, str],
    metric: str,
    key: str,
    document: Document,
    data: str,
    work: str,
    results: str,
    average: str | None = None,
) -> dict[str, Any]:
    """Train one network, and return its test score in each of ``columns``, which name configurations of channels.

    ``average`` is the column of their mean.
    """
    done = train(key, document, data, work, results)
    if set(columns.values()) == {"all"}:
        scores = {"all": done.metrics["scores"]["test"]}
    else:
        scores = evaluate(done.run, done.model, channels=list(columns.values()))["scores"]
    numbers = {title: shown(metric, scores[channels][metric]) for title, channels in columns.items()}
    if average is not None:
        numbers[average] = statistics.mean(numbers.values())
    return {"numbers": {row: numbers}, "metric": metric, "scores": scores, **done.cost}


def shown(metric: str, score: float) -> float:
    """Return a score as tables show it: shares as percent."""
    return 100 * score if metric in SHARES else score


def plain(name: str) -> str:
    """Return a name that can be that of a folder."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell, or several of one row: the model, what it is called there, and what it changes of the settings."""

    column: Column
    model: str = ATOMIZER
    row: str | None = None  # None: the name of the model
    changes: Changes = field(default_factory=dict, hash=False)
    titles: Mapping[str, str] | None = field(default=None, hash=False)  # None: that of the column, with all channels
    average: str | None = None  # the column of the mean over titles

    def task(self, where: Where, length: Changes, seed: int, minutes: float) -> Task:
        """Return the run of this cell."""
        row, titles = self.row or self.model, self.titles or {self.column.title: "all"}
        document = self.column.document(self.model, length, seed, self.changes)
        known = "" if len(titles) > 1 else f"{next(iter(titles))}, "
        return Task(
            f"{row}, {known}{self.column.key}, seed {seed}",
            train_and_score,
            {
                "row": row,
                "columns": dict(titles),
                "metric": self.column.task.metric,
                "key": self.column.key,
                "document": document,
                **({} if self.average is None else {"average": self.average}),
            },
            minutes,
            places(where),
        )


def places(where: Where) -> dict[str, str]:
    """Return where a run finds data and leaves things."""
    return {"data": str(where.data), "work": str(where.work), "results": str(where.results)}


def runs_of(
    cells: Sequence[Cell], length: Changes = TIME, minutes: float = MINUTES + 1
) -> Callable[[Where, Sequence[int]], list[Task]]:
    """Return what lists the runs of cells for some seeds; a training of this length and its test take ``minutes``."""

    def runs(where: Where, seeds: Sequence[int]) -> list[Task]:
        return [cell.task(where, length, seed, minutes) for seed in seeds for cell in cells]

    return runs
