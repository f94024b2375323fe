"""Sketched decoding: the decoder's own output where it is called, what was observed elsewhere."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import atomizer_io as aio
from atomizer_io.decoding.predictor import ScenePredictor
from atomizer_io.decoding.sketching import functions_of, probe_numbers
from atomizer_io.errors import ConfigError
from scenes import SMALL, points, queries, raster


def encoded(size: tuple[int, int] = (37, 50), **settings) -> tuple[aio.AtomizerIO, aio.Latents, aio.Grid]:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, **settings}).eval()
    with torch.no_grad():
        latents = model.encode([raster(0, size=size)])
    return model, latents, aio.Grid(*size, gsd_m=10.0)


@pytest.mark.parametrize("spacing", [1, 2, 5, 100])
@pytest.mark.parametrize("margin", [0.0, 0.02, 1.1])
def test_it_equals_dense_decoding_where_it_decodes(spacing: int, margin: float) -> None:
    model, latents, grid = encoded()
    dense = aio.decoding.dense(model, latents, grid)
    result = aio.decoding.sketch(model, latents, grid, spacing=spacing, margin=margin)
    torch.testing.assert_close(result.probabilities[result.queried], dense.probabilities[result.queried])
    torch.testing.assert_close(result.probabilities.sum(dim=-1), torch.ones(grid.shape))
    assert result.decoded == result.queried.sum()
    if spacing == 1 or margin > 1:
        assert result.queried.all()


def test_an_acquisition_without_sites_is_seen_nowhere() -> None:
    model, _, grid = encoded()
    atoms = raster(0, size=grid.shape)
    empty = atoms.acquisitions[0].with_sites(torch.zeros(37 * 50, dtype=torch.bool))
    with torch.no_grad():
        latents = model.encode([atoms + aio.AtomSet((empty,))])
    columns = ScenePredictor(model, latents, grid).observed_MF
    assert columns[:, -len(empty.channels) :].isnan().all() and not columns[:, : -len(empty.channels)].isnan().any()
    assert aio.decoding.sketch(model, latents, grid, spacing=5).labels.shape == grid.shape


def test_a_larger_margin_decodes_a_superset() -> None:
    model, latents, grid = encoded()
    queried = [aio.decoding.sketch(model, latents, grid, margin=m).queried for m in (0.0, 0.01, 0.03, 0.1, math.inf)]
    for fewer, more in itertools.pairwise(queried):
        assert (fewer <= more).all()
    assert queried[0].sum() == 7 * 10 and queried[-1].all()


@pytest.mark.parametrize("observation", [True, False])
def test_observations_show_what_no_probe_saw(monkeypatch: pytest.MonkeyPatch, observation: bool) -> None:
    """A decoder that predicts from the value of the pixel: the sketch gets a river right that it never decoded."""
    torch.manual_seed(0)
    values = 100 * torch.randn(2, 48, 48)
    values[0, 10] += 2000.0  # between the rows of probes: 2, 7, 12 ...
    values[0, 30:, 24:] += 2000.0
    atoms = aio.AtomSet.from_raster(values, aio.sensors.SENTINEL2.pick("B04", "B08"), 10.0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 2}).eval()
    model.config = model.config.replace(observation_conditioning=observation)
    with torch.no_grad():
        latents = model.encode([atoms])
    grid = aio.Grid(48, 48, 10.0)
    wet = (values[0] > 1000).long()

    def decode(latents, positions, **how):
        column = (positions[0].queries_M2[:, 0] / 10 + 23.5).round().long()
        row = (23.5 - positions[0].queries_M2[:, 1] / 10).round().long()
        return [9.0 * torch.nn.functional.one_hot(wet[row, column], 2).float()]

    monkeypatch.setattr(model, "decode", decode)
    result = aio.decoding.sketch(model, latents, grid, spacing=5, margin=0.5)
    assert result.decoded < 0.25 * 48**2
    assert (result.labels != wet).double().mean() < 0.002
    assert (aio.decoding.quadtree(model, latents, grid, start=16, probes=4).labels[10] == 0).any()  # misses it


def test_regression_targets_are_decoded_where_the_error_is_likely_large() -> None:
    model, latents, grid = encoded(task="regression", num_outputs=1)
    dense = aio.decoding.dense(model, latents, grid)
    results = [aio.decoding.sketch(model, latents, grid, spacing=4, tolerance=t) for t in (1e9, 0.02, 0.0)]
    assert results[0].decoded == 9 * 12 < results[1].decoded <= results[2].decoded
    torch.testing.assert_close(results[1].values[results[1].queried], dense.values[results[1].queried])
    assert results[1].differs(dense, 0.1).double().mean() <= results[0].differs(dense, 0.1).double().mean()


def test_points_and_lists_of_positions() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    point_cloud, where = points(1), queries(3, 200, 40.0)
    with torch.no_grad():
        latents = model.encode([raster(1), point_cloud])
    result = aio.decoding.sketch(model, latents, where, index=1, spacing=4)
    dense = aio.decoding.dense(model, latents, where, index=1)
    assert result.labels.shape == (200,) and result.decoded == 200 // 16
    torch.testing.assert_close(result.outputs[result.queried], dense.outputs[result.queried])
    everywhere = aio.decoding.sketch(model, latents, where, index=1, margin=math.inf)
    torch.testing.assert_close(everywhere.outputs, dense.outputs)


def test_probes_of_any_shape() -> None:
    assert probe_numbers((1, 1), 5).tolist() == [0]
    assert probe_numbers((1, 7), 3).tolist() == [1, 4]
    assert probe_numbers((4, 4), 2).tolist() == [5, 7, 13, 15]
    assert probe_numbers((3,), 9).shape == (1,)


def test_absent_and_constant_values_are_no_obstacle() -> None:
    observed = torch.randn(50, 6)
    observed[:, 1:3], observed[:, 4], observed[10:20, 3] = torch.nan, 7.0, torch.nan
    values, mixed = functions_of(observed, torch.arange(0, 50, 5))
    assert values.shape == (50, 3) and values.isfinite().all() and mixed.isfinite().all()
    assert (values[10:20, 1] == 0).all()


def test_many_channels_become_few(monkeypatch: pytest.MonkeyPatch) -> None:
    values, mixed = functions_of(torch.randn(300, 224), torch.arange(0, 300, 3))
    assert values.shape == (300, 48) and mixed.isfinite().all()


def test_mistakes() -> None:
    model, latents, grid = encoded()
    for wrong in ({"spacing": 0}, {"margin": -0.1}, {"margin": math.nan}, {"tolerance": -1.0}):
        with pytest.raises(ConfigError):
            aio.decoding.sketch(model, latents, grid, **wrong)
