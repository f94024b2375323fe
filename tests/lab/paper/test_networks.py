"""Items that train networks: each from synthetic scenes to its table, with trainings that items share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

pytest.importorskip("lightning")

from atomizer_io.errors import ConfigError
from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_io.training.config import parse
from atomizer_lab.paper import columns, decoding, networks, trainings
from atomizer_lab.paper.experiments import TABLE2_COLUMNS, with_gain
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Where
from atomizer_lab.paper.models import ATOMIZER, MODELS, PERCEIVER, RESNET, TUNED
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
    [*((name, 2) for name in ("table2", "table3", "local-observations", "lidar")), ("hyperspectral", 4)],
)
def test_items_end_with_a_table(name: str, rows: int, work: Path, tmp_path: Path) -> None:
    document = smoke(name, work, tmp_path)
    scores = [cell["mean"] for columns in document["found"].values() for cell in columns.values()]
    assert len(document["found"]) == rows and all(0 <= score <= 100 for score in scores)
    assert str(tmp_path) not in json.dumps(document) and str(work) not in json.dumps(document)


def test_baselines_are_tried_at_several_rates_on_validation_data(work: Path, tmp_path: Path) -> None:
    document = smoke("rates", work, tmp_path)
    (result,) = document["found"].values()
    assert list(result) == ["0.0003", "0.001"]
    for run in document["runs"].values():
        assert run["arguments"]["document"]["training"]["learning_rate"] == run["arguments"]["rate"]
        assert run["result"]["numbers"][RESNET].popitem()[1] == 100 * run["result"]["best"]["score"]


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
    assert (tmp_path / f"{name}-smoke.png").stat().st_size > 5000


def test_sensitivity_draws_every_dataset(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = next(iter(smoke("sensitivity", work, tmp_path)["runs"].values()))["result"]
    better = json.loads(json.dumps(result))
    for row in better["decode"]["rows"]:
        row["miou"] += 1
    kept: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: kept.append(figure))
    runs = {"chip: Atomizer-IO, seed 0": result, "chip: Atomizer-IO, seed 1": better, "fields: Atomizer-IO": better}
    decoding.draw_sensitivity(runs, Where(), tmp_path / "drawn.png", SMALL)
    (figure,) = kept
    titles = {axis.get_title(): axis for axis in figure.axes if axis.get_title()}
    assert set(titles) == {"chip", "fields"}
    chip, fields = (max(line.get_ydata().max() for line in axis.lines) for axis in titles.values())
    assert fields == pytest.approx(chip + 1)  # each shows the first run on its own data
    small = item("sensitivity").runs(SMALL, Where())
    assert len({task.name for task in small}) == len(small) == 2


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


def test_causes_are_sought_with_the_first_seed_only() -> None:
    tasks = item("temporal").runs(SMALL, Where(), [4, 5])
    others = [task for task in tasks if "local observations" in task.name or task.name.startswith("synthetic")]
    assert len(tasks) == 2 * 6 + 12 and len(others) >= 6
    assert {task.arguments["document"]["seed"] for task in others} == {4}


def test_classes_one_by_one(work: Path, tmp_path: Path) -> None:
    result = smoke("dales-classes", work, tmp_path)["found"]
    assert set(result) == {PERCEIVER, ATOMIZER}
    assert len(result[ATOMIZER]) == 9 and 0 <= result[ATOMIZER]["mean"]["mean"] <= 1


def document(column: columns.Column, model: str) -> dict[str, Any]:
    return column.document(model, 0, {}, networks.TIME, CONFIGS)


def test_baselines_share_all_but_the_model() -> None:
    own, baseline = (document(columns.CHIP, model) for model in (ATOMIZER, RESNET))
    assert own["data"] == baseline["data"] and "root" not in own["data"]
    tuned = {**own["training"], "configurations": None, **TUNED[RESNET]}
    assert tuned == {**baseline["training"], "configurations": None}
    assert own["training"]["max_time"] == baseline["training"]["max_time"]
    (fold, *_) = columns.PATCH_FOLDS
    assert "learning_rate" not in document(fold, RESNET)["training"], "only maps were tuned on"
    for model in (ATOMIZER, *MODELS):
        parse(document(columns.CHIP, model))  # every setting is known


def test_folds_cover_all_patches_and_keep_their_distance() -> None:
    count, gap = 5957, 100
    tests: set[int] = set()
    for fold in range(columns.FOLDS):
        numbers = columns.fold_numbers(count, fold, gap)
        test, val, train = (set(numbers[split]) for split in ("test", "val", "train"))
        assert not tests & test and not test & val and not test & train and not val & train
        near = {(number + step) % count for number in test for step in range(-gap, gap)}
        assert not near & train and len(train) > 0.6 * count and len(val) > 0.05 * count
        tests |= test
    assert tests == set(range(count))


def test_the_chip_of_one_sensor_has_no_file_of_the_other(tmp_path: Path) -> None:
    import data as fixtures

    fixtures.write("biomassters", tmp_path / "data" / "biomassters")
    columns.stage_months("S1")(tmp_path / "data", tmp_path / "staged")
    names = [path.name for path in (tmp_path / "staged").rglob("*.tif")]
    assert any("_S1_" in name for name in names) and not any("_S2_" in name for name in names)
    assert any("agbm" in name for name in names)


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
