"""Geometry that is kept is the geometry that would be built."""

from __future__ import annotations

import torch

import atomizer_io as aio
from atomizer_io.models.atomizer.cache import GeometryCache
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
