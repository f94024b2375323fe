"""Early stopping: how runs end, what they print, and that they can be interrupted."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from atomizer_io import progress
from atomizer_io.cli import main
from atomizer_io.errors import ConfigError
from atomizer_io.training import callbacks, config, schedule, task
from runs import assert_same_end, break_at, broken_off, by_two, history, kill_at, killed, result, trained, write_floods

STEPS, VALIDATED = 9, [2, 4, 6, 8, 9]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # nothing counts as a rise: validations at 2, 4, 6, then a cool-down of half as many steps, with one at 8 and at 9
    patience = {"validate_steps": 2, "patience": 2, "tolerance": 10.0, "cooldown": 0.5, "warmup_steps": 2}
    small = {"initialisation": "torch", "learning_rate": 1e-2, "configurations": [[200, 50]], "queries": 50}
    return write_floods(tmp_path_factory.mktemp("open"), **patience, **small, save_every=3)


@pytest.fixture(scope="module")
def whole(settings: Path) -> Path:
    """A run that nobody disturbed."""
    return trained(settings, "whole")


def test_it_ends_when_the_score_no_longer_rises(whole: Path) -> None:
    metrics = result(whole)
    assert metrics["finished"] and metrics["ended_by"] == "patience" and metrics["steps"] == STEPS
    assert [line["step"] for line in history(whole)] == VALIDATED
    assert metrics["epochs"] == 3.0 and [line["epochs"] for line in history(whole)][:2] == [0.667, 1.333]
    best = max(line["miou"] for line in history(whole))
    assert metrics["best"]["score"] == best and metrics["curve"]["rising"] is False


@pytest.mark.parametrize(
    ("kind", "method", "call"),
    [
        pytest.param(task.Task, "training_step", 4, id="before the cool-down"),
        pytest.param(callbacks.KeepModels, "on_validation_end", 3, id="in the validation that begins the cool-down"),
        pytest.param(callbacks.SaveState, "on_train_epoch_end", 3, id="before the state that has the cool-down"),
        pytest.param(task.Task, "training_step", 8, id="in the cool-down"),
        pytest.param(callbacks.KeepModels, "on_validation_end", 5, id="in the last validation"),
        pytest.param(callbacks.SaveState, "on_train_epoch_end", 5, id="before the last state"),
    ],
)
def test_broken_off_it_ends_as_the_whole_run(kind: type, method: str, call: int, whole: Path, settings: Path) -> None:
    name = f"broken-{method}-{call}"
    broken_off(settings, name, kind, method, call)
    assert_same_end(whole, trained(settings, name, resume=True))


def test_one_that_ended_stays_as_it_is(whole: Path, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = result(whole)
    with monkeypatch.context() as patch:
        break_at(patch, task.Task, "training_step", 1)
        trained(settings, "whole", resume=True)
    after = result(whole)
    assert all(before[key] == after[key] for key in ("finished", "steps", "best", "scores", "ended_by"))


def test_several_batches_a_step(settings: Path) -> None:
    options = ("training.accumulate=2", "training.save_every=1")
    undisturbed = trained(settings, "accumulated", *options)
    assert [line["step"] for line in history(undisturbed)] == VALIDATED and result(undisturbed)["epochs"] == 6.0
    broken_off(settings, "accumulated-broken", task.Task, "training_step", 16, *options)
    assert_same_end(undisturbed, trained(settings, "accumulated-broken", *options, resume=True))


def test_it_ends_in_time_and_goes_on_with_more(settings: Path) -> None:
    hurried = trained(settings, "hurried", "training.max_time='00:00:00'")
    metrics = result(hurried)
    assert metrics["finished"] and metrics["ended_by"] == "time" and metrics["steps"] == 2
    assert metrics["scores_of"] == "best" and len(history(hurried)) == 1
    assert result(trained(settings, "hurried", "training.max_time='00:00:00'", resume=True))["steps"] == 2
    later = trained(settings, "hurried", "training.max_time='10:00:00'", resume=True)
    assert result(later)["ended_by"] == "patience" and result(later)["steps"] > 4


def test_without_validation_it_needs_a_length(settings: Path) -> None:
    with pytest.raises(ConfigError, match=r"without validation data .* needs --max-time, training.epochs or"):
        trained(settings, "endless", "data.val=null")
    timed = trained(settings, "timed", "data.val=null", "training.max_time='00:00:00'")
    assert result(timed)["finished"] and result(timed)["scores_of"] == "last" and result(timed)["curve"] is None


def test_the_last_step_of_a_counted_run_is_validated(settings: Path) -> None:
    """Whatever falls at the end of a schedule, the rate, must not be lost."""
    for options, steps in (
        (("training.max_steps=5", "training.validate_steps=null"), [3, 5]),
        (("training.max_steps=5",), [2, 4, 5]),
        (("training.epochs=3", "training.validate_steps=null", "training.validate_every=2"), [6, 9]),
        (("training.epochs=1",), [2, 3]),
    ):
        folder = trained(settings, "-".join(options).replace("training.", ""), *options)
        assert [line["step"] for line in history(folder)] == steps
        assert result(folder)["finished"] and result(folder)["ended_by"] == "steps"


def test_how_often_it_validates_follows_from_the_work(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from atomizer_io.training.run import make_loaders, prepare

    def steps(*options: str) -> int:
        run = config.load(settings, ["name=rounds", "training.validate_steps=null", *options])
        return len(make_loaders(run, prepare(run), 0, 1)[0])

    assert steps() == schedule.LEAST_STEPS
    monkeypatch.setattr(schedule, "LEAST_STEPS", 1)
    usual, small = steps(), steps("training.queries=5", "training.crop_m=60")
    assert 1 <= usual < small  # smaller steps, more of them
    batches = steps("training.queries=5", "training.crop_m=60", "training.accumulate=2")
    assert batches % 2 == 0 and small <= batches <= small + 1  # as much work between two validations


def test_the_status_is_printed(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 1e-6)
    assert main(["train", str(settings), "--max-time", "10:00:00", "name=reported"]) == 0
    shown = capfd.readouterr()
    lines = [line for line in shown.err.splitlines() if line.startswith("training: ")]
    assert lines[0].startswith("training: 1 steps, 00:") and " so far, at most 9:5" in lines[0]
    assert any("1 of 2 validations without a rise" in line for line in lines)
    assert lines[-1].startswith("training: 100 % (9 of 9 steps)") and "cooling down" in lines[-1]
    assert "miou rose no more when training stopped" in shown.out and "history.jsonl" in shown.out
    last = json.loads(shown.out.splitlines()[-1])
    assert last["ended_by"] == "patience" and last["curve"]["validations"] == len(VALIDATED)


@pytest.mark.slow
def test_killed_in_the_cool_down_it_ends_as_the_whole_run(whole: Path, settings: Path) -> None:
    words = ["train", str(settings), "--quiet", "name=killed"]
    assert killed(partial(kill_at, task.Task, "training_step", 8), *words)
    assert_same_end(whole, trained(settings, "killed", resume=True))


@pytest.mark.slow
def test_two_processes_train_as_one(settings: Path) -> None:
    ddp = ["training.batch_size=1", "training.repeat=2", "training.devices=2", "training.strategy=ddp"]
    by_two(settings.parent, "train", str(settings), "--quiet", "name=two", *ddp)
    trained(settings, "one", "training.batch_size=2", "training.repeat=2")
    folders = [settings.parent / "runs" / name for name in ("one", "two")]
    assert [result(folder)["steps"] for folder in folders] == [STEPS, STEPS]
    first, second = (load_file(folder / "last" / "model.safetensors") for folder in folders)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-3, atol=2e-3)
