"""What runs beside the demo's model, in another process: its baselines, and a second model on points and an image."""

from __future__ import annotations

import contextlib
import io
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from atomizer_io.data.sample import Sample
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.models.base import Model
from atomizer_io.models.registry import load_model
from atomizer_io.training.bands import CONFIGURATIONS, Keep, with_channels
from atomizer_io.training.config import Run
from atomizer_io.training.evaluate import score
from atomizer_io.training.run import train
from atomizer_lab.baselines.pixels import PixelRegression, fitted
from atomizer_lab.demo.runs import FITTED, FLOODS, NEW_SENSOR_FLOODS, VILLAGE, Demo, flood_run, scenes, village_run

NEW_SENSOR = "new sensor"
TOGETHER, POINTS, IMAGE = "points and image", "points only", "image only"
VIEWS = {TOGETHER: "all", POINTS: "lidar-only", IMAGE: "aerial-only"}
Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class Trained:
    """A model that was trained: its folder, steps, seconds and number of parameters."""

    folder: Path
    steps: int
    seconds: float
    parameters: int


@dataclass(frozen=True, slots=True)
class Baselines:
    """Results of the work beside: mIoU by channel configuration of both baselines, and by view of the second model."""

    unet: Trained
    unet_scores: Scores
    pixels: Path  # the folder of the regression of all channels
    pixel_scores: Scores
    village: Trained
    village_scores: Scores
    village_pixel_scores: Scores


def work_beside(demo: Demo) -> Baselines:
    """Train and score the UNet, the regressions and the model of the village."""
    torch.set_num_threads(demo.threads)
    train_set, test_set = scenes(demo, FLOODS, "train"), scenes(demo, FLOODS, "test")
    unet = trained(flood_run(demo, "unet_small", "unet"), progress=False)
    pixels, pixel_scores = regressions(demo, train_set, test_set)
    unet_scores = scores_of(load_model(unet.folder), test_set)
    village = trained(village_run(demo, "village"), progress=False)
    streets, model = scenes(demo, VILLAGE, "test"), load_model(village.folder)
    village_scores = {view: score(model, streets, name, progress=False)["miou"] for view, name in VIEWS.items()}
    return Baselines(
        unet,
        unet_scores,
        pixels,
        pixel_scores,
        village,
        village_scores,
        village_regressions(scenes(demo, VILLAGE, "train"), streets),
    )


def trained(run: Run, *, progress: bool) -> Trained:
    """Train with the settings of ``run``, without its summary of the data."""
    began = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()):
        result = train(run, progress=progress)
    folder = Path(result["folder"]) / "best"
    model: Model = load_model(folder)
    return Trained(folder, result["steps"], time.monotonic() - began, model.num_parameters)


def scores_of(model: Model, test_set: Dataset) -> Scores:
    """Return the mIoU of one model under each channel configuration."""
    return {name: score(model, test_set, name, progress=False)["miou"] for name in CONFIGURATIONS}


def regressions(demo: Demo, train_set: Dataset, test_set: Dataset) -> tuple[Path, Scores]:
    """Fit a regression of single pixels to each channel configuration and to the new sensor; return all scores.

    The one of all channels is saved; its folder is returned.
    """
    folder, scores = demo.output / "pixels", {}
    for name, keep in CONFIGURATIONS.items():
        model = regression(train_set, keep)
        scores[name] = score(model, test_set, name, progress=False)["miou"]
        if name == "all":
            model.save_pretrained(folder)
    new_sensor = regression(scenes(demo, NEW_SENSOR_FLOODS, "train"))
    scores[NEW_SENSOR] = score(new_sensor, scenes(demo, NEW_SENSOR_FLOODS, "test"), progress=False)["miou"]
    return folder, scores


def village_regressions(train_set: Dataset, test_set: Dataset) -> Scores:
    """Return the mIoU of a regression of single points, fitted to each view."""
    keeps: dict[str, Keep] = {
        TOGETHER: lambda channel: True,
        POINTS: lambda channel: channel.sensor == "lidar",
        IMAGE: lambda channel: channel.sensor != "lidar",
    }
    return {
        view: score(regression(train_set, keeps[view]), test_set, name, progress=False)["miou"]
        for view, name in VIEWS.items()
    }


def regression(train_set: Dataset, keep: Keep = lambda channel: True) -> PixelRegression:
    """Return a regression of single pixels (or points) that sees only the channels that ``keep`` accepts."""
    samples = [item for item in (train_set[i] for i in range(min(len(train_set), FITTED))) if isinstance(item, Sample)]
    channels = tuple(channel for channel in train_set.channels if keep(channel))
    task = TaskSpec(num_outputs=train_set.info.num_outputs, class_names=train_set.info.classes, channels=channels)
    return fitted(task, [with_channels(sample, keep) for sample in samples])
