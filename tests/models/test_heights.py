"""Models that use heights: anchors of three dimensions, and the height of the point that a query names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sample import queries_at
from atomizer_io.data.sensors import AERIAL
from atomizer_io.errors import ConfigError, QueryError
from atomizer_io.models.atomizer.flops import InputSize, stages
from atomizer_io.models.atomizer.geometry.cache import GeometryCache
from atomizer_io.models.base import Cost
from scenes import SMALL, points, raster

HIGH = {"layout": "balanced", "dimensions": 3}


def model_of(**changes: object) -> aio.AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **(SMALL | changes)).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def at_points(cloud: aio.AtomSet) -> tuple[Tensor, dict[int, Tensor]]:
    where = cloud.acquisitions[0].positions
    return where, {0: torch.arange(len(where))}


def lifted(cloud: aio.AtomSet, change: Callable[[Tensor], Tensor], **more: object) -> aio.AtomSet:
    """Points at the same x and y, at other heights."""
    z = change(heights(cloud))
    return aio.AtomSet.from_points(torch.column_stack([cloud.acquisitions[0].positions, z]), datum_m=0.0, **more)


def heights(cloud: aio.AtomSet) -> Tensor:
    found = cloud.acquisitions[0].heights_m
    assert found is not None
    return found.double()


# --- anchors of three dimensions ---


def test_storeys_have_latents_of_their_own() -> None:
    """Ground and roof over the same places: seen from above they share cells, in three dimensions they do not."""
    plan = (torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.5) * 10
    storeys = [torch.column_stack([plan, torch.full((200,), z, dtype=torch.float64)]) for z in (0.0, 50.0)]
    cloud = aio.AtomSet.from_points(torch.cat(storeys))

    def mixed(**settings: object) -> int:
        cells = model_of(**settings, atoms_per_latent=40).geometry(cloud).cells[0]
        upper = (cells.site_N >= 200).split(cells.counts_L.tolist())
        return sum(bool(part.any() and not part.all()) for part in upper)

    assert mixed(layout="balanced") == 10
    assert mixed(**HIGH) == 0


def test_a_query_reads_the_latents_at_its_own_height() -> None:
    cloud, model = points(3, count=400), model_of(**HIGH, neighbors=3)
    where, sites = at_points(cloud)
    latents = model.encode([cloud])
    located = model.locate(cloud, latents.geometries[0], where, sites=sites)
    xyz = torch.column_stack([where, heights(cloud)])
    distance = torch.cdist(xyz, latents.anchors(0), compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.equal(located.near.latents_Mk, distance.topk(3, largest=False).indices)
    below = model.locate(cloud, latents.geometries[0], where)  # names no point: on the ground
    assert (below.near.queries_MX[:, 2] == 0).all() and below.heights_M.isnan().all()


def test_heights_matter_in_three_dimensions_only() -> None:
    cloud = points(3)
    higher = lifted(cloud, lambda z: torch.where(z > 10, z * 5, z))
    flat, high = model_of(layout="balanced"), model_of(**HIGH)
    assert torch.equal(flat.geometry(cloud).cells[0].order_N, flat.geometry(higher).cells[0].order_N)
    assert torch.equal(flat.geometry(cloud).anchors_LX, flat.geometry(higher).anchors_LX)
    assert not torch.equal(high.geometry(cloud).cells[0].order_N, high.geometry(higher).cells[0].order_N)
    where, sites = at_points(cloud)
    ask = {"geometry": [high.geometry(cloud)], "sites": [sites]}
    one, other = high([cloud], [where], **ask)[0], high([cloud], [where], geometry=ask["geometry"])[0]
    assert (one - other).abs().max() > 1e-3  # at its own height, and on the ground


def test_sites_without_a_height_are_on_the_ground() -> None:
    cloud, model = points(3), model_of(**HIGH, query_height=True)
    colour = {"values": torch.rand(150, 1) * 200, "channels": AERIAL.pick("R")}
    unknown = lifted(cloud, lambda z: torch.full_like(z, torch.nan), **colour)
    image = raster(1, size=(5, 5))
    assert torch.equal(model.geometry(unknown).anchors_LX[:, 2], torch.zeros(4, dtype=torch.float64))
    assert (model.geometry(image).anchors_LX[:, 2] == 0).all()
    for atoms in (unknown, image):
        where, sites = at_points(atoms)
        located = model.locate(atoms, model.geometry(atoms), where, sites=sites)
        assert (located.near.queries_MX[:, 2] == 0).all() and located.heights_M.isnan().all()
        assert model([atoms], [where], sites=[sites])[0].isfinite().all()


def test_the_first_acquisition_that_knows_a_height_counts() -> None:
    cloud, other = points(3), lifted(points(4), lambda z: z + 100)
    atoms = raster(1, size=(5, 5)) + cloud + other
    sites = {2: torch.tensor([7, 7, -1]), 1: torch.tensor([4, -1, -1]), 0: torch.tensor([1, 1, 1])}
    model = model_of(**HIGH)
    where = torch.zeros(3, 2, dtype=torch.float64)
    found = model.locate(atoms, model.geometry(atoms), where, sites=sites).heights_M
    assert found[:2].tolist() == [float(heights(cloud)[4]), float(heights(other)[7])] and found[2].isnan()


@pytest.mark.parametrize("observing", [True, False])
def test_sites_that_do_not_exist_are_refused(observing: bool) -> None:
    model, cloud = model_of(**HIGH, observation_conditioning=observing), points(3)
    with pytest.raises(QueryError, match="site 150 of acquisition 0 does not exist"):
        model([cloud], [torch.zeros(1, 2)], sites=[{0: torch.tensor([150])}])


def test_layouts_without_heights_are_refused() -> None:
    for layout in ("hexagonal", "sites"):
        with pytest.raises(ConfigError, match=f"{layout!r} has no heights.*layout='balanced'"):
            model_of(dimensions=3, layout=layout)
    with pytest.raises(ConfigError, match="dimensions must be 2 or 3, got 4"):
        model_of(dimensions=4, layout="balanced")
    with pytest.raises(ConfigError, match="self_head_dim must be even and at least 6"):
        model_of(**HIGH, self_head_dim=4)
    with pytest.raises(ConfigError, match=r"anchors have shape \(5, 2\), expected \(latents, 3\)"):
        model_of(**HIGH).encode([points(1)], anchors=[torch.zeros(5, 2)])


# --- the height of the query itself ---


def test_a_new_model_answers_as_without_the_setting() -> None:
    cloud = points(3)
    where, sites = at_points(cloud)
    torch.manual_seed(0)
    plain = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    model = aio.create_model("atomizer_io_tiny", **SMALL, query_height=True).eval()
    extra = model.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert extra == [f"decoder.height.{layer}.{name}" for layer in ("up", "down") for name in ("weight", "bias")]
    assert torch.equal(model([cloud], [where], sites=[sites])[0], plain([cloud], [where], sites=[sites])[0])


def test_the_height_is_that_of_the_named_point_and_nothing_where_there_is_none() -> None:
    cloud, model = points(3), model_of(query_height=True, observation_conditioning=False)
    where, sites = at_points(cloud)
    sites[0][::3] = -1
    named = sites[0] >= 0
    before = model([cloud], [where], sites=[sites])[0]
    with torch.no_grad():
        model.decoder.height.down.weight += 0.5
        model.decoder.height.down.bias += 0.5
    after = model([cloud], [where], sites=[sites])[0]
    assert torch.equal(before[~named], after[~named])
    assert ((before - after).abs().amax(dim=1) > 0)[named].all()
    one_place = torch.zeros(2, 2, dtype=torch.float64)  # nothing but the height tells these two apart
    low, high = model([cloud], [one_place], sites=[{0: heights(cloud).argsort()[[0, -1]]}])[0]
    assert (low - high).abs().max() > 1e-3


def test_the_height_learns() -> None:
    torch.manual_seed(0)
    model, cloud = aio.create_model("atomizer_io_tiny", **SMALL, query_height=True), points(3)
    where, sites = at_points(cloud)
    model([cloud], [where], sites=[sites])[0].square().sum().backward()
    assert model.decoder.height.down.weight.grad.abs().max() > 0


def test_operations_and_parameters_count_the_height() -> None:
    plain, model = model_of(), model_of(query_height=True)
    numbers = 33 * 24 + 24 + 24 * 24 + 24
    assert model.num_parameters == plain.num_parameters + numbers
    size = InputSize.of(model, points(3), 150)
    more, less = (next(s for s in stages(m, size) if s.name == "decoder") for m in (model, plain))
    assert more.flops - less.flops == more.literal_flops - less.literal_flops == 2 * 150 * (33 * 24 + 24 * 24)
    assert more.parameters - less.parameters == numbers


# --- both ---


@pytest.mark.parametrize("settings", [HIGH, {"query_height": True}, HIGH | {"query_height": True, "max_points": 40}])
def test_prepared_kept_and_saved_models_answer_alike(settings: dict[str, object], tmp_path) -> None:
    model, cloud = model_of(**settings), points(3) + raster(1, size=(5, 5))
    where, sites = at_points(cloud)
    expected = model([cloud], [where], sites=[sites])[0]
    prepare = model.preparer()
    for _ in range(2):
        assert torch.equal(model.predict([prepare(cloud, queries_at(where, sites), Cost())])[0], expected)
    model.save_pretrained(tmp_path)
    assert torch.equal(aio.load_model(tmp_path)([cloud], [where], sites=[sites])[0], expected)


@pytest.mark.parametrize("settings", [HIGH, {"query_height": True}])
def test_scenes_at_other_heights_are_other_scenes(settings: dict[str, object]) -> None:
    model, cloud = model_of(**settings), lifted(points(3), lambda z: z)
    where, sites = at_points(cloud)
    other, cache = lifted(cloud, lambda z: z + 30 * (z > 10)), GeometryCache(model.config)
    for atoms in (cloud, other, cloud):
        geometry, located = cache.prepare(atoms, where, sites=sites)
        assert torch.equal(located.heights_M, heights(atoms))
        answer = model([atoms], [located], geometry=[geometry])[0]
        assert torch.equal(answer, model([atoms], [where], sites=[sites])[0])
    flat = GeometryCache(model_of().config)
    assert flat.geometry(cloud) is flat.geometry(other)


def test_decoding_uses_the_heights() -> None:
    from atomizer_io.decoding.scene_decoder import SceneDecoder

    model, cloud = model_of(**HIGH, query_height=True, max_points=60), points(3)
    where, sites = at_points(cloud)
    predictor = SceneDecoder(model).predictor(cloud, where, sites=sites)
    probabilities = predictor.query_all().probabilities
    expected = model([cloud], [where], sites=[sites])[0].softmax(dim=-1)
    torch.testing.assert_close(torch.as_tensor(probabilities).reshape(expected.shape), expected, rtol=0, atol=1e-6)
    shares = predictor.attention([("lidar", "elevation")])
    assert shares.shape == (150, 1) and ((shares > 0.99) & (shares < 1.01)).all()
