"""Geometry that is kept is the geometry that would be built."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.datasets import Meta, Sample
from atomizer_io.models.atomizer.geometry import cache as module
from atomizer_io.models.atomizer.geometry.cache import GeometryCache
from atomizer_io.models.atomizer.geometry.raster import Raster
from atomizer_io.training.augmentation import rotated
from scenes import SMALL, queries, raster


def test_a_grid_seen_before_is_not_built_again() -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    cache = GeometryCache(model.config)
    first, again, holes = raster(1), raster(2, day=7), raster(3, holes=0.5)
    positions = queries(1)
    geometry = cache.geometry(first)
    assert cache.geometry(again) is geometry  # other values, same sites
    assert cache.geometry(holes) is not geometry  # other atoms exist
    assert cache.geometry(first, atoms_per_latent=7) is not geometry
    assert cache.geometry(raster(1, gsd=20.0)) is not geometry
    located = cache.locate(first, positions)
    assert cache.locate(again, positions) is located
    assert cache.locate(again, positions + 1) is not located
    kept = model([again], [located], geometry=[geometry])[0]
    assert torch.equal(kept, model([again], [positions])[0])


def test_what_was_used_longest_ago_is_forgotten() -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    cache = GeometryCache(model.config, entries=2)
    scenes = [raster(1, size=(4, 4 + i)) for i in range(3)]
    kept = [cache.geometry(scene) for scene in scenes[:2]]
    assert cache.geometry(scenes[0]) is kept[0]
    cache.geometry(scenes[2])
    assert cache.geometry(scenes[0]) is kept[0]
    assert cache.geometry(scenes[1]) is not kept[1]


def test_time_steps_are_part_of_a_scene() -> None:
    model = aio.create_model("atomizer_io_tiny", temporal=True, **SMALL).eval()
    cache = GeometryCache(model.config)
    series = raster(1, day=10) + raster(2, day=40)
    same_day = raster(1, day=10) + raster(2, day=10)
    assert len(cache.geometry(series).cells) == 2
    assert len(cache.geometry(same_day).cells) == 1


def test_years_are_part_of_a_series() -> None:
    model = aio.create_model("atomizer_io_tiny", temporal=True, **SMALL).eval()
    cache = GeometryCache(model.config)
    apart = raster(1, day="2018-05-01") + raster(2, day="2019-05-01")
    together = raster(1, day="2019-05-01") + raster(2, day="2019-05-01")
    assert [len(cache.geometry(scene).cells) for scene in (apart, together)] == [2, 1]
    early = raster(1, day="2018-12-30") + raster(2, day="2019-01-10")
    late = raster(1, day="2019-12-30") + raster(2, day="2019-01-10")
    for scene in (early, late):
        kept, built = cache.geometry(scene), model.geometry(scene)
        assert all(torch.equal(a.order_N, b.order_N) for a, b in zip(kept.cells, built.cells, strict=True))


def moved(atoms: aio.AtomSet, shift: torch.Tensor) -> aio.AtomSet:
    return aio.AtomSet(tuple(a.moved(a.positions + shift) for a in atoms))


def test_an_equal_grid_elsewhere_is_not_built_again() -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    cache, scene, shift = GeometryCache(model.config), raster(1), torch.tensor([1280.0, -40.0], dtype=torch.float64)
    where = (queries(1) * 8).round() / 8  # so that no sum is rounded
    here, located = cache.prepare(scene, where)
    there, again = cache.prepare(moved(scene, shift), where + shift)
    assert there.cells is here.cells and again is located
    assert torch.equal(there.center_2, here.center_2 + shift)
    kept = model([moved(scene, shift)], [again], geometry=[there])[0]
    assert torch.equal(kept, model([moved(scene, shift)], [where + shift])[0])


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("rotations", [0, 1, 2, 3])
def test_pixels_are_located_once_as_many_queries_were(rotations: int, flip: bool) -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    grid = aio.Grid(9, 7, 10.0)
    atoms = raster(1, size=(9, 7), holes=0.2) + raster(2, size=(3, 3), gsd=30.0)
    sample = rotated(Sample.of_map(atoms, grid, np.zeros((9, 7), dtype=np.int64), Meta("a")), rotations, flip)
    assert sample.queries is not None
    cache = GeometryCache(model.config)
    generator = torch.Generator().manual_seed(0)
    draws = [sample.queries.positions[torch.randperm(63, generator=generator)[:32]] for _ in range(5)]
    with mock.patch.object(module, "locate", wraps=module.locate) as locating:
        result = [cache.prepare(sample.atoms, where)[1] for where in draws]
        assert locating.call_count == 3  # twice 32 queries, then all 63 pixels
    geometry = model.geometry(sample.atoms)
    for where, located in zip(draws, result, strict=True):
        expected = model.locate(sample.atoms, geometry, where)
        assert torch.equal(located.latents_Mk, expected.latents_Mk)
        assert torch.equal(located.queries_M2, expected.queries_M2)
        assert torch.equal(located.sites_MA, expected.sites_MA)
        located.check(geometry, 0)


def test_queries_beside_pixels_are_located_as_ever() -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    cache, scene = GeometryCache(model.config), raster(1, size=(5, 4))
    for shift in (0.0, 0.0, 0.0, 1.0, 1e-9):
        where = aio.Grid(5, 4, 10.0).positions() + shift
        expected = model.locate(scene, model.geometry(scene), where)
        located = cache.prepare(scene, where)[1]
        torch.testing.assert_close(located.queries_M2, expected.queries_M2, rtol=0, atol=1e-12)
        assert torch.equal(located.sites_MA, expected.sites_MA)


def test_what_is_no_raster() -> None:
    grid = aio.Grid(3, 4, 10.0).positions()
    assert Raster.of(grid) is not None
    assert Raster.of(grid[:3]) is None
    assert Raster.of(grid[:-1]) is None
    assert Raster.of(grid[:4]) is None  # one row
    assert Raster.of(grid[torch.randperm(12, generator=torch.Generator().manual_seed(0))]) is None
    result = Raster.of(grid)
    assert result is not None
    assert result.index(grid[[5, 0]]).tolist() == [5, 0]
    for beside in ([[0.0, 0.0]], [[500.0, 0.0]], [[0.0, 500.0]], [[-500.0, 0.0]]):
        assert result.index(torch.tensor(beside, dtype=torch.float64)) is None
