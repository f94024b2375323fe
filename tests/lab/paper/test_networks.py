"""Items that train networks: each from synthetic scenes to its table, with trainings that items share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

from atomizer_io.training.config import parse
from atomizer_lab.paper import columns, networks, tabular, trainings
from atomizer_lab.paper.item import SMOKE, Where
from atomizer_lab.paper.models import ATOMIZER, RESNET
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


def document(column: columns.Column, model: str) -> dict[str, Any]:
    return column.document(model, 0, {}, networks.TIME, CONFIGS)


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


def test_a_kept_training_is_found_again(work: Path, tmp_path: Path) -> None:
    settings = columns.SYNTHETIC.document(ATOMIZER, 0, {}, networks.TWO_STEPS, Path())
    folders = {"data": str(tmp_path), "work": str(work), "results": str(tmp_path / "results")}
    done = networks.train("synthetic", settings, **folders)
    trainings.keep(done, folders["results"])
    again = networks.train("synthetic", settings, **{**folders, "work": str(tmp_path / "other")})
    assert again.model.parent.parent == tmp_path / "results" / "checkpoints"
    assert again.metrics["scores"] == done.metrics["scores"] and "folder" not in again.metrics
    assert trainings.mark(settings) != trainings.mark({**settings, "seed": 1})
