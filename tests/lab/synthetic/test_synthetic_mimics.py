"""Scenes in the shape of each dataset, and the dataset made of them."""

from __future__ import annotations

import pytest
import torch

from atomizer_io.data.sample import Sample
from atomizer_lab.synthetic import PROBES, SHAPES, scene
from atomizer_lab.synthetic.dataset import Synthetic

SMALL = {"dales": 20, "fractal": 20}
ALL = {**SHAPES, **PROBES}


def small(name: str, seed: int, **more: int) -> Sample:
    return scene(name, seed, SMALL.get(name, 32), **more)


@pytest.mark.parametrize("name", ALL)
def test_the_same_arguments_give_the_same_sample_to_the_bit(name: str) -> None:
    one, two, third = small(name, 5), small(name, 5), small(name, 6)
    assert torch.equal(one.target, two.target)
    for a, b in zip(one.atoms, two.atoms, strict=True):
        assert a.values.numpy().tobytes() == b.values.numpy().tobytes()
        assert torch.equal(a.positions, b.positions) and a.date == b.date
    assert one.atoms.acquisitions[0].values.shape != third.atoms.acquisitions[0].values.shape or not torch.equal(
        one.atoms.acquisitions[0].values, third.atoms.acquisitions[0].values
    )
    assert one.meta.id == f"synthetic-{name}-000005" and one.meta.files == ()


@pytest.mark.parametrize("name", ALL)
def test_channels_classes_and_extent_are_those_of_the_shape(name: str) -> None:
    shape = ALL[name]
    sample = small(name, 1, dates=3)
    known = {(channel.sensor, channel.name) for channel in shape.channels}
    assert {(channel.sensor, channel.name) for channel in sample.atoms.channels} == known
    assert all(c.mean is not None and c.std is not None for c in shape.channels)
    target = sample.target
    if shape.task == "regression":
        assert target.dtype == torch.float32 and not shape.classes and shape.unit
    else:
        assert target.dtype == torch.int64 and int(target.min()) >= -1 and int(target.max()) < len(shape.classes)
    if shape.task == "classification":
        assert sample.queries is None and target.ndim == 0
    else:
        assert sample.queries is not None and len(sample.queries) == len(target)
        assert torch.equal(sample.queries.ignore, target < 0 if shape.classes else target.isnan())
    x0, y0, x1, y1 = sample.atoms.bounds
    width = SMALL.get(name, 32) * (shape.gsd_m or 1.0)
    assert 0.6 * width < x1 - x0 <= width * 1.001 and 0.6 * width < y1 - y0 <= width * 1.001  # less: a swath's edge
    if shape.gsd_m:
        assert all(a.footprint_m == (shape.gsd_m, shape.gsd_m) for a in sample.atoms)


@pytest.mark.parametrize("name", SHAPES)
def test_values_fit_the_statistics_of_their_channels(name: str) -> None:
    samples = [small(name, seed, dates=6) for seed in range(10)]
    for channel in SHAPES[name].channels:
        if channel.name == "elevation":
            continue  # its statistics are chosen, not measured
        parts = []
        for sample in samples:
            for a in sample.atoms:
                at = [i for i, c in enumerate(a.channels) if c.name == channel.name and c.sensor == channel.sensor]
                parts += [a.values[:, i][a.valid_mask()[:, i]] for i in at]
        values = torch.cat(parts)
        assert channel.mean is not None and channel.std is not None
        assert abs(float(values.median()) - channel.mean) < 2 * channel.std, channel.name
        limits = {"sentinel1": (-60, 25), "sentinel2": (1, 16000), "sentinel2_l2a": (1, 16000)}
        low, high = limits.get(channel.sensor, (0, 255))
        if channel.name == "VV-VH":
            low, high = -30, 50
        assert low <= float(values.min()) and float(values.max()) <= high


def test_splits_and_seeds_never_meet() -> None:
    sets = [
        set(Synthetic("eurosat", split, length=99, seed=seed).items)
        for split in ("train", "val", "test")
        for seed in (0, 1)
    ]
    assert len(set().union(*sets)) == sum(map(len, sets)) == 6 * 99
    assert [len(Synthetic("eurosat", split)) for split in ("train", "validation", "test")] == [400, 100, 100]
