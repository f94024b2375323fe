"""A limit on points concerns the cells only: every point of a point cloud can be queried, and sees itself."""

from __future__ import annotations

import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sample import queries_at
from atomizer_io.data.sensors import AERIAL
from atomizer_io.models.atomizer.flops import InputSize, stages
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.atomizer.reference import Reference
from atomizer_io.models.base import Cost
from scenes import SMALL, points, raster


def model_of(**settings: object) -> aio.AtomizerIO:
    torch.manual_seed(0)
    return aio.create_model("atomizer_io_tiny", **(SMALL | settings)).eval()


def sites_in_cells(geometry: Geometry, step: int = 0) -> set[int]:
    return set(geometry.cells[step].site_N.tolist())


def wire_over_ground() -> aio.AtomSet:
    """Site 0 is a wire 12 m above site 1, the ground; the others lie around."""
    generator = torch.Generator().manual_seed(1)
    around = (torch.rand(60, 3, generator=generator, dtype=torch.float64) - 0.5) * 40.0
    both = torch.tensor([[1.0, 2.0, 12.0], [1.0, 2.0, 0.0]], dtype=torch.float64)
    ones = torch.ones(62, dtype=torch.long)
    return aio.AtomSet.from_points(torch.cat([both, around]), ones, ones)


@pytest.mark.parametrize("sampled", [set(), {0}, {1}], ids=["neither", "the wire", "the ground"])
def test_two_returns_at_one_position_get_different_predictions_whether_sampled_or_not(sampled: set[int]) -> None:
    model, atoms = model_of(), wire_over_ground()
    where, sites = atoms.acquisitions[0].positions[:2], {0: torch.tensor([0, 1])}
    whole = model.geometry(atoms, max_points=10)
    seeds = (torch.Generator().manual_seed(seed) for seed in range(500))
    geometry = next(g for g in (whole.sample(None, s, 10) for s in seeds) if sites_in_cells(g) & {0, 1} == sampled)
    wire, ground = model([atoms], [where], sites=[sites], geometry=[geometry], max_points=10)[0]
    assert (wire - ground).abs().max() > 1e-3


def test_points_are_drawn_anew_with_a_generator_and_equally_without() -> None:
    prepare, point_cloud = model_of(max_points=40).preparer(), points(3)
    queried = queries_at(point_cloud.acquisitions[0].positions)
    generator = torch.Generator().manual_seed(7)
    visits = [sites_in_cells(prepare(point_cloud, queried, Cost(), generator).geometry) for _ in range(3)]
    assert all(len(visit) == 40 for visit in visits)
    assert visits[0] != visits[1] != visits[2]
    again = torch.Generator().manual_seed(7)
    assert visits == [sites_in_cells(prepare(point_cloud, queried, Cost(), again).geometry) for _ in range(3)]
    fixed = [prepare(point_cloud, queried).geometry.cells[0] for _ in range(2)]
    torch.rand(5)  # what else is sampled does not matter
    fixed.append(prepare(point_cloud, queried).geometry.cells[0])
    assert all(torch.equal(fixed[0].order_N, cells.order_N) for cells in fixed[1:])


def test_two_evaluations_agree_to_the_bit() -> None:
    model, point_cloud = model_of(max_points=40), points(3)
    where = point_cloud.acquisitions[0].positions
    first = model([point_cloud], [where])[0]
    torch.rand(3)
    assert torch.equal(first, model([point_cloud], [where])[0])
    prepared = model.preparer()(point_cloud, queries_at(where))
    assert torch.equal(first, model.predict([prepared])[0])
    second = model([point_cloud], [where], generator=torch.Generator().manual_seed(9))[0]
    assert not torch.equal(first, second)


def test_all_points_are_drawn_equally_often() -> None:
    model, point_cloud = model_of(max_points=30), points(3, count=100)
    whole, generator = model.geometry(point_cloud), torch.Generator().manual_seed(0)
    hits = torch.zeros(100)
    for _ in range(300):
        hits[list(sites_in_cells(whole.sample(None, generator, 30)))] += 1
    assert hits.sum() == 9000 and hits.min() > 55 and hits.max() < 130  # 90 expected, standard deviation 8


