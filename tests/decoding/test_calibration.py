"""One dial for the whole cost: the promise on new scenes, on which it is spent, and what is stored of it."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.decoding import Calibration, Choices, Sampling, calibrate
from atomizer_io.decoding.calibration import load, load_all
from atomizer_io.decoding.predictor import ScenePredictor
from atomizer_io.decoding.risk_control import strategies
from atomizer_io.decoding.scene_decoder import Decoding
from atomizer_io.decoding.search import STRICTNESS
from atomizer_io.decoding.strategies import OperatingPoint, own_point
from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Cost
from atomizer_io.models.storage import seal_at
from scenes import SMALL, points, queries, raster

SIDE = 32
GRID = aio.Grid(SIDE, SIDE, 10.0)
BANDS = aio.sensors.SENTINEL2.pick("B04", "B08")
KAPPA, NEIGHBORS = 256, 9
OWN = Choices((KAPPA,), (None,), (NEIGHBORS,))  # only the strategy is free
FEW = Sampling(scenes=24)
# enough to choose from, and quick to try
SMALL_GRID = Choices(
    (KAPPA, 4 * KAPPA),
    (None, KAPPA // 4),
    (NEIGHBORS, 1),
    {"quadtree": [{"start": 16, "probes": 4}], "sketch": [{"spacing": 4}, {"spacing": 6}]},
)


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


def landscapes(count: int, river: bool = False, seed: int = 0) -> list[tuple[aio.AtomSet, aio.Grid]]:
    rng = np.random.default_rng(seed)
    return [landscape(rng, river) for _ in range(count)]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> aio.AtomizerIO:
    """A model whose outputs follow the first value at a position, the surer the further it is from 1 000.

    A little of its output comes from around: the fewer latents, atoms of a cell and neighbors, the further it is off.
    """
    torch.manual_seed(0)
    small = {**SMALL, "num_outputs": 2, "atoms_per_latent": KAPPA, "neighbors": NEIGHBORS}
    made = aio.create_model("atomizer_io_tiny", **small).eval()

    def decode(latents, positions, **how):
        (where,), (atoms,), (geometry,) = positions, latents.atoms, latents.geometries
        value = atoms.acquisitions[0].values[where.sites_MA[:, 0], 0]
        cells = sum(len(part.order_N) for part in geometry.cells)
        saved = KAPPA * len(geometry.anchors_L2) / atoms.num_atoms, cells / atoms.num_atoms
        saved = (*saved, where.latents_Mk.shape[1] / min(NEIGHBORS, len(geometry.anchors_L2)))
        off = 25.0 * sum(max(0.0, -math.log2(share)) for share in saved)
        return [torch.stack([torch.zeros(len(value)), (value - 1000 + off) / 200], dim=1)]

    monkeypatch.setattr(made, "decode", decode)
    return made


def quietly(*arguments, **options) -> Calibration:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few scenes, or only dense decoding keeps it
        return calibrate(*arguments, **options)


def held_out(model: aio.AtomizerIO, point: OperatingPoint, river: bool, count: int = 60) -> tuple[float, float, float]:
    """Over new scenes: the share of positions that differ from the model's own prediction, its error, and of FLOPs."""
    own, differing, work = own_point(model), [], []
    for number, (atoms, grid) in enumerate(landscapes(count, river, seed=1)):
        prediction, reference = point.predict(model, atoms, grid, seed=number), own.predict(model, atoms, grid)
        differing.append(float(prediction.differs(reference).double().mean()))
        flops = [
            at.flops(ScenePredictor.encode(model, atoms, grid, cost=at.cost, seed=number), outputs)
            for at, outputs in ((point, prediction), (own, reference))
        ]
        work.append(flops[0] / flops[1])
    return float(np.mean(differing)), float(np.std(differing) / count**0.5), float(np.mean(work))


# A rare class

PONDS = Choices((KAPPA, 4 * KAPPA), (None,), (NEIGHBORS, 1), {"quadtree": [{"start": 16, "probes": 4}], "dense": [{}]})


def ponds(count: int, seed: int = 0) -> list[tuple[aio.AtomSet, aio.Grid]]:
    """Land with three ponds of 2 × 2 pixels in each scene: water is a hundredth of it."""
    rng, result = np.random.default_rng(seed), []
    for _ in range(count):
        wet = np.zeros((SIDE, SIDE))
        for row, column in rng.integers(0, SIDE - 2, size=(3, 2)):
            wet[row : row + 2, column : column + 2] = 1
        values = np.stack([2000.0 * wet, 0 * wet]) + 200 * rng.standard_normal((2, SIDE, SIDE))
        result.append((aio.AtomSet.from_raster(values.astype(np.float32), BANDS, 10.0), GRID))
    return result


