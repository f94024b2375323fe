"""The core benchmark runs, saves what it measured, and times paths that give the same outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from atomizer_io.data.grid import Grid
from atomizer_lab.bench.core import CoreBenchmark, plot, scene


def test_benchmark_of_a_small_scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results" / "core.json"
    result = CoreBenchmark(output, repeats=1, reference_up_to=32).run((32,))
    saved = json.loads(output.read_text())
    assert saved == json.loads(json.dumps(result))
    rows = {row["stage"]: row for row in saved["rows"]}
    assert set(rows) == {
        *("encode forward", "encoder forward+backward", "dense decode", "training step"),
        *("geometry, cold", "geometry, kept", "whole model, dense", "plain UNet"),
    }
    for stage in ("encode forward", "encoder forward+backward", "dense decode", "training step"):
        row = rows[stage]
        assert row["atoms"] == 15 * 32 * 32
        assert row["ratio"] == pytest.approx(row["reference_seconds"] / row["seconds"])
    assert saved["times_unet"] == pytest.approx(rows["whole model, dense"]["seconds"] / rows["plain UNet"]["seconds"])
    assert saved["unet_parameters"] == pytest.approx(31.0e6, rel=0.01)
    assert saved["machine"]["torch"] == torch.__version__
    printed = capsys.readouterr().out
    assert all(stage in printed for stage in rows)
    plot(saved, tmp_path / "core.png")
    assert (tmp_path / "core.png").read_bytes().startswith(b"\x89PNG")


@torch.no_grad()
def test_what_is_timed_gives_the_same_outputs() -> None:
    benchmark = CoreBenchmark(None, repeats=1, reference_up_to=32)
    atoms, _ = scene(32)
    positions = Grid(32, 32, 10.0).positions()
    fast = benchmark.model([atoms], [positions])[0]
    slow = benchmark.reference([atoms], [positions])[0]
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
