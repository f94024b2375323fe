"""Perceiver-IO: against a plain version of itself and transformers' one, in bounded memory, on every kind of task."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu, one_hot
from torch.utils.flop_counter import FlopCounterMode

import atomizer_io as aio
from atomizer_io.data.sample import queries_at
from atomizer_io.data.sensors import LIDAR, SENTINEL1, SENTINEL2
from atomizer_io.errors import UnknownChannelError
from atomizer_io.models.atomizer.encodings import fourier
from atomizer_io.models.atomizer.ops import memory
from atomizer_io.models.atomizer.tokens import value_features
from atomizer_io.models.base import Cost
from atomizer_lab.baselines.perceiver import PerceiverIO
from atomizer_lab.baselines.perceiver_scene import PerceiverInput
from scenes import points, queries, raster

TINY = {"latents": 5, "width": 12, "depth": 2, "heads": 3, "head_dim": 4, "position_scale_m": 60.0}


def made(name: str = "perceiver_io_small", **settings: Any) -> PerceiverIO:
    """A tiny model with large enough weights that everything it reads shows in its outputs."""
    torch.manual_seed(0)
    model: PerceiverIO = aio.create_model(name, **{"num_outputs": 3, **TINY, **settings})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


def mixed() -> aio.AtomSet:
    """Two rasters with holes on two dates, and a point cloud with site fields."""
    radar = raster(1, SENTINEL1, ("VV", "VH"), (6, 5), 12.0, 40, holes=0.2)
    return raster(0, holes=0.3) + radar + raster(3, day=200) + points(2, 40)


def predicted(model: PerceiverIO, atoms: aio.AtomSet, where: Tensor, sites: Any = None, **cost: Any) -> Tensor:
    with torch.no_grad():
        (outputs,) = model.predict([model.preparer()(atoms, queries_at(where, sites), Cost(**cost))])
    return outputs


# --- against the same network, written out ---


def plain_tokens(model: PerceiverIO, atoms: aio.AtomSet) -> Tensor:
    """The tokens of all atoms, written out one by one."""
    tokenizer, rows = model.tokenizer, []
    x_min, y_min, x_max, y_max = atoms.bounds
    centre = torch.tensor([(x_min + x_max) / 2, (y_min + y_max) / 2], dtype=torch.float64)
    for acquisition in atoms:
        kinds, fields = tokenizer.kind_features(acquisition), tokenizer.site_features(acquisition)
        standard = tokenizer.standardise(acquisition)
        for site, channel in acquisition.valid_mask().nonzero().tolist():
            where = (acquisition.positions[site] - centre) / model.chosen.position_scale_m
            rows.append(
                torch.cat(
                    [
                        value_features(standard[site, channel], tokenizer.encodings),
                        kinds[channel],
                        torch.zeros(tokenizer.parts.site) if fields is None else fields[site],
                        fourier(where[0], 16, 16.0),
                        fourier(where[1], 16, 16.0),
                    ]
                )
            )
    return torch.stack(rows)


def plain_attention(query: Tensor, context: Tensor, layer: Any, heads: int) -> Tensor:
    """Cross-attention of normalised queries to a normalised context, head by head."""
    key, value = (context @ layer.key_value.weight.T).chunk(2, dim=1)
    parts = zip(*((layer.query(query), key, value)[i].chunk(heads, dim=1) for i in range(3)), strict=True)
    return layer.out(torch.cat([(q @ k.T / q.shape[1] ** 0.5).softmax(dim=1) @ v for q, k, v in parts], dim=1))


def plain_outputs(
    model: PerceiverIO, atoms: aio.AtomSet, where: Tensor, seen: dict[int, list[tuple[int, int]]]
) -> Tensor:
    """The outputs at positions from the scene's centre; ``seen`` lists (acquisition, site) that a query looks at."""
    reader, decoder, heads = model.reader, model.decoder, model.chosen.heads
    assert decoder is not None
    h = reader.latents
    h = h + plain_attention(reader.norm(h), reader.token_norm(plain_tokens(model, atoms)), reader, heads)
    h = h + reader.feedforward(h)
    for attention, feedforward in zip(model.attentions, model.feedforwards, strict=True):
        h = h + attention(h[None])[0]
        h = h + feedforward(h)
    scaled = where / model.chosen.position_scale_m
    q = decoder.position(torch.cat([fourier(scaled[:, 0], 16, 16.0), fourier(scaled[:, 1], 16, 16.0)], dim=1))
    for number, pairs in seen.items():
        hidden = []
        for a, site in pairs:
            acquisition = atoms.acquisitions[a]
            for channel in range(len(acquisition.channels)):
                value = model.tokenizer.standardise(acquisition)[site, channel]
                kind = model.tokenizer.kind_features(acquisition)[channel]
                fields = model.tokenizer.site_features(acquisition)
                assert fields is not None
                token = torch.cat([value_features(value, model.tokenizer.encodings), kind, fields[site]])
                hidden.append(gelu(decoder.points.up(token)))
        q = q + one_hot(torch.tensor(number), len(q))[:, None] * decoder.points.out(torch.stack(hidden).mean(dim=0))
    q = q + plain_attention(decoder.norm(q), decoder.latent_norm(h), decoder, heads)
    return decoder.head(q + decoder.feedforward(q))


