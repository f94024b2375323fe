"""Whether a model looks around: 0 for single positions, much for one that sees nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sample import Queries, queries_at
from atomizer_io.models.base import Model
from atomizer_io.training import config
from atomizer_io.training.build import initialise
from atomizer_io.training.run import make_loaders, prepare, train
from atomizer_io.training.splits import open_split
from atomizer_io.training.surroundings import exchanged, surroundings
from runs import NETWORK, result, synthetic
from scenes import points, raster


def scenes(folder: Path, like: str, **settings: object) -> config.Run:
    data = {"options": {"like": like, "size": 24, "length": 8}}
    return synthetic(folder, data, NETWORK | settings, max_steps=1, baselines=True)


def fresh(run: config.Run) -> Model:
    """A model before its first step that has no favourite output."""
    ready = prepare(run)
    loader = make_loaders(ready.run, ready, 0, 1)[0]
    initialise(ready.run, ready.model, loader)
    with torch.no_grad():
        usual = torch.cat(ready.model.eval().predict(next(iter(loader)).inputs)).mean(dim=0)
        target = ready.model.task_spec
        ready.model.head.linear.bias -= (usual - target.target_mean) / target.target_std  # type: ignore
    return ready.model


def changed(model: Model, run: config.Run) -> float:
    measured = surroundings(model, open_split(run, "val").for_evaluation(), seed=0)
    assert measured is not None and measured["predictions"] > 10
    return float(measured["changed"])


@pytest.mark.parametrize("like", ["pastis-r", "biomassters"])
def test_it_is_zero_by_single_positions_and_high_by_latents_alone(tmp_path: Path, like: str) -> None:
    run = scenes(tmp_path / "both", like)
    model = fresh(run)
    torch.nn.init.zeros_(model.decoder.latent.out.weight)  # type: ignore[union-attr]
    assert changed(model, run) < 1e-6  # the decoder ignores latents; rounding is left
    blind = scenes(tmp_path / "latents", like, observation_conditioning=False)
    assert changed(fresh(blind), blind) > 0.1


def test_what_a_query_sees_stays_and_all_else_comes_from_the_other_scene() -> None:
    here, there = (raster(seed, holes=0.3, gsd=20.0) + raster(seed + 1) + points(seed) for seed in (1, 5))
    where = here.acquisitions[2].positions[:2]
    queries = Queries(where, torch.zeros(2, dtype=torch.bool), footprint_m=torch.tensor([30.0, 30.0]))
    mixed = exchanged(here, queries, [there], torch.Generator().manual_seed(0))
    assert mixed is not None
    for before, after, donor in zip(here, mixed, there, strict=True):
        was, now, there_is = (a.observed().nan_to_num(-1.0) for a in (before, after, donor))
        own = (was == now).all(dim=1)
        near = ((before.positions[:, None] - where).abs() <= 15.0).all(dim=2).any(dim=1)
        assert own[near].all() and (~own).sum() > 0.8 * (~near).sum() > 0
        assert set(now[~own].flatten().tolist()) <= set(there_is.flatten().tolist())
        torch.testing.assert_close(after.positions, before.positions)
    model = aio.create_model("atomizer_io_tiny", num_outputs=2, **NETWORK).eval()
    torch.nn.init.zeros_(model.decoder.latent.out.weight)
    inputs = [model.preparer()(atoms, queries) for atoms in (here, mixed)]
    with torch.no_grad():
        torch.testing.assert_close(*model.predict(inputs), rtol=0, atol=0)
    alone = raster(1, size=(1, 1))
    assert exchanged(alone, queries_at(alone.acquisitions[0].positions), [], torch.Generator()) is None


def test_a_run_reports_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(scenes(tmp_path, "sen1floods11"), progress=False)
    measured = result(tmp_path / "run")["surroundings"]
    shown = capsys.readouterr().out
    share = f"{measured['predictions']} validation predictions change in {measured['changed']:.1%} of cases"
    assert f"surroundings: {share}" in shown
    train(synthetic(tmp_path / "scenes", {"options": {"like": "eurosat", "size": 16, "length": 4}}, max_steps=1))
    assert result(tmp_path / "scenes" / "run")["surroundings"] is None
    assert "surroundings: not measured" in capsys.readouterr().out
