"""Small tasks: one recipe for all, parts that do not touch, baselines on the same split, and nothing run twice."""

from __future__ import annotations

import json
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from rasterio.transform import from_origin

import atomizer_io as aio
import data as fixtures
from atomizer_io.cli import main
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.datasets.dataset import Info
from atomizer_io.errors import DataError
from atomizer_io.training.config import DataSettings, ModelSettings, TrainingSettings, parse
from atomizer_io.training.splits import open_split
from atomizer_lab.commands.reproduce import SMALL_TASKS
from atomizer_lab.small_data import baselines, staging
from atomizer_lab.small_data.baselines import OnlyChannels, forests_by_channels, forests_by_dates, tabular_baselines
from atomizer_lab.small_data.dates import OnlySteps, subsets, time_steps
from atomizer_lab.small_data.small_data import CHANNELS, DATES, FOREST, NAMES
from atomizer_lab.small_data.small_data import table as text_of
from atomizer_lab.small_data.tasks import TASKS, SmallTask, merged
from scenes import data_folder

USES = ("train", "val", "test")


def raster(path: Path, values: np.ndarray, names: tuple[str, ...] = (), crs: str | None = "EPSG:32720") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    count, height, width = values.shape
    profile = {"driver": "GTiff", "count": count, "height": height, "width": width, "dtype": values.dtype}
    if crs:
        profile |= {"crs": crs, "transform": from_origin(300_000, 9_000_000, 20, 20)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(path, "w", **profile) as target:
            target.write(values)
            for number, name in enumerate(names, start=1):
                target.set_band_description(number, name)


def opened(task: SmallTask, source: Path, work: Path) -> dict[str, Any]:
    """The three parts of a task that was staged from stand-ins or real files."""
    root = staging.staged(task.name, task.stage, source, work)
    run = parse(task.document(str(root), 0, max_steps=10))
    return {use: open_split(run, use) for use in USES}


@pytest.mark.parametrize("name", TASKS)
def test_all_tasks_are_trained_as_atomizer_train_does_by_itself(name: str) -> None:
    run = parse(TASKS[name].document("data", 3, max_time="00:05:00"))
    usual = TrainingSettings(max_time="00:05:00", loggers=("csv",), figures=0, devices=1, baselines=False)
    assert run.training == usual and run.model == ModelSettings("atomizer_io_tiny")
    assert run.seed == 3 and run.data.root == "data"
    assert (run.data.statistics, run.data.measure, run.data.keep) == (
        DataSettings().statistics,
        DataSettings().measure,
        DataSettings().keep,
    )


def test_the_command_line_knows_all_tasks() -> None:
    assert SMALL_TASKS == NAMES


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if "parts" in task.data])
def test_parts_of_a_scene_are_pixels_apart(name: str) -> None:
    parts = TASKS[name].data["parts"]
    width = {"sen1floods11": 512, "rondonia": 750, "biomassters": 256, "terramind-433D": 224}[name]
    if name == "rondonia":  # from north to south
        parts = {use: [1 - part[3], 0.0, 1 - part[1], 1.0] for use, part in parts.items()}
    first, second, third = (np.array(parts[use])[[0, 2]] * width for use in USES)
    assert np.allclose([*first, *second, *third], np.rint([*first, *second, *third]))  # whole pixels
    assert first[0] == 0 and second[0] - first[1] == pytest.approx(5) and third[0] - second[1] == pytest.approx(5)
    assert third[1] == width


def test_splits_of_a_row_leave_some_out_between_them() -> None:
    result = staging.stretches(1000, gap=20)
    assert result == {"train": (0, 680), "val": (700, 780), "test": (800, 1000)}


def test_settings_are_merged_group_by_group() -> None:
    first = {"data": {"name": "a", "keep": 1}, "seed": 0}
    result = merged(first, {"data": {"keep": 2}, "training": {"gradient_clip": 1.0}})
    assert result == {"data": {"name": "a", "keep": 2}, "seed": 0, "training": {"gradient_clip": 1.0}}
    assert first["data"] == {"name": "a", "keep": 1}


