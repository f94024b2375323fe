"""Small things that once went wrong, stated as what a user relies on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import chips
from atomizer_io.datasets.registry import create
from atomizer_io.errors import AtomizerError, CheckpointError, ConfigError
from atomizer_io.models.storage import load
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.rasters import predict_raster
from atomizer_io.training import config
from atomizer_io.training.folder import make_folder
from atomizer_lab import matrix
from atomizer_lab.bench import models
from atomizer_lab.paper import looks
from atomizer_lab.paper.trainings import finished
from faults.targets import make_tiles, model_in
from processes import command, exit_code, start

QUIET = Execution(progress=False)


def test_a_nested_description_of_a_model_is_an_error(tmp_path: Path) -> None:
    model_in(tmp_path)
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    with pytest.raises(CheckpointError, match="is not readable as JSON: its brackets"):
        load(tmp_path)


@pytest.mark.parametrize("key", ["data.name", "model.preset", "training.ema", "seed", "data", "training"])
def test_null_is_no_value_of_a_setting(tmp_path: Path, key: str) -> None:
    (tmp_path / "run.yaml").write_text("data: {name: synthetic}\n")
    with pytest.raises(ConfigError, match=f"setting {key} is null: give it a value"):
        config.load(tmp_path / "run.yaml", [f"{key}=null"])


@pytest.mark.parametrize("value", ["[a]", "{a: 1}", "[[1]]"])
def test_values_that_cannot_be_names_are_named(tmp_path: Path, value: str) -> None:
    (tmp_path / "run.yaml").write_text("data: {name: synthetic}\n")
    for key in ("data.name", "model.preset", "training.precision"):
        with pytest.raises(ConfigError, match=key.split(".")[1]):
            config.load(tmp_path / "run.yaml", [f"{key}={value}"])


def test_an_infinite_window_is_refused(tmp_path: Path) -> None:
    make_tiles(tmp_path)
    with pytest.raises(ConfigError, match="window_m is inf"):
        create("las-folder", tmp_path, "train", classes={2: "a"}, window_m=float("inf"), cache=False)


def test_one_absurd_pixel_does_not_fail_the_map(tmp_path: Path) -> None:
    values = chips.values(12, 12).astype(np.float64)
    values[0, 3, 3] = 1e300
    chips.write(tmp_path / "scene.tif", values)
    scene = {"path": tmp_path / "scene.tif", "sensor": "sentinel2"}
    with pytest.warns(UserWarning, match="1 value beyond"):
        product = predict_raster(chips.model_folder(), scene, tmp_path / "map.tif", execution=QUIET)
    assert sum(product.hectares.values()) == pytest.approx(1.44, abs=0.02)


def test_a_pixel_larger_than_the_raster_is_called_that(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"would be larger than the whole of scene0\.tif"):
        predict_raster(chips.model_folder(), chips.scene(tmp_path), tmp_path / "m.tif", gsd_m=1e9, execution=QUIET)


def test_too_little_room_is_reported_in_a_fitting_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    with pytest.raises(ConfigError, match=r": 3\.0 MB are free, about \d+\.\d MB are needed: make room"):
        make_folder(tmp_path / "run", SimpleNamespace(num_parameters=1000))  # type: ignore[arg-type]


def test_of_two_that_overwrite_at_once_one_succeeds(tmp_path: Path) -> None:
    chips.scene(tmp_path, 20, 30)
    words = ("predict", "--model", str(chips.model_folder()), "--raster", str(tmp_path / "scene0.tif"))
    words += ("--sensor", "sentinel2", "--window", "100", "-o", str(tmp_path / "map.tif"), "--overwrite", "--quiet")
    words += ("--workers", "1")
    for _ in range(3):
        both = [start(command, words) for _ in range(2)]
        codes = sorted(exit_code(process) for process in both)
        assert codes in ([0, 0], [0, 2])
        assert chips.read(tmp_path / "map.tif").shape[1:] == (20, 30)


@pytest.mark.parametrize(
    "read",
    [matrix.stored, looks.stored, lambda path: models.kept(path, [], []), lambda path: finished(path.parent)],
)
def test_nested_results_are_an_error(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text('{"a":' * 100_000)
    (tmp_path / "best").mkdir()
    with pytest.raises(AtomizerError, match=r"metrics\.json"):
        read(path)