def test_pixels_are_never_dropped() -> None:
    model = model_of(max_points=10)
    image = raster(4, AERIAL, ("R", "G", "B", "NIR"), (12, 12), 4.0, day=None, holes=0.2)
    geometry = model.encode([image + points(3)]).geometries[0]
    cells = geometry.cells[0]
    assert int((cells.kind_N < 4).sum()) == image.num_atoms
    assert len(cells.site_N[cells.kind_N == 4].unique()) == 10


def test_the_limit_counts_points_over_all_clouds_of_a_time_step() -> None:
    two = points(3, day_of_year=10) + points(4, day_of_year=10)
    assert len(sites_in_cells(model_of(max_points=50).encode([two]).geometries[0])) == 50
    series = points(3, day_of_year=10) + points(4, day_of_year=40)
    geometry = model_of(max_points=50, temporal=True).encode([series]).geometries[0]
    assert [len(sites_in_cells(geometry, step)) for step in (0, 1)] == [50, 50]


def test_all_atoms_of_a_point_stay_together() -> None:
    point_cloud = points(3, values=torch.rand(150, 3) * 200, channels=AERIAL.pick("R", "G", "B"))
    cells = model_of(max_points=20).encode([point_cloud]).geometries[0].cells[0]
    assert cells.site_N.unique(return_counts=True)[1].tolist() == [4] * 20


def test_latents_are_counted_from_the_atoms_that_enter() -> None:
    model, point_cloud = model_of(atoms_per_latent=10), points(3, count=400)
    image = raster(4, names=("B02",), size=(10, 10), gsd=5.0)

    def latents(atoms: aio.AtomSet, **settings: int) -> int:
        return len(model.geometry(atoms, **settings).anchors_L2)

    assert latents(point_cloud, max_points=100) == latents(point_cloud, atoms_per_latent=40) < latents(point_cloud) / 3
    assert latents(point_cloud + image, max_points=100) == latents(
        point_cloud + image, atoms_per_latent=25
    )  # 200 of 500 atoms
    assert latents(point_cloud, max_points=1000) == latents(point_cloud)


def test_a_kept_geometry_is_not_thinned() -> None:
    model, point_cloud = model_of(), points(3)
    prepare, queried = model.preparer(), queries_at(point_cloud.acquisitions[0].positions)
    for most in (20, 150, 60, 20):
        prepared = prepare(point_cloud, queried, Cost(max_points=most), torch.Generator().manual_seed(most))
        assert len(sites_in_cells(prepared.geometry)) == most
        expected = model(
            [point_cloud], [queried.positions], max_points=most, generator=torch.Generator().manual_seed(most)
        )
        assert torch.equal(model.predict([prepared])[0], expected[0])


def test_the_limit_is_kept_with_the_model_and_used_in_training() -> None:
    model = model_of(budget=25)
    model.keep_cost(Cost(max_points=30))
    assert model.config.max_points == 30 and model.settings()["max_points"] == 30
    assert model.training_cost() == Cost(budget=25, max_points=30)
    assert len(sites_in_cells(model.encode([points(3)]).geometries[0])) == 30


def test_reference_and_flops_know_the_limit() -> None:
    model, point_cloud = model_of(max_points=30).double(), points(3)
    where = point_cloud.acquisitions[0].positions[:50]
    torch.testing.assert_close(
        model([point_cloud], [where])[0], Reference(model)([point_cloud], [where])[0], rtol=1e-9, atol=1e-9
    )
    size = InputSize.of(model, point_cloud, 50)
    assert (size.atoms, size.sites) == (30, 30)
    prepared = model.preparer()(point_cloud, queries_at(where))
    assert model.flops([prepared]) == sum(stage.flops for stage in stages(model, size))