def test_rondonia_is_stacked_by_date(tmp_path: Path) -> None:
    rng, task = np.random.default_rng(0), TASKS["rondonia"]
    place = tmp_path / "data" / "rondonia-20llq"
    days = [f"2021-{day[4:6]}-{day[6:]}" for day in task.data["options"]["sensor"]]
    values = rng.integers(1, 5000, (6, 6, 150, 8), dtype=np.int16)
    for date, bands in zip(days, values, strict=True):
        for name, band in zip(staging.RONDONIA_BANDS, bands, strict=True):
            raster(place / f"{staging.RONDONIA}_{name}_{date}.tif", band[None], (name,))
    shares = rng.integers(0, 10_000, (6, 150, 8), dtype=np.int16)
    raster(place / f"{staging.RONDONIA}_2020-06-04_2021-08-26_probs_v1.tif", shares)
    parts = opened(task, tmp_path / "data", tmp_path / "work")
    sample = parts["train"][0]
    assert [a.date.isoformat() for a in sample.atoms] == days and time_steps(sample.atoms) == list(range(6))
    height = sample.queries.grid.shape[0]
    np.testing.assert_array_equal(sample.atoms.acquisitions[2].values.T.reshape(6, -1, 8), values[2, :, :height])
    np.testing.assert_array_equal(sample.target.reshape(-1, 8), shares.argmax(axis=0)[:height])
    assert sum(parts[use][0].queries.grid.shape[0] for use in USES) == 148  # a pixel is left out twice


def test_enmap_tiles_are_listed_and_framed(tmp_path: Path) -> None:
    place = tmp_path / "data" / "enmap-potsdam"
    for number in (number for numbers in staging.ENMAP.values() for number in numbers):
        name = f"enmap_potsdam_tile_{number}.tif"
        raster(place / "images" / name, np.ones((2, 8, 8), np.float32), ("band 1 (418.2 Nanometers)", "900 nm"))
        raster(place / "labels" / name, np.full((1, 8, 8), 6, np.float32))
    parts = opened(TASKS["enmap"], tmp_path / "data", tmp_path / "work")
    assert [len(parts[use]) for use in USES] == [7, 2, 3]
    assert len({name for part in parts.values() for name in part.items}) == 12
    known = {use: int((~parts[use][0].queries.ignore).sum()) for use in USES}
    assert known == {"train": 64, "val": 16, "test": 16}
    assert parts["train"].info.classes[5] == "water" and int(parts["train"][0].target[0]) == 5


def test_the_site_has_three_sensors(tmp_path: Path) -> None:
    place = tmp_path / "data" / "terramind-sites"
    for name, bands in (("S1RTC", 2), ("S2L2A", 12), ("DEM", 1)):
        raster(place / name / f"{staging.SITE}.tif", np.full((bands, 10, 60), 7, np.int16))
    classes = np.array([1, 2, 3, 4, 5, 9], np.uint8)[np.arange(600) % 6].reshape(1, 10, 60)
    raster(place / "LULC" / f"{staging.SITE}.tif", classes)
    sample = opened(TASKS["terramind-433D"], tmp_path / "data", tmp_path / "work")["test"][0]
    assert [a.sensor for a in sample.atoms] == ["sentinel1", "sentinel2_l2a", "dem"]
    assert [c.name for c in sample.atoms.acquisitions[2].channels] == ["elevation"]
    assert set(sample.target.tolist()) == {-1, 0, 1, 2, 3, 4}


def test_patches_are_files_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PATCH_GAP", 2)
    stack = np.arange(6 * 40 * 8 * 8, dtype=np.int16).reshape(6, 40 * 8, 8)
    raster(tmp_path / "data" / "s2-patches" / staging.PATCHES, stack, crs=None)
    labels = (np.arange(40) % 6).astype(np.uint8)
    raster(tmp_path / "data" / "s2-patches" / staging.PATCH_LABELS, labels.reshape(1, 40, 1), crs=None)
    parts = opened(TASKS["s2-patches"], tmp_path / "data", tmp_path / "work")
    assert [len(parts[use]) for use in USES] == [26, 2, 8]
    sample = parts["test"][3]
    assert sample.meta.id == "patch_00035" and int(sample.target) == 35 % 6
    np.testing.assert_array_equal(sample.atoms.acquisitions[0].values.T.reshape(6, 8, 8), stack[:, 280:288])


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    for name, task in TASKS.items():
        with pytest.raises(DataError, match="no such"):
            staging.staged(name, task.stage, tmp_path, tmp_path / "work")
        assert not (tmp_path / "work" / "data" / name).exists()


