"""The data of tables: small tasks on two CPU cores, and the datasets of the paper's full protocol.

A column yields the settings with which a model is trained on it, from a file in ``configs``. On ``small`` columns all
models have the data and the training of that file, the same time, and about the same size; settings that a baseline
needs beside them are in ``models.SUITED``. At the full protocol, all models of a dataset share its batch size, epochs
and schedule; sizes and settings of baselines are those of the paper's tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.data.sensors import GRAYSCALE
from atomizer_io.errors import ConfigError
from atomizer_io.training.config import read_yaml, shipped
from atomizer_lab.baselines.dates import L_TAE, LINEAR
from atomizer_lab.bench.model_inputs import PAPER_INPUTS, ModelInput
from atomizer_lab.bench.models import settings_for
from atomizer_lab.paper.models import ATOMIZER, MAPS, RESNET, SCENES, SERIES, SMALL, SMALL_SCENES, SUITED, VIT
from atomizer_lab.paper.staging import Stage, canopy_heights, series_tables, stack_rondonia

Changes = Mapping[str, Any]
# what concerns the machine, and what this package reports beside a training
MACHINE: dict[str, Any] = {"loggers": ["csv"], "figures": 0, "baselines": False, "devices": 1, "accelerator": "cpu"}


def merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with ``changes`` added or put in their place."""
    values = {key: merged(value, {}) if isinstance(value, Mapping) else value for key, value in document.items()}
    for key, value in changes.items():
        own = values.get(key)
        values[key] = merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return values


def settings_in(configs: Path, name: str) -> dict[str, Any]:
    """Return the settings in a file of ``configs``, without where the data lie."""
    path = shipped(configs / f"{name}.yaml")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; name the folder of the paper's settings with --configs")
    settings = read_yaml(path)
    settings["data"].pop("root", None)
    return settings


@dataclass(frozen=True, slots=True)
class Column:
    """A small task: its file in ``configs/small``, its score, and what the column changes of the settings.

    ``folder`` is where its data lie in the folder of all data, and ``stage`` writes them anew where they are not read
    as they lie. A ``series`` has several dates, and ``dates`` is how many every scene has, where all have as many.
    ``made`` are the settings of scenes that are made on the spot and have no file.
    """

    title: str
    key: str
    metric: str = "miou"
    config: str = ""  # by default the key
    folder: str = ""  # by default that of the file
    stage: Stage | None = None
    changes: Changes = field(default_factory=dict, hash=False)
    series: bool = False
    dates: int | None = None
    made: Changes | None = field(default=None, hash=False)

    def label(self, titles: Mapping[str, str]) -> str:
        """Return what a run on this column with these ``titles`` is called, after its row."""
        return self.key if len(titles) > 1 else f"{next(iter(titles))}, {self.key}"

    def document(self, model: str, seed: int, changes: Changes, length: Changes, configs: Path) -> dict[str, Any]:
        """Return the settings with which a model is trained for so long; where the data lie is not among them."""
        file = self.made or settings_in(configs / "small", self.config or self.key)
        settings: dict[str, Any] = {part: file[part] for part in ("data", "model", "training")}
        settings = merged(settings, {"training": {**MACHINE, **length}, "seed": seed})
        if model != ATOMIZER:  # what remains of the recipe holds for any model
            settings["model"] = {"preset": SMALL[model], "settings": self.settings(model)}
            settings["training"] |= SUITED.get(model, {})
        return merged(merged(settings, self.changes), changes)

    def settings(self, model: str) -> dict[str, Any]:
        """Return how a baseline merges dates, as in the paper where it can; others do so by themselves."""
        if model == VIT and self.series:
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
        settings = merged(
            settings_in(configs, self.config), {"seed": seed, "training": {"baselines": False, "figures": 0}}
        )
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


def _only(name: str) -> Changes:
    """Return the settings of a column of canopy heights with one of the two images."""
    images = {"rgb": "aerial", "hyperspectral": "neon"}
    return {"data": {"options": {"sensor": {image: s if image == name else "-" for image, s in images.items()}}}}


# many scenes, of which whole ones are held out
MARIDA = Column("MARIDA", "marida")
WATER = Column("HLS water", "hls-water")
CHANGE = Column("OSCD", "oscd", series=True, dates=2)
EUROSAT = Column("EuroSAT RGB", "eurosat-rgb", "macro_f1")
_HEIGHTS: dict[str, Any] = {"metric": "rmse", "folder": "neon-plots", "stage": canopy_heights}
_BY_SITE = {"config": "neon-sites", **_HEIGHTS}
HEIGHTS_BY_PLOT = Column("canopy height, new plots", "neon-plots", **_HEIGHTS)
HEIGHTS = Column("canopy height, new sites", "neon-sites", **_BY_SITE)
HEIGHTS_RGB = Column("canopy height, RGB", "neon-sites-rgb", **_BY_SITE, changes=_only("rgb"))
HEIGHTS_SPECTRA = Column(
    "canopy height, hyperspectral", "neon-sites-hyperspectral", **_BY_SITE, changes=_only("hyperspectral")
)
_SERIES: dict[str, Any] = {"metric": "macro_f1", "stage": series_tables, "series": True}
MODIS = Column("MODIS series", "sits-modis", folder="sits-series/modis", dates=23, **_SERIES)
SENTINEL2 = Column("Sentinel-2 series", "sits-sentinel2", folder="sits-series/sentinel2", dates=29, **_SERIES)
SYNTHETIC_FLOODS = Column("synthetic floods", "synthetic-floods")
SYNTHETIC_FIELDS = Column("synthetic fields", "synthetic-fields", series=True)
# single scenes, cut into parts
CHIP = Column("Sen1Floods11 chip", "sen1floods11")
RONDONIA = Column("Rondônia", "rondonia", folder="rondonia-20llq", stage=stack_rondonia, series=True, dates=6)
HYPERSPECTRAL = Column("EnMAP", "enmap", folder="enmap-potsdam")


def _smoke(name: str, like: str, size: int, **data: Any) -> Column:
    """Return a column of one synthetic scene, for runs of seconds."""
    scene: dict[str, Any] = {"name": "synthetic", "options": {"like": like, "size": size, "length": 1}, "workers": 0}
    splits = {"statistics": "published", **dict.fromkeys(("train", "val", "test"), "train")}
    made = {"data": {**scene, **splits, **data}, "model": {"preset": "atomizer_io_tiny"}, "training": {}}
    return Column(name, name.replace(" ", "-"), changes={"training": {"batch_size": 1, "repeat": 1}}, made=made)


SYNTHETIC = _smoke(
    "synthetic",
    "sen1floods11",
    32,
    parts={"train": [0.0, 0.0, 0.5, 1.0], "val": [0.65625, 0.0, 0.6875, 1.0], "test": [0.84375, 0.0, 1.0, 1.0]},
)
SYNTHETIC_POINTS = _smoke("synthetic points", "dales", 16)
_ALL = (
    *(MARIDA, WATER, CHANGE, EUROSAT, HEIGHTS_BY_PLOT, HEIGHTS, HEIGHTS_RGB, HEIGHTS_SPECTRA, MODIS, SENTINEL2),
    *(SYNTHETIC_FLOODS, SYNTHETIC_FIELDS, CHIP, RONDONIA, HYPERSPECTRAL, SYNTHETIC, SYNTHETIC_POINTS),
)
COLUMNS = {column.key: column for column in _ALL}
