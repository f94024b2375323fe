"""What the demo measured, ready to be printed and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.decoding import Prediction, dense, quadtree
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.explain import Explanation
from atomizer_io.models.base import Model
from atomizer_io.models.registry import load_model
from atomizer_io.training.bands import CONFIGURATIONS, with_channels
from atomizer_io.training.evaluate import score
from atomizer_lab.demo.baselines import NEW_SENSOR, Baselines, Scores, Trained, scores_of
from atomizer_lab.demo.runs import FLOODS, NEW_SENSOR_FLOODS, VILLAGE, Demo, scenes

START = 8  # pixels of the largest blocks of the quadtree
SHOWN_WATER, SHOWN_ABSENT = 0.35, 0.08  # shares of the scene that is shown, as near as there is one


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The scene that is shown: the sample, as the new sensor saw it, the target (H, W) and maps of it (H, W).

    ``maps`` are the model's under each channel configuration and of the new sensor; ``baselines`` those of the UNet
    and of the regression with all channels.
    """

    sample: Sample
    new_sensor: Sample
    target: Tensor
    maps: Mapping[str, Tensor]
    baselines: Mapping[str, Tensor]
    whole: Prediction
    quick: Prediction
    attention: Explanation


@dataclass(frozen=True, slots=True, eq=False)
class Village:
    """A point cloud with an image: the sample, and the predictions (M, outputs) of the second model with both."""

    sample: Sample
    info: Info
    predictions: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Everything that the report shows. ``unchanged``: read back from its folder, the model predicts the same."""

    demo: Demo
    trained: Trained
    scores: Scores
    baselines: Baselines
    scene: Scene
    village: Village
    unchanged: bool

    def rows(self) -> dict[str, dict[str, float | None]]:
        """Return mIoU by channel configuration and model; None where a model cannot predict."""
        return {
            name: {
                "Atomizer-IO": ours,
                "UNet": self.baselines.unet_scores.get(name),
                "regression": self.baselines.pixel_scores[name],
            }
            for name, ours in self.scores.items()
        }

    def means(self) -> dict[str, float]:
        """Return the mean mIoU of each model over the six configurations of the sensors that it was trained on."""
        rows = [row for name, row in self.rows().items() if name != NEW_SENSOR]
        return {model: sum(row[model] or 0.0 for row in rows) / len(rows) for model in rows[0]}


@torch.no_grad()
def measure(demo: Demo, trained: Trained, baselines: Baselines) -> Findings:
    """Run all models on what the report shows."""
    model: AtomizerIO = load_model(trained.folder)
    test_set, new_sensor_set = scenes(demo, FLOODS, "test"), scenes(demo, NEW_SENSOR_FLOODS, "test")
    scores = {**scores_of(model, test_set), NEW_SENSOR: score(model, new_sensor_set, progress=False)["miou"]}
    number = shown(test_set)
    sample, new_sensor = test_set[number], new_sensor_set[number]
    assert isinstance(sample, Sample) and isinstance(new_sensor, Sample)
    models: dict[str, Model] = {"UNet": load_model(baselines.unet.folder), "regression": load_model(baselines.pixels)}
    scene = look_at(model, sample, new_sensor, models)
    again = dense(load_model(trained.folder), model.encode([sample.atoms]), grid_of(sample))
    unchanged = torch.equal(again.outputs, scene.whole.outputs)
    return Findings(demo, trained, scores, baselines, scene, village_of(demo, baselines), unchanged)


def look_at(model: AtomizerIO, sample: Sample, new_sensor: Sample, baselines: Mapping[str, Model]) -> Scene:
    """Return everything that is shown of one scene."""
    grid, latents = grid_of(sample), model.encode([sample.atoms])
    maps = {name: mapped(model, with_channels(sample, keep)) for name, keep in CONFIGURATIONS.items()}
    maps[NEW_SENSOR] = mapped(model, new_sensor)
    return Scene(
        sample=sample,
        new_sensor=new_sensor,
        target=sample.target.reshape(grid.shape),
        maps=maps,
        baselines={name: mapped(baseline, sample) for name, baseline in baselines.items()},
        whole=dense(model, latents, grid),
        quick=quadtree(model, latents, grid, start=START),
        attention=model.explain(latents, [grid.positions()])[0],
    )


def mapped(model: Model, sample: Sample) -> Tensor:
    """Return the most probable class at each pixel (H, W)."""
    model.eval()
    (prediction,) = model.predict([model.preparer()(sample.atoms, sample.queries)])
    return prediction.argmax(dim=-1).reshape(grid_of(sample).shape)


def village_of(demo: Demo, baselines: Baselines) -> Village:
    """Return the first test scene in which all classes occur, with the predictions of the second model."""
    streets = scenes(demo, VILLAGE, "test")
    samples = [sample for sample in streets if len(sample.target.unique()) > len(streets.info.classes)]
    sample = next(iter(samples or streets))
    model: Model = load_model(baselines.village.folder)
    model.eval()
    (predictions,) = model.predict([model.preparer()(sample.atoms, sample.queries)])
    return Village(sample, streets.info, predictions)


def grid_of(sample: Sample) -> Grid:
    """Return the grid of the queries of a map."""
    assert sample.queries is not None and sample.queries.grid is not None
    return sample.queries.grid


def shown(test_set: Dataset) -> int:
    """Return the number of the scene with about a third of water and some clouds; no prediction plays a part in it."""

    def far(sample: Sample) -> float:
        light = sample.atoms.acquisitions[1]
        absent = 1 - light.num_atoms / light.values.numel()
        return abs(float(sample.target.double().mean()) - SHOWN_WATER) + 2 * abs(absent - SHOWN_ABSENT)

    return min(range(len(test_set)), key=lambda number: far(test_set[number]))  # type: ignore[arg-type]