def test_of_two_that_stage_at_once_one_writes_and_the_other_waits(tmp_path: Path) -> None:
    calls: list[Path] = []
    begun = threading.Barrier(2, timeout=60)

    def stage(source: Path, folder: Path) -> None:
        calls.append(folder)
        folder.mkdir()
        time.sleep(0.2)  # another that did not wait would fail here, or remove what was written
        (folder / "scene.tif").touch(exist_ok=False)

    def one() -> Path:
        begun.wait()
        return staging.staged("task", stage, tmp_path, tmp_path / "work")

    with ThreadPoolExecutor(2) as pool:
        folders = [run.result() for run in [pool.submit(one) for _ in range(2)]]
    assert folders == [tmp_path / "work" / "data" / "task"] * 2 and len(calls) == 1
    assert [path.name for path in folders[0].iterdir()] == ["scene.tif"]


def scene(values: np.ndarray, target: np.ndarray, day: int | None = None) -> Sample:
    atoms = aio.AtomSet.from_raster(values, SENTINEL2.pick("B02", "B03")[: len(values)], 10.0, day)
    return Sample.of_map(atoms, aio.Grid(*target.shape, 10.0), target, Meta("scene"))


class Samples(list[Sample]):
    """Samples in memory, in place of a dataset."""

    info = Info("pixels", "Pixels", "segmentation", SENTINEL2.pick("B02", "B03"), 30.0, classes=("dry", "water"))
    transform = None

    def __getitem__(self, index: Any) -> Any:
        sample = super().__getitem__(index)
        return sample if self.transform is None else self.transform(sample)

    def for_evaluation(self) -> Samples:
        return self


def noise(seed: int) -> Sample:
    """A series of two dates: whether the first band of the second date is positive."""
    values = np.random.default_rng(seed).standard_normal((2, 2, 20, 20)).astype(np.float32)
    target = (values[1, 0] > 0).astype(np.int64)
    atoms = sum((scene(part, target, day).atoms for day, part in zip((10, 20), values, strict=True)), aio.AtomSet())
    return Sample(atoms, torch.from_numpy(target.ravel()), scene(values[0], target).queries, Meta(f"noise {seed}"))


def test_baselines_are_fitted_chosen_and_scored_on_the_splits_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    uses: list[str] = []

    def open_split(run: Any, use: str) -> Samples:
        uses.append(use)
        return Samples([noise(USES.index(use))])

    monkeypatch.setattr(baselines, "open_split", open_split)
    result = tabular_baselines({"data": {"name": "synthetic"}}, "miou")
    assert uses == list(USES) and result.keys() == {"forest", "boosting", "regression", "constant"}
    for name in ("forest", "boosting", "regression"):
        assert result[name].keys() == {"setting", "val", "miou", "positions"}
        assert result[name]["miou"] > 0.8 and result[name]["val"] > 0.8 and result[name]["positions"] == 400
    assert result["constant"] < 0.4
    by_dates = forests_by_dates({"data": {"name": "synthetic"}}, "miou", (2, 1), 3)["scores"]
    assert by_dates["2"] > 0.8 and 0.4 < by_dates["1"] < by_dates["2"]  # of two single dates one decides the class
    only = {"all": lambda channel: True, "rgb-only": lambda channel: channel.name == "B03"}
    monkeypatch.setattr(baselines, "CONFIGURATIONS", only)
    by_channels = forests_by_channels({"data": {"name": "synthetic"}}, "miou")["scores"]
    assert by_channels["all"] > 0.8 > 0.6 > by_channels["rgb-only"]
    assert {c.name for part in OnlyChannels("rgb-only")(noise(0)).atoms for c in part.channels} == {"B03"}


