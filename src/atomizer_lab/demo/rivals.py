"""What runs beside the demo's model, in a process of its own: its rivals, and a second model on points and an image."""

from __future__ import annotations

import contextlib
import io
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from atomizer_io.data.channels import Channel
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
from atomizer_lab.demo.lessons import FITTED, FLOODS, STRANGER, VILLAGE, Demo, flood_run, scenes, village_run

UNSEEN_SENSOR = "unseen sensor"
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
class Beside:
    """What came of the work beside: mIoU by channel configuration of both rivals, and by view of the second model."""

    unet: Trained
    unet_scores: Scores
    pixels: Path  # the folder of the regression of all channels
    pixel_scores: Scores
    village: Trained
    village_scores: Scores
    village_pixel_scores: Scores


def work_beside(demo: Demo) -> Beside:
    """Train and score the UNet, the regressions and the model of the village."""
    torch.set_num_threads(demo.threads)
    learned, unseen = scenes(demo, FLOODS, "train"), scenes(demo, FLOODS, "test")
    unet = trained(flood_run(demo, "unet_small", "unet"), progress=False)
    pixels, pixel_scores = regressions(demo, learned, unseen)
    unet_scores = scores_of(load_model(unet.folder), unseen)
    village = trained(village_run(demo, "village"), progress=False)
    streets, model = scenes(demo, VILLAGE, "test"), load_model(village.folder)
    village_scores = {view: score(model, streets, name, progress=False)["miou"] for view, name in VIEWS.items()}
    return Beside(
        unet,
        unet_scores,
        pixels,
        pixel_scores,
        village,
        village_scores,
        village_regressions(scenes(demo, VILLAGE, "train"), streets),
    )


def trained(run: Run, *, progress: bool) -> Trained:
    """Train as ``run`` says, without its summary of the data."""
    began = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()):
        result = train(run, progress=progress)
    folder = Path(result["folder"]) / "best"
    model: Model = load_model(folder)
    return Trained(folder, result["steps"], time.monotonic() - began, model.num_parameters)


def scores_of(model: Model, unseen: Dataset) -> Scores:
    """Return the mIoU of one model under each channel configuration."""
    return {name: score(model, unseen, name, progress=False)["miou"] for name in CONFIGURATIONS}


def regressions(demo: Demo, learned: Dataset, unseen: Dataset) -> tuple[Path, Scores]:
    """Fit a regression of single pixels to each channel configuration and to the unseen sensor; return all scores.

    The one of all channels is saved; its folder is returned.
    """
    folder, found = demo.output / "pixels", {}
    for name, keep in CONFIGURATIONS.items():
        model = regression(learned, keep)
        found[name] = score(model, unseen, name, progress=False)["miou"]
        if name == "all":
            model.save_pretrained(folder)
    stranger = regression(scenes(demo, STRANGER, "train"))
    found[UNSEEN_SENSOR] = score(stranger, scenes(demo, STRANGER, "test"), progress=False)["miou"]
    return folder, found


def village_regressions(learned: Dataset, unseen: Dataset) -> Scores:
    """Return the mIoU of a regression of single points, fitted to each view."""
    keeps: dict[str, Keep] = {
        TOGETHER: lambda channel: True,
        POINTS: lambda channel: channel.sensor == "lidar",
        IMAGE: lambda channel: channel.sensor != "lidar",
    }
    return {
        view: score(regression(learned, keeps[view]), unseen, name, progress=False)["miou"]
        for view, name in VIEWS.items()
    }


def everything(channel: Channel) -> bool:
    """Keep every channel."""
    return True


def regression(learned: Dataset, keep: Keep = everything) -> PixelRegression:
    """Return a regression of single pixels (or points) that sees only the channels that ``keep`` accepts."""
    read = [item for item in (learned[i] for i in range(min(len(learned), FITTED))) if isinstance(item, Sample)]
    seen = tuple(channel for channel in learned.channels if keep(channel))
    task_spec = TaskSpec(num_outputs=learned.info.num_outputs, class_names=learned.info.classes, channels=seen)
    return fitted(task_spec, [with_channels(sample, keep) for sample in read])