def water_kept(model: aio.AtomizerIO, point: OperatingPoint) -> float:
    """Over new scenes: how much of the water of dense decoding is still water."""
    pairs = []
    for number, (atoms, grid) in enumerate(ponds(30, seed=1)):
        own = own_point(model).predict(model, atoms, grid).labels == 1
        pairs.append([float((point.predict(model, atoms, grid, seed=number).labels[own] == 1).sum()), float(own.sum())])
    lost, whole = np.sum(pairs, axis=0)
    return lost / whole


def test_a_promise_for_all_positions_that_loses_a_rare_class_warns_of_it(model: aio.AtomizerIO, tmp_path: Path) -> None:
    alpha, many = 0.02, Sampling(blocks=1500, scenes=36)
    with pytest.warns(UserWarning, match=r"loses classes: .* class 1 to \d+ % .*--promise classes"):
        average = calibrate(model, ponds(36), alpha, choices=PONDS, sampling=many)
    assert average.step.bound <= alpha and average.kept["class 1"] < 0.5
    assert water_kept(model, average.point) < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_class = calibrate(model, ponds(36), alpha, choices=PONDS, sampling=many, promise="classes")
    assert by_class.promise == "classes" and by_class.step.bound <= alpha and by_class.kept["class 1"] > 0.98
    assert water_kept(model, by_class.point) > 1 - 2 * alpha
    assert average.step.flops < by_class.step.flops < 1
    for result in (average, by_class):
        result.save(tmp_path)
    assert load_all(tmp_path) == [by_class, average]
    assert load(tmp_path, alpha, model) == by_class and "of every class" in by_class.stated
    (tmp_path / "calibration.json").unlink()
    average.save(tmp_path)
    with pytest.warns(UserWarning, match="loses classes"):  # where it is used, too
        Decoding(alpha=alpha).checked(model, tmp_path)


def test_a_promise_for_classes_is_for_classes_only(model: aio.AtomizerIO) -> None:
    with pytest.raises(ConfigError, match="promise 'iou' is not known; use pixels or classes"):
        calibrate(model, ponds(3), promise="iou")
    regression = aio.create_model("atomizer_io_tiny", **SMALL | {"task": "regression", "num_outputs": 1})
    with pytest.raises(ConfigError, match="has no classes"):
        calibrate(regression, ponds(3), precision=1.0, promise="classes")


