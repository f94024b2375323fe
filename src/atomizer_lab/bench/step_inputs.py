"""Made-up training data on which a step is measured: in the sizes of small real tasks, filled with noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2, SENTINEL2_L2A
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset, Info


@dataclass(frozen=True, slots=True)
class StepInput:
    """Scenes of ``pixels`` × ``pixels``, one raster for each of ``sensors`` and dates; of each a crop is trained on."""

    name: str
    task: str
    outputs: int
    sensors: tuple[tuple[Channel, ...], ...]
    pixels: int
    gsd_m: float = 10.0
    dates: int = 1
    crop: int | None = None  # pixels; None: whole scenes
    samples: int = 4

    @property
    def dense(self) -> bool:
        """Whether there is an answer for each pixel."""
        return self.task == "segmentation"

    @property
    def crop_m(self) -> float | None:
        """The side of a crop in metres."""
        return None if self.crop is None else self.crop * self.gsd_m

    def sample(self, number: int) -> Sample:
        """Return a sample of noise at the usual levels of its channels."""
        generator, atoms = torch.Generator().manual_seed(number), AtomSet()
        for date in range(self.dates):
            for channels in self.sensors:
                noise = torch.randn(len(channels), self.pixels, self.pixels, generator=generator)
                mean = torch.tensor([channel.mean or 0.0 for channel in channels])[:, None, None]
                std = torch.tensor([channel.std or 1.0 for channel in channels])[:, None, None]
                atoms += AtomSet.from_raster(mean + std * noise, channels, self.gsd_m, 1 + date * 365 // self.dates)
        meta = Meta(f"made-up-{number}")
        if self.dense:
            grid = Grid(self.pixels, self.pixels, self.gsd_m)
            classes = torch.randint(self.outputs, grid.shape, generator=generator)
            return Sample.of_map(atoms, grid, classes, meta)
        if self.task == "classification":
            return Sample.of_scene(atoms, torch.randint(self.outputs, (), generator=generator), meta)
        return Sample.of_scene(atoms, float(torch.rand((), generator=generator)), meta)


class MadeUp(Dataset):
    """The samples of a :class:`StepInput`."""

    def __init__(self, given: StepInput) -> None:
        self.given = given
        self.info = Info(
            name="made-up",
            title=given.name,
            task="regression" if given.task == "scene_regression" else given.task,
            channels=tuple(channel for channels in given.sensors for channel in channels),
            extent_m=given.gsd_m * (given.crop or given.pixels),
            classes=tuple(f"class {number}" for number in range(given.outputs)) if given.outputs > 1 else (),
        )
        super().__init__(Path(), "train")

    @property
    def task_spec(self) -> TaskSpec:
        """What is asked of a model."""
        given = self.given
        return TaskSpec(given.task, given.outputs, channels=self.info.channels, extent_m=self.info.extent_m)

    def find(self) -> Sequence[int]:
        """Return the numbers of the samples."""
        return range(self.given.samples)

    def files(self, item: int) -> tuple[Path, ...]:
        """Return a name for messages; there are no files."""
        return (Path(f"made-up-{item}"),)

    def read(self, item: int) -> Sample:
        """Return one sample."""
        return self.given.sample(item)


_FIFTEEN = (SENTINEL1.pick("VV", "VH"), SENTINEL2.channels)
_SIX = SENTINEL2_L2A.pick("B02", "B03", "B04", "B8A", "B11", "B12")
_BANDS = tuple(Channel("made-up", f"B{i}", 0.42 + 2.0 * i / 224, 0.01, mean=0.0, std=1.0) for i in range(224))
INPUTS = {
    item.name: item
    for item in (
        StepInput("radar and optical", "segmentation", 2, _FIFTEEN, 256, crop=64),
        StepInput("six dates", "segmentation", 6, (_SIX,), 128, 20.0, dates=6, crop=42),
        StepInput("224 bands", "segmentation", 6, (_BANDS,), 32, 30.0, crop=16),
        StepInput("small patches", "classification", 6, (_SIX,), 8, 20.0, samples=16),
        StepInput("series of one pixel", "scene_regression", 1, _FIFTEEN, 1, dates=12, samples=16),
    )
}
