"""What models of images share: loader workers rasterise scenes, and images of one size form a batch.

Shapes: B images, T dates, C channels of the task specification, H × W pixels, M queries.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Queries
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, listed
from atomizer_io.models.base import Cost, in_units
from atomizer_lab.baselines.configured import Configured, counted
from atomizer_lab.baselines.rasterise import RasterisedScene, check_rasters, pixels_of, rasterise


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A rasterised scene (T, C, H, W), zero where nothing was observed, and the pixel (M,) of each query.

    ``kept_K`` are the numbers of the patches to read, for a model that leaves out those without an observation.
    """

    values_TCHW: Tensor
    pixel_M: Tensor | None = None
    kept_K: Tensor | None = None


@dataclass(frozen=True, slots=True)
class ToImage:
    """Prepares a sample: the channels of the training data on one grid, standardised, zero where absent.

    ``gsd_m`` is the pixel size (None: that of the finest raster). Sides become multiples of ``multiple`` and at least
    ``least`` pixels by zeros on the right and below. ``dates`` is None for as many as there are, 1 for their mean, or
    how many the model was made for: of a scene with fewer, the absent ones are zero, and more are an error.
    ``timesteps`` are the numbers of the dates of the training data, where they have any (:meth:`slots`).
    """

    channels: tuple[Channel, ...]
    gsd_m: float | None = None
    multiple: int = 1
    least: int = 1
    dates: int | None = 1
    timesteps: tuple[int, ...] = ()

    def __call__(
        self, atoms: AtomSet, queries: Queries | None, cost: Cost = Cost(), generator: torch.Generator | None = None
    ) -> Image:
        """Rasterise and pad one sample."""
        check_rasters(atoms)
        around = None if queries is None else queries.positions
        scene = rasterise(atoms, self.channels, gsd_m=self.gsd_m, around=around)
        values = self.padded(self.dated(scene))
        if around is None:
            return Image(values)
        pixel_M, width = pixels_of(scene.grid, around), scene.grid.width
        return Image(values, pixel_M // width * values.shape[-1] + pixel_M % width)

    def dated(self, scene: RasterisedScene) -> Tensor:
        """Return the values (T, C, H, W) with the dates that the model takes."""
        if self.dates == 1:
            return scene.mean_over_time()[None]
        if self.dates is None:
            return scene.values_TCHW
        count, *size = scene.values_TCHW.shape
        if count > self.dates:
            raise ConfigError(
                f"a scene has {count} dates, but the model was made for {self.dates}: give it fewer, or make a model "
                f"with num_dates={count}"
            )
        dated_TCHW = torch.zeros(self.dates, *size)
        dated_TCHW[self.slots(scene)] = scene.values_TCHW
        return dated_TCHW

    def slots(self, scene: RasterisedScene) -> list[int]:
        """Return the slot of each date of a scene among the dates that the model was made for.

        Where the training data number their time steps, and the model takes as many, it is that of the same number.
        Elsewhere it is unknown which date is absent: dates come in their order, and the last slots stay empty.
        """
        if scene.timesteps is None or len(self.timesteps) != self.dates:
            return list(range(len(scene.values_TCHW)))
        for step in scene.timesteps:
            if step not in self.timesteps:
                trained = listed(map(str, self.timesteps))
                raise ConfigError(f"a scene has time step {step}, but the model was trained on {trained}: leave it out")
        return [self.timesteps.index(step) for step in scene.timesteps]

    def padded(self, x: Tensor) -> Tensor:
        """Return maps (…, H, W) with zeros on the right and below."""
        below, right = (max(-side % self.multiple, self.least - side) for side in x.shape[-2:])
        return F.pad(x, (0, right, 0, below))


class ImageModel(Configured, abc.ABC):
    """A model of images, which predicts for those of one size as a batch."""

    least_side_px = 128
    whole_maps = True

    @abc.abstractmethod
    def network(self) -> nn.Module:
        """Return the network, whose outputs are (B, outputs, H, W) for dense tasks, (B, outputs) for scenes."""

    def arguments(self, images: Sequence[Image]) -> tuple[Tensor, ...]:
        """Return what the network takes for images of one size: values (B, T, C, H, W)."""
        return (torch.stack([image.values_TCHW for image in images]),)

    def predict(self, inputs: Sequence[Image]) -> list[Tensor]:
        """Return the output for each scene, or at the pixel of each query."""
        outputs: list[Tensor] = [torch.empty(0)] * len(inputs)
        sizes: dict[torch.Size, list[int]] = {}
        for number, image in enumerate(inputs):
            sizes.setdefault(image.values_TCHW.shape, []).append(number)
        weight = next(self.parameters())
        for numbers in sizes.values():
            arguments = self.arguments([inputs[number] for number in numbers])
            moved = (a.to(weight.device, weight.dtype if a.is_floating_point() else None) for a in arguments)
            for number, out in zip(numbers, self.network()(*moved), strict=True):
                pixel_M = inputs[number].pixel_M
                output_MC = out if pixel_M is None else out.flatten(1).T[pixel_M.to(out.device)]
                outputs[number] = in_units(output_MC, self.task_spec)
        return outputs

    def flops(self, inputs: Sequence[Image]) -> float:
        """Return the FLOPs of convolutions, matrix products and attention, counted on tensors without values."""
        return sum(counted(self.network(), *self.arguments([image])) for image in inputs)

    def check_channels(self) -> tuple[Channel, ...]:
        """Return the channels of the task specification; a model of images needs to know them."""
        if not self.task_spec.channels:
            raise ConfigError(f"{self.preset or self.family} has one input per channel: create it with channels=")
        return self.task_spec.channels


class TaskImageModel(ImageModel):
    """A model of images with one network for maps, ``Dense``, and another for scenes, ``Scene``."""

    Dense: ClassVar[Callable[..., nn.Module]]
    Scene: ClassVar[Callable[..., nn.Module]]

    def __init__(self, task_spec: TaskSpec, settings: Any, preset: str | None = None) -> None:
        super().__init__(task_spec, settings, preset)
        made = self.Dense if task_spec.dense else self.Scene
        self.whole = made(max(1, len(task_spec.channels)), task_spec.num_outputs, settings)

    def network(self) -> nn.Module:
        """Return the trunk with its decoder or head."""
        return self.whole


def check_gsd(gsd_m: float | None) -> None:
    """Refuse a pixel size that is not a positive number of metres; None is that of the finest raster."""
    if gsd_m is not None and not 0 < gsd_m < math.inf:
        raise ConfigError(f"gsd_m must be a positive number of metres, got {gsd_m}")
