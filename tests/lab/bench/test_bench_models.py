"""The table of all models: every row is measured, what does not fit is marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from atomizer_io.cli import main
from atomizer_io.data.grid import Grid
from atomizer_io.models.registry import create_model
from atomizer_lab.bench.core import CoreBenchmark, plot, scene
from atomizer_lab.bench.model_inputs import PAPER_INPUTS, ModelInput, raster_input
from atomizer_lab.bench.models import Limits, cell, measure, settings_for, usual_models


def test_a_row_per_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["atomizer_io_tiny", "pixels"]
    options = ["--input", "24x32x3x2", "--repeats", "1", "--output", str(tmp_path / "models.json")]
    assert main(["bench", "models", *names, *options]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    rows = json.loads((tmp_path / "models.json").read_text())["rows"]
    assert [row["model"] for row in rows] == names and {row["input"] for row in rows} == {"24x32x3x2"}
    for row in rows:
        assert row["stopped"] is None and row["parameters"] > 0 and row["gflops"] > 0
        assert min(row["prepare_s"], row["answer_s"], row["step_s"]) > 0  # old name
    assert rows[0]["gflops"] > rows[1]["gflops"]


def test_some_rows_are_measured_again_and_the_others_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "models.json"
    names = [("xview2", "unet"), ("6x5x2", "unet_small"), ("6x5x2", "pixels"), ("7x5x2", "pixels")]
    machine, limits = {"date": "2001-01-01T00:00:00", "commit": "old"}, {"repeats": 7}
    old = {"benchmark": "models", "threads": 9, "limits": limits, "machine": machine, "whole": {"scene": "a"}}
    output.write_text(json.dumps({**old, "rows": [{"input": scene, "model": name} for scene, name in names]}))

    def commits(*words: str) -> dict[tuple[str, str], str]:
        options = ["--repeats", "1", "--merge", "--output", str(output)]
        assert main(["bench", "models", "pixels", *words, *options]) == 0
        result = json.loads(output.read_text())
        assert result.keys() == {"benchmark", "rows", "whole"}
        assert result["whole"] == {"scene": "a", "limits": limits, "machine": machine}
        assert all(row["limits"]["repeats"] == (7 if row["machine"] == machine else 1) for row in result["rows"])
        return {(row["input"], row["model"]): row["machine"]["commit"] for row in result["rows"]}

    result = commits("--input", "6x5x2")
    assert list(result) == names and [pair for pair, commit in result.items() if commit != "old"] == [names[2]]
    again = commits("--input", "7x5x2", "8x5x2")
    assert list(again) == [*names, ("8x5x2", "pixels")] and sum(commit == "old" for commit in again.values()) == 2
    capsys.readouterr()
    output.write_text("[]")
    assert main(["bench", "models", "pixels", "--input", "6x5x2", "--merge", "--output", str(output)]) == 2
    assert "models.json is no table of models; name another file" in capsys.readouterr().err


def test_what_a_model_cannot_do_is_reported() -> None:
    reports: list[object] = []
    row = cell("unet", PAPER_INPUTS["dales"], Limits())
    assert row.stopped is not None and "point" in row.stopped and row.answer_s is None  # old name
    measure("pixels", raster_input(6, 5, 2), 1, reports.append)
    assert len(reports) == 7


def test_the_inputs_of_the_paper() -> None:
    """Its Table 1: channels, dates, geometry, task."""
    channels = {"forestnet": 6, "burnscars": 6, "eurosat": 13, "cashew": 13, "sen1floods11": 15, "xview2": 3}
    channels |= {"biomassters": 14, "pastis": 10, "dales": 1, "fractal": 4}
    assert {name: len(scene.channels) for name, scene in PAPER_INPUTS.items()} == channels
    flood = PAPER_INPUTS["sen1floods11"]
    atoms, queries = flood.made()
    assert atoms.num_atoms == 15 * 512**2 and queries is not None and len(queries) == 512**2
    atoms, queries = PAPER_INPUTS["fractal"].made()
    assert queries is not None and len(queries) == 62_500 == len(queries.sites[0])
    assert atoms.num_atoms == 62_500 + 3 * 250**2
    assert PAPER_INPUTS["eurosat"].made()[1] is None


@pytest.mark.parametrize("scene", PAPER_INPUTS.values(), ids=lambda scene: scene.name)
def test_every_model_of_the_paper_is_built_for_every_input(scene: ModelInput) -> None:
    import torch

    for name in usual_models(scene):
        with torch.device("meta"):
            model = create_model(name, task_spec=scene.task_spec, **settings_for(name, scene))
        assert model.task_spec.task == scene.task and model.num_parameters > 1e7


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "models", "unett"]) == 2
    assert "did you mean 'unet'" in capsys.readouterr().err
    assert main(["bench", "models", "pixels", "--input", "12x"]) == 2
    assert main(["bench", "models", "pixels", "--input", "eurosatt"]) == 2
    assert "use paper, forestnet" in capsys.readouterr().err


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
