"""The measurement of a training step (tools/bench_step.py) runs, and what it prints adds up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.models.atomizer.ops.kernels.build import available, library, without_kernels

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from bench_step import INPUTS, REST, Clock, Noise, StepInput, main, measure_step, measure_waiting

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


def test_every_input_makes_samples_of_its_task() -> None:
    for scene in INPUTS.values():
        sample = Noise(scene)[0]
        assert (sample.queries is not None) == scene.dense
        assert sample.target.is_floating_point() == (scene.outputs == 1)


def test_a_part_inside_another_stops_its_clock() -> None:
    times = iter([0.0, 1.0, 3.0, 7.0, 12.0])
    clock = Clock(now=lambda: next(times))
    clock.restart()
    with clock.of("outer"), clock.of("inner"):
        pass
    assert clock.seconds == {REST: 1.0, "outer": 2.0 + 5.0, "inner": 4.0}


@pytest.mark.skipif(not available(), reason="no C compiler here, or ATOMIZER_KERNELS=off")
def test_kernels_can_be_left_out_for_a_while() -> None:
    with without_kernels():
        assert library("cells", torch.float32) is None
    assert library("cells", torch.float32) is not None
