"""Ctrl-C and SIGTERM save the state of the step; ``--max-time`` covers the whole command, and phases are counted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from atomizer_io.cli import main
from atomizer_io.training import config
from atomizer_io.training.run import train
from atomizer_io.training.stopping import CLOSING_SHARE, Interrupts, Timing
from runs import assert_same_end, write_fields

STEPS = 150


def settings_of(folder: Path, **training: Any) -> Path:
    document = write_fields(folder)
    long = {"max_steps": STEPS, "validate_steps": 75, "save_every": 10_000, "initialisation": "torch"}
    document["training"] |= {**long, **training}
    (folder / "run.yaml").write_text(yaml.safe_dump(document))
    return folder / "run.yaml"


def stopped(path: Path, name: str, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """A training in a process of its own that gets a signal when it has made some steps."""
    words = [sys.executable, "-W", "ignore", "-m", "atomizer_io", "train", str(path), f"name={name}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        state = path.parent / "runs" / name / "state.safetensors"
        while process.poll() is None and not state.exists():  # of step 0
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(number)
        out, err = process.communicate(timeout=240)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def test_a_signal_saves_the_step_and_the_run_ends_as_if_there_had_been_none(tmp_path: Path) -> None:
    path = settings_of(tmp_path)
    whole = tmp_path / "runs" / "whole"
    assert main(["train", str(path), "name=whole", "--quiet"]) == 0
    for number in (signal.SIGINT, signal.SIGTERM):
        process = stopped(path, number.name, number)
        assert process.returncode == 130, process.stderr
        folder = tmp_path / "runs" / number.name
        note = re.search(
            r"stopped at step (\d+): `atomizer train (\S+) --resume` goes on from step (\d+)", process.stderr
        )
        assert note is not None and note[2] == str(folder), process.stderr
        assert note[1] == note[3] and 0 < int(note[1]) < STEPS
        assert "Traceback" not in process.stderr and not (folder / "metrics.json").exists()
        assert main(["train", str(folder), "--resume", "--quiet"]) == 0
        assert_same_end(whole, folder)


def test_the_first_signal_waits_for_the_step_and_the_second_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        interrupts.listen(waits=True)
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.pending and "stopping once this step" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_phases_of_a_run_are_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings_of(tmp_path, max_steps=4, validate_steps=2, initialisation="data")
    train(config.load(path, ["name=phases"]), progress=True)
    printed = capsys.readouterr()
    result = json.loads((tmp_path / "runs" / "phases" / "metrics.json").read_text())
    phases = ["start", "reading", "initialisation", "training", "validation", "closing", "baselines"]
    assert list(result["phases"]) == phases
    assert sum(result["phases"].values()) == pytest.approx(result["seconds"], abs=0.5)
    assert re.search(r"^took \d\d:\d\d", printed.out, re.MULTILINE)


def test_the_phases_that_are_printed_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    timing = Timing(90.4, None)
    for name, seconds in (("reading", 61.5), ("initialisation", 0.3), ("training", 7.6), ("closing", 2.4)):
        with timing.phase(name):
            clock[0] += seconds
    assert timing.line() == "took 01:21: start 00:10, reading 01:01, training 00:08, closing 00:02"


def test_time_is_left_for_the_end() -> None:
    timing = Timing(time.monotonic() - 95, 100.0)
    assert timing.out_of_time and timing.closing_s == CLOSING_SHARE * 100
    timing = Timing(time.monotonic() - 80, 100.0)
    assert not timing.out_of_time
    timing.validated(15.0)
    timing.final_validations = 2.0
    assert timing.out_of_time and timing.closing_s == pytest.approx(40.0)
    assert not Timing(0.0, None).out_of_time


def test_baselines_are_given_up_when_time_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    path = settings_of(tmp_path, max_steps=2, baselines=True)
    long_ago = time.monotonic() - 3600
    run = config.load(path, ["name=late", "training.max_time='00:59:00'"])
    result = train(run, progress=False, began_s=long_ago)  # stopped after a step, so nothing is compared
    assert not result["finished"] and "baselines" not in result
    run = config.load(path, ["name=late", "training.max_time='00:59:00'", "training.max_steps=1"])
    result = train(run, resume=True, progress=False, began_s=long_ago)
    assert result["finished"] and result["baselines"] is None
    assert "the time of --max-time that was left for them is over" in capsys.readouterr().out
