"""Stopped runs go on as if nothing had happened, in the folder that is given, and run nothing that lies in it."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from atomizer_io.cli import main
from atomizer_io.errors import ConfigError
from atomizer_io.training import callbacks, optimizer, task
from atomizer_io.training.state import PICKLED, STATE
from runs import Payload, assert_same_end, break_at, broken_off, kill_at, killed, result, trained, write_floods


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = {"initialisation": "torch", "learning_rate": 1e-2, "configurations": [[200, 50]], "queries": 50}
    return write_floods(tmp_path_factory.mktemp("resumed"), **small, epochs=2, save_every=3)  # an epoch has three steps


@pytest.fixture(scope="module")
def whole(settings: Path) -> Path:
    """A run that nobody disturbed."""
    return trained(settings, "whole")


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files below a folder with what they hold and when they were written."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize(
    ("kind", "method", "call"),
    [
        pytest.param(task.Task, "validation_step", 1, id="in the first validation"),
        pytest.param(task.Task, "validation_step", 2, id="in the last validation"),
        pytest.param(callbacks.SaveState, "on_train_epoch_end", 1, id="after the history, before the state"),
        pytest.param(callbacks.SaveState, "on_train_epoch_end", 2, id="before the last state"),
        pytest.param(task.Task, "training_step", 4, id="in the next epoch"),
        pytest.param(optimizer.EMA, "update", 5, id="before the step is in the average"),
    ],
)
def test_broken_off_it_ends_as_the_whole_run(kind: type, method: str, call: int, whole: Path, settings: Path) -> None:
    name = f"broken-{method}-{call}"
    broken_off(settings, name, kind, method, call)
    assert_same_end(whole, trained(settings, name, resume=True))


@pytest.mark.parametrize(
    "option",
    [
        "data.val=null",
        "training.validate_every=2",
        "training.max_steps=5",
        "training.validate_steps=2",
        "training.ema=0",
    ],
)
def test_other_plans_go_on_too(option: str, settings: Path) -> None:
    name = option.split("=")[0]
    undisturbed = trained(settings, f"{name}-whole", option)
    broken_off(settings, name, task.Task, "training_step", 4, option)
    resumed = trained(settings, name, option, resume=True)
    first, second = (load_file(folder / "best" / "model.safetensors") for folder in (undisturbed, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_killed_in_validation_it_ends_as_the_whole_run(whole: Path, settings: Path) -> None:
    words = ["train", str(settings), "--quiet", "name=killed"]
    assert killed(partial(kill_at, task.Task, "validation_step", 1), *words)
    assert_same_end(whole, trained(settings, "killed", resume=True))


def test_a_stop_in_time_has_scores_and_goes_on(whole: Path, settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = trained(settings, "hurried", "training.max_time='00:00:00'")
    assert "the run ended before its first validation: best/ is the model of its last step" in capsys.readouterr().out
    metrics = result(stopped)
    assert metrics["finished"] is False and metrics["steps"] == 1 and metrics["scores_of"] == "last"
    assert 0 <= metrics["scores"]["val"]["miou"] <= 1 and not (stopped / "history.jsonl").exists()
    later = trained(settings, "hurried", "training.save_every=1", resume=True)
    assert_same_end(whole, later)
    assert result(later)["scores_of"] == "best"


def test_accumulated_batches_go_on_exactly(settings: Path) -> None:
    # six batches an epoch: steps after the fourth and the sixth
    name, options = "accumulated-stopped", ("training.accumulate=4", "training.repeat=2", "training.save_every=1")
    undisturbed = trained(settings, "accumulated", *options)
    assert result(trained(settings, name, *options, "training.max_time='00:00:00'"))["steps"] == 1
    for batch in (4, 6):  # in the next epoch, between two steps; before the last step
        broken_off(settings, name, task.Task, "training_step", batch, *options, resume=True)
    assert_same_end(undisturbed, trained(settings, name, *options, resume=True))


def test_a_copy_goes_on_in_the_copy(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    before = content(whole)
    others = sorted(path.name for path in whole.parent.iterdir())
    assert main(["train", str(copy), "--resume", "--quiet", "training.epochs=3"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["folder"] == str(copy)
    assert content(whole) == before and sorted(path.name for path in whole.parent.iterdir()) == others
    assert len((copy / "history.jsonl").read_text().splitlines()) == 3
    assert main(["train", str(copy), "--resume", "name=other"]) == 2
    assert "leave this out" in capsys.readouterr().err


def test_nothing_in_the_folder_runs(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, sign = tmp_path / "foreign", tmp_path / "code-was-run"
    shutil.copytree(whole, folder)
    torch.save({"state_dict": Payload(sign)}, folder / PICKLED)
    for name in ("hpc_ckpt_1.ckpt", "last.ckpt", f".{STATE}.new", "best/pytorch_model.bin", "best/calibration.json"):
        (folder / name).write_bytes(pickle.dumps(Payload(sign)))
    assert main(["train", str(folder), "--resume", "--quiet"]) == 0  # its own state is a good one
    (folder / STATE).unlink()
    assert main(["train", str(folder), "--resume", "--quiet"]) == 2
    assert "is the training state of an earlier version: a pickle" in capsys.readouterr().err
    (folder / PICKLED).replace(folder / STATE)
    assert main(["train", str(folder), "--resume", "--quiet"]) == 2
    assert "the training state is damaged or incomplete" in capsys.readouterr().err
    assert not sign.exists()


@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_a_damaged_state_is_not_trained_on(
    damage: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, good = tmp_path / "damaged", (whole / STATE).read_bytes()
    shutil.copytree(whole, folder)
    half = len(good) // 2
    (folder / STATE).write_bytes(
        good[:half] + (b"" if damage == "cut off" else bytes([good[half] ^ 1]) + good[half + 1 :])
    )
    before = content(folder)
    assert main(["train", str(folder), "--resume", "--quiet", "training.epochs=3"]) == 2
    assert f"{folder / STATE}: the training state is damaged or incomplete" in capsys.readouterr().err
    assert content(folder) == before


def test_a_state_of_another_model_is_refused(settings: Path, whole: Path) -> None:
    with pytest.raises(ConfigError, match="of a model of another size"):
        trained(settings, "whole", "model.settings.depth=2", resume=True)


def test_an_existing_run_is_noticed_before_anything_is_loaded(settings: Path, whole: Path) -> None:
    text = "import sys; from atomizer_io.cli import main; print(main(sys.argv[1:]), 'lightning' in sys.modules)"
    arguments = [sys.executable, "-c", text, "train", str(settings), "name=whole", "data.root=nowhere"]
    process = subprocess.run(arguments, timeout=240, capture_output=True, text=True)
    assert process.stdout == "2 False\n" and "holds a run already" in process.stderr


def test_an_unknown_preset_is_named(settings: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'atomizer_io_tin'; did you mean 'atomizer_io_tiny'"):
        trained(settings, "preset", "model.preset=atomizer_io_tin", "data.root=nowhere")


def test_an_interrupt_explains_how_to_go_on(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    break_at(monkeypatch, task.Task, "training_step", 4, KeyboardInterrupt)
    try:
        assert main(["train", str(settings), "name=interrupted", "training.save_every=1", "--quiet"]) == 130
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores further ones
    shown = capsys.readouterr().err
    assert "interrupted" in shown and "stopped at step 3" in shown and "interrupted --resume` goes on" in shown


def test_the_folder_of_a_run_is_no_model(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(whole)]) == 2
    assert f"name one of its models, such as {whole / 'best'}" in capsys.readouterr().err
    assert main(["evaluate", str(whole / "bset")]) == 2
    assert "bset: no such folder" in capsys.readouterr().err
