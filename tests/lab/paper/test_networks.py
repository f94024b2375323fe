"""Items that train networks: each from synthetic scenes to its table, with trainings that items share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

from atomizer_io.errors import ConfigError
from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_io.training.config import parse
from atomizer_lab.paper import columns, networks, tabular, trainings
from atomizer_lab.paper.experiments import TABLE2_COLUMNS, with_gain
from atomizer_lab.paper.item import PAPER, SMOKE, Where
from atomizer_lab.paper.models import ATOMIZER, MODELS, PERCEIVER, RESNET
from atomizer_lab.paper.models import SMALL as SMALL_MODELS
from atomizer_lab.paper.registry import item

CONFIGS = Path(__file__).parents[3] / "configs"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder of runs for all tests: what was trained once is not trained again."""
    yield tmp_path_factory.mktemp("work")


def smoke(name: str, work: Path, folder: Path) -> dict[str, Any]:
    """Run an item and return its result file."""
    output = folder / f"{name}-smoke.json"
    shown = item(name).run(SMOKE, Where(folder, work, folder), output, jobs=0)
    assert "here (smoke)" in shown
    document: dict[str, Any] = json.loads(output.read_text())
    return document


@pytest.mark.parametrize(
    ("name", "rows"),
    [*((name, 2) for name in ("table3", "local-observations", "lidar")), ("hyperspectral", 4), ("table2", 6)],
)
def test_items_end_with_a_table(name: str, rows: int, work: Path, tmp_path: Path) -> None:
    document = smoke(name, work, tmp_path)
    scores = [cell["mean"] for columns in document["found"].values() for cell in columns.values()]
    assert len(document["found"]) == rows and all(0 <= score <= 100 for score in scores)
    assert str(tmp_path) not in json.dumps(document) and str(work) not in json.dumps(document)


def test_all_models_are_tried_at_several_rates_on_validation_data(work: Path, tmp_path: Path) -> None:
    document = smoke("rates", work, tmp_path)
    (result,) = document["found"].values()
    assert list(result) == [f"synthetic, {rate:g}" for rate in networks.RATES]
    for run in document["runs"].values():
        assert run["result"]["numbers"][RESNET].popitem()[1] == 100 * run["result"]["best"]["score"]
        assert run["arguments"]["document"]["data"]["test"] is None


