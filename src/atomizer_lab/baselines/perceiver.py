"""Perceiver-IO: learned latents attend to all atoms, then to each other; queries attend to the latents.

Its tokens are those of Atomizer-IO, concatenated with the absolute position of the atom. All latents attend to all
atoms, block by block, so that memory does not grow with the scene. A query is the encoding of its position; where the
model is made for point clouds, also the token of the point at the query, as a wire and the ground below share theirs.

Shapes: B scenes, L latents, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import LIDAR
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.heads import Head
from atomizer_io.models.atomizer.layers import SelfAttention
from atomizer_io.models.atomizer.tokenizer import Tokenizer
from atomizer_io.models.atomizer.tokens import describing, unreadable
from atomizer_io.models.base import Capabilities, Cost, Preset, in_units
from atomizer_lab.baselines.configured import Configured
from atomizer_lab.baselines.perceiver_parts import AtomReader, Decoder, PerceiverSettings
from atomizer_lab.baselines.perceiver_scene import PerceiverInput, PerceiverPreparer, PerceiverWindows

TOGETHER = 64  # scenes or windows whose latents are processed together


class PerceiverIO(Configured):
    """The generic baseline of the paper: positions are in the tokens only, not in its latents."""

    family = "perceiver_io"
    Settings = PerceiverSettings
    capabilities = Capabilities(cost=("budget", "max_points"), new_channels=True, points=True)
    presets: ClassVar = {
        "perceiver_io_seg": Preset(),  # 34.5 M in the paper
        # 19.7 M: six layers fit that number only without gates and without a feed-forward layer after the reading
        "perceiver_io_cls": Preset({"gated": False, "cross_feedforward": False}, {"task": "classification"}),
        # 1 M, for a CPU: positions are learned in windows, as few steps do not teach it those of a large scene
        "perceiver_io_small": Preset(
            {"latents": 64, "width": 96, "depth": 4, "heads": 4, "head_dim": 24, "window_px": 8}
        ),
    }

    def __init__(self, task_spec: TaskSpec, settings: PerceiverSettings, preset: str | None = None) -> None:
        super().__init__(task_spec, settings, preset)
        if self.crop_m is not None:
            settings = self.chosen = replace(settings, position_scale_m=self.crop_m / 2)
        described = AtomizerConfig(learned_channels=settings.learned_channels, site_fields=settings.site_fields)
        self.tokenizer = Tokenizer(described, described.learned_channels, task_spec)
        self.reader = AtomReader(settings, self.tokenizer)
        self.attentions = nn.ModuleList(
            SelfAttention(settings.width, settings.heads, settings.head_dim) for _ in range(settings.depth)
        )
        self.feedforwards = nn.ModuleList(settings.feedforward() for _ in range(settings.depth))
        self.decoder = Decoder(settings, self.tokenizer, task_spec.num_outputs) if task_spec.dense else None
        self.head = None if task_spec.dense else Head(settings.width, task_spec)

    @classmethod
    def adapted(cls, task_spec: TaskSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with the scale of positions and what tokens describe; point clouds get point tokens."""
        changes: dict[str, Any] = {} if task_spec.extent_m is None else {"position_scale_m": task_spec.extent_m / 2}
        sensors = {channel.sensor for channel in task_spec.channels}
        if task_spec.point_density is not None or LIDAR.channels[0].sensor in sensors:
            changes["point_tokens"] = True
        return {**changes, **describing(task_spec, settings)}

    def keep_cost(self, cost: Cost) -> None:
        """Make these counts the model's own; None leaves a count as it is."""
        self.check_cost(cost)
        self.chosen = replace(self.chosen, **cost.given())

    def training_cost(self) -> Cost:
        """Return the limits of the settings: a training step draws its atoms anew."""
        return Cost(budget=self.chosen.budget, max_points=self.chosen.max_points)

    def unreadable(self, channels: Iterable[Channel]) -> list[Channel]:
        """Return the channels that have neither been learned nor a wavelength inside the spectral basis."""
        return unreadable(channels, self.task_spec, self.chosen.learned_channels)

    def usual_extent_m(self) -> float | None:
        """Return the usual width of a scene: of the task specification, else the one that positions are scaled for."""
        whole = self.task_spec.extent_m is None and self.crop_m is None
        return 2 * self.chosen.position_scale_m if whole else self.task_spec.extent_m

    def preparer(self) -> PerceiverPreparer:
        """Return what draws atoms and finds the points that queries look at."""
        c, pixel_m = self.chosen, self.task_spec.pixel_m or 0.0
        return PerceiverPreparer(self.task_spec.dense, c.point_tokens, c.max_points, self.crop_m, pixel_m)

    @property
    def crop_m(self) -> float | None:
        """The width of the windows in which maps are learned and read; None where they are read whole."""
        pixels, pixel_m = self.chosen.window_px, self.task_spec.pixel_m
        return None if pixels is None or pixel_m is None or not self.task_spec.dense else pixels * pixel_m

    def predict(self, inputs: Sequence[PerceiverInput | PerceiverWindows]) -> list[Tensor]:
        """Return the outputs for prepared scenes; latents are processed in batches of :data:`TOGETHER`."""
        parts = [part for scene in inputs for part in scene.parts]
        groups = [parts[first : first + TOGETHER] for first in range(0, len(parts), TOGETHER)]
        outputs = iter([output for group in groups for output in self.predict_parts(group)])
        return [scene.joined([next(outputs) for _ in scene.parts]) for scene in inputs]

    def predict_parts(self, inputs: Sequence[PerceiverInput]) -> list[Tensor]:
        """Return the outputs for scenes or windows that are read in one batch."""
        scenes = [replace(scene, atoms=scene.atoms.to(self.device)) for scene in inputs]
        h_BLD = torch.stack([self.reader(scene, self.tokenizer) for scene in scenes])
        for attention, feedforward in zip(self.attentions, self.feedforwards, strict=True):
            h_BLD = h_BLD + attention(h_BLD)
            h_BLD = h_BLD + feedforward(h_BLD)
        if self.decoder is None:
            assert self.head is not None
            return list(self.head(h_BLD.mean(dim=1)))
        pairs = zip(h_BLD, scenes, strict=True)
        return [in_units(self.decoder(h_LD, scene, self.tokenizer), self.task_spec) for h_LD, scene in pairs]

    def flops(self, inputs: Sequence[PerceiverInput | PerceiverWindows]) -> float:
        """Return the FLOPs of all matrix products."""
        return 2.0 * sum(multiplications(self, part) for scene in inputs for part in scene.parts)


