"""What is looked at of trained models: from finished trainings, kept where its data allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from atomizer_io.cli import main
from atomizer_lab.paper.item import Where


def where(folder: Path) -> Where:
    return Where(folder / "data", folder / "work", folder / "results")


def test_predictions_matrices_curves_and_attention_come_from_the_trained_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "results" / "table2-smoke.json"
    words = ["reproduce", "table2", "--scale", "smoke", "--work", str(tmp_path / "work"), "--output", str(output)]
    assert main([*words, "--jobs", "0"]) == 0
    place = tmp_path / "results" / "table2-smoke"
    looks = json.loads((place / "looks.json").read_text())
    runs = {name: run["result"]["scores"] for name, run in json.loads(output.read_text())["runs"].items()}
    scores = {name: own["all"] for name, own in runs.items() if "all" in own}  # others are of tabular baselines
    assert set(looks["runs"]) == set(scores) and looks["data"]["synthetic"]["classes"] == ["dry", "water"]
    for name, run in looks["runs"].items():
        matrix = torch.tensor(run["columns"]["synthetic"]["confusion"])
        assert int(matrix.sum()) == scores[name]["positions"]
        assert float(matrix.trace() / matrix.sum()) == pytest.approx(scores[name]["accuracy"])
        assert [step for step, _ in run["curve"]["points"]][-2:] == [1, 2]  # after the start, where that is fitted
    inner = next(run["inner"] for run in looks["runs"].values() if run["row"] == "Atomizer-IO")
    here = [pair[0] for pair in inner["attention"]["shares"].values()]
    assert len(here) == 15 and sum(here) == pytest.approx(1.0, abs=1e-3)
    named = {path.name for path in place.glob("*.png")}
    assert {inner["cells"]["file"], inner["quadtree"]["file"], looks["data"]["synthetic"]["target"]["file"]} <= named
    assert str(tmp_path) not in (place / "looks.json").read_text()
    # looked at once: a second call draws only what is not there
    lost, stays = place / inner["cells"]["file"], place / "synthetic-resnet-synthetic.png"
    lost.unlink()
    stays.write_bytes(b"drawn before")
    assert main([*words, "--jobs", "0"]) == 0
    assert lost.exists() and stays.read_bytes() == b"drawn before" and "0 to do" in capsys.readouterr().out