def test_the_rate_that_is_best_on_validation_data_is_taken(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = columns.SYNTHETIC.document(RESNET, 3, {}, networks.TWO_STEPS, Path())
    places = {"data": str(tmp_path), "work": str(work), "results": str(tmp_path)}
    more: dict[str, Any] = {**places, "rates": (1e-3, 3e-3), "tried": {"max_steps": 1}}
    assert networks.find("synthetic", settings, **more) is None
    done = networks.train("synthetic", settings, **more)
    trials = {
        rate: networks.train("synthetic", networks.trial(settings, rate, more["tried"]), **places)
        for rate in more["rates"]
    }
    assert all(trial.run.seed == 0 and "test" not in trial.metrics["scores"] for trial in trials.values())
    best = max(trials, key=lambda rate: trials[rate].metrics["best"]["score"])
    assert (done.run.training.learning_rate, done.run.seed) == (best, 3)
    again = networks.find("synthetic", settings, **more)
    assert again is not None and again.model == done.model
    worse = {"best": {"score": 7.0, "of": "rmse"}}, {"best": {"score": 9.0, "of": "rmse"}}
    errors = {
        rate: trainings.Trained(done.run, done.model, metrics)
        for rate, metrics in zip((1e-3, 3e-3), worse, strict=True)
    }
    assert networks.chosen(settings, errors)["training"]["learning_rate"] == 1e-3  # the lower error


def test_channels_are_removed_at_test_only(work: Path, tmp_path: Path) -> None:
    result = smoke("table3", work, tmp_path)["found"]
    assert set(result) == {RESNET, ATOMIZER}
    assert list(result[ATOMIZER]) == [f"S1F {kind}" for kind in (*CONFIGURATIONS, "average")]


@pytest.mark.parametrize("name", ["compute", "sensitivity"])
def test_decoding_uses_the_checkpoint_of_table2(name: str, work: Path, tmp_path: Path) -> None:
    smoke("table2", work, tmp_path)
    before = sorted((work / "runs").iterdir())
    document = smoke(name, work, tmp_path)
    assert sorted((work / "runs").iterdir()) == before
    dense = [cells for row, cells in document["found"].items() if row.startswith("dense")]
    assert dense and all(cells["decoded, %"]["mean"] == 100 for cells in dense)
    assert all(cells["GFLOP"]["mean"] < cells["GFLOP as written"]["mean"] for cells in dense)
    assert (name == "sensitivity") == (RESNET not in document["found"])


def test_dates_end_with_what_aggregation_gains(work: Path, tmp_path: Path) -> None:
    result = smoke("temporal", work, tmp_path)["found"]
    joint, aggregated, gain = (
        next(iter(result[row].values()))["mean"] for row in ("joint", "aggregated", "gain by aggregation")
    )
    assert gain == pytest.approx(aggregated - joint)


def test_gains_are_of_the_same_seed_or_of_means() -> None:
    before = {"values": [10.0, 20.0], "mean": 15.0, "spread": 7.1}  # old name
    after = {"values": [11.0, 23.0], "mean": 17.0, "spread": 8.5}  # old name
    paired = with_gain({"joint": {"T = 3": before}, "aggregated": {"T = 3": after}})["gain by aggregation"]["T = 3"]
    assert paired["values"] == [1.0, 3.0] and paired["spread"] == pytest.approx(2**0.5)  # old name
    lone = {"values": [23.0], "mean": 23.0, "spread": None}  # old name
    single = with_gain({"joint": {"T = 3": before}, "aggregated": {"T = 3": lone}})["gain by aggregation"]["T = 3"]
    assert single == {"values": [], "mean": 8.0, "spread": None}  # old name
    assert with_gain({"joint": {"T = 3": before}}) == {"joint": {"T = 3": before}}


def test_classes_one_by_one(work: Path, tmp_path: Path) -> None:
    result = smoke("dales-classes", work, tmp_path)["found"]
    assert set(result) == {PERCEIVER, ATOMIZER}
    assert len(result[ATOMIZER]) == 9 and 0 <= result[ATOMIZER]["mean"]["mean"] <= 1


def document(column: columns.Column, model: str) -> dict[str, Any]:
    return column.document(model, 0, {}, networks.TIME, CONFIGS)


@pytest.mark.parametrize("column", columns.COLUMNS.values(), ids=list(columns.COLUMNS))
def test_baselines_share_all_but_the_model(column: columns.Column) -> None:
    own = document(column, ATOMIZER)
    assert "root" not in own["data"] and own["training"]["max_time"] == "0:10:00"
    assert own["model"]["preset"] == "atomizer_io_tiny" and own["training"]["baselines"] is False
    parse(own)  # every setting is known
    for model in SMALL_MODELS:
        baseline = document(column, model)
        parse(baseline)
        assert own["data"] == baseline["data"]
        different = {key for key in baseline["training"] if baseline["training"][key] != own["training"].get(key)}
        assert different <= {"batch_size", "warmup_steps"}


def test_tabular_baselines_are_rows_of_a_table(work: Path, tmp_path: Path) -> None:
    table = smoke("table2", work, tmp_path)["found"]
    assert {"random forest", "gradient boosting", "logistic regression", "constant"} < set(table)
    runs = tabular.runs_of([columns.SYNTHETIC], {"all": "all", "radar": "s1-only"}, "average")
    (task,) = runs(Where(tmp_path, work, tmp_path, CONFIGS), (0, 1))
    result = task.run(**task.all_arguments)
    assert list(result["numbers"]["random forest"]) == ["all", "radar", "average"]
    assert result["numbers"]["random forest"]["all"] == table["random forest"]["synthetic"]["mean"]
    run = parse({**task.arguments["document"]})
    for split in tabular.opened(run, "s1-only"):
        assert {channel.sensor for sample in split for channel in sample.atoms.channels} == {"sentinel1"}


def test_the_full_protocol_has_a_run_for_each_model_and_dataset(tmp_path: Path) -> None:
    where = Where(tmp_path / "data", tmp_path / "work", tmp_path / "results", CONFIGS)
    tasks = item("table2").runs(PAPER, where)
    assert len(tasks) == len(TABLE2_COLUMNS) * len(MODELS)
    for task in tasks:
        document = task.arguments["document"]
        parse(dict(document))  # every setting is known
        assert document["training"]["batch_size"] == tasks_of(tasks, document)["training"]["batch_size"]
    with pytest.raises(ConfigError, match="no such file; name the folder of the paper's settings with --configs"):
        item("table2").runs(PAPER, Where(configs=tmp_path))


def tasks_of(tasks: list[Any], document: dict[str, Any]) -> dict[str, Any]:
    """The settings of the first run on the same data."""
    return next(t.arguments["document"] for t in tasks if t.arguments["document"]["data"] == document["data"])


def test_gpu_hours_grow_with_what_is_computed(tmp_path: Path) -> None:
    where = Where(configs=CONFIGS)
    cells = [networks.Cell(columns.DATASETS["EuroSAT"], model).task(where, 0) for model in (ATOMIZER, RESNET)]
    hours = [networks.gpu_hours(cell, 4e13) for cell in cells]
    assert all(0 < result < 50 for result in hours if result is not None) and None not in hours
    assert networks.gpu_hours(cells[0], 8e13) == pytest.approx(hours[0] / 2)  # type: ignore[operator]


def test_a_kept_training_is_found_again(work: Path, tmp_path: Path) -> None:
    settings = columns.SYNTHETIC.document(ATOMIZER, 0, {}, networks.TWO_STEPS, Path())
    folders = {"data": str(tmp_path), "work": str(work), "results": str(tmp_path / "results")}
    done = networks.train("synthetic", settings, **folders)
    trainings.keep(done, folders["results"])
    again = networks.train("synthetic", settings, **{**folders, "work": str(tmp_path / "other")})
    assert again.model.parent.parent == tmp_path / "results" / "checkpoints"
    assert again.metrics["scores"] == done.metrics["scores"] and "folder" not in again.metrics
    assert trainings.mark(settings) != trainings.mark({**settings, "seed": 1})
