"""A query with a footprint sees all that lies in it: pixels of finer rasters and points, as the paper's S_j."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import AERIAL, SENTINEL1
from atomizer_io.decoding.predictor import ScenePredictor
from atomizer_io.errors import QueryError
from atomizer_io.export import scene_inputs
from atomizer_io.export.formats import runner, write
from atomizer_io.export.network import Network
from atomizer_io.models.atomizer.geometry import neighbors as located
from atomizer_io.models.atomizer.geometry.cache import GeometryCache
from atomizer_io.models.atomizer.geometry.neighbors import LocatedQueries, local_queries, seen_sites
from atomizer_io.models.atomizer.ops.kernels import cells
from atomizer_io.models.atomizer.ops.kernels import queries as kernel_queries
from atomizer_io.models.atomizer.ops.kernels.build import available
from atomizer_io.models.atomizer.reference import Reference
from atomizer_io.models.sites import TIE_M, sites_within
from atomizer_io.training.augmentation import rotated
from scenes import SMALL, points, queries, raster

BOTH = pytest.mark.parametrize("deep", [False, True], ids=["raw", "deep"])


def small(**changes: object) -> aio.AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **(SMALL | changes)).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def rgb(seed: int = 4, size: tuple[int, int] = (40, 40), gsd: float = 0.1, holes: float = 0.0) -> aio.AtomSet:
    return raster(seed, AERIAL, ("R", "G", "B"), size, gsd, day=None, holes=holes)


def beside(seed: int = 1) -> aio.AtomSet:
    """Fine and coarse rasters of one area of 4 m, with holes, and a few returns."""
    coarse = raster(seed, size=(4, 4), gsd=1.0, day=None, holes=0.2)
    return coarse + rgb(seed + 1, (20, 20), 0.2, holes=0.3) + points(seed + 2, count=60, extent=4.0)


def seen_by(atoms: aio.AtomSet, where: torch.Tensor, footprint_m: object) -> list[list[set[int]]]:
    """The sites of each acquisition (A) that each query (M) sees."""
    model = small()
    geometry = model.geometry(atoms)
    sites_MA, owners = seen_sites(local_queries(where, geometry), atoms, geometry, None, footprint_m)
    owners = owners or tuple(range(len(atoms)))
    rows = []
    for row in sites_MA.tolist():
        pairs = [(a, site) for a, site in zip(owners, row, strict=True) if site >= 0]
        rows.append([{site for a, site in pairs if a == number} for number in range(len(atoms))])
        assert len(pairs) == sum(map(len, rows[-1])), "no site is seen twice"
    return rows


def test_sites_within_equals_brute_force() -> None:
    rng = np.random.default_rng(0)
    lattice = np.stack(np.meshgrid(np.arange(30) * 0.5, np.arange(30) * 0.5), axis=-1).reshape(-1, 2) - 7
    for trial in range(40):
        sites = lattice if trial % 2 else rng.uniform(-12, 12, (900, 2))
        queried = sites[rng.integers(0, 900, 40)] + 0.25 * (trial % 4 > 1)
        occupied, most = rng.random(900) > 0.2, int(rng.choice([1, 5, 128]))
        size = np.broadcast_to(rng.choice([0.4, 1, 2.5, 3], (40, 1)) if trial % 3 else np.array([2.0]), (40, 2))
        result = sites_within(queried, sites, occupied, size, most)
        for row, centre, wide in zip(result.tolist(), queried, size, strict=True):
            offset = sites - centre + TIE_M
            inside = np.flatnonzero(occupied & (offset >= -wide / 2).all(axis=1) & (offset < wide / 2).all(axis=1))
            order = sorted(inside, key=lambda i: (*np.round(sites[i] / TIE_M), i))
            count = len(order)
            golden = sorted(range(count), key=lambda j: j * 2_654_435_769 % 2**32)[:most]
            order = [order[j] for j in sorted(golden)]
            assert [site for site in row if site >= 0] == order and len(order) == min(count, most)


def test_finer_sites_are_all_seen_and_the_others_as_before() -> None:
    atoms = beside()
    grid = aio.Grid(4, 4, gsd_m=1.0)
    seen, before = (seen_by(atoms, grid.positions(), size) for size in (1.0, None))
    point_cloud, occupied = atoms.acquisitions[2].positions, atoms.acquisitions[1].occupied()
    for centre, now, once in zip(grid.positions(), seen, before, strict=True):
        assert now[0] == once[0] and len(now[0]) <= 1, "as coarse as the footprint: the pixel itself"
        inside = ((atoms.acquisitions[1].positions - centre).abs() <= 0.5).all(dim=1) & occupied
        assert now[1] == set(inside.nonzero()[:, 0].tolist()) and len(now[1]) > 15 and len(once[1]) <= 1
        assert now[2] == set(((point_cloud - centre).abs() <= 0.5).all(dim=1).nonzero()[:, 0].tolist())
    assert seen_by(atoms, grid.positions(), 0.0) == before, "no footprint is a position"


def test_a_footprint_as_large_as_a_pixel_changes_nothing_to_the_bit() -> None:
    model, atoms = small(), raster(1, holes=0.2) + raster(2, SENTINEL1, ("VV", "VH"), (5, 4), 20.0)
    where = aio.Grid(9, 7, 10.0).positions()
    with torch.no_grad():
        plain = model([atoms], [where])[0]
        for size in (0.0, 3.0, 10.0, (10.05, 9.98), torch.full((63, 2), 10.0)):
            assert torch.equal(model([atoms], [where], footprint_m=size)[0], plain)
        assert not torch.equal(model([atoms], [where], footprint_m=30.0)[0], plain)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@BOTH
@pytest.mark.parametrize("most", [128, 7], ids=["all", "capped"])
def test_fast_path_equals_reference(deep: bool, compiled: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled and not available():
        pytest.skip("no C compiler here")
    monkeypatch.setattr(located, "MOST_SITES", most)
    if not compiled:
        monkeypatch.setattr(cells, "usable", lambda *inputs: False)
        monkeypatch.setattr(kernel_queries, "usable", lambda *inputs: False)
    model = small(observation_mlp=deep).double()
    own = torch.rand(25, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    own[:5] = 0  # positions
    batch, where = [beside(1), beside(5)], [queries(1, 25, 7.0), queries(2, 25, 5.0)]  # some see nothing
    for footprint in ((0.9, 1.4), own):
        result = torch.cat(model(batch, where, footprint_m=footprint))
        expected = torch.cat(Reference(model)(batch, where, footprint_m=footprint))
        assert (result - expected).abs().max() < 1e-9
        pull = torch.randn(result.shape, dtype=result.dtype, generator=torch.Generator().manual_seed(1))
        grads = [
            torch.autograd.grad((out * pull).sum(), list(model.parameters()), allow_unused=True)
            for out in (result, expected)
        ]
        for name, one, second in zip(dict(model.named_parameters()), *grads, strict=True):
            one, second = (torch.zeros(1) if grad is None else grad for grad in (one, second))
            assert (one - second).abs().max() < 1e-7, name


@BOTH
def test_every_pixel_in_the_footprint_counts_and_those_outside_only_as_context(deep: bool) -> None:
    """RGB at 0.1 m and a target at 1 m: before, all pixels but those at the centres could be shuffled."""
    model, fine = small(observation_mlp=deep).double(), rgb()
    where = aio.Grid(4, 4, gsd_m=1.0).positions()
    latents = model.encode([fine])

    def predicted(atoms: aio.AtomSet) -> torch.Tensor:
        latents.atoms[0] = atoms  # the context stays: only what is observed at the queries changes
        with torch.no_grad():
            return model.decode(latents, [where], footprint_m=1.0)[0]

    plain = predicted(fine)
    only = fine.acquisitions[0]
    inside_MP = ((only.positions - where[:, None]).abs() < 0.5).all(dim=-1)
    assert (inside_MP.sum(dim=1) == 100).all()
    for site in range(0, 1600, 37):
        values = only.values.clone()
        values[site] += 20.0
        changed = (predicted(aio.AtomSet((replace(only, values=values),))) != plain).any(dim=1)
        assert torch.equal(changed, inside_MP[:, site])
    order = torch.arange(1600)
    for row in inside_MP:  # within a footprint the order does not matter
        numbers = row.nonzero()[:, 0]
        order[numbers] = numbers[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    shuffled = aio.AtomSet((replace(only, values=only.values[order]),))
    assert (predicted(shuffled) - plain).abs().max() < 1e-12


@BOTH
def test_a_return_at_the_centre_of_a_pixel_is_one_of_all_in_it(deep: bool) -> None:
    model = small(observation_mlp=deep).double()
    xy = torch.tensor([[0.0, 0.0], [0.3, 0.1], [-0.4, 0.2], [0.1, -0.45], [0.7, 0.0]], dtype=torch.float64)
    xyz = torch.column_stack([xy, torch.tensor([9.0, 1.0, 2.0, 3.0, 20.0], dtype=torch.float64)])
    here = torch.zeros(1, 2, dtype=torch.float64)

    def observed(point_cloud: torch.Tensor, **how: object) -> torch.Tensor:
        atoms = aio.AtomSet.from_points(point_cloud)
        geometry = model.geometry(atoms)
        seen = model.locate(atoms, geometry, here, **how)
        return Reference(model).observe(Reference(model).tokens(atoms), atoms, seen.sites_MA, seen.owners)

    moved = xyz.clone()
    moved[0, :2] = 0.2  # no longer at the centre
    pooled = observed(xyz, footprint_m=1.0)
    torch.testing.assert_close(pooled, observed(moved, footprint_m=1.0), rtol=0, atol=1e-12)
    assert (observed(xyz) - observed(moved)).abs().max() > 1e-3, "a position sees the return within 5 cm"
    assert (pooled - observed(xyz)).abs().max() > 1e-3
    outside = xyz.clone()
    outside[4, 2] = 1.0
    torch.testing.assert_close(pooled, observed(outside, footprint_m=1.0), rtol=0, atol=1e-12)


def test_named_sites_stay_as_they_are() -> None:
    model, point_cloud = small(), points(1)
    where, sites = point_cloud.acquisitions[0].positions[:40], [{0: torch.arange(40)}]
    with torch.no_grad():
        plain = model([point_cloud], [where], sites=sites)[0]
        assert torch.equal(model([point_cloud], [where], sites=sites, footprint_m=5.0)[0], plain)


@pytest.mark.parametrize("channels, most", [(3, 128), (100, 40)])
def test_the_cap_is_evenly_distributed_and_does_not_depend_on_the_scene(channels: int, most: int) -> None:
    bands = tuple(
        aio.Channel("air", f"b{i}", wavelength_um=0.5 + i / 1000, gsd_m=0.1, mean=0, std=1) for i in range(channels)
    )
    fine = aio.AtomSet.from_raster(torch.zeros(channels, 60, 60), bands, 0.1)
    where = aio.Grid(3, 3, gsd_m=2.0).positions()
    (middle,) = (row[0] for row in seen_by(fine, where[4:5], 2.0))
    assert len(middle) == most
    xy = fine.acquisitions[0].positions[sorted(middle)]
    assert xy.mean(dim=0).abs().max() < 0.15 and (xy.amax(dim=0) - xy.amin(dim=0)).min() > 1.7
    near = (fine.acquisitions[0].positions.abs() < 1.5).all(dim=1)
    part = aio.AtomSet((fine.acquisitions[0].with_sites(near),))
    (again,) = (row[0] for row in seen_by(part, where[4:5], 2.0))
    assert set(near.nonzero()[:, 0][sorted(again)].tolist()) == middle


@BOTH
def test_exported_networks_pool_footprints(deep: bool, tmp_path) -> None:
    model, atoms, where = small(observation_mlp=deep), beside(), queries(1, 25, 6.0)
    inputs = scene_inputs(model, atoms, where, footprint_m=1.0)
    with torch.no_grad():
        expected = model([atoms], [where], footprint_m=1.0)[0]
    torch.testing.assert_close(Network(model)(**inputs), expected, rtol=1e-5, atol=1e-5)
    format = "onnx" if deep else "pt2"
    if format == "onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    run = runner(write(model, tmp_path / f"model.{format}", format).path)
    torch.testing.assert_close(run(inputs), expected, rtol=1e-4, atol=1e-4)


@BOTH
def test_explanations_and_flops_count_all_that_is_seen(deep: bool) -> None:
    model, atoms, grid = small(observation_mlp=deep), beside(), aio.Grid(4, 4, gsd_m=1.0)
    latents = model.encode([atoms])
    where = model.locate(atoms, latents.geometries[0], grid.positions(), footprint_m=1.0)
    result = model.explain(latents, [where])[0]
    assert result.here.shape == (16, 3 + 3 + 1)
    torch.testing.assert_close(result.here.sum(dim=1), torch.ones(16))
    on_grid, at_positions = (ScenePredictor(model, latents, positions) for positions in (grid, grid.positions()))
    assert on_grid.flops(16) > 2 * at_positions.flops(16)
    assert on_grid.observed_MF.shape == at_positions.observed_MF.shape


def test_maps_and_samples_have_the_pixel_as_footprint() -> None:
    model, fine = small(), rgb()
    grid = aio.Grid(4, 4, gsd_m=1.0)
    sample = Sample.of_map(fine, grid, np.zeros((4, 4), int), Meta("a"))
    predictor = ScenePredictor(model, model.encode([fine]), grid)
    prepared = model.preparer()(fine, sample.queries)
    sites_MA, _ = predictor.seen
    assert torch.equal(prepared.located.sites_MA, sites_MA) and sites_MA.shape == (16, 100)
    with torch.no_grad():
        dense = aio.decoding.dense(model, model.encode([fine]), grid).outputs.reshape(16, -1)
        trained = model.predict([prepared])[0].softmax(dim=-1)
    torch.testing.assert_close(dense, trained, rtol=0, atol=1e-6)
    part = sample.queries.part(torch.tensor([3, 1]))
    assert part.footprint_m.tolist() == [1.0, 1.0] and part.grid is None
    long = Sample.of_map(fine, aio.Grid(4, 2, gsd_m=(2.0, 1.0)), np.zeros((4, 2), int), Meta("b"))
    assert rotated(long, 1, flip=False).queries.footprint_m.tolist() == [1.0, 2.0]


def test_kept_geometries_tell_footprints_apart() -> None:
    model, atoms = small(), raster(1, size=(8, 8), gsd=1.0)
    cache, where = GeometryCache(model.config), atoms.acquisitions[0].positions
    for _ in range(3):  # from the third on, pixels are located once and for all
        for size in (None, 3.0, 1.0, torch.full((64, 2), 3.0)):
            result = cache.prepare(atoms, where, footprint_m=size)[1]
            expected = model.locate(atoms, model.geometry(atoms), where, footprint_m=size)
            assert isinstance(result, LocatedQueries) and result.owners == expected.owners
            assert torch.equal(result.sites_MA, expected.sites_MA)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), (1.0, float("inf")), torch.ones(7, 2), torch.ones(3)])
def test_footprints_that_are_none(wrong: object) -> None:
    model, atoms = small(), raster(1)
    with pytest.raises(QueryError, match="a footprint is a size in metres"):
        model.locate(atoms, model.geometry(atoms), queries(1), footprint_m=wrong)
