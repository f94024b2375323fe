"""RAMEN: what is folded into one matrix against the plain order of its steps, and sizes, positions, dates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import atomizer_io as aio
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import queries_at
from atomizer_io.data.sensors import SENTINEL1
from atomizer_io.errors import ConfigError
from atomizer_lab.baselines.modalities import Spectrum
from atomizer_lab.baselines.ramen_network import RamenNetwork, Reading, ScaleGatedExperts, metric_positions
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


def test_positions_are_metric() -> None:
    result = metric_positions((2, 3), 40.0, 16)
    for row in range(2):
        for column in range(3):
            expected = torch.cat([code(40.0 * row, 8), code(40.0 * column, 8)]).float()
            torch.testing.assert_close(result[3 * row + column], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(metric_positions((1, 2), 80.0, 16)[1], result[2])  # the same place


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


def test_the_map_lies_on_the_tokens() -> None:
    """Each pixel gets the output of its token, also where the scene is no whole number of tokens."""
    scene = raster(0, names=("B02",), size=(10, 15))
    model = aio.create_model("ramen", **TINY, num_outputs=2, channels=scene.channels).eval()
    prepared = model.preparer()(scene, queries_at(aio.Grid(10, 15, gsd_m=10.0).positions()))
    assert prepared.output == (12, 16) and prepared.values[0].shape[-2:] == (3, 4)
    assert prepared.pixel_M.reshape(10, 15).tolist() == [
        [16 * row + column for column in range(15)] for row in range(10)
    ]


def test_dates_without_an_attention_over_them_are_refused() -> None:
    series = raster(0, size=(8, 8), day=10) + raster(1, size=(8, 8), day=90)
    options = {"task": "classification", "num_outputs": 4, "channels": series.channels, **TINY}
    with pytest.raises(ConfigError, match=r"sentinel2 has 2 dates, but this RAMEN has no L-TAE: make it with temporal"):
        aio.create_model("ramen", **options)([series])
    model = aio.create_model("ramen", **options, temporal=True).eval()
    with torch.no_grad():
        assert model([series]).shape == (1, 4)


def test_polarisations_relief_and_further_channels_have_codes_of_their_own() -> None:
    relief = Channel("map", "elevation", mean=0.0, std=1.0)
    odd = Channel("map", "soil", mean=0.0, std=1.0)
    plain = aio.AtomSet.from_raster(torch.zeros(2, 8, 8), [relief, odd], 10.0)
    scene = raster(0, SENTINEL1, ("VV", "DSC_VH"), size=(8, 8)) + plain
    model = aio.create_model("ramen", **TINY, task="classification", channels=scene.channels)
    codes = [reading.spectrum.codes for reading in model.preparer()(scene, None).fixed]
    assert [tuple(model.codes[number] for number in numbers) for numbers in codes] == [
        ("ASC_VV", "DSC_VH"),
        ("elevation",),
        ("map soil",),
    ]
    assert model([scene]).isfinite().all()


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
