"""What holds for every scene and every model, whatever the weights: the properties the paper claims for the network."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.models.atomizer.encodings import SPECTRAL_DIM, fourier_dim, time_of_year
from atomizer_io.models.atomizer.geometry.anchors import HexLattice
from atomizer_io.models.sites import nearest_anchors
from scenes import SMALL, points, queries, raster

JUNK = (math.nan, math.inf, -math.inf, 0.0, 1e30)  # what may stand where nothing was observed


@cache
def model_of(dtype: torch.dtype = torch.float64, **changes) -> aio.AtomizerIO:
    """A small model whose biases and norms are away from their neutral start; shared, so never change it in place."""
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **(SMALL | changes)).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.to(dtype)


def examples(count: int):
    return settings(derandomize=True, deadline=None, max_examples=count)


def part(kind: str, seed: int, day: int | None, holes: float) -> aio.AtomSet:
    if kind == "optical":
        return raster(seed, size=(6 + seed % 4, 5 + seed % 3), day=day, holes=holes)
    if kind == "radar":
        return raster(seed, SENTINEL1, ("VV", "VH"), (3 + seed % 2, 4), 20.0, day=day, holes=holes)
    point_cloud = points(seed, 70, 45.0, day_of_year=day).acquisitions[0]
    if holes:  # returns of unknown number in their pulse, and of unknown elevation
        generator = torch.Generator().manual_seed(seed)
        values, fields = (
            point_cloud.values.clone(),
            {name: field.clone() for name, field in point_cloud.site_fields.items()},
        )
        values[torch.rand(values.shape, generator=generator) < holes] = math.nan
        for field in fields.values():
            field[torch.rand(field.shape, generator=generator) < holes] = math.nan
        point_cloud = replace(point_cloud, values=values, site_fields=fields)
    return aio.AtomSet((point_cloud,))


PARTS = st.builds(
    part,
    kind=st.sampled_from(["optical", "radar", "points"]),
    seed=st.integers(0, 50),
    day=st.sampled_from([None, 40, 200]),
    holes=st.sampled_from([0.0, 0.4]),
)
SCENES = st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: sum(parts, aio.AtomSet()))
MODELS = st.sampled_from([False, True]).map(lambda temporal: model_of(temporal=temporal))
SEEDS = st.integers(0, 2**16)


def positions_for(atoms: aio.AtomSet, seed: int = 0, count: int = 12) -> Tensor:
    """Positions anywhere, and observed ones (a little beside the centre: on a border two pixels are equal)."""
    sites = torch.cat([acquisition.positions for acquisition in atoms])
    chosen = sites[torch.randperm(len(sites), generator=torch.Generator().manual_seed(seed))[:count]]
    return torch.cat([queries(seed, count, 40.0), chosen + torch.tensor([0.011, -0.013], dtype=torch.float64)])


def assert_same(one: Tensor, second: Tensor, tolerance: float = 1e-9) -> None:
    assert one.isfinite().all() and one.numel()
    torch.testing.assert_close(one, second, rtol=tolerance, atol=tolerance)


def differ(one: Tensor, second: Tensor) -> bool:
    return float((one - second).abs().max()) > 1e-6


def pick(acquisition: aio.Acquisition, sites: Tensor, channels: Tensor) -> aio.Acquisition:
    """Only these sites and channels, in this order."""
    return acquisition.with_sites(sites).with_channels(channels.tolist())


def hide(acquisition: aio.Acquisition, hidden: Tensor, seed: int) -> aio.Acquisition:
    """The same acquisition with ``hidden`` (P, C) marked invalid and junk written there."""
    generator = torch.Generator().manual_seed(seed)
    junk = torch.tensor(JUNK, dtype=acquisition.values.dtype)
    junk = junk[torch.randint(len(JUNK), hidden.shape, generator=generator)]
    return replace(
        acquisition, values=torch.where(hidden, junk, acquisition.values), valid=acquisition.valid_mask() & ~hidden
    )


# Order


@examples(20)
@given(SCENES, MODELS, SEEDS)
def test_order_does_not_matter(atoms: aio.AtomSet, model: aio.AtomizerIO, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def shuffled(count: int) -> Tensor:
        return torch.randperm(count, generator=generator)

    mixed = [pick(a, shuffled(len(a.values)), shuffled(len(a.channels))) for a in atoms]
    mixed = aio.AtomSet(tuple(mixed[i] for i in shuffled(len(mixed)).tolist()))
    where = positions_for(atoms, seed)
    assert_same(model([atoms], [where])[0], model([mixed], [where])[0])


def test_order_does_not_matter_on_the_border_of_two_pixels() -> None:
    """The centres of a 10 m grid lie on the borders of 20 m pixels around the same centre."""
    model, where = model_of(), aio.Grid(3, 3, 10.0).positions()
    atoms = raster(1, size=(3, 3), gsd=20.0)
    backwards = pick(atoms.acquisitions[0], torch.arange(9).flip(0), torch.arange(3))
    assert_same(model([atoms], [where])[0], model([aio.AtomSet((backwards,))], [where])[0])


@examples(8)
@given(SCENES, SEEDS)
def test_order_does_not_matter_to_a_classification(atoms: aio.AtomSet, seed: int) -> None:
    model = model_of(task="classification")
    generator = torch.Generator().manual_seed(seed)
    mixed = [
        pick(
            a,
            torch.randperm(len(a.values), generator=generator),
            torch.randperm(len(a.channels), generator=generator),
        )
        for a in reversed(atoms.acquisitions)
    ]
    assert_same(model([atoms]), model([aio.AtomSet(tuple(mixed))]))


# Missing data


@examples(12)
@given(st.integers(0, 50), st.sampled_from(["B02", "B03", "B08"]), MODELS, st.sampled_from([0.0, 0.4]))
def test_a_dropped_channel_never_existed(seed: int, name: str, model: aio.AtomizerIO, holes: float) -> None:
    with_it = raster(seed, day=40, holes=holes) + part("radar", seed, 200, 0.0)
    acquisition = with_it.acquisitions[0]
    others = [c for c in acquisition.channels if c.name != name]
    columns = [i for i, c in enumerate(acquisition.channels) if c.name != name]
    without = aio.AtomSet.from_raster(acquisition.values.T[columns].reshape(-1, 9, 7), others, 10.0, 40)
    without += part("radar", seed, 200, 0.0)
    hidden = torch.zeros(acquisition.values.shape, dtype=torch.bool)
    hidden[:, [i for i in range(3) if i not in columns]] = True
    masked = aio.AtomSet((hide(acquisition, hidden, seed), with_it.acquisitions[1]))
    where = positions_for(with_it, seed)
    expected = model([without], [where])[0]
    assert_same(model([with_it.drop(name)], [where])[0], expected)
    assert_same(model([masked], [where])[0], expected)
    assert differ(model([with_it], [where])[0], expected)


@examples(20)
@given(SCENES, MODELS, SEEDS, st.sampled_from([0.2, 0.6]))
def test_an_invalid_atom_is_absent(atoms: aio.AtomSet, model: aio.AtomizerIO, seed: int, share: float) -> None:
    """Against a set in which each channel is an acquisition of its own that has only the sites where it was seen."""
    generator = torch.Generator().manual_seed(seed)
    masked, absent = [], []
    for acquisition in atoms:
        hidden = torch.rand(acquisition.values.shape, generator=generator) < share
        hidden[0, 0] &= acquisition is not atoms.acquisitions[0]
        masked.append(hide(acquisition, hidden, seed))
        seen = masked[-1].valid_mask()
        absent += [
            pick(acquisition, seen[:, c].nonzero()[:, 0], torch.tensor([c]))
            for c in range(len(acquisition.channels))
            if seen[:, c].any()
        ]
    if not absent:
        return
    where = positions_for(atoms, seed)
    kept = aio.AtomSet(tuple(absent))
    assert kept.num_atoms == sum(a.num_atoms for a in masked)
    assert_same(model([aio.AtomSet(tuple(masked))], [where])[0], model([kept], [where])[0])


@examples(12)
@given(PARTS, PARTS, PARTS, MODELS, SEEDS)
def test_an_invalid_acquisition_is_absent(
    first: aio.AtomSet, gone: aio.AtomSet, last: aio.AtomSet, model: aio.AtomizerIO, seed: int
) -> None:
    """In a temporal model this may leave a whole time step without observations."""
    gone = aio.AtomSet(tuple(replace(a, day_of_year=120.0) for a in gone))
    hidden = [hide(a, torch.ones(a.values.shape, dtype=torch.bool), seed) for a in gone]
    where = positions_for(first + last, seed)
    masked = first + aio.AtomSet(tuple(hidden)) + last
    assert_same(model([masked], [where])[0], model([first + last], [where])[0])
    assert differ(model([first + gone + last], [where])[0], model([first + last], [where])[0])


def test_an_invalid_time_step_leaves_no_step() -> None:
    model = model_of(temporal=True)
    series = raster(1, day=30) + raster(2, day=90, valid=torch.zeros(9, 7)) + raster(3, day=150)
    assert len(model.geometry(series).cells) == 2
    where = aio.Grid(9, 7, 10.0).positions()
    assert_same(model([series], [where])[0], model([raster(1, day=30) + raster(3, day=150)], [where])[0])


def test_an_invalid_point_does_not_hide_its_neighbour() -> None:
    point_cloud = points(3, 40).acquisitions[0]
    where = point_cloud.positions.clone()
    where[0] = where[1] + torch.tensor([0.02, 0.0])  # both within reach of a query at the first
    point_cloud, hidden = replace(point_cloud, positions=where), torch.zeros(40, 1, dtype=torch.bool)
    hidden[0] = True
    masked, absent = hide(point_cloud, hidden, 0), pick(point_cloud, torch.arange(1, 40), torch.tensor([0]))
    model = model_of()
    assert_same(*(model([aio.AtomSet((a,))], [where[:2]])[0] for a in (masked, absent)))


def test_an_invalid_channel_lends_the_others_no_gsd() -> None:
    fine, coarse = (replace(c, gsd_m=gsd) for c, gsd in zip(SENTINEL2.pick("B02", "B05"), (10.0, 20.0), strict=True))
    source = raster(1, names=("B02", "B05"), size=(4, 4), gsd=20.0).acquisitions[0]
    hidden = torch.zeros(16, 2, dtype=torch.bool)
    hidden[:, 0] = True
    masked = aio.AtomSet((hide(replace(source, channels=(fine, coarse)), hidden, 0),))
    absent = aio.AtomSet((replace(source, channels=(coarse,), values=source.values[:, 1:]),))
    assert masked.bounds == absent.bounds
    model, where = model_of(), queries(0, 30, 70.0)
    assert_same(model([masked], [where])[0], model([absent], [where])[0])


def test_nothing_is_seen_at_a_hole_between_oblong_pixels() -> None:
    values = torch.tensor([[[1000.0, math.nan, 2000.0]]], dtype=torch.float64)
    atoms = aio.AtomSet.from_raster(values, SENTINEL2.pick("B02"), (10.0, 20.0))
    assert atoms.bounds == (-15.0, -10.0, 15.0, 10.0)
    model = model_of()
    explained = model.explain(model.encode([atoms]), [torch.tensor([[-10.0, 0.0], [0.0, 0.0], [10.0, 0.0]])])[0]
    assert explained.here.tolist() == [[1.0], [0.0], [1.0]]


def test_a_field_unknown_everywhere_equals_no_field() -> None:
    point_cloud = points(3, 60).acquisitions[0]
    unknown = {**point_cloud.site_fields, "intensity": torch.full((60,), math.nan)}
    lacking = {name: field for name, field in point_cloud.site_fields.items() if name != "intensity"}
    model, where = model_of(), point_cloud.positions[:20]
    predictions = [
        model([aio.AtomSet((replace(point_cloud, site_fields=fields),))], [where])[0]
        for fields in (unknown, lacking, point_cloud.site_fields)
    ]
    assert_same(predictions[0], predictions[1])
    assert differ(predictions[0], predictions[2])


# Batches and queries


@examples(10)
@given(st.lists(SCENES, min_size=2, max_size=4), MODELS, SEEDS)
def test_batch_companions_do_not_matter(batch: list[aio.AtomSet], model: aio.AtomizerIO, seed: int) -> None:
    where = [positions_for(atoms, seed + i, 5 + i) for i, atoms in enumerate(batch)]
    for atoms, positions, together in zip(batch, where, model(batch, where), strict=True):
        assert_same(together, model([atoms], [positions])[0])


@examples(6)
@given(st.lists(SCENES, min_size=2, max_size=4))
def test_batch_companions_do_not_matter_to_a_classification(batch: list[aio.AtomSet]) -> None:
    model = model_of(task="classification")
    assert_same(model(batch), torch.cat([model([atoms]) for atoms in batch]))


@examples(12)
@given(SCENES, MODELS, SEEDS)
def test_a_subset_of_positions_gets_that_subset_of_the_predictions(
    atoms: aio.AtomSet, model: aio.AtomizerIO, seed: int
) -> None:
    latents = model.encode([atoms])
    grid = aio.Grid(11, 13, 5.0).positions()
    dense = model.decode(latents, [grid])[0]
    order = torch.randperm(len(grid), generator=torch.Generator().manual_seed(seed))
    subset = order[: 1 + seed % len(grid)]
    assert_same(model.decode(latents, [grid[subset]])[0], dense[subset])
    twice = torch.cat([subset, subset.flip(0)])
    assert_same(model.decode(latents, [grid[twice]])[0], dense[twice])
    assert model.decode(latents, [grid[:0]])[0].shape == (0, 3)


# Position


def shifted(atoms: aio.AtomSet, shift: Tensor) -> aio.AtomSet:
    return aio.AtomSet(tuple(replace(a, positions=a.positions + shift) for a in atoms))


SHIFTS = st.tuples(st.floats(-6e6, 6e6), st.floats(-6e6, 6e6)).map(lambda s: torch.tensor(s, dtype=torch.float64))
FAR = torch.tensor([6e6, -5_999_999.7], dtype=torch.float64)


@examples(15)
@given(SCENES, MODELS, SHIFTS)
@example(atoms=part("points", 1, None, 0.0) + part("optical", 2, 40, 0.4), model=model_of(), shift=FAR)
def test_shifting_the_scene_changes_nothing(atoms: aio.AtomSet, model: aio.AtomizerIO, shift: Tensor) -> None:
    where = positions_for(atoms)
    moved = model([shifted(atoms, shift)], [where + shift])[0]
    assert_same(model([atoms], [where])[0], moved, 1e-6)


@examples(10)
@given(SHIFTS, st.sampled_from([10.0, 0.2, 1 / 3]), st.booleans())
@example(shift=FAR, gsd=0.1, by_hand=True)
def test_shifting_aligned_grids_breaks_no_tie(shift: Tensor, gsd: float, by_hand: bool) -> None:
    """Pixels half-way between anchors, and queries half-way between pixels and anchors: rounding must not decide."""
    model = model_of(offset_scale_m=10 * gsd, rope_scale_m=6 * gsd, atoms_per_latent=12)
    atoms = raster(1, size=(12, 12), gsd=gsd) + raster(2, SENTINEL1, ("VV", "VH"), (6, 6), 2 * gsd)
    where = aio.Grid(24, 24, gsd / 2).positions()
    where = torch.cat([where, where + gsd / 4])
    anchors = aio.Grid(6, 6, 2 * gsd).positions() if by_hand else model.geometry(atoms).anchors_L2
    here = model.encode([atoms], anchors=[anchors] if by_hand else None)
    there = model.encode([shifted(atoms, shift)], anchors=[anchors + shift] if by_hand else None)
    cells, moved = here.geometries[0].cells[0], there.geometries[0].cells[0]
    assert torch.equal(cells.start_L1, moved.start_L1) and torch.equal(cells.order_N, moved.order_N)
    if by_hand:  # the pixel grid does tie with these anchors
        sites = atoms.acquisitions[0].positions
        near = torch.cdist(sites, anchors).sort(dim=1).values
        assert (near[:, 1] - near[:, 0] < 1e-9).any() or (near[:, 2] - near[:, 1] < 1e-9).any()
    assert_same(model.decode(here, [where])[0], model.decode(there, [where + shift])[0], 1e-4 if gsd < 1 else 1e-6)


def test_shifting_keeps_one_latent_per_site() -> None:
    """Pixels of two grids that share their centres are one site each, although 0.3 is not three times 0.1."""
    model = model_of(layout="sites", offset_scale_m=1.0, rope_scale_m=1.0)
    atoms = raster(1, size=(5, 5), gsd=0.3) + raster(2, SENTINEL1, ("VV", "VH"), (15, 15), 0.1)
    assert len(model.geometry(atoms).anchors_L2) == 15 * 15
    assert len(model.geometry(shifted(atoms, FAR)).anchors_L2) == 15 * 15


# Latents


@examples(10)
@given(SCENES, st.integers(1, 60), st.integers(61, 5000), st.booleans())
def test_latents_follow_atoms_per_latent_and_parameters_do_not(
    atoms: aio.AtomSet, few: int, many: int, temporal: bool
) -> None:
    fine, coarse = (model_of(temporal=temporal, atoms_per_latent=k) for k in (few, many))
    shapes = [{name: tuple(t.shape) for name, t in model.state_dict().items()} for model in (fine, coarse)]
    assert shapes[0] == shapes[1]
    where = positions_for(atoms)
    steps = len(fine.geometry(atoms).cells)
    counts = []
    for model, k in ((fine, few), (coarse, many)):
        latents = model.encode([atoms])
        expected = math.ceil(atoms.num_atoms / steps / k)
        counts.append(len(latents.features[0]))
        assert abs(counts[-1] - expected) <= max(1, 0.1 * expected)  # as nearly as a lattice allows
        override = fine.encode([atoms], atoms_per_latent=k)  # the same weights at any number of latents
        assert_same(fine.decode(override, [where])[0], model([atoms], [where])[0])
    assert counts[0] >= counts[1]
    if atoms.num_atoms > 2 * few * steps and atoms.num_atoms < many:
        assert counts[0] > counts[1]


# Repetition


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("changes", [{}, {"temporal": True}, {"task": "classification"}], ids=str)
def test_two_evaluations_are_equal_to_the_bit(dtype: torch.dtype, changes: dict) -> None:
    model = model_of(dtype, budget=7, **changes)  # in evaluation whole cells are used all the same
    atoms = [raster(1, size=(40, 40), holes=0.2) + raster(3, day=200), points(2, 400)]
    where = None if changes.get("task") else [queries(1, 500), queries(2, 100, 40.0)]
    torch.manual_seed(1)
    first = model(atoms, where)
    torch.manual_seed(2)
    again = model(atoms, where)
    assert all(torch.equal(one, second) for one, second in zip(first, again, strict=True))
    whole = model_of(dtype, **changes)(atoms, where)
    assert all(torch.equal(one, second) for one, second in zip(first, whole, strict=True))


@examples(8)
@given(SCENES.filter(lambda atoms: atoms.num_atoms > 80), MODELS, SEEDS)
def test_sampled_evaluations_follow_their_seed(atoms: aio.AtomSet, model: aio.AtomizerIO, seed: int) -> None:
    where = positions_for(atoms)
    state = torch.random.get_rng_state()

    def prediction_of(seed: int) -> Tensor:
        return model([atoms], [where], budget=6, generator=torch.Generator().manual_seed(seed))[0]

    assert torch.equal(prediction_of(seed), prediction_of(seed))
    assert differ(prediction_of(seed), prediction_of(seed + 1))
    assert torch.equal(state, torch.random.get_rng_state())  # nobody else's randomness is touched
    whole = model([atoms], [where])[0]
    assert differ(prediction_of(seed), whole)
    assert torch.equal(model([atoms], [where], budget=10**6)[0], whole)


def test_the_budget_of_the_settings_is_for_training() -> None:
    atoms, where = raster(1), aio.Grid(9, 7, 10.0).positions()
    model = model_of(budget=6)
    sampled = model([atoms], [where], budget=6, generator=torch.Generator().manual_seed(3))[0]
    try:
        model.train()
        latents = model.encode([atoms], generator=torch.Generator().manual_seed(3))
        trained = model.decode(latents, [where])[0]
        larger = model.encode([atoms], budget=9, generator=torch.Generator().manual_seed(3))
    finally:
        model.eval()
    assert int(latents.geometries[0].cells[0].counts_L.max()) == 6
    assert int(larger.geometries[0].cells[0].counts_L.max()) == 9
    assert torch.equal(trained, sampled)
    evaluated = model.encode([atoms])
    assert evaluated.geometries[0].cells[0].counts_L.sum() == atoms.num_atoms
    assert differ(trained, model.decode(evaluated, [where])[0])


# Switches


def test_without_rope_the_processor_knows_no_position() -> None:
    generator = torch.Generator().manual_seed(1)
    h_BLD = torch.randn(1, 8, 24, generator=generator, dtype=torch.float64)
    anchors = (torch.rand(1, 8, 2, generator=generator, dtype=torch.float64) - 0.5) * 100
    with_it, without = model_of().processor, model_of(rope=False).processor
    assert torch.equal(without(h_BLD, anchors), without(h_BLD, anchors.flip(1) * 7))
    assert differ(with_it(h_BLD, anchors), with_it(h_BLD, anchors.flip(1)))
    assert set(model_of().state_dict()) - set(model_of(rope=False).state_dict()) == {"processor.angles.log_ratio"}


def test_temporal_steps_are_processed_alone_and_then_aggregated() -> None:
    joint, temporal = model_of(), model_of(temporal=True)
    dates = [raster(seed, day=60 * seed, size=(9, 8)) for seed in (1, 2, 3)]
    series = sum(dates, aio.AtomSet())
    geometry = temporal.geometry(series)
    steps_TLD = temporal.process([series], [geometry])[0]
    assert len(steps_TLD) == 3 and len(joint.geometry(series).cells) == 1
    for step_LD, date in zip(steps_TLD, dates, strict=True):
        alone = temporal.geometry(date, anchors=geometry.anchors_L2 + geometry.center_2)
        assert_same(step_LD, temporal.process([date], [alone])[0][0])
    assert len(geometry.anchors_L2) < len(joint.geometry(series).anchors_L2)  # κ counts the atoms of one step
    added = set(temporal.state_dict()) - set(joint.state_dict())
    assert added and all(name.startswith("temporal.") for name in added)
    where = aio.Grid(9, 8, 10.0).positions()
    assert differ(temporal([series], [where])[0], joint([series], [where])[0])


def test_a_temporal_model_reads_the_order_of_time() -> None:
    """The same images on swapped dates are another series, also where φ_t is the same for all."""
    model = model_of(temporal=True, temporal_scale_days=365.0)
    where = aio.Grid(9, 7, 10.0).positions()

    def series(*days: int) -> aio.AtomSet:
        return sum((raster(seed, day=day) for seed, day in zip((1, 2, 3), days, strict=True)), aio.AtomSet())

    forward = model([series(10, 375, 740)], [where])[0]
    assert differ(forward, model([series(740, 375, 10)], [where])[0])
    assert_same(forward, model([series(375, 740, 1105)], [where])[0])


def test_observation_conditioning_looks_at_the_position_itself() -> None:
    atoms, grid = raster(1), aio.Grid(9, 7, 10.0).positions()
    changed = atoms.acquisitions[0].values.clone()
    changed[17] += 300.0
    second = aio.AtomSet((replace(atoms.acquisitions[0], values=changed),))
    for conditioned in (True, False):
        model = model_of(observation_conditioning=conditioned)
        latents = model.encode([atoms])
        elsewhere = replace(latents, atoms=[second])  # the same latents, another observation at one position
        before, after = model.decode(latents, [grid])[0], model.decode(elsewhere, [grid])[0]
        moved = (before - after).abs().amax(dim=1) > 1e-6
        assert moved.nonzero().flatten().tolist() == ([17] if conditioned else [])
        assert any(name.startswith("decoder.observation.") for name in model.state_dict()) == conditioned


@pytest.mark.parametrize("k", [1, 4, 9])
def test_a_prediction_depends_on_its_k_nearest_latents(k: int) -> None:
    model = model_of(neighbors=k, atoms_per_latent=10)
    latents = model.encode([raster(1)])
    where = queries(4, 1)
    features = latents.features[0].clone().requires_grad_()
    model.decode(replace(latents, features=[features]), [where])[0].square().sum().backward()
    used = features.grad.abs().amax(dim=1) > 0
    distance = (latents.anchors(0) - where).norm(dim=1)
    assert sorted(used.nonzero().flatten().tolist()) == sorted(distance.argsort()[:k].tolist())
    at_k = model_of(atoms_per_latent=10).decode(latents, [where], neighbors=k)[0]
    assert_same(model.decode(latents, [where])[0], at_k)


@examples(8)
@given(SCENES, MODELS)
def test_anchors_by_hand(atoms: aio.AtomSet, model: aio.AtomizerIO) -> None:
    where = positions_for(atoms)
    own = model.encode([atoms])
    given_back = model.encode([atoms], anchors=[own.anchors(0)])  # the search equals the closed form of the lattice
    assert_same(model.decode(own, [where])[0], model.decode(given_back, [where])[0])
    anchors = queries(9, 5, 50.0)
    latents = model.encode([atoms], anchors=[anchors])
    torch.testing.assert_close(latents.anchors(0), anchors)
    assert latents.features[0].shape == (5, 24)
    moved = model.encode([atoms], anchors=[anchors + 4.0])
    assert differ(model.decode(latents, [where])[0], model.decode(moved, [where])[0])


@examples(40)
@given(st.integers(1, 40), st.sampled_from([10.0, 30.0, 60.0, 200.0]), st.sampled_from([20.0, 60.0, 500.0]))
@example(count=3, width=60.0, height=60.0)
@example(count=9, width=90.0, height=30.0)
def test_the_closed_form_of_the_lattice_equals_a_search(count: int, width: float, height: float) -> None:
    lattice = HexLattice.over((-width / 2, -height / 2, width / 2, height / 2), count)
    where = torch.rand(300, 2, generator=torch.Generator().manual_seed(count), dtype=torch.float64) - 0.5
    where = where * torch.tensor([width, height])
    distance = torch.cdist(where, torch.from_numpy(lattice.anchors_L2), compute_mode="donot_use_mm_for_euclid_dist")
    result = torch.from_numpy(lattice.nearest(where.numpy()))
    assert_same(distance.gather(1, result[:, None])[:, 0], distance.amin(dim=1))


@examples(15)
@given(SEEDS, st.integers(1, 12))
def test_nearest_anchors_equal_a_full_sort(seed: int, k: int) -> None:
    """On a lattice full of ties: by distance, those that tie for the last slots by index; in any order."""
    anchors = aio.Grid(5, 4, 2.0).positions()
    where = aio.Grid(9, 7, 1.0).positions()[torch.randperm(63, generator=torch.Generator().manual_seed(seed))[:9]]
    distance = torch.cdist(where, anchors, compute_mode="donot_use_mm_for_euclid_dist")
    expected = (distance.mul(1e5).round() * 100 + torch.arange(20)).argsort(dim=1)[:, :k]
    result = torch.from_numpy(nearest_anchors(where.numpy(), anchors.numpy(), k))
    assert result.sort(dim=1).values.tolist() == expected.sort(dim=1).values.tolist()


# Time


@examples(12)
@given(st.integers(1, 366), st.integers(1, 3), SEEDS)
def test_a_year_later_is_the_same_season(day: int, years: int, seed: int) -> None:
    model, atoms = model_of(), raster(seed, day=day)
    later = aio.AtomSet(tuple(replace(a, day_of_year=day + 365.0 * years) for a in atoms))
    assert_same(*(model.tokenizer.kind_features(scene.acquisitions[0]) for scene in (atoms, later)))
    where = positions_for(atoms)
    assert_same(model([atoms], [where])[0], model([later], [where])[0])
    half = aio.AtomSet(tuple(replace(a, day_of_year=day + 182.0) for a in atoms))
    assert differ(model([atoms], [where])[0], model([half], [where])[0])


def test_a_missing_date_is_zero_and_nothing_else_changes() -> None:
    tokenizer, config = model_of().tokenizer, model_of().config
    dated, undated = (tokenizer.kind_features(raster(1, day=day).acquisitions[0]) for day in (100, None))
    rest = fourier_dim(config.gsd_frequencies) + SPECTRAL_DIM
    assert undated.shape == (3, rest + 2 * config.time_frequencies)
    assert torch.equal(undated[:, rest:], torch.zeros(3, 2 * config.time_frequencies, dtype=torch.float64))
    assert torch.equal(undated[:, :rest], dated[:, :rest])
    expected = time_of_year(torch.tensor(100.0, dtype=torch.float64), config.time_frequencies)
    assert_same(dated[:, rest:], expected.expand(3, -1))


def test_channels_of_one_wavelength_and_of_one_name_are_one() -> None:
    """A sensor is known by what it measures: the same band under another name gives the same prediction."""
    model, where = model_of(), aio.Grid(9, 7, 10.0).positions()
    atoms = raster(1)
    renamed = [replace(c, sensor="other", name=f"band {i}") for i, c in enumerate(SENTINEL2.pick("B02", "B03", "B08"))]
    second = aio.AtomSet.from_raster(atoms.acquisitions[0].values.T.reshape(3, 9, 7), renamed, 10.0, 100)
    assert_same(model([atoms], [where])[0], model([second], [where])[0])


def test_the_last_linear_layer_reads_the_embeddings():
    atoms, model = raster(3), model_of()
    latents, positions = model.encode([atoms]), queries(7)
    (features,) = model.embed(latents, [positions])
    assert features.shape == (30, model.config.width)
    torch.testing.assert_close(model.head.linear(features), model.decode(latents, [positions])[0])
