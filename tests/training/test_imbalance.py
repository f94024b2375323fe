"""Classes that are rare: weights counted in windows of clouds, and queries drawn by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
import data as fixtures
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.errors import ConfigError
from atomizer_io.training import config
from atomizer_io.training.build import build, class_weights, inspect
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.data import TrainingSamples, subsampled
from atomizer_io.training.draws import Draw
from scenes import points

COUNTS = {0: 900, 1: 90, 2: 9}


def sample() -> Sample:
    """Points of which class 0 is common, 1 rare and 2 very rare; one has no class."""
    atoms = points(1, count=1000)
    target = np.concatenate([np.full(n, c) for c, n in COUNTS.items()] + [[-1]])
    target = np.random.default_rng(0).permutation(target)
    return Sample.of_points(atoms, atoms.acquisitions[0].positions, target, Meta("p"), {0: torch.arange(1000)})


def found(count: int, sampling: str, seed: int = 0) -> list[int]:
    part = subsampled(sample(), count, torch.Generator().manual_seed(seed), sampling)
    whole, sites = sample(), part.queries.sites[0]
    assert torch.equal(whole.target[sites], part.target) and len(sites.unique()) == len(sites)
    assert torch.equal(whole.queries.positions[sites], part.queries.positions)
    return torch.bincount(part.target, minlength=3).tolist()


def test_queries_by_class_are_as_even_as_can_be() -> None:
    assert found(27, "classes") == [9, 9, 9]
    assert sorted(found(150, "classes")) == [9, 70, 71]
    assert found(300, "classes") == [201, 90, 9]
    assert found(999, "classes") == found(5000, "classes") == [900, 90, 9]
    assert found(1, "classes").count(1) == 1


def test_even_queries_have_the_shares_of_the_sample() -> None:
    drawn = np.array([found(100, "even", seed) for seed in range(40)])
    assert drawn.sum(axis=1).tolist() == [100] * 40 and drawn.mean(axis=0) == pytest.approx([90, 9, 0.9], abs=0.6)


def test_a_run_draws_its_queries_by_its_settings() -> None:
    drawn = TrainingSamples([sample()], TrainingSettings(queries=27, query_sampling="classes"), 0)
    first, second, again = (drawn[Draw(0, epoch, 0, 0)][0] for epoch in (0, 1, 0))
    assert torch.bincount(first.target).tolist() == torch.bincount(second.target).tolist() == [9, 9, 9]
    assert torch.equal(first.queries.sites[0], again.queries.sites[0])
    assert not torch.equal(first.queries.sites[0], second.queries.sites[0])


def test_weights_are_counted_in_windows_of_the_training_clouds(tmp_path: Path) -> None:
    root = fixtures.write("dales", tmp_path / "dales")
    data = aio.datasets.create("dales", root)
    every = sum(torch.bincount(sample.target[sample.target >= 0], minlength=8) for sample in data).double()
    weights = {}
    for kind in ("balanced", "sqrt"):
        run = config.parse({"data": {"name": "dales"}, "training": {"class_weights": kind}})
        weights[kind] = class_weights(run, data, inspect(run, data).statistics).double()
    seen = every > 0
    for kind, power in (("balanced", 1.0), ("sqrt", 0.5)):
        share = weights[kind][seen] * every[seen] ** power
        assert torch.allclose(share, share[0].expand_as(share), rtol=1e-5)
        assert float((weights[kind] * every).sum() / every.sum()) == pytest.approx(1)
        assert bool((weights[kind] > 0).all())


def test_settings_without_meaning_are_refused() -> None:
    with pytest.raises(ConfigError, match="query_sampling"):
        config.parse({"training": {"query_sampling": "odd"}})
    biomass = aio.datasets.create("synthetic", like="biomassters", size=16, length=2)
    run = config.parse({"data": {"name": "synthetic"}, "training": {"query_sampling": "classes"}})
    with pytest.raises(ConfigError, match="a regression target has no classes; use even"):
        build(run, biomass, inspect(run, biomass))
    wrong = config.parse({"data": {"name": "synthetic"}, "training": {"class_weights": "root"}})
    classes = aio.datasets.create("synthetic", size=16, length=2)
    with pytest.raises(ConfigError, match="use none, balanced, sqrt, or a list of"):
        class_weights(wrong, classes, inspect(wrong, classes).statistics)