def multiplications(model: PerceiverIO, scene: PerceiverInput) -> int:
    """Return how many multiply-adds the matrix products for one scene take."""
    c, tokens = model.chosen, sum(model.tokenizer.parts)
    inner, hidden = c.heads * c.head_dim, (2 + c.gated) * c.width * round(c.width * c.expansion)
    reading = scene.num_atoms * ((tokens + c.position_dim) * 2 * inner + 2 * c.latents * inner)
    reading += c.latents * (2 * c.width * inner + hidden * c.cross_feedforward)
    layers = c.depth * c.latents * (4 * c.width * inner + 2 * c.latents * inner + hidden)
    if scene.queries_M2 is None:
        return reading + layers + c.width * model.task_spec.num_outputs
    per_query = c.position_dim * c.width + 2 * c.width * inner + 2 * c.latents * inner + hidden
    per_query += 4 * c.width**2 + c.width * model.task_spec.num_outputs
    total = reading + layers + len(scene.queries_M2) * per_query + c.latents * c.width * 2 * inner
    if scene.sites_MA is not None:
        value, kind, site = model.tokenizer.parts
        for number, acquisition in scene.points:
            seen, channels = int((scene.sites_MA[:, number] >= 0).sum()), len(acquisition.channels)
            total += (seen * (channels * value + site * bool(acquisition.site_fields)) + channels * kind) * c.width
        total += len(scene.queries_M2) * c.width**2
    return total
