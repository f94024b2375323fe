"""UniverSat: its axial pooling against plain loops, and every part that was made fast against the plain way."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sample import queries_at
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_lab.baselines import universat_network
from atomizer_lab.baselines.modalities import Spectrum
from atomizer_lab.baselines.universat_layers import (
    AxialPool,
    Rotary,
)
from atomizer_lab.baselines.universat_network import Layout, PatchEncoder
from scenes import raster

TINY = {"width": 32, "depth": 1, "heads": 2}
OPTICAL = Layout(Spectrum((0.49, 0.83), (-1, -1)), (4, 4), (10.0, 10.0))


# --- layers against plain loops ---


def drawn(module: torch.nn.Module) -> torch.nn.Module:
    """``module`` in double precision with weights that make every part matter."""
    torch.manual_seed(1)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.double()


def rms(x: Tensor, gain: Tensor) -> Tensor:
    return x / x.square().mean().sqrt() * gain


def rotated(x: Tensor, angle: Tensor) -> Tensor:
    """Channel i and i + K / 2 as a point in the plane, each turned by an angle of its own."""
    half, out = len(x) // 2, x.clone()
    for i in range(half):
        out[i] = x[i] * angle[i].cos() - x[i + half] * angle[i].sin()
        out[i + half] = x[i + half] * angle[i + half].cos() + x[i] * angle[i + half].sin()
    return out


def pooled(layer: AxialPool, x_ND: Tensor, angle_NK: Tensor | None) -> Tensor:
    """Axial pooling of one row as its equations have it: values for every entry, heads one by one."""
    normed = torch.stack([rms(x, layer.norm.weight) for x in x_ND])
    rest = x_ND.max(dim=0).values
    if layer.expand == 2:
        rest = torch.cat([x_ND.mean(dim=0), rest])
    if len(x_ND) == 1:
        result = layer.value.weight @ normed[0]
    else:
        summary = torch.cat([normed.mean(dim=0), normed.max(dim=0).values])
        both = layer.query.weight @ summary + layer.query.bias
        parts = []
        for h in range(layer.heads):
            own = slice(h * layer.head, (h + 1) * layer.head)
            query = rms(both[2 * h * layer.head :][: layer.head], layer.query_norm.weight)
            gate = both[(2 * h + 1) * layer.head :][: layer.head].sigmoid()
            scores = []
            for n, entry in enumerate(normed):
                key = rms(layer.key.weight[own] @ entry, layer.key_norm.weight)
                key = key if angle_NK is None else rotated(key, angle_NK[n])
                scores.append(query @ key / math.sqrt(layer.head))
            share = torch.stack(scores).softmax(dim=0)
            values = torch.stack([layer.value.weight[own] @ entry for entry in normed])
            parts.append((share[:, None] * values).sum(dim=0) * gate)
        result = torch.cat(parts)
    out = rest + layer.attention_scale * result
    return out + layer.mlp_scale * layer.mlp(rms(out, layer.mlp_norm.weight))


@pytest.mark.parametrize("expand", [1, 2])
@pytest.mark.parametrize(("entries", "turn"), [(5, False), (5, True), (1, False)])
def test_axial_pooling_is_what_plain_loops_give(expand: int, entries: int, turn: bool) -> None:
    layer = drawn(AxialPool(8, 2, expand))
    x = torch.randn(2, 3, entries, 8, dtype=torch.float64)
    rotary = drawn(Rotary(layer.head))
    where = torch.rand(entries, 2, dtype=torch.float64)
    result = layer(x, rotary(where) if turn else None)
    angle = where @ rotary.frequency if turn else None
    for b in range(2):
        for row in range(3):
            torch.testing.assert_close(result[b, row], pooled(layer, x[b, row], angle), rtol=1e-6, atol=1e-6)


# --- the network: the fast way is the plain way ---


def test_a_patch_is_encoded_wherever_it_lies_and_however_many_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = drawn(PatchEncoder(32, 2, 2, 1))
    values, days = torch.randn(2, 3, 2, 8, 12, dtype=torch.float64), torch.tensor([[5.0, 90.0, 200.0]]).expand(2, -1)
    whole = encoder(values, days, OPTICAL)
    assert whole.grid == (2, 3) and whole.sub_BLD.shape == (2, 24, 32)
    part = encoder(values[..., 4:8, 8:12], days, OPTICAL)  # the last patch of the second row
    torch.testing.assert_close(whole.token_BPD[:, 5:], part.token_BPD)
    torch.testing.assert_close(whole.sub_BLD[:, 20:], part.sub_BLD)
    assert whole.place_L2[20].tolist() == pytest.approx([4 / 5, 2 / 5])  # third row, fifth column of 4 × 6 sub-patches
    monkeypatch.setattr(universat_network, "AT_ONCE_CPU", 1)
    torch.testing.assert_close(encoder(values, days, OPTICAL).token_BPD, whole.token_BPD)
    whole.token_BPD.square().sum().backward()
    gradients = [parameter.grad for parameter in encoder.parameters()]
    encoder.zero_grad()
    monkeypatch.setattr(universat_network, "KEPT", 0)  # computed again in the backward pass
    encoder(values, days, OPTICAL).token_BPD.square().sum().backward()
    for parameter, expected in zip(encoder.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, expected)


def test_positions_are_predicted_alike_alone_and_in_a_map() -> None:
    torch.manual_seed(0)
    scene = raster(0, size=(18, 13)) + raster(1, SENTINEL1, ("VV",), size=(9, 7), gsd=20.0)  # no whole patches
    model = aio.create_model("universat", **TINY, num_outputs=3, channels=scene.channels).eval()
    drawn(model.network).float()
    where = aio.Grid(18, 13, gsd_m=10.0).positions()
    with torch.no_grad():
        (whole,) = model([scene], [where])
        (subset,) = model([scene], [where[[7, 100, 101, 233]]])
    assert whole.shape == (234, 3) and len(whole.unique(dim=0)) > 200
    torch.testing.assert_close(subset, whole[[7, 100, 101, 233]], rtol=1e-4, atol=1e-4)


def test_a_scene_is_predicted_without_the_decoder() -> None:
    model = aio.create_model("universat", **TINY, task="classification", num_outputs=3, channels=SENTINEL2.channels)
    decoder = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert all(name.startswith(("network.decoder.", "network.encoder.sub.")) for name in decoder) and decoder
    before = model([raster(0)])
    with torch.no_grad():
        for parameter in model.network.decoder.parameters():
            parameter.add_(1.0)
    assert torch.equal(model([raster(0)]), before)


def test_flops_are_those_counted_by_hand() -> None:
    """Two channels, one date, 2 × 2 patches of 4 × 4 pixels; 4 tokens of 16 pixels are decoded."""
    scene = raster(0, names=("B02", "B08"), size=(8, 8))
    model = aio.create_model("universat", **TINY, num_outputs=3, channels=scene.channels)
    where = aio.Grid(8, 8, gsd_m=10.0).positions()
    inputs = [model.preparer()(scene, queries_at(where))]
    n, d, atoms, pixels, patches, entries, tokens = 4, 32, 128, 64, 4, 20, 8
    adds = atoms * n + 2 * n  # lifts of values and wavelengths
    adds += atoms * (n * 2 * n + 2 * 2 * n * 8 * n)  # one pixel per sub-patch: value, two layers
    adds += pixels * (4 * n * 8 * n + 2 * n * 4 * n + 2 * 2 * n + 2 * 4 * n * 16 * n)  # query, value, pooling, layers
    adds += atoms * (2 * n * 4 * n + 4 * n)  # keys and scores of channels
    adds += pixels * (4 * n * 8 * n + 2 * 8 * n * 32 * n + 8 * n * d)  # one date; sub-patches to the decoder
    adds += patches * (16 * n * 32 * n + 8 * n * 16 * n + 2 * entries * 8 * n + 2 * 16 * n * 64 * n + 16 * n * d)
    adds += patches * entries * (8 * n * 16 * n + 16 * n) + entries * 2 * 32  # keys, scores, rotations
    adds += patches * 9 * d * d  # one modality: value and layers
    adds += tokens * 13 * d * d + 2 * tokens**2 * d + tokens * 2 * 16  # a block over tokens and registers
    adds += patches * 11 * d * d + pixels * 2 * d * d + 2 * patches * pixels * d + (patches + pixels) * 2 * 16
    adds += patches * d * 16 * 3
    assert model.flops(inputs) == 2 * adds
