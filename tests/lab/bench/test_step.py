"""The measurement of a training step (tools/bench_step.py) runs, and what it prints adds up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from atomizer_io.data.sensors import SENTINEL2

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from bench_step import REST, StepInput, main, measure_step, measure_waiting

SMALL = StepInput("small", "segmentation", 3, (SENTINEL2.pick("B02", "B03"),), 12, crop=6)


def test_parts_of_a_step_add_up_to_it() -> None:
    step = measure_step(SMALL, observation_mlp=True, steps=2)
    assert step.atoms == 4 * 6 * 6 * 2
    assert sum(step.parts_ms.values()) == pytest.approx(step.step_ms)
    assert {"samples: crops, rotations, dropout", "encoder", "observations", "backward", REST} <= set(step.parts_ms)
    assert "time steps" not in step.parts_ms
    assert min(step.parts_ms.values()) >= 0
    assert any("whole step" in line for line in step.lines())


def test_a_trainer_waits_for_its_workers_for_some_of_the_time() -> None:
    waiting = measure_waiting(SMALL, 1, steps=2)
    assert waiting.workers == 1
    assert 0 <= waiting.share <= 1


def test_the_script_writes_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "step.json"
    main(["small patches", "--steps", "1", "--output", str(output)])
    (row,) = json.loads(output.read_text())["steps"]
    assert row["name"] == "small patches" and "whole step" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["no such data"])
    assert "'no such data' are not known; use radar and optical" in capsys.readouterr().err