def test_changed_calibrations_are_refused_until_they_are_sealed(model: aio.AtomizerIO, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    before = seal_at(tmp_path)
    stored(model, 0.1).save(tmp_path)
    assert seal_at(tmp_path) != before
    path = tmp_path / "calibration.json"
    path.write_text(path.read_text().replace('"alpha": 0.1', '"alpha": 0.05'))
    with pytest.raises(ConfigError, match=r"calibration.json was changed after it was stored .*--seal"):
        load(tmp_path, 0.1, model)
    assert main(["info", str(tmp_path), "--seal"]) == 0
    assert load(tmp_path, 0.1, model).alpha == 0.05


def test_calibrations_without_a_seal_are_read_if_they_are_older(model: aio.AtomizerIO, tmp_path: Path) -> None:
    stored(model, 0.1).save(tmp_path)
    path = tmp_path / "calibration.json"
    document = json.loads(path.read_text())
    rows = [{k: v for k, v in row.items() if k not in ("promise", "kept")} for row in document["calibrations"]]
    path.write_text(json.dumps({"version": 2, "calibrations": rows}))
    assert load_all(tmp_path) == [stored(model, 0.1)]
    path.write_text(json.dumps({"version": 3, "calibrations": document["calibrations"]}))
    with pytest.raises(ConfigError, match="its seal is broken"):
        load_all(tmp_path)


# Any class


@pytest.mark.parametrize("river", [False, True])
def test_alpha_is_kept_and_spent_on_new_scenes(model: aio.AtomizerIO, river: bool) -> None:
    alpha = 0.02
    result = quietly(model, landscapes(40, river), alpha, choices=SMALL_GRID)
    differing, error, work = held_out(model, result.point, river)
    assert differing <= alpha + 2 * error
    assert differing >= alpha / 5
    assert work < 0.5 and result.step.flops == pytest.approx(work, rel=0.2)
    careless = dataclasses.replace(result.point, strategy="quadtree", settings={"start": 16, "probes": 4}, margin=0.0)
    if river:  # agreement alone loses the river
        assert held_out(model, careless, river, 20)[0] > alpha


def test_the_whole_cost_saves_more_than_the_strategy_alone(model: aio.AtomizerIO) -> None:
    scenes, alone_choices = landscapes(24), dataclasses.replace(OWN, strategies=SMALL_GRID.strategies)
    whole, alone = (quietly(model, scenes, 0.03, choices=choices) for choices in (SMALL_GRID, alone_choices))
    assert whole.point.cost != own_point(model).cost == alone.point.cost
    assert not alone.point.dense
    assert whole.step.flops < alone.step.flops < 1


def test_the_rule_is_conformal_risk_control(model: aio.AtomizerIO) -> None:
    choices = dataclasses.replace(OWN, strategies={"quadtree": [{"start": 8, "probes": 4}]})
    result = quietly(model, landscapes(24), 0.05, choices=choices, sampling=FEW)
    assert [s.point.margin for s in result.curve] == [*STRICTNESS, math.inf]
    n = result.blocks
    for step in result.curve[:-1]:
        assert step.bound == pytest.approx((n * step.differing + 1) / (n + 1))
    differing = [s.differing for s in result.curve]
    assert differing == sorted(differing, reverse=True)  # made monotone
    assert result.curve[-1].differing == 0 and result.curve[-1].flops == 1
    assert result.point == next(s.point for s in result.curve if s.bound <= 0.05) == result.step.point
    assert result.curve[0].decoded < 1


def test_too_few_blocks_are_decoded_densely(model: aio.AtomizerIO) -> None:
    with pytest.warns(UserWarning, match="takes at least 99 blocks, not 20"):
        result = calibrate(model, landscapes(3), sampling=Sampling(blocks=20))
    assert result.point == own_point(model) and result.point.dense
    atoms, grid = landscapes(1, True)[0]
    prediction = result.point.predict(model, atoms, grid)
    assert prediction.queried.all()
    with pytest.warns(UserWarning, match="tested on blocks of 4 scenes only"):
        calibrate(model, landscapes(6), 0.1, choices=dataclasses.replace(OWN, strategies=strategies("sketch")))


def test_regression_targets_differ_by_more_than_the_precision() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 1, "task": "regression"}).eval()
    scenes = [(raster(seed, size=(20, 24)), aio.Grid(20, 24, 10.0)) for seed in range(18)]
    with pytest.raises(ConfigError, match="precision="):
        calibrate(model, scenes, 0.1)
    own = own_point(model)
    precision = 2 * float(own.predict(model, *scenes[0]).values.std())
    result = quietly(model, scenes, 0.1, precision=precision)
    assert result.precision == precision and result.point.tolerance <= precision and result.step.flops < 1
    atoms = [raster(seed, size=(20, 24)) for seed in range(90, 100)]
    differing = [
        result.point.predict(model, scene, scenes[0][1], seed=number)
        .differs(own.predict(model, scene, scenes[0][1]), precision)
        .double()
        .mean()
        for number, scene in enumerate(atoms)
    ]
    assert np.mean(differing) <= 0.1 + 2 * np.std(differing) / 10**0.5


def test_point_clouds() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    scenes = [(points(seed), queries(seed, 200, 50.0)) for seed in range(12)]
    result = quietly(model, scenes, 0.2)
    assert {s.point.strategy for s in result.curve} <= {"dense", "zone_probe", "sketch"}
    prediction = result.point.predict(model, *scenes[0])
    assert prediction.labels.shape == (200,)
    with pytest.raises(aio.errors.QueryError, match="needs a grid"):
        quietly(model, scenes, 0.2, choices=Choices(strategies=strategies("quadtree")))


def stored(model: aio.AtomizerIO, alpha: float, restricted: str | None = None, **point: object) -> Calibration:
    settings = {"strategy": "sketch", "settings": {"spacing": 5}, "margin": 0.3, **point}
    here = OperatingPoint(2 * KAPPA, 64, 4, **settings)
    step = aio.decoding.calibration.Step(here, 0.5 * alpha, 0.9 * alpha, 0.1, 0.2)
    mark = aio.models.storage.fingerprint(model)
    return Calibration(mark, alpha, restricted, here, None, 500, 40, 0.001, (step,))


