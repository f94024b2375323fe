"""RAMEN: what is folded into one matrix against the plain order of its steps, and sizes, positions, dates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import atomizer_io as aio
from atomizer_io.data.channels import Channel
from atomizer_lab.baselines.modalities import Spectrum
from atomizer_lab.baselines.ramen_network import RamenNetwork, Reading, ScaleGatedExperts
from scenes import raster

TINY = {"width": 32, "depth": 4, "heads": 2, "decoder_width": 8}


def network(temporal: bool = True) -> RamenNetwork:
    torch.manual_seed(0)
    made = RamenNetwork(32, 4, 2, codes=8, relief=3, temporal=temporal, outputs=3, decoder_width=8)
    return made.double().eval()


def code(x: float, width: int) -> Tensor:
    """Sines, then cosines, of falling frequencies."""
    angles = [x / 10_000 ** (i / (width // 2)) for i in range(width // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


def gated(layer: ScaleGatedExperts, x_LD: Tensor, scale: float) -> Tensor:
    """Token by token and expert by expert."""
    score = layer.gate(code(math.log(scale), x_LD.shape[1])) / layer.temperature.clamp(min=1e-3)
    share = score.exp() / score.exp().sum()
    tokens = []
    for x in x_LD:
        out = x.clone()
        for weight, expert in zip(share, layer.experts, strict=True):
            out = out + weight * (expert.weight @ x + expert.bias)
        tokens.append(out)
    return torch.stack(tokens)


@pytest.mark.parametrize("scale", [0.25, 1.0, 2.5])
def test_experts_are_gated_by_the_scale_as_plain_loops_have_it(scale: float) -> None:
    torch.manual_seed(0)
    layer = ScaleGatedExperts(16).double()
    x = torch.randn(5, 16, dtype=torch.float64)
    weight, bias = layer.folded(scale)
    torch.testing.assert_close(F.linear(x, weight, bias), gated(layer, x, scale), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(layer.weights(scale), layer.weights(0.1))
    with torch.no_grad():
        layer.temperature.fill_(-1.0)  # held at the coldest: the best expert takes all
    assert float(layer.weights(scale).detach().max()) > 0.99


def embedded(net: RamenNetwork, pixels_BCHW: Tensor, wavelengths_um: list[float], scale: float) -> Tensor:
    """Every pixel a vector, then resampled, then the experts: the published order."""
    vector_CD = torch.stack([net.optical(code(1000 * wavelength, 32)) for wavelength in wavelengths_um])
    x = torch.einsum("bchw,cd->bdhw", pixels_BCHW, vector_CD)
    x = F.interpolate(x, scale_factor=scale, mode="bilinear", align_corners=False)
    return torch.stack([gated(net.experts, image.flatten(1).T, scale) for image in x])


def test_resampling_before_the_projection_is_the_published_order() -> None:
    net, scene = network(), raster(0, names=("B02", "B08"), size=(8, 12))
    model = aio.create_model("ramen", **TINY, channels=scene.channels)
    (values,) = model.preparer()(scene, None).values
    assert values.shape == (1, 2, 2, 3)
    (acquisition,) = scene.acquisitions
    mean, std = (torch.tensor([getattr(c, key) for c in scene.channels]) for key in ("mean", "std"))
    pixels = ((acquisition.observed() - mean) / std).double().T.reshape(1, 2, 8, 12)
    wavelengths = [c.wavelength_um for c in scene.channels]
    reading = Reading(Spectrum(tuple(wavelengths), (-1, -1)), 0.25, 40.0)
    result = net.read(values[None].double(), torch.tensor([[100.0]]), reading)
    torch.testing.assert_close(result, embedded(net, pixels, wavelengths, 0.25), rtol=1e-4, atol=1e-4)


def test_several_dates_go_through_the_linear_layer_and_the_attention() -> None:
    net, days = network(), torch.tensor([[10.0, 100.0, 300.0]])
    pixels = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    for norm in (net.temporal.norm, net.temporal.attend.mlp[1]):
        torch.nn.init.normal_(norm.running_mean)
    reading = Reading(Spectrum((0.49, 0.83), (-1, -1)), 1.0, 10.0)
    result = net.read(pixels[None], days, reading)
    each_TLD = embedded(net, pixels, [0.49, 0.83], 1.0)
    each_TLD = net.temporal.norm(net.temporal.linear(each_TLD).flatten(0, 1)).relu().unflatten(0, (3, 16))
    expected = net.temporal.attend(each_TLD.transpose(1, 2).unflatten(2, (4, 4))[None], days)
    torch.testing.assert_close(result[0], expected[0].flatten(1).T, rtol=1e-5, atol=1e-5)


def test_a_coarse_raster_lies_where_the_fine_one_does() -> None:
    """A slope of the ground, seen by two sensors whose pixels do not line up, is the same for both."""
    channels = [Channel("fine", "a", 0.5, mean=0.0, std=1.0), Channel("coarse", "b", 0.6, mean=0.0, std=1.0)]

    def slope(channel: Channel, count: int, gsd_m: float) -> aio.AtomSet:
        where = aio.Grid(count, count, gsd_m=gsd_m).positions()
        ground = (where[:, 0] + 3 * where[:, 1]).reshape(1, count, count)
        return aio.AtomSet.from_raster(ground, [channel], gsd_m)

    scene = slope(channels[0], 24, 10.0) + slope(channels[1], 9, 30.0)
    model = aio.create_model("ramen", **TINY, channels=channels)
    prepared = model.preparer()(scene, None)
    fine, coarse = prepared.values
    inner = (..., slice(1, 5), slice(1, 5))  # at the rim a border counts on
    assert fine.shape == coarse.shape and [reading.scale for reading in prepared.fixed] == pytest.approx([0.25, 0.75])
    torch.testing.assert_close(fine[inner], coarse[inner], rtol=1e-3, atol=1e-3)


def test_flops_are_those_counted_by_hand() -> None:
    """Two channels, one date, 4 × 4 tokens, for a scene."""
    scene = raster(0, names=("B02", "B08"), size=(16, 16))
    model = aio.create_model("ramen", **TINY, task="classification", num_outputs=3, channels=scene.channels)
    d, tokens, channels = 32, 16, 2
    adds = channels * 2 * d * 2 * d  # the vectors of channels
    adds += d * d // 4 + d // 4 * 4 + 4 * d * d + 4 * d  # the gate, and experts made one
    adds += d * d * channels + tokens * channels * d
    adds += 4 * ((tokens + 1) * 12 * d * d + 2 * (tokens + 1) ** 2 * d)
    adds += 4 * d * 3
    assert model.flops([model.preparer()(scene, None)]) == 2 * adds
