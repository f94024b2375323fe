"""Strategies have dense outputs wherever they decode, and decode no more positions than they promise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import atomizer_io as aio
from atomizer_io.decoding.predictor import ScenePredictor
from atomizer_io.decoding.sketching import functions_of
from atomizer_io.errors import ConfigError, QueryError
from scenes import SMALL, points, queries, raster


def encoded(
    seed: int = 0, size: tuple[int, int] = (37, 50), **settings
) -> tuple[aio.AtomizerIO, aio.Latents, aio.Grid]:
    torch.manual_seed(seed)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, **settings}).eval()
    with torch.no_grad():
        latents = model.encode([raster(seed, size=size)])
    return model, latents, aio.Grid(*size, gsd_m=10.0)


def painted(monkeypatch: pytest.MonkeyPatch, model: aio.AtomizerIO, grid: aio.Grid, painting: Tensor) -> list[int]:
    """Make ``model`` predict the classes of ``painting`` (H, W); the list collects how many positions were decoded."""
    calls: list[int] = []

    def decode(latents, positions, **how):
        where = positions[0].queries_M2
        column = ((where[:, 0] / 10 + (grid.width - 1) / 2).round()).long()
        row = ((grid.height - 1) / 2 - where[:, 1] / 10).round().long()
        calls.append(len(where))
        return [8.0 * nn.functional.one_hot(painting[row, column], 3).float()]

    monkeypatch.setattr(model, "decode", decode)
    return calls


def test_dense_decodes_everywhere() -> None:
    model, latents, grid = encoded()
    result = aio.decoding.dense(model, latents, grid)
    with torch.no_grad():
        logits = model.decode(latents, [grid.positions()])[0]
    assert torch.equal(result.labels, logits.argmax(dim=-1).reshape(grid.shape))
    torch.testing.assert_close(result.probabilities.reshape(-1, 3), logits.softmax(dim=-1))
    assert result.decoded == 37 * 50 and result.queried.all() and result.flops > 0


@pytest.mark.parametrize("start", [1, 2, 5, 32, 64])
@pytest.mark.parametrize("probes", [1, 4, 9])
def test_a_quadtree_equals_dense_decoding_where_it_decodes(start: int, probes: int) -> None:
    model, latents, grid = encoded()
    dense = aio.decoding.dense(model, latents, grid)
    result = aio.decoding.quadtree(model, latents, grid, start=start, probes=probes)
    torch.testing.assert_close(result.probabilities[result.queried], dense.probabilities[result.queried])
    assert result.decoded == result.queried.sum() <= grid.height * grid.width
    assert result.labels.shape == grid.shape
    if start == 1:
        assert torch.equal(result.labels, dense.labels)


def test_noise_takes_every_pixel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, latents, grid = encoded(size=(33, 47))
    painting = torch.randint(3, (33, 47), generator=torch.Generator().manual_seed(0))
    calls = painted(monkeypatch, model, grid, painting)
    result = aio.decoding.quadtree(model, latents, grid, start=16, probes=9)
    assert sum(calls) == result.decoded <= 33 * 47
    right = result.labels == painting
    assert right[result.queried].all()
    everywhere = aio.decoding.quadtree(model, latents, grid, start=16, probes=4, margin=math.inf)
    assert torch.equal(everywhere.labels, painting) and everywhere.decoded == 33 * 47


def test_zone_probe_counts_probes_and_hard_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    model, latents, grid = encoded(size=(40, 40))
    painting = torch.zeros(40, 40, dtype=torch.long)
    painted(monkeypatch, model, grid, painting)
    easy = aio.decoding.zone_probe(model, latents, grid, probes=4)
    assert easy.decoded == 4 * len(latents.features[0])  # the paper's best case: k_p L
    painting[:, 20:] = 2
    result = aio.decoding.zone_probe(model, latents, grid, probes=4)
    assert easy.decoded < result.decoded < 1600
    assert torch.equal(result.labels[result.queried], painting[result.queried])
    assert aio.decoding.zone_probe(model, latents, grid, margin=math.inf).decoded == 1600


def test_a_margin_decodes_more() -> None:
    model, latents, grid = encoded()
    counts = [aio.decoding.quadtree(model, latents, grid, margin=m).decoded for m in (0.0, 0.05, 0.3, 1.0)]
    assert counts == sorted(counts) and counts[-1] == 37 * 50


def test_regression_targets_agree_within_a_tolerance() -> None:
    model, latents, grid = encoded(task="regression", num_outputs=1)
    dense = aio.decoding.dense(model, latents, grid).values
    assert aio.decoding.quadtree(model, latents, grid, tolerance=1e9).decoded == 4 * 4
    exact = aio.decoding.quadtree(model, latents, grid, tolerance=0.0)
    torch.testing.assert_close(exact.values[exact.queried], dense[exact.queried])
    with pytest.raises(QueryError, match="use values"):
        _ = exact.labels


@pytest.mark.parametrize("spacing", [1, 2, 5, 100])
@pytest.mark.parametrize("margin", [0.0, 0.02, 1.1])
def test_a_sketch_equals_dense_decoding_where_it_decodes(spacing: int, margin: float) -> None:
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


def test_absent_and_constant_values_are_no_obstacle() -> None:
    observed = torch.randn(50, 6)
    observed[:, 1:3], observed[:, 4], observed[10:20, 3] = torch.nan, 7.0, torch.nan
    values, mixed = functions_of(observed, torch.arange(0, 50, 5))
    assert values.shape == (50, 3) and values.isfinite().all() and mixed.isfinite().all()
    assert (values[10:20, 1] == 0).all()


def test_lists_of_positions() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    with torch.no_grad():
        latents = model.encode([raster(1), points(1)])
    where = queries(3, 200, 40.0)
    dense = aio.decoding.dense(model, latents, where, index=1)
    zones = aio.decoding.zone_probe(model, latents, where, index=1, probes=2)
    sketch = aio.decoding.sketch(model, latents, where, index=1, spacing=4)
    assert sketch.decoded == 200 // 16
    for result in (zones, sketch):
        assert result.labels.shape == (200,)
        torch.testing.assert_close(result.outputs[result.queried], dense.outputs[result.queried])
    everywhere = aio.decoding.sketch(model, latents, where, index=1, margin=math.inf)
    torch.testing.assert_close(everywhere.outputs, dense.outputs)
    with pytest.raises(QueryError, match="say with index="):
        aio.decoding.dense(model, latents, where)
    with pytest.raises(QueryError, match="needs a grid"):
        aio.decoding.quadtree(model, latents, where, index=1)


def test_mistakes() -> None:
    model, latents, grid = encoded()
    wrong = {
        "quadtree": [{"probes": 0}, {"probes": 99}, {"margin": -1.0}, {"start": 0}, {"tolerance": math.nan}],
        "sketch": [{"spacing": 0}, {"margin": -0.1}, {"margin": math.nan}, {"tolerance": -1.0}],
    }
    for name, settings in wrong.items():
        for setting in settings:
            with pytest.raises(ConfigError):
                getattr(aio.decoding, name)(model, latents, grid, **setting)
    with pytest.raises(QueryError, match="expected"):
        aio.decoding.dense(model, latents, torch.zeros(0, 2))