@pytest.mark.parametrize("block_bytes", [40_000, 1 << 25])
def test_outputs_and_gradients_are_those_of_the_network_written_out(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    """Also where each block holds few atoms and queries, and nothing is kept for the backward pass."""
    monkeypatch.setattr(memory, "CPU_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(memory, "KEPT_BYTES", 0)
    model, atoms = made(point_tokens=True), mixed()
    cloud = atoms.acquisitions[3].positions
    positions = torch.cat([queries(0, 6), cloud[:2]])
    x_min, y_min, x_max, y_max = atoms.bounds
    centre = torch.tensor([(x_min + x_max) / 2, (y_min + y_max) / 2], dtype=torch.float64)
    (result,) = model([atoms], [positions])
    expected = plain_outputs(model, atoms, positions - centre, {6: [(3, 0)], 7: [(3, 1)]})
    torch.testing.assert_close(result, expected, rtol=1e-8, atol=1e-8)
    parameters = dict(model.named_parameters())
    by_hand = torch.autograd.grad(expected.square().mean(), list(parameters.values()))
    streamed = torch.autograd.grad(result.square().mean(), list(parameters.values()))
    for name, fast, plain in zip(parameters, streamed, by_hand, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-6, atol=1e-9, msg=name)


def test_the_layers_are_those_of_transformers() -> None:
    """With copied weights; the paper's classification size has no gates, as the original."""
    pytest.importorskip("transformers")
    from transformers import PerceiverConfig
    from transformers.models.perceiver.modeling_perceiver import PerceiverEncoder, PerceiverLayer

    model, atoms = made(gated=False, head_dim=4), mixed()
    reader, decoder = model.reader, model.decoder
    tokens, c = plain_tokens(model, atoms)[None], model.chosen
    how = {"qk_channels": c.width, "v_channels": c.width}
    config = PerceiverConfig(
        d_latents=c.width, d_model=tokens.shape[-1], num_blocks=1, num_self_attends_per_block=c.depth,
        num_self_attention_heads=c.heads, num_cross_attention_heads=c.heads, cross_attention_widening_factor=4,
        self_attention_widening_factor=4, attention_probs_dropout_prob=0.0, **how,
    )  # fmt: skip
    encoder = PerceiverEncoder(config, kv_dim=tokens.shape[-1]).double().eval()
    decoder_layer = PerceiverLayer(
        config, True, num_heads=c.heads, q_dim=c.width, kv_dim=c.width, widening_factor=4, **how
    ).double()

    def copied(layer: Any, ours: Any, norms: list[Any], qkv: list[Tensor], feedforward: Any) -> None:
        own = layer.attention.self
        pairs = [(own.layernorm1, norms[0]), (layer.layernorm, feedforward.norm), (layer.mlp.dense1, feedforward.up)]
        pairs += [(layer.mlp.dense2, feedforward.down), (layer.attention.output.dense, ours.out)]
        pairs += [(own.layernorm2, norms[1])] if len(norms) > 1 else []
        with torch.no_grad():
            for theirs, source in pairs:
                theirs.weight.copy_(source.weight), theirs.bias.copy_(source.bias)
            for theirs, weight in zip((own.query, own.key, own.value), qkv, strict=True):
                theirs.weight.copy_(weight), theirs.bias.zero_()

    for layer, ours, norms in (
        (encoder.cross_attention, reader, [reader.norm, reader.token_norm]),
        (decoder_layer, decoder, [decoder.norm, decoder.latent_norm]),
    ):
        copied(layer, ours, norms, [ours.query.weight, *ours.key_value.weight.chunk(2)], ours.feedforward)
    for layer, attention, feedforward in zip(encoder.self_attends, model.attentions, model.feedforwards, strict=True):
        copied(layer, attention, [attention.norm], [*attention.qkv.weight.chunk(3)], feedforward)

    where = queries(0, 6)
    scene = model.preparer()(atoms, queries_at(where))
    with torch.no_grad():
        latents = encoder(reader.latents[None], inputs=tokens).last_hidden_state
        position = decoder.position(model.chosen.position_features(scene.queries_M2, torch.float64))
        expected = decoder.head(decoder_layer(position[None], inputs=latents)[0][0])
    torch.testing.assert_close(predicted(model, atoms, where), expected, rtol=1e-5, atol=1e-5)


# --- points ---


def wire_above_ground() -> tuple[aio.AtomSet, Tensor, dict[int, Tensor]]:
    """A point cloud whose first two returns share x and y, and queries that name them."""
    cloud = points(0, 60)
    shared = cloud.acquisitions[0].positions.clone()
    shared[1] = shared[0]
    acquisition = dataclasses.replace(cloud.acquisitions[0], positions=shared)
    return aio.AtomSet((acquisition,)), shared[:2], {0: torch.tensor([0, 1])}


@pytest.mark.parametrize("max_points", [None, 1, 30])
def test_a_wire_and_the_ground_below_get_different_outputs(max_points: int | None) -> None:
    atoms, where, sites = wire_above_ground()
    model = made(channels=LIDAR.pick("elevation"))
    assert model.chosen.point_tokens, "a model that is made for point clouds looks at points by default"
    wire, ground = predicted(model, atoms, where, sites, max_points=max_points)
    assert not torch.allclose(wire, ground, atol=1e-3)
    blind = made(channels=LIDAR.pick("elevation"), point_tokens=False)
    wire, ground = predicted(blind, atoms, where, sites, max_points=max_points)
    assert torch.equal(wire, ground)


def test_a_limit_on_points_leaves_pixels_and_draws_anew_in_training() -> None:
    model, atoms = made(point_tokens=True, max_points=15), mixed()
    prepare = model.preparer()

    def used(seed: int | None, cost: Cost = Cost()) -> PerceiverInput:
        return prepare(
            atoms, queries_at(queries(0, 3)), cost, None if seed is None else torch.Generator().manual_seed(seed)
        )

    scene = used(None)
    assert scene.used[:3] == (None, None, None)
    channels = len(atoms.acquisitions[3].channels)
    assert len(scene.used[3].div(channels, rounding_mode="floor").unique()) == 15
    assert scene.num_atoms == atoms.num_atoms - (40 - 15) * channels
    assert torch.equal(scene.used[3], used(None).used[3]) and torch.equal(used(1).used[3], used(1).used[3])
    assert not torch.equal(used(1).used[3], used(2).used[3])
    assert used(None, Cost(max_points=7)).num_atoms == atoms.num_atoms - (40 - 7) * channels
    assert model.training_cost() == Cost(max_points=15)
    model.keep_cost(Cost(max_points=9, budget=50))
    assert model.training_cost() == Cost(max_points=9, budget=50) and model.settings()["max_points"] == 9


# --- queries and scenes ---


def test_neither_the_frame_nor_the_order_of_sites_matters() -> None:
    model, atoms, where = made(), raster(0, holes=0.2), queries(0, 9)
    usual = predicted(model, atoms, where)
    shift = torch.tensor([5e5, -3e6], dtype=torch.float64)
    (acquisition,) = atoms.acquisitions
    moved = aio.AtomSet((dataclasses.replace(acquisition, positions=acquisition.positions + shift),))
    torch.testing.assert_close(predicted(model, moved, where + shift), usual, rtol=1e-6, atol=1e-6)
    turned = aio.AtomSet((acquisition.with_sites(torch.arange(len(acquisition.positions)).flip(0)),))
    torch.testing.assert_close(predicted(model, turned, where), usual, rtol=1e-9, atol=1e-9)


def test_a_missing_channel_is_absent_and_a_new_one_goes_by_its_wavelength() -> None:
    model = made(channels=SENTINEL2.pick("B02", "B03", "B08"))
    atoms, where = raster(0), queries(0, 9)
    hollow = atoms.acquisitions[0].values.clone()
    hollow[:, 1] = torch.nan
    without = predicted(model, atoms.drop("B03"), where)
    empty = aio.AtomSet((dataclasses.replace(atoms.acquisitions[0], values=hollow),))
    torch.testing.assert_close(predicted(model, empty, where), without, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(predicted(model, atoms, where), without, atol=1e-3)
    new = raster(0, names=("B02", "B11"))
    assert model.unreadable(new.channels) == [] and predicted(model, new, where).isfinite().all()
    assert [c.name for c in model.unreadable(SENTINEL1.pick("VV"))] == ["VV"]
    stranger = aio.Channel("radar", "X9", mean=0.0, std=1.0)
    with pytest.raises(UnknownChannelError, match="neither a wavelength"):
        predicted(model, aio.AtomSet.from_raster(np.ones((1, 3, 3)), [stranger], 10.0), where)


@pytest.mark.parametrize("task", ["segmentation", "classification"])
def test_flops_are_those_that_torch_counts(task: str) -> None:
    model = made(task=task, point_tokens=True, gated=task == "segmentation")
    atoms = mixed()
    positions = torch.cat([queries(0, 6), atoms.acquisitions[3].positions[:5]])
    inputs = [model.preparer()(atoms, queries_at(positions), Cost(max_points=30))]
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.predict(inputs)
    assert model.flops(inputs) == counter.get_total_flops()


def test_flops_of_the_paper_size() -> None:
    """A scene of 512 × 512 pixels with 15 channels, a query per pixel: eight TFLOPs, as others counted."""
    with torch.device("meta"):
        model = aio.create_model("perceiver_io_seg")
    atoms = aio.AtomSet.from_raster(torch.zeros(2, 512, 512), SENTINEL2.pick("B02", "B03"), 10.0)
    scene = model.preparer()(atoms, queries_at(aio.Grid(512, 512, 10.0).positions()))
    fifteen = model.flops([scene]) * 7.5 - 6.5 * model.flops([dataclasses.replace(scene, used=(torch.arange(0),))])
    assert fifteen / 1e12 == pytest.approx(7.95, rel=0.05)


def test_half_precision_and_no_queries() -> None:
    model, atoms = made(), mixed()
    expected = predicted(model, atoms, queries(0, 9))
    halved = model.to(torch.bfloat16)
    (result,) = halved([atoms], [queries(0, 9)])
    assert result.dtype == torch.bfloat16
    result.float().square().mean().backward()
    assert halved.reader.key_value.weight.grad is not None
    assert float((result.detach().double() - expected).abs().mean()) < 0.1 * float(expected.abs().mean())
    with torch.autocast("cpu", torch.bfloat16):
        (mixed_precision,) = halved.float()([atoms], [queries(0, 9)])
        loss = mixed_precision.float().square().mean()
    loss.backward()
    assert float((mixed_precision.detach().double() - expected).abs().mean()) < 0.1 * float(expected.abs().mean())
    assert model([atoms], [torch.zeros(0, 2)])[0].shape == (0, 3)


# --- windows ---

WINDOWS = {"task": "segmentation", "pixel_m": 10.0, "window_px": 8}


def test_the_small_preset_learns_and_reads_maps_in_windows(tmp_path: Path) -> None:
    model = aio.create_model("perceiver_io_small", num_outputs=3, pixel_m=10.0, extent_m=5120.0)
    assert model.crop_m == 80.0 and model.chosen.position_scale_m == 40.0 and model.usual_extent_m() == 5120.0
    model.save_pretrained(tmp_path)
    again = aio.load_model(tmp_path)
    assert again.crop_m == 80.0 and again.settings() == model.settings()
    assert aio.create_model("perceiver_io_seg", num_outputs=3, pixel_m=10.0, extent_m=640.0).crop_m is None
    whole = aio.create_model("perceiver_io_small", num_outputs=3, task="classification", pixel_m=10.0)
    assert whole.crop_m is None, "a scene with one target is read whole"


def test_a_scene_that_fits_a_window_is_read_whole() -> None:
    atoms, where = raster(0, size=(8, 8)), queries(0, 9)
    in_windows, whole = made(**WINDOWS), made(**{**WINDOWS, "window_px": None, "position_scale_m": 40.0})
    assert isinstance(in_windows.preparer()(atoms, queries_at(where)), PerceiverInput)
    assert torch.equal(predicted(in_windows, atoms, where), predicted(whole, atoms, where))


def test_a_large_scene_is_predicted_as_its_windows_are_one_by_one() -> None:
    model, atoms = made(**WINDOWS), raster(0, size=(16, 16))  # four windows
    where = aio.Grid(16, 16, gsd_m=10.0).positions()
    result = predicted(model, atoms, where)
    for x in (-1, 1):
        for y in (-1, 1):
            inside = (where[:, 0] * x > 0) & (where[:, 1] * y > 0)
            (own,) = atoms
            part = own.with_sites((own.positions[:, 0] * x > 0) & (own.positions[:, 1] * y > 0))
            assert len(part.positions) == 64
            torch.testing.assert_close(result[inside], predicted(model, aio.AtomSet((part,)), where[inside]))
