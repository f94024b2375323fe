"""The data of tables: small tasks on two CPU cores, synthetic scenes, and the datasets of the paper's full protocol.

A column yields the settings with which a model is trained on it. On ``small`` columns, the tasks of
``atomizer_lab/small_data`` with their recipe, baselines have the same data and time, settings that suit them, and about
the same size. At the full protocol, all models of a dataset share its batch size, epochs and schedule, from the files
in ``configs``; sizes and settings of baselines are those of the paper's tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.data.sensors import GRAYSCALE
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.training.config import read_yaml, shipped
from atomizer_lab.baselines.dates import L_TAE, LINEAR
from atomizer_lab.bench.model_inputs import PAPER_INPUTS, ModelInput
from atomizer_lab.bench.models import settings_for
from atomizer_lab.paper.models import ATOMIZER, MAPS, RESNET, SCENES, SERIES, SMALL, SMALL_SCENES, TUNED, VIT
from atomizer_lab.small_data.staging import PATCH_GAP, Stage, listed, stage_patches, west_to_east
from atomizer_lab.small_data.tasks import BIOMASS, ENMAP, FLOODS, PATCHES, RONDONIA, SITE, SmallTask, merged

Changes = Mapping[str, Any]
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Column:
    """A small task: how its files are staged, and what the column changes of its settings.

    ``key`` names the folder of the staged files; ``dates`` is how many dates every scene has, where all have as many.
    """

    title: str
    key: str
    task: SmallTask
    stage: Stage
    changes: Changes = field(default_factory=dict, hash=False)
    dates: int | None = None

    @property
    def metric(self) -> str:
        """The score of the task."""
        return self.task.metric

    def label(self, titles: Mapping[str, str]) -> str:
        """Return what a run on this column with these ``titles`` is called, after its row."""
        return self.key if len(titles) > 1 else f"{next(iter(titles))}, {self.key}"

    def document(self, model: str, seed: int, changes: Changes, length: Changes, configs: Path) -> dict[str, Any]:
        """Return the settings with which a model is trained for so long; where the data lie is not among them."""
        settings = self.task.document("", seed, **length)
        settings["training"]["accelerator"] = "cpu"
        del settings["data"]["root"]
        if model != ATOMIZER:  # what remains of the recipe holds for any model
            settings["model"] = {"preset": SMALL[model], "settings": self.settings(model)}
            if self.task is not PATCHES:
                settings["training"] |= TUNED.get(model, {})
        return merged(merged(settings, self.changes), changes)

    def settings(self, model: str) -> dict[str, Any]:
        """Return how a baseline merges dates, as in the paper where it can; others do so by themselves."""
        if model == VIT and self.task.series:
            return {"temporal": L_TAE}
        if model == RESNET and self.dates is not None:
            return {"temporal": LINEAR, "num_dates": self.dates}
        return {}


@dataclass(frozen=True, slots=True)
class PaperDataset:
    """A dataset of the paper: its file in ``configs``, its entry among the benchmark inputs, its score, its size."""

    title: str
    config: str
    input: str
    metric: str
    samples: int  # of an epoch, as published or as counted by our reader
    presets: Mapping[str, str] = field(hash=False)
    key: str = ""  # nothing is staged

    def label(self, titles: Mapping[str, str]) -> str:
        """Return what a run on this dataset with these ``titles`` is called, after its row."""
        single = len(titles) == 1 and self.title not in titles
        return f"{self.title}, {next(iter(titles))}" if single else self.title

    def document(self, model: str, seed: int, changes: Changes, length: Changes, configs: Path) -> dict[str, Any]:
        """Return the settings of the training, without where the data lie; ``length`` is that of the protocol."""
        path = shipped(configs / f"{self.config}.yaml")
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; name the folder of the paper's settings with --configs")
        settings = merged(read_yaml(path), {"seed": seed, "training": {"baselines": False, "figures": 0}})
        settings["data"].pop("root", None)
        if model != ATOMIZER:
            preset = self.presets[model]
            settings["model"] = {"preset": preset, "settings": settings_for(preset, INPUTS[self.input])}
            settings["training"].pop("configurations", None)
        return merged(settings, changes)


INPUTS = {**PAPER_INPUTS, "mnist": ModelInput("mnist", "classification", 10, (GRAYSCALE.channels,), (28, 28), 1.0)}
POINTS = {ATOMIZER: "atomizer_io_3d", "Perceiver-IO": "perceiver_io_seg"}
DATASETS = {
    dataset.title: dataset
    for dataset in (
        PaperDataset("EuroSAT", "m-eurosat", "eurosat", "macro_f1", 2000, SMALL_SCENES),
        PaperDataset("ForestNet", "m-forestnet", "forestnet", "macro_f1", 6464, SCENES),
        PaperDataset("BurnScars", "burnscars", "burnscars", "miou", 486, MAPS),
        PaperDataset("Sen1Floods11", "sen1floods11", "sen1floods11", "miou", 252, MAPS),
        PaperDataset("PASTIS", "pastis-r", "pastis", "miou", 1455, SERIES),
        PaperDataset("xView2", "xview2-pangaea", "xview2", "miou", 4 * 8251, SERIES),
        PaperDataset("Cashew", "m-cashew-plant", "cashew", "miou", 1350, MAPS),
        PaperDataset("BioMassters", "biomassters", "biomassters", "rmse", 7821, SERIES),
        PaperDataset("DALES", "dales", "dales", "miou", 26 * 100, POINTS),
        PaperDataset("FRACTAL", "fractal", "fractal", "miou", 80_000, POINTS),
        PaperDataset("MNIST", "mnist", "mnist", "accuracy", 55_000, {}),
    )
}


def stage_months(sensor: str) -> Stage:
    """Return what links the chip of BioMassters with the files of one sensor only."""

    def stage(source: Path, folder: Path) -> None:
        chip = source / "biomassters"
        if not chip.is_dir():
            raise DataError(chip, "no such folder: the data of a small task")
        for path in sorted(path for path in chip.rglob("*") if path.is_file()):
            inside = path.relative_to(chip)
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


def fold_numbers(count: int, fold: int, gap: int = PATCH_GAP) -> dict[str, list[int]]:
    """Return the numbers of patches in each split of a fold; the row is closed to a ring, so that folds are alike."""
    first, end = fold * count // FOLDS, (fold + 1) * count // FOLDS
    tenth = count // 10
    ring = [(end + step) % count for step in range(count - (end - first))]  # after the test stretch, to before it
    train, val = ring[gap : len(ring) - tenth - gap], ring[len(ring) - tenth : len(ring) - gap]
    return {"train": sorted(train), "val": sorted(val), "test": list(range(first, end))}


def nothing(source: Path, folder: Path) -> None:
    """Stage a folder without files, for scenes that are made on the spot."""
    folder.mkdir(parents=True)


def _of(title: str, task: SmallTask, **more: Any) -> Column:
    return Column(title, task.name, task, task.stage, **more)


def _synthetic(name: str, options: Changes, training: Changes, *, series: bool = False, **data: Any) -> Column:
    """Return a column of scenes that are made on the spot: figures of them may be published."""
    key, settings = name.replace(" ", "-"), {"name": "synthetic", "options": options, **data}
    return Column(name, key, SmallTask(key, "miou", nothing, settings, series), nothing, {"training": training})


CHIP = _of("Sen1Floods11 chip", FLOODS)
RONDONIA_DATES = _of("Rondônia", RONDONIA, dates=6)
HYPERSPECTRAL = _of("EnMAP", ENMAP)
THREE_SENSORS = _of("S1 + S2 + DEM", SITE)
BIOMASS_COLUMNS = (
    _of("BioMassters chip", BIOMASS),
    Column("BioMassters, S1", "biomassters-s1", BIOMASS, stage_months("S1")),
    Column("BioMassters, S2", "biomassters-s2", BIOMASS, stage_months("S2")),
)
PATCH_FOLDS = tuple(Column("s2-patches", f"s2-patches-fold-{fold}", PATCHES, stage_fold(fold)) for fold in range(FOLDS))
# floods that single pixels cannot tell from dry ground
SYNTHETIC_FLOODS = _synthetic(
    "synthetic floods", {"like": "hard-floods", "size": 64, "length": 100}, {"validation_samples": 20}
)
SYNTHETIC_FIELDS = _synthetic(
    "synthetic fields",
    {"like": "pastis-r", "size": 32, "length": 60, "sensor": "sentinel2_l2a"},
    {"validation_samples": 20},
    series=True,
)
_SMOKE: dict[str, Any] = {"batch_size": 1, "repeat": 1, "loggers": []}
_ONE_SCENE: dict[str, Any] = {"statistics": "published", **dict.fromkeys(("train", "val", "test"), "train")}
SYNTHETIC = _synthetic(
    "synthetic", {"like": "sen1floods11", "size": 32, "length": 1}, _SMOKE, parts=west_to_east(32, 16, 22), **_ONE_SCENE
)
SYNTHETIC_POINTS = _synthetic("synthetic points", {"like": "dales", "size": 16, "length": 1}, _SMOKE, **_ONE_SCENE)
_REAL = (CHIP, RONDONIA_DATES, HYPERSPECTRAL, THREE_SENSORS, *BIOMASS_COLUMNS, *PATCH_FOLDS)
COLUMNS = {column.key: column for column in (*_REAL, SYNTHETIC_FLOODS, SYNTHETIC_FIELDS, SYNTHETIC, SYNTHETIC_POINTS)}