def test_stored_with_the_model(model: aio.AtomizerIO, tmp_path: Path) -> None:
    made = [
        stored(model, 0.1),
        stored(model, 0.2),
        stored(model, 0.1, "quadtree", strategy="dense", settings={}, margin=math.inf),
    ]
    for result in (*made, made[0]):  # again: replaced, not doubled
        result.save(tmp_path)
    assert load_all(tmp_path) == made and "Infinity" not in (tmp_path / "calibration.json").read_text()
    assert load(tmp_path, 0.15, model) == made[0] and load(tmp_path, 0.5, model) == made[1]
    assert load(tmp_path, 0.5, model, strategy="quadtree") == made[2]
    assert load(tmp_path, 0.5, model, strategy="sketch") == made[1]  # what the open choice came to
    with pytest.raises(ConfigError, match=r"no calibration for alpha 0.01 \(stored: alpha 0.1, .*`atomizer calibrate"):
        load(tmp_path, 0.01, model)
    with pytest.raises(ConfigError, match=r"no calibration of zone-probe for alpha 0.5.*--decode zone-probe"):
        load(tmp_path, 0.5, model, strategy="zone_probe")
    with torch.no_grad():
        model.head.norm.weight.add_(0.1)
    with pytest.raises(ConfigError, match="calibrated with other weights"):
        load(tmp_path, 0.5, model)


def test_calibrations_of_older_versions_are_refused_by_name(model: aio.AtomizerIO, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps([{"alpha": 0.02, "strategy": "sketch", "margin": 0.3}]))
    with pytest.raises(ConfigError, match=r"calibration.json is of an older version.*calibrate .* --alpha 0.02`"):
        load(tmp_path, 0.02, model)
    path.write_text(json.dumps({"version": 2, "calibrations": [{"alpha": 1}]}))
    with pytest.raises(ConfigError, match="damaged or of another version"):
        load_all(tmp_path)
    stored(model, 0.1).save(tmp_path)  # takes its place
    assert len(load_all(tmp_path)) == 1


def test_alpha_alone_sets_the_whole_cost(model: aio.AtomizerIO, tmp_path: Path) -> None:
    result = stored(model, 0.05)
    result.save(tmp_path)
    for cost in (Cost(), Cost(2 * KAPPA, 64, 4)):
        decoding = Decoding(alpha=0.05, cost=cost)
        assert decoding.strategy == "calibrated" and decoding.checked(model, tmp_path) == Decoding(
            "sketch", 0.05, Cost(2 * KAPPA, 64, 4), result
        )
    for wrong, option in ((Cost(KAPPA), "--kappa"), (Cost(budget=9), "--budget"), (Cost(neighbors=9), "--neighbors")):
        with pytest.raises(ConfigError, match=f"leave out {option}, or alpha"):
            Decoding(alpha=0.05, cost=wrong).checked(model, tmp_path)
    assert Decoding().strategy == "dense" and Decoding().checked(model, None) == Decoding()


def test_mistakes(model: aio.AtomizerIO) -> None:
    scene = landscapes(1)[0]
    for alpha in (0.0, 1.0):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            calibrate(model, [scene], alpha)
    with pytest.raises(ConfigError, match="use dense, quadtree, zone_probe, sketch"):
        Choices(strategies={"guess": [{}]})
    with pytest.raises(ConfigError, match="no scenes"):
        calibrate(model, [])
    with pytest.raises(ConfigError, match="a pair of atoms and grid"):
        calibrate(model, [scene[0]])
    with pytest.raises(ConfigError, match="blocks must be a whole number"):
        Sampling(blocks=0)


def test_the_command_and_what_uses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    dataset = aio.datasets.create("synthetic", like="texture", size=16, length=12)
    made = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 2}, channels=dataset.channels).eval()
    folder = tmp_path / "best"
    made.save_pretrained(folder)
    options = "{like: texture, size: 16, length: 12}"
    (tmp_path / "config.yaml").write_text(f"data: {{name: synthetic, workers: 0, options: {options}}}")
    command = ["calibrate", str(folder), "--alpha", "0.4", "--scenes", "6"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(command) == 0
        assert "<- chosen" in capsys.readouterr().out
        assert main([*command, "--decode", "sketch,zone-probe", "--kappa", "80", "--window", "120"]) == 0
    result = {c.restricted: c.point for c in load_all(folder)}
    assert set(result) == {None, "sketch", "zone_probe"}
    assert {point.atoms_per_latent for name, point in result.items() if name and not point.dense} <= {80}
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--alpha", "0.4", "--limit", "2", "-o", str(tmp_path / "scores.json")]) == 0
    used = json.loads((tmp_path / "scores.json").read_text())["decoding"]
    point = result[None]
    assert used["strategy"] == point.strategy.replace("_", "-")
    assert used["cost"]["neighbors"] == point.neighbors and used["cost"]["budget"] == point.budget
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--alpha", "0.4", "--kappa", "7"]) == 2
    assert "leave out --kappa" in capsys.readouterr().err
