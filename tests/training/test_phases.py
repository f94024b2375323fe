"""A run that is killed between two of its phases ends as one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from atomizer_io.errors import ConfigError
from atomizer_io.training import callbacks, config, results, task
from atomizer_io.training import folder as folder_files
from atomizer_io.training import run as running
from atomizer_io.training.folder import DERIVED, SETTINGS
from runs import assert_same_end, broken_off, write_fields


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("phases")
    (folder / "run.yaml").write_text(yaml.safe_dump(write_fields(folder)))
    return trained(folder, "whole")


def trained(folder: Path, name: str) -> Path:
    """A run that goes on with the settings that it wrote."""
    resume = (settings := folder / "runs" / name / SETTINGS).exists()
    running.train(
        config.load(settings if resume else folder / "run.yaml", [f"name={name}"]), resume=resume, progress=False
    )
    return folder / "runs" / name


def broken(whole: Path, kind: Any, method: str, call: int) -> str:
    """The name of a run that was killed at the call of a function."""
    name = f"killed-{len(list(whole.parent.iterdir()))}"
    broken_off(whole.parents[1] / "run.yaml", name, kind, method, call)
    return name


@pytest.mark.parametrize(
    ("kind", "method", "call"),
    [
        pytest.param(running, "make_loaders", 1, id="after the settings"),
        pytest.param(running, "initialise", 1, id="before the initialisation"),
        pytest.param(callbacks.SaveState, "save", 1, id="before the first state"),
        pytest.param(task.Task, "training_step", 1, id="before the first step"),
        pytest.param(callbacks, "append_line", 2, id="after the models, before the history"),
        pytest.param(results, "final_scores", 1, id="before closing"),
        pytest.param(results, "compare", 1, id="before the baselines"),
    ],
)
def test_killed_between_phases_it_ends_as_the_whole_run(whole: Path, kind: Any, method: str, call: int) -> None:
    name = broken(whole, kind, method, call)
    resumed = trained(whole.parents[1], name)
    assert_same_end(whole, resumed)
    assert (resumed / DERIVED).read_text() == (whole / DERIVED).read_text()


@pytest.mark.parametrize("damage", ["batch_size: '4'", "batch_size: 4.0", "crop_m: true", "repeat: -1", "queries: [1]"])
def test_derived_settings_of_another_type_are_refused(tmp_path: Path, damage: str) -> None:
    (tmp_path / DERIVED).write_text("training: {batch_size: 4, crop_m: 120.0, repeat: 1, queries: null}\n")
    filled = folder_files.with_derived(config.Run(), tmp_path).training
    assert (filled.batch_size, filled.crop_m, filled.repeat, filled.queries) == (4, 120.0, 1, None)
    (tmp_path / DERIVED).write_text(f"training: {{{damage}}}\n")
    with pytest.raises(ConfigError, match=r"derived\.yaml is damaged: remove it"):
        folder_files.with_derived(config.Run(), tmp_path)


def test_killed_before_its_settings_it_begins_again(whole: Path) -> None:
    name = broken(whole, folder_files, "write_text", 2)  # the first writes what was derived
    assert_same_end(whole, trained(whole.parents[1], name))


@pytest.mark.parametrize("damage", ["cut off", "zeros"])
def test_a_torn_history_is_written_again_from_the_state(whole: Path, damage: str) -> None:
    name = broken(whole, results, "final_scores", 1)
    path = whole.parent / name / callbacks.HISTORY
    text = path.read_bytes()
    path.write_bytes(text[: len(text) // 2] if damage == "cut off" else b"\0" * len(text))
    assert_same_end(whole, trained(whole.parents[1], name))
