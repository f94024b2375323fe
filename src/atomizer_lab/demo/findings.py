"""What the demo found out, ready to be printed and drawn."""

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
from atomizer_lab.demo.lessons import FLOODS, STRANGER, VILLAGE, Demo, scenes
from atomizer_lab.demo.rivals import UNSEEN_SENSOR, Beside, Scores, Trained, scores_of

START = 8  # pixels of the largest squares of the quadtree
SHOWN_WATER, SHOWN_ABSENT = 0.35, 0.08  # shares of the scene that is shown, as near as there is one


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The scene that is shown: the sample, as the unseen sensor saw it, the truth (H, W) and maps of it (H, W).

    ``maps`` are the model's under each channel configuration and of the unseen sensor; ``rivals`` those of the UNet and
    of the regression with all channels.
    """

    sample: Sample
    stranger: Sample
    truth: Tensor
    maps: Mapping[str, Tensor]
    rivals: Mapping[str, Tensor]
    whole: Prediction
    quick: Prediction
    attention: Explanation


@dataclass(frozen=True, slots=True, eq=False)
class Village:
    """A cloud with an image: the sample, and what the second model answers (M, outputs) with both."""

    sample: Sample
    info: Info
    answers: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Everything that the report tells. ``unchanged``: read back from its folder, the model gives the same answers."""

    demo: Demo
    trained: Trained
    scores: Scores
    beside: Beside
    scene: Scene
    village: Village
    unchanged: bool

    def rows(self) -> dict[str, dict[str, float | None]]:
        """Return mIoU by channel configuration and model; None where a model cannot be asked."""
        return {
            name: {
                "Atomizer-IO": ours,
                "UNet": self.beside.unet_scores.get(name),
                "regression": self.beside.pixel_scores[name],
            }
            for name, ours in self.scores.items()
        }

    def means(self) -> dict[str, float]:
        """Return the mean mIoU of each model over the six configurations of the sensors that it was trained on."""
        rows = [row for name, row in self.rows().items() if name != UNSEEN_SENSOR]
        return {model: sum(row[model] or 0.0 for row in rows) / len(rows) for model in rows[0]}


@torch.no_grad()
def find(demo: Demo, trained: Trained, beside: Beside) -> Findings:
    """Ask all models what the report tells."""
    model: AtomizerIO = load_model(trained.folder)
    unseen, strange = scenes(demo, FLOODS, "test"), scenes(demo, STRANGER, "test")
    scores = {**scores_of(model, unseen), UNSEEN_SENSOR: score(model, strange, progress=False)["miou"]}
    number = shown(unseen)
    sample, stranger = unseen[number], strange[number]
    assert isinstance(sample, Sample) and isinstance(stranger, Sample)
    rivals: dict[str, Model] = {"UNet": load_model(beside.unet.folder), "regression": load_model(beside.pixels)}
    scene = look_at(model, sample, stranger, rivals)
    again = dense(load_model(trained.folder), model.encode([sample.atoms]), grid_of(sample))
    unchanged = torch.equal(again.answers, scene.whole.answers)
    return Findings(demo, trained, scores, beside, scene, village_of(demo, beside), unchanged)


def look_at(model: AtomizerIO, sample: Sample, stranger: Sample, rivals: Mapping[str, Model]) -> Scene:
    """Return everything that is shown of one scene."""
    grid, latents = grid_of(sample), model.encode([sample.atoms])
    maps = {name: mapped(model, with_channels(sample, keep)) for name, keep in CONFIGURATIONS.items()}
    maps[UNSEEN_SENSOR] = mapped(model, stranger)
    return Scene(
        sample=sample,
        stranger=stranger,
        truth=sample.target.reshape(grid.shape),
        maps=maps,
        rivals={name: mapped(rival, sample) for name, rival in rivals.items()},
        whole=dense(model, latents, grid),
        quick=quadtree(model, latents, grid, start=START),
        attention=model.explain(latents, [grid.positions()])[0],
    )


def mapped(model: Model, sample: Sample) -> Tensor:
    """Return the most probable class at each pixel (H, W)."""
    model.eval()
    (answer,) = model.predict([model.preparer()(sample.atoms, sample.queries)])
    return answer.argmax(dim=-1).reshape(grid_of(sample).shape)


def village_of(demo: Demo, beside: Beside) -> Village:
    """Return the first unseen cloud in which all classes occur, with the answers of the second model."""
    streets = scenes(demo, VILLAGE, "test")
    samples = [sample for sample in streets if len(sample.target.unique()) > len(streets.info.classes)]
    sample = next(iter(samples or streets))
    model: Model = load_model(beside.village.folder)
    model.eval()
    (answers,) = model.predict([model.preparer()(sample.atoms, sample.queries)])
    return Village(sample, streets.info, answers)


def grid_of(sample: Sample) -> Grid:
    """Return the pixels that a sample of a map asks about."""
    assert sample.queries is not None and sample.queries.grid is not None
    return sample.queries.grid


def shown(unseen: Dataset) -> int:
    """Return the number of the scene with about a third of water and some clouds; no answer plays a part in it."""

    def far(sample: Sample) -> float:
        light = sample.atoms.acquisitions[1]
        absent = 1 - light.num_atoms / light.values.numel()
        return abs(float(sample.target.double().mean()) - SHOWN_WATER) + 2 * abs(absent - SHOWN_ABSENT)

    return min(range(len(unseen)), key=lambda number: far(unseen[number]))  # type: ignore[arg-type]
