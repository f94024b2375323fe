"""Weights before training: bands are told apart, and what differs between places comes out large."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import atomizer_io as aio
from atomizer_io.models.atomizer.observations import Observations
from atomizer_io.models.atomizer.starting import whiten
from atomizer_io.models.contract import Cost
from atomizer_io.sample import queries_at
from atomizer_io.sensors import SENTINEL1, SENTINEL2
from scenes import SMALL, points, raster

ALL = ("B02", "B03", "B04", "B05", "B08", "B11", "B12")


@pytest.mark.parametrize(("sensor", "names"), [(SENTINEL2, ALL), (SENTINEL1, ("VV", "VH"))])
def test_a_fresh_network_tells_bands_apart(sensor, names) -> None:
    """The same value in another band is another thing, as much as another value in the same band is."""
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", observation_mlp=True)
    kinds_KF = Observations.of(raster(0, sensor, names), model.tokenizer).kind_KF
    for first in (model.encoder.attention.first, model.decoder.observation.first):
        value, kind, *_ = model.encoder.attention.parts
        by_band_KD = kinds_KF @ first.weight[:, value : value + kind].T
        by_value_D = first.weight[:, 0]  # what a value one spread larger adds, through the number itself
        between_bands = torch.cdist(by_band_KD, by_band_KD).triu(1)
        assert between_bands[between_bands > 0].median() > 0.5 * by_value_D.norm() / model.config.value_divisor


@pytest.mark.parametrize("bands", [5, 224])
def test_settled_weights_tell_apart_the_bands_that_occur(bands: int) -> None:
    """Narrow bands, too, whose features are a hundredth of those of a value."""
    torch.manual_seed(0)
    width = 2.0 / bands
    channels = [aio.Channel("own", f"b{i}", 0.45 + i * width, width, mean=0.0, std=1.0) for i in range(bands)]
    atoms = aio.AtomSet.from_raster(torch.randn(bands, 6, 6), channels, 10.0)
    model = aio.create_model("atomizer_io_tiny", channels=channels, observation_mlp=True)
    model.settle([model.preparer()(atoms, queries_at(next(iter(atoms)).positions))])
    kinds_KF = Observations.of(atoms, model.tokenizer).kind_KF
    for first in (model.encoder.attention.first, model.decoder.observation.first):
        value, kind, *_ = model.encoder.attention.parts
        by_band_KD = kinds_KF @ first.weight[:, value : value + kind].T + first.bias
        assert torch.allclose(by_band_KD.std(dim=0, correction=0), torch.ones(1), atol=1e-3)
        assert by_band_KD.mean(dim=0).abs().max() < 0.6  # no unit is switched off for all bands


@pytest.mark.parametrize("conditioning", ["raw", "layered", "none"])
def test_what_differs_between_places_comes_out_large(conditioning: str) -> None:
    torch.manual_seed(1)
    settings = {"observation_mlp": conditioning == "layered", "observation_conditioning": conditioning != "none"}
    model = aio.create_model("atomizer_io_tiny", channels=SENTINEL2.pick(*ALL), **settings)
    scenes = [raster(seed, names=ALL, size=(24, 24)) for seed in range(3)]
    inputs = [model.preparer()(atoms, queries_at(next(iter(atoms)).positions), Cost(64)) for atoms in scenes]
    layers = [model.encoder.out] + ([] if conditioning == "none" else [model.decoder.observation.out])

    before = [given(layer, lambda: model.answer(inputs)) for layer in layers]
    model.settle(inputs)
    after = [given(layer, lambda: model.answer(inputs)) for layer in layers]

    for old, new in zip(before, after, strict=True):
        assert new.mean(dim=0).abs().max() < 1e-3
        spread = torch.linalg.eigvalsh(torch.cov(new.T.double()))
        assert spread[-1] < 1.01 and spread[-5] > 0.5  # many directions are of equal size ...
        usual = torch.linalg.eigvalsh(torch.cov(old.T.double()))
        assert usual[-5] < 0.1 * spread[-5]  # ... which before were small
    assert all(answer.isfinite().all() for answer in model.answer(inputs))


@torch.no_grad()
def given(layer: nn.Module, run) -> Tensor:
    """Return all rows that a layer gives while ``run`` runs."""
    rows: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _, inputs, output: rows.append(output.flatten(0, -2)))
    run()
    hook.remove()
    return torch.cat(rows)


def test_the_same_seed_settles_to_the_same_weights() -> None:
    def settled() -> Tensor:
        torch.manual_seed(3)
        model = aio.create_model("atomizer_io_tiny", **SMALL)
        atoms = points(0)
        model.settle([model.preparer()(atoms, queries_at(next(iter(atoms)).positions))])
        return model.decoder.observation.out.weight

    assert torch.equal(settled(), settled())


def test_a_layer_that_is_given_nothing_to_tell_apart_stays() -> None:
    layer, unused = nn.Linear(4, 6), nn.Linear(4, 6)
    before = [layer.weight.clone(), unused.weight.clone()]
    whiten([layer, unused], lambda: layer(torch.ones(5, 4)))
    assert torch.equal(layer.weight, before[0]) and torch.equal(unused.weight, before[1])


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 9), (9, 4)])
def test_layers_of_any_shape(inputs: int, outputs: int) -> None:
    torch.manual_seed(2)
    x = torch.randn(500, inputs) @ torch.randn(inputs, inputs) + 3
    layer = nn.Linear(inputs, outputs)
    whiten([layer], lambda: layer(x))
    with torch.no_grad():
        spread = torch.linalg.eigvalsh(torch.cov(layer(x).T.double()))
    assert layer(x).mean(dim=0).abs().max() < 1e-4
    assert torch.allclose(spread[-min(inputs, outputs) :], torch.ones(1, dtype=torch.float64), atol=0.3)