def test_dates_are_drawn_alike_for_all() -> None:
    assert subsets(range(6), 6, 3) == [(0, 1, 2, 3, 4, 5)]
    three = subsets(range(6), 3, 3)
    assert three == subsets(range(6), 3, 3) and len(set(three)) == 3 and {len(kept) for kept in three} == {3}
    values = np.ones((2, 3, 3), np.float32)
    target = np.zeros((3, 3), np.int64)
    atoms = sum((scene(values * day, target, day).atoms for day in (10, 20, 30)), aio.AtomSet())
    sample = Sample(atoms, torch.zeros(9, dtype=torch.long), scene(values, target).queries, Meta("series"))
    kept = OnlySteps((0, 2))(sample)
    assert [a.day_of_year for a in kept.atoms] == [10, 30] and time_steps(kept.atoms) == [0, 1]


def test_the_table_has_means_deviations_and_baselines() -> None:
    simple = {"forest": {"rmse": 1.325}, "regression": {"rmse": 0.89}, "constant": 0.869}
    results: dict[str, Any] = {f"presto-series, {FOREST}": simple}
    results |= {f"presto-series, seed {seed}": {"rmse": score} for seed, score in enumerate((0.8, 0.9))}
    results |= {f"{CHANNELS}, {FOREST}": {"scores": {"all": 0.8, "rgb-only": 0.6}}}
    results |= {f"{CHANNELS}, seed 0": {"scores": {"all": 0.9, "rgb-only": 0.7}}}
    lines = text_of(results).splitlines()
    assert lines[1].split() == ["presto-series", "rmse", "0.850", "±", "0.071", "1.325", "0.890", "0.869"]
    assert [line.split() for line in lines[-3:]] == [
        ["all", "0.900", "0.800"],
        ["rgb-only", "0.700", "0.600"],
        ["mean", "0.800", "0.700"],
    ]
    assert DATES not in text_of(results)


def test_a_task_from_files_to_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    fixtures.write("presto-series", tmp_path / "data" / "presto-series")
    output = tmp_path / "small-data.json"
    words = ["reproduce", "small-data", "--data", str(tmp_path / "data"), "--output", str(output)]
    words += ["--work", str(tmp_path / "work"), "--steps", "2", "--seeds", "0", "--only", "presto-series"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "presto-series      rmse" in shown and "0 of 2 runs are there, 2 to do" in shown
    runs = json.loads(output.read_text())["runs"]
    assert set(runs) == {"presto-series, seed 0", f"presto-series, {FOREST}"}
    assert runs["presto-series, seed 0"]["result"]["steps"] == 2
    assert main(words) == 0
    assert "2 of 2 runs are there, 0 to do" in capsys.readouterr().out
    assert main([*words, "--set", "model.settings.observation_mlp=false", "training.learning_rate=0.001"]) == 0
    assert "1 of 2 runs are there, 1 to do" in capsys.readouterr().out  # baselines have no such settings
    written = json.loads(output.read_text())
    assert written["command"].endswith(
        "small-data --set model.settings.observation_mlp=false training.learning_rate=0.001"
    )
    changed = written["runs"]["presto-series, seed 0"]["arguments"]["document"]
    assert changed["model"]["settings"] == {"observation_mlp": False}
    assert changed["training"]["learning_rate"] == 1e-3 and changed["training"]["max_steps"] == 2
    assert main([*words, "--set", "observation_mlp"]) == 2


@pytest.mark.realdata
@pytest.mark.parametrize("name", TASKS)
def test_real_tasks_have_three_parts_that_can_be_compared(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    parts = opened(task, data_folder("sen1floods11").parent, tmp_path)
    assert len(parts["train"]) == {"s2-patches": 4070, "enmap": 7, "presto-series": 582}.get(name, 1)
    if name in ("s2-patches", "presto-series"):
        assert parts["train"][0].atoms.num_atoms <= 400
        return
    seen = {use: set(np.concatenate([s.target.numpy() for s in parts[use]]).tolist()) for use in USES}
    sample = parts["train"][0]
    per_pixel = sample.atoms.num_atoms / len(sample.queries)
    values = {"sen1floods11": 15, "rondonia": 36, "biomassters": 86, "enmap": 224, "terramind-433D": 15}
    assert per_pixel == pytest.approx(values[name], rel=0.1)
    if parts["train"].info.classes:
        assert seen["test"] - {-1} <= seen["train"] and len(seen["val"] - {-1}) >= 2
