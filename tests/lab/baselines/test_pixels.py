"""The pixel regression learns what single pixels tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets import Meta, Sample
from atomizer_io.errors import UnknownChannelError
from atomizer_lab.baselines.pixels import PixelRegression, fitted


def sample(seed: int, holes: bool = False) -> Sample:
    rng = np.random.default_rng(seed)
    target = rng.integers(-1, 2, (12, 12))
    values = rng.normal(1000, 100, (2, 12, 12)).astype(np.float32)
    values[0] += 600 * (target == 1)  # the first band separates the classes, the second does not
    if holes:
        values[0, :6] = np.nan
    atoms = aio.AtomSet.from_raster(values, SENTINEL2.pick("B11", "B02"), 10.0)
    return Sample.of_map(atoms, aio.Grid(12, 12, gsd_m=10.0), target, Meta(str(seed)))


def fit(samples: list[Sample], names: tuple[str, ...] = ("B11", "B02")) -> PixelRegression:
    samples = [replace(s, atoms=s.atoms.select(*names)) for s in samples]
    return fitted(TaskSpec(channels=samples[0].atoms.channels), samples)


def accuracy(model: PixelRegression, held_out: Sample) -> float:
    known = held_out.target >= 0
    atoms = held_out.atoms.select(*(channel.name for channel in model.task_spec.channels))
    (logits,) = model([atoms], [held_out.queries.positions])
    return float((logits.argmax(dim=1) == held_out.target)[known].float().mean())


def test_it_learns_and_does_without() -> None:
    training = [sample(i) for i in range(6)]
    assert accuracy(fit(training), sample(9)) > 0.97
    assert accuracy(fit(training, ("B02",)), sample(9)) < 0.7
    assert 0.6 < accuracy(fit([sample(i, holes=True) for i in range(6)]), sample(9, holes=True)) < 0.95


def test_an_absent_channel_counts_as_its_mean() -> None:
    model, held_out = fit([sample(i) for i in range(6)]), sample(9)
    (without,) = model([held_out.atoms.select("B02")], [held_out.queries.positions])
    usual = held_out.atoms.acquisitions[0].observed().clone()
    usual[:, 0] = model.task_spec.channels[0].mean
    shown = aio.AtomSet.from_raster(usual.T.reshape(2, 12, 12), held_out.atoms.channels, 10.0)
    (meant,) = model([shown], [held_out.queries.positions])
    assert torch.allclose(without, meant, atol=1e-5)


def test_a_channel_it_was_not_made_for_is_refused() -> None:
    held_out = sample(1)
    with pytest.raises(UnknownChannelError, match="sentinel2 B11"):
        PixelRegression(TaskSpec(channels=SENTINEL2.pick("B02"))).preparer()(held_out.atoms, held_out.queries)
