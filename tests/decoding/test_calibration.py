"""The promise of calibrated decoding, on scenes in which probing fails and on scenes in which it does not."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.decoding import Calibration, calibrate
from atomizer_io.decoding.calibration import STRATEGIES, STRICTNESS, load, load_all
from atomizer_io.errors import ConfigError
from scenes import SMALL, queries, raster

SIDE = 32
GRID = aio.Grid(SIDE, SIDE, 10.0)
BANDS = aio.sensors.SENTINEL2.pick("B04", "B08")


def landscape(rng: np.random.Generator, river: bool) -> tuple[aio.AtomSet, aio.Grid]:
    """Land and water by the value of the first band; with a river one pixel wide that bends at random."""
    x, y = np.mgrid[:SIDE, :SIDE] / SIDE
    wet = np.sin(rng.uniform(3, 6) * x + rng.uniform(0, 6)) + np.sin(rng.uniform(3, 6) * y + rng.uniform(0, 6)) > 1.2
    if river:
        column = rng.integers(4, SIDE - 4)
        for row in range(SIDE):
            column = int(np.clip(column + rng.integers(-1, 2), 0, SIDE - 1))
            wet[row, column] = True
    values = np.stack([2000.0 * wet, np.zeros_like(x)]) + 300 * rng.standard_normal((2, SIDE, SIDE))
    return aio.AtomSet.from_raster(values.astype(np.float32), BANDS, 10.0), GRID


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> aio.AtomizerIO:
    """A model whose decoder answers by the first value at a position, the surer the further it is from 1 000."""
    torch.manual_seed(0)
    made = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 2, "atoms_per_latent": 512}).eval()

    def decode(latents, positions, **how):
        value = latents.atoms[0].acquisitions[0].values[positions[0].sites_MA[:, 0], 0]
        return [torch.stack([torch.zeros(len(value)), (value - 1000) / 200], dim=1)]

    monkeypatch.setattr(made, "decode", decode)
    return made


def held_out(model: aio.AtomizerIO, found: Calibration, river: bool, count: int = 40) -> tuple[float, float]:
    """Mean share of positions that differ from dense decoding, and that were decoded, over new scenes."""
    rng = np.random.default_rng(1)
    differing, decoded = [], []
    for _ in range(count):
        atoms, grid = landscape(rng, river)
        with torch.no_grad():
            latents = model.encode([atoms])
        answer = found.decode(model, latents, grid)
        differing.append(float(answer.differs(aio.decoding.dense(model, latents, grid)).double().mean()))
        decoded.append(answer.decoded / SIDE**2)
    return float(np.mean(differing)), float(np.mean(decoded))


@pytest.mark.parametrize("strategy", ["quadtree", "zone_probe", "sketch"])
@pytest.mark.parametrize("river", [False, True])
def test_the_promise_holds_on_new_scenes(model: aio.AtomizerIO, strategy: str, river: bool) -> None:
    rng = np.random.default_rng(0)
    settings = {"quadtree": {"start": 16, "probes": 4}, "zone_probe": {"probes": 4}, "sketch": {"spacing": 4}}[strategy]
    alpha = 0.02
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where only dense decoding keeps it
        found = calibrate(
            model, [landscape(rng, river) for _ in range(80)], alpha, strategy=strategy, settings=[settings]
        )
    differing, decoded = held_out(model, found, river)
    assert differing <= alpha
    if found.dense:
        assert differing == 0 and decoded == 1
    careless = dataclasses.replace(found, margin=0.0)
    if river and strategy == "quadtree":  # agreement alone loses the river
        assert held_out(model, careless, river)[0] > alpha


def test_sketching_keeps_the_river_at_a_fraction_of_the_work(model: aio.AtomizerIO) -> None:
    rng = np.random.default_rng(0)
    scenes = [landscape(rng, river=True) for _ in range(60)]
    tried = {"quadtree": {"start": 16, "probes": 9}, "sketch": {"spacing": 4}}
    work = {name: calibrate(model, scenes, 0.03, strategy=name, settings=[tried[name]]) for name in tried}
    shares = {name: held_out(model, found, river=True)[1] for name, found in work.items()}
    assert shares["sketch"] < 0.3 < shares["quadtree"]


def test_the_rule_is_conformal_risk_control(model: aio.AtomizerIO) -> None:
    rng = np.random.default_rng(0)
    scenes = [landscape(rng, river=False) for _ in range(40)]
    found = calibrate(model, scenes, 0.05, settings=[{"start": 8, "probes": 4}])
    assert found.scenes == 40 and found.settings == {"start": 8, "probes": 4}
    assert [p.margin for p in found.curve] == list(STRICTNESS)
    for point in found.curve:
        assert point.bound == pytest.approx((40 * point.differing + 1) / 41)
    differing = [p.differing for p in found.curve]
    assert differing == sorted(differing, reverse=True)  # made monotone
    assert found.margin == min(p.margin for p in found.curve if p.bound <= 0.05)
    # the curve itself: margin 0 is plain agreement
    plain = []
    for atoms, grid in scenes:
        with torch.no_grad():
            latents = model.encode([atoms])
        answer = aio.decoding.quadtree(model, latents, grid, start=8, probes=4)
        plain.append(float(answer.differs(aio.decoding.dense(model, latents, grid)).double().mean()))
    assert found.curve[0].differing >= np.mean(plain) - 1e-9
    assert found.curve[0].decoded < 1


def test_too_few_scenes_are_decoded_densely(model: aio.AtomizerIO) -> None:
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="takes at least 99 scenes that choose the margin, not 5"):
        found = calibrate(model, [landscape(rng, False) for _ in range(5)], settings=[{"start": 8, "probes": 4}])
    assert found.dense and math.isinf(found.margin)
    atoms, grid = landscape(rng, True)
    with torch.no_grad():
        latents = model.encode([atoms])
    answer = found.decode(model, latents, grid)
    assert answer.asked.all() and torch.equal(answer.labels, aio.decoding.dense(model, latents, grid).labels)


def test_settings_are_chosen_on_other_scenes_than_the_margin(model: aio.AtomizerIO) -> None:
    rng = np.random.default_rng(0)
    settings = [{"start": 2, "probes": 4}, {"start": 16, "probes": 4}]  # the first is dense
    found = calibrate(model, [landscape(rng, False) for _ in range(45)], 0.1, settings=settings)
    assert found.scenes == 30 and found.settings == settings[1]


def test_quantities_differ_by_more_than_the_precision() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 1, "task": "regression"}).eval()
    scenes = [(raster(seed, size=(20, 24)), aio.Grid(20, 24, 10.0)) for seed in range(25)]
    with pytest.raises(ConfigError, match="precision="):
        calibrate(model, scenes, 0.1)
    with torch.no_grad():
        values = aio.decoding.dense(model, model.encode([scenes[0][0]]), scenes[0][1]).values
    precision = 2 * float(values.std())
    for strategy in STRATEGIES:
        settings = [STRATEGIES[strategy].settings[0]]
        found = calibrate(model, scenes, 0.1, strategy=strategy, settings=settings, precision=precision)
        assert found.tolerance <= precision and found.precision == precision
        with torch.no_grad():
            latents = model.encode([raster(99, size=(20, 24))])
        answer = found.decode(model, latents, scenes[0][1])
        dense = aio.decoding.dense(model, latents, scenes[0][1])
        assert answer.differs(dense, precision).double().mean() <= 0.15


def test_stored_with_the_model(model: aio.AtomizerIO, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scenes = [landscape(rng, False) for _ in range(30)]
    made = [calibrate(model, scenes, alpha, settings=[{"start": 8, "probes": 4}]) for alpha in (0.1, 0.2)]
    for found in (*made, made[0]):  # again: replaced, not doubled
        found.save(tmp_path)
    assert load_all(tmp_path) == made
    assert load(tmp_path, 0.15, model) == made[0]
    assert load(tmp_path, 0.5, model) == made[1]
    with pytest.raises(ConfigError, match=r"no calibration of quadtree for alpha 0.01 at κ 512.*stored: alpha 0.1"):
        load(tmp_path, 0.01, model)
    with pytest.raises(ConfigError, match=r"no calibration of sketch.*stored: none.*atomizer calibrate"):
        load(tmp_path, 0.05, model, strategy="sketch")
    with torch.no_grad():
        model.head.norm.weight.add_(0.1)
    with pytest.raises(ConfigError, match="calibrated with other weights"):
        load(tmp_path, 0.5, model)
    (tmp_path / "calibration.json").write_text(json.dumps([{"alpha": 1}]))
    with pytest.raises(ConfigError, match="damaged or of another version"):
        load_all(tmp_path)


def test_infinite_margins_survive_a_file(model: aio.AtomizerIO, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="dense"):
        found = calibrate(model, [landscape(np.random.default_rng(0), False)], settings=[{"start": 8, "probes": 4}])
    found.save(tmp_path)
    assert load_all(tmp_path)[0].dense and "Infinity" not in (tmp_path / "calibration.json").read_text()


def test_other_neighbors_void_the_promise(model: aio.AtomizerIO) -> None:
    atoms, grid = landscape(np.random.default_rng(0), False)
    with pytest.warns(UserWarning, match="dense"):
        found = calibrate(model, [(atoms, grid)], settings=[{"start": 8, "probes": 4}])
    with torch.no_grad():
        latents = model.encode([atoms])
    with pytest.raises(ConfigError, match="calibrate again"):
        found.decode(model, latents, grid, neighbors=1)


def test_mistakes(model: aio.AtomizerIO) -> None:
    scene = landscape(np.random.default_rng(0), False)
    for wrong, message in (
        ({"alpha": 0.0}, "between 0 and 1"),
        ({"alpha": 1.0}, "between 0 and 1"),
        ({"strategy": "dense"}, "use quadtree, zone_probe, sketch"),
    ):
        with pytest.raises(ConfigError, match=message):
            calibrate(model, [scene], **wrong)
    with pytest.raises(ConfigError, match="no scenes"):
        calibrate(model, [])
    with pytest.raises(ConfigError, match="a pair of atoms and grid"):
        calibrate(model, [scene[0]])
    with pytest.raises(aio.errors.QueryError, match="needs a grid"):
        calibrate(model, [(scene[0], queries(3, 50, 100.0))])


def test_samples_of_a_dataset_are_scenes() -> None:
    torch.manual_seed(0)
    dataset = aio.datasets.create("synthetic", like="texture", size=24, length=12)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 2}, channels=dataset.channels).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = calibrate(model, dataset, 0.3, strategy="sketch")
    assert found.scenes == 8


def test_usual_settings_are_the_defaults() -> None:
    for name, strategy in STRATEGIES.items():
        defaults = inspect.signature(getattr(aio.decoding, name)).parameters
        assert all(defaults[setting].default == value for setting, value in strategy.usual.items())


def test_scenes_without_observations_are_left_out(model: aio.AtomizerIO) -> None:
    rng = np.random.default_rng(0)
    nothing = aio.AtomSet.from_raster(np.full((2, SIDE, SIDE), np.nan, np.float32), BANDS, 10.0)
    scenes = [landscape(rng, False) for _ in range(20)] + [(nothing, GRID)] * 3
    assert calibrate(model, scenes, 0.2, settings=[{"start": 8, "probes": 4}]).scenes == 20
    with pytest.raises(ConfigError, match="nothing was observed in any of 3 scenes"):
        calibrate(model, scenes[20:], 0.2, settings=[{"start": 8, "probes": 4}])
