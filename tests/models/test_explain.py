"""The attention that each channel received, against the same attention computed literally, token by token."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL1
from atomizer_io.errors import QueryError
from atomizer_io.models.atomizer.explain import Explanation
from atomizer_io.models.atomizer.geometry.neighbors import local_queries, seen_sites
from atomizer_io.models.atomizer.latents import Latents
from atomizer_io.models.atomizer.ops import attention, memory
from atomizer_io.models.atomizer.reference import Reference, rotation_of
from atomizer_io.models.atomizer.temporal import time_steps
from scenes import SMALL, far_anchors, points, queries, raster


def build(**changes) -> aio.AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **(SMALL | changes)).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def series() -> aio.AtomSet:
    return raster(1, day=40, holes=0.3) + raster(2, day=120) + raster(3, SENTINEL1, ("VV", "VH"), (5, 4), 20.0, day=120)


def alphas(layer: nn.Module, query_D: Tensor, context_nX: Tensor) -> Tensor:
    """softmax(q·k/√E) of one query over n tokens, averaged over heads: (n,)."""
    q_HE = layer.query(query_D).reshape(layer.heads, layer.head_dim)
    k_nHE = layer.key(context_nX).reshape(-1, layer.heads, layer.head_dim)
    logits_nH = torch.stack([(k_HE * q_HE).sum(dim=-1) for k_HE in k_nHE]) / math.sqrt(layer.head_dim)
    return logits_nH.softmax(dim=0).mean(dim=1)


def kinds(atoms: aio.AtomSet) -> Tensor:
    """The column of every valid atom, in natural order: (N,)."""
    columns, first = [], 0
    for acquisition in atoms:
        columns.append(acquisition.valid_mask().nonzero()[:, 1] + first)
        first += len(acquisition.channels)
    return torch.cat(columns)


def literal_here(model: aio.AtomizerIO, latents: Latents, where: Tensor) -> Tensor:
    atoms, geometry = latents.atoms[0], latents.geometries[0]
    f_NF, kind_N = Reference(model).tokens(atoms), kinds(atoms)
    site_N = torch.cat([a.valid_mask().nonzero()[:, 0] for a in atoms])
    acquisition_N = torch.cat([torch.full((a.num_atoms,), i) for i, a in enumerate(atoms)])
    sites_MA = seen_sites(local_queries(where, geometry), atoms, geometry, None, None)[0]
    here_MK = torch.zeros(len(where), int(kind_N.max()) + 1, dtype=torch.float64)
    layer = model.decoder.observation
    for row, seen_A in zip(here_MK, sites_MA, strict=True):
        chosen = (seen_A[acquisition_N] == site_N).nonzero()[:, 0]
        if len(chosen):
            if model.config.observation_mlp:
                weights = layer.logit(gelu(layer.first(f_NF[chosen]))).softmax(dim=0).mean(dim=1)
            else:
                weights = alphas(layer, layer.norm(model.decoder.q_init), f_NF[chosen])
            row.index_add_(0, kind_N[chosen], weights)
    return here_MK


def literal_shares(model: aio.AtomizerIO, latents: Latents) -> Tensor:
    """Share of each kind in each cell of each time step: (T, L, K)."""
    atoms, geometry = latents.atoms[0], latents.geometries[0]
    reference, encoder = Reference(model), model.encoder
    f_NF, kind_N = reference.tokens(atoms), kinds(atoms)
    position_S2 = reference.positions(atoms, geometry)
    latents_count = len(geometry.anchors_L2)
    shares_TLK = torch.zeros(len(geometry.cells), latents_count, int(kind_N.max()) + 1, dtype=torch.float64)
    for step, cells in enumerate(geometry.cells):
        for cell in range(latents_count):
            rows = slice(int(cells.start_L1[cell]), int(cells.start_L1[cell + 1]))
            if rows.start == rows.stop:
                continue
            delta = position_S2[cells.site_N[rows].long()] - geometry.anchors_L2[cell]
            x = torch.cat([f_NF[cells.order_N[rows]], reference.offsets(delta)], dim=-1)
            z = encoder.attention.second(gelu(encoder.attention.first(x)))
            weight = alphas(encoder.attention, encoder.norm(encoder.h_init), z)
            shares_TLK[step, cell].index_add_(0, kind_N[cells.order_N[rows]], weight)
    return shares_TLK


def literal_steps(model: aio.AtomizerIO, latents: Latents) -> Tensor:
    """How the aggregate of each anchor attends to the steps, its own token aside: (T, L)."""
    module, days_T = model.temporal, time_steps(latents.atoms[0])[1]
    h_TLD = model.process(latents.atoms, latents.geometries)[0]
    steps, latents_count, _ = h_TLD.shape
    rotation_Te = rotation_of(module.angles, days_T[:, None], steps + 1)
    layer, out = module.attention, []
    for latent in range(latents_count):
        x = layer.norm(torch.cat([h_TLD[:, latent], module.token[None]]))
        q, k, _ = layer.qkv(x).unflatten(-1, (3, layer.heads, layer.head_dim)).unbind(1)
        q, k = (torch.view_as_complex(w.unflatten(-1, (-1, 2)).contiguous()) * rotation_Te[:, None] for w in (q, k))
        logits_TH = (q[-1] * k.conj()).real.sum(dim=-1) / math.sqrt(layer.head_dim)
        weights_T = logits_TH.softmax(dim=0).mean(dim=1)[:-1]
        out.append(weights_T / weights_T.sum())
    return torch.stack(out, dim=1)


def literal_around(model: aio.AtomizerIO, latents: Latents, where: Tensor) -> Tensor:
    geometry, reference = latents.geometries[0], Reference(model)
    shares_TLK = literal_shares(model, latents)
    if model.temporal is None:
        shares_LK = shares_TLK[0]
    else:
        shares_LK = (literal_steps(model, latents)[..., None] * shares_TLK).sum(dim=0)
    local_M2 = where - geometry.center_2
    sites_MA = seen_sites(local_M2.numpy(), latents.atoms[0], geometry, None, None)[0]
    q_MD = reference.observe(reference.tokens(latents.atoms[0]), latents.atoms[0], sites_MA)
    layer, around = model.decoder.latent, []
    for query_2, q_D in zip(local_M2, q_MD, strict=True):
        delta_L2 = geometry.anchors_L2 - query_2
        near = delta_L2.norm(dim=1).argsort()[: model.config.neighbors]
        context = torch.cat([layer.context_norm(latents.features[0][near]), reference.offsets(delta_L2[near])], dim=-1)
        around.append(alphas(layer, layer.norm(q_D), context) @ shares_LK[near])
    return torch.stack(around)


CASES = {
    "joint": (series, {}, None),
    "temporal": (series, {"temporal": True}, None),
    "points and image": (lambda: points(3) + raster(4, size=(5, 5)), {}, None),
    "a layer before observations": (lambda: points(3) + raster(4, size=(5, 5)), {"observation_mlp": True}, None),
    "points sampled": (lambda: points(3) + raster(4, size=(5, 5)), {"max_points": 40}, None),
    "few neighbours": (series, {"neighbors": 2, "atoms_per_latent": 25}, None),
    "empty cells": (lambda: raster(1), {}, far_anchors()),
}


@pytest.mark.parametrize("name", CASES)
def test_explanations_equal_the_literal_attention(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CPU_BLOCK_BYTES", 100_000)  # many blocks, and cells cut into segments
    monkeypatch.setattr(attention, "LONGEST_SEGMENT", 16)
    scene, changes, anchors = CASES[name]
    model, atoms = build(**changes), scene()
    latents = model.encode([atoms], anchors=[anchors])
    sites = atoms.acquisitions[0].positions[:15]
    where = torch.cat([queries(5, 15, 40.0), sites + torch.tensor([0.011, -0.013])])
    explained = model.explain(latents, [where])[0]
    columns = sum(len(a.channels) for a in atoms)
    assert explained.here.shape == explained.around.shape == (30, columns)
    torch.testing.assert_close(explained.here, literal_here(model, latents, where), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(explained.around, literal_around(model, latents, where), rtol=1e-9, atol=1e-9)
    assert explained.around.std(dim=0).max() > 1e-6  # positions differ in what they look at
    sums = explained.around.sum(dim=1)
    if name == "empty cells":
        assert (latents.geometries[0].cells[0].counts_L == 0).any()
        assert (sums < 1 - 1e-6).all() and (sums > 0).all()
    elif name != "temporal":  # there, a cell may be empty on some dates
        assert (latents.geometries[0].cells[0].counts_L > 0).all()
        torch.testing.assert_close(sums, torch.ones_like(sums))


def test_what_was_seen_here_sums_to_one_or_to_nothing() -> None:
    model, atoms = build(), raster(1, holes=0.6)
    grid = aio.Grid(9, 7, 10.0).positions()
    here = model.explain(model.encode([atoms]), [grid])[0].here
    seen = atoms.acquisitions[0].occupied()
    assert seen.any() and not seen.all()
    torch.testing.assert_close(here.sum(dim=1), seen.double())
    assert not here[~atoms.acquisitions[0].valid_mask()].any()  # an absent measurement receives nothing
    assert (here[atoms.acquisitions[0].valid_mask()] > 0).all()


def test_columns_are_named() -> None:
    model, atoms = build(), series()
    explained = model.explain(model.encode([atoms]), [queries(1, 4, 30.0)])[0]
    assert [c.name for c in explained.channels] == ["B02", "B03", "B08", "B02", "B03", "B08", "VV", "VH"]
    assert explained.days == (40.0,) * 3 + (120.0,) * 5


def test_by_channel_adds_dates() -> None:
    channel = raster(1).acquisitions[0].channels
    here, around = torch.arange(8.0).reshape(2, 4), torch.arange(8.0).reshape(2, 4) * 10
    totals = Explanation((*channel[:2], *channel[:2]), (1.0, 1.0, 9.0, 9.0), here, around).by_channel()
    assert list(totals) == ["sentinel2 B02", "sentinel2 B03"]
    assert totals["sentinel2 B02"][0].tolist() == [2.0, 10.0]
    assert totals["sentinel2 B03"][1].tolist() == [40.0, 120.0]


def test_by_channel_keeps_the_whole() -> None:
    model, atoms = build(), series()
    explained = model.explain(model.encode([atoms]), [queries(1, 9, 30.0)])[0]
    totals = explained.by_channel()
    assert len(totals) == 5
    torch.testing.assert_close(sum(here for here, _ in totals.values()), explained.here.sum(dim=1))
    torch.testing.assert_close(sum(around for _, around in totals.values()), explained.around.sum(dim=1))


@pytest.mark.parametrize("temporal", [False, True])
def test_a_dropped_channel_receives_nothing(temporal: bool) -> None:
    model, atoms, where = build(temporal=temporal), series(), queries(1, 9, 30.0)
    hidden = [a.valid_mask() & torch.tensor([c.name != "B03" for c in a.channels]) for a in atoms]
    masked = aio.AtomSet(
        tuple(
            aio.Acquisition(a.values, a.positions, a.channels, a.day_of_year, a.site_fields, valid)
            for a, valid in zip(atoms, hidden, strict=True)
        )
    )
    dropped = model.explain(model.encode([atoms.drop("B03")]), [where])[0]
    invalid = model.explain(model.encode([masked]), [where])[0]
    assert "sentinel2 B03" not in dropped.by_channel()
    here, around = invalid.by_channel()["sentinel2 B03"]
    assert not here.any() and not around.any()
    kept = [i for i, channel in enumerate(invalid.channels) if channel.name != "B03"]
    torch.testing.assert_close(invalid.here[:, kept], dropped.here)
    torch.testing.assert_close(invalid.around[:, kept], dropped.around)
    before = model.explain(model.encode([atoms]), [where])[0].by_channel()["sentinel2 B03"][1]
    assert (before > 0).all()


def test_each_sample_of_a_batch_is_explained_as_if_alone() -> None:
    model = build()
    batch, where = [series(), points(3)], [queries(1, 5, 30.0), queries(2, 8, 30.0)]
    together = model.explain(model.encode(batch), where)
    assert [tuple(e.here.shape) for e in together] == [(5, 8), (8, 1)]
    for atoms, positions, explained in zip(batch, where, together, strict=True):
        alone = model.explain(model.encode([atoms]), [positions])[0]
        torch.testing.assert_close(explained.here, alone.here)
        torch.testing.assert_close(explained.around, alone.around)


def test_without_observation_conditioning_nothing_is_seen_here() -> None:
    model = build(observation_conditioning=False)
    explained = model.explain(model.encode([raster(1)]), [queries(1, 5, 30.0)])[0]
    assert explained.here.shape == (5, 3) and not explained.here.any()
    torch.testing.assert_close(explained.around.sum(dim=1), torch.ones(5, dtype=torch.float64))


def test_explanations_carry_no_gradient_and_empty_queries_are_explained() -> None:
    model = build().requires_grad_(True)
    latents = model.encode([raster(1)])
    assert not model.explain(latents, [queries(1, 5, 30.0)])[0].around.requires_grad
    assert model.explain(latents, [queries(1, 5)[:0]])[0].here.shape == (0, 3)


def test_what_cannot_be_explained_is_refused() -> None:
    scene = build(task="classification")
    with pytest.raises(QueryError, match="classification model does not predict at positions"):
        scene.explain(scene.encode([raster(1)]), [queries(1, 5)])
    model = build()
    with pytest.raises(QueryError, match="2 lists of positions for 1 samples"):
        model.explain(model.encode([raster(1)]), [queries(1, 5), queries(2, 5)])
