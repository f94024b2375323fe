"""What a run prints while it trains: whole lines where nobody watches, nothing when it is to be quiet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from atomizer_io import progress
from atomizer_io.training import config
from atomizer_io.training.run import train
from runs import synthetic


@pytest.fixture(autouse=True)
def _each_state_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 1e-6)


def settings(folder: Path, **training: Any) -> config.Run:
    return synthetic(folder, epochs=2, validation_samples=3, **training)


def test_a_log_gets_whole_lines_with_loss_and_time_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(settings(tmp_path))
    shown = capfd.readouterr()
    assert "\r" not in shown.err + shown.out
    steps = [line for line in shown.err.splitlines() if line.startswith("training: ")]
    assert re.match(r"training: 12 % \(1 of 8 steps\), 00:\d\d so far, \S+ left, loss \d", steps[0])
    assert steps[-1].startswith("training: 100 % (8 of 8 steps)") and "val/miou" in steps[-1]
    assert sum(line.startswith("validating: 100 % (3 of 3 samples)") for line in shown.err.splitlines()) >= 2
    assert "scoring all: 100 % (3 of 3 samples)" in shown.err


def test_quiet_is_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(settings(tmp_path), progress=False)
    assert capfd.readouterr().err == ""


def test_a_resumed_run_counts_from_where_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(settings(tmp_path, max_time="00:00:00"), progress=False)
    train(settings(tmp_path), resume=True)
    lines = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("statistics: ")]
    assert "training: 25 % (2 of 8 steps)" in lines[0]
