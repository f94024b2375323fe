"""A linear model of what was observed at a position: what can be predicted without its surroundings.

Shapes: M queries, C channels of the task specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Queries, Sample
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Capabilities, Cost, Model, Preset, in_units
from atomizer_io.models.settings import settings_from
from atomizer_io.models.sites import seen_sites
from atomizer_lab.baselines.rasterise import slots_of, standardised


@dataclass(frozen=True, slots=True)
class NoSettings:
    """A linear model has no settings."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Prepares a sample: the standardised values (M, C) that queries see, NaN where absent; their means for a scene."""

    channels: tuple[Channel, ...]

    def __call__(
        self, atoms: AtomSet, queries: Queries | None, cost: Cost = Cost(), generator: torch.Generator | None = None
    ) -> Tensor:
        """Look up what was observed, the mean over dates where a channel was observed more than once."""
        slots = slots_of(atoms, self.channels)
        rows = 1 if queries is None else len(queries)
        total, count = torch.zeros(rows, len(slots)), torch.zeros(rows, len(slots))
        for number, acquisition in enumerate(atoms):
            columns = [slots[channel.sensor, channel.name] for channel in acquisition.channels]
            values_PC = standardised(acquisition, [self.channels[column] for column in columns])
            if queries is None:
                found_MC = values_PC.nanmean(dim=0, keepdim=True)
            else:
                site_M = seen_sites(acquisition, number, queries)
                found_MC = torch.where((site_M >= 0)[:, None], values_PC[site_M.clamp(min=0)], torch.nan)
            known = found_MC.isfinite()
            total[:, columns] += found_MC.nan_to_num(0.0).float()
            count[:, columns] += known
        return torch.where(count > 0, total / count.clamp(min=1), torch.nan)


class PixelRegression(Model):
    """A logistic regression (linear for a regression target) of standardised values; an absent value is its mean."""

    family = "pixels"
    capabilities = Capabilities(points=True)
    presets: ClassVar = {"pixels": Preset()}

    def __init__(self, task_spec: TaskSpec, preset: str | None = None) -> None:
        super().__init__(task_spec, preset)
        self.linear = nn.Linear(max(1, len(task_spec.channels)), task_spec.num_outputs)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    @classmethod
    def build(cls, task_spec: TaskSpec, settings: Mapping[str, Any], preset: str | None = None) -> Self:
        """Return a regression with weights of zero."""
        settings_from(NoSettings, settings)
        return cls(task_spec, preset)

    def settings(self) -> dict[str, Any]:
        """Return nothing: there is nothing to set."""
        return {}

    def preparer(self) -> Observed:
        """Return what looks up the values at the queries."""
        if not self.task_spec.channels:
            raise ConfigError("a pixel regression has one input per channel: create it with channels=")
        return Observed(self.task_spec.channels)

    def predict(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the linear function of the standardised values."""
        outputs = [in_units(self.linear(self.filled(values_MC)), self.task_spec) for values_MC in inputs]
        return outputs if self.task_spec.dense else [output[0] for output in outputs]

    def flops(self, inputs: Sequence[Tensor]) -> float:
        """Return the FLOPs of the matrix product."""
        return sum(2.0 * len(values) * self.linear.in_features * self.linear.out_features for values in inputs)

    def filled(self, values_MC: Tensor) -> Tensor:
        """Return the values as the linear layer takes them, zero, which is the mean, where absent."""
        return values_MC.nan_to_num(0.0).to(self.linear.weight)


def fitted(task_spec: TaskSpec, samples: Iterable[Sample]) -> PixelRegression:
    """Return the best logistic regression of the pixels of ``samples``, found without steps or a learning rate.

    It is standardised by the pixels it is fitted to.
    """
    plain = tuple(replace(channel, mean=0.0, std=1.0) for channel in task_spec.channels)
    prepare = Observed(plain)
    pairs = [(prepare(sample.atoms, sample.queries), sample.target) for sample in samples]
    x, y = torch.cat([values for values, _ in pairs]), torch.cat([target for _, target in pairs])
    x, y = x[y >= 0], y[y >= 0]
    mean_C = x.nanmean(dim=0)
    std_C = (x - mean_C).square().nanmean(dim=0).sqrt().clamp(min=1e-6)
    statistics = zip(plain, mean_C.tolist(), std_C.tolist(), strict=True)
    measured = tuple(replace(channel, mean=mean, std=std) for channel, mean, std in statistics)
    model = PixelRegression(task_spec.replace(channels=measured))
    standard = model.filled((x - mean_C) / std_C)
    optimizer = torch.optim.LBFGS(model.linear.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(model.linear(standard), y)
        value.backward()
        return value

    optimizer.step(loss)
    return model.eval()
