"""Items of the paper: what is registered, how results become tables, and the items that only count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atomizer_io.cli import main
from atomizer_lab.paper.item import PAPER, SCALES, SMALL, SMOKE, Where, summary
from atomizer_lab.paper.registry import ITEMS, item


def where(folder: Path) -> Where:
    return Where(folder / "data", folder / "work", folder / "results")


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_lists_runs_of_every_scale(name: str, tmp_path: Path) -> None:
    result = item(name)
    assert result.name == name and result.shows and {SMALL, SMOKE} <= set(result.scales) <= set(SCALES)
    assert (name in ("hyperspectral", "labels", "rates")) == (
        PAPER not in result.scales
    )  # the paper has nothing like them
    for scale in result.scales:
        names = [task.name for task in result.runs(scale, where(tmp_path))]
        assert names and len(set(names)) == len(names), scale
        assert all(str(tmp_path) not in json.dumps(task.arguments) for task in result.runs(scale, where(tmp_path)))


def test_numbers_of_several_seeds_become_mean_and_std() -> None:
    results: dict[str, Any] = {f"seed {n}": {"numbers": {"a": {"x": 10.0 + n}}} for n in range(3)}
    results["other"] = {"numbers": {"b": {"x": 5.0}}}
    result = summary(results)
    assert result["a"]["x"] == {"values": [10.0, 11.0, 12.0], "mean": 11.0, "spread": 1.0}  # old name
    assert result["b"]["x"]["spread"] is None  # old name
    shown = item("rope").table({"": {"numbers": {"Atomizer-IO": {"MNIST": 98.0}}}}, SMALL).splitlines()
    assert shown[-1].split()[-7:] == ["99.37", "72.01", "44.10", "88.81", "93.17", "|", "98.00"]


def test_pairs_of_latents_and_atoms_stay_below_the_bounds(tmp_path: Path) -> None:
    output = tmp_path / "complexity-smoke.json"
    item("complexity").run(SMOKE, where(tmp_path), output, jobs=0)
    result = json.loads(output.read_text())["found"]
    for row, cells in result.items():
        if row != "global":
            assert 0 < cells["counted, millions"]["mean"] <= cells["bound, millions"]["mean"]
    assert result["global"]["equivalent drop, %"]["mean"] == 0


def test_parameters_are_near_those_of_the_paper(tmp_path: Path) -> None:
    output = tmp_path / "parameters-small.json"
    item("parameters").run(SMALL, where(tmp_path), output, jobs=0)
    document = json.loads(output.read_text())
    for row, columns in document["paper"].items():
        for column, number in columns.items():
            assert document["found"][row][column]["mean"] == pytest.approx(number, rel=0.04), (row, column)


def test_runs_are_listed_and_run_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results" / "complexity-smoke.json"
    words = ["reproduce", "complexity", "--scale", "smoke", "--output", str(output), "--work", str(tmp_path / "work")]
    assert main([*words, "--list", "--seeds", "0"]) == 0
    options = f"--work {tmp_path / 'work'} --output {output} --seeds 0"
    shown = capsys.readouterr().out
    assert shown == f"atomizer reproduce complexity --scale smoke {options} --cell 0  # 64 × 64 pixels\n"
    assert main([*words, "--table"]) == 0
    assert f"{output} (no such file): 0 of 1 runs are there" in capsys.readouterr().out
    assert main([*words, "--cell", "0"]) == 0
    assert not output.exists() and "here (smoke)" in capsys.readouterr().out
    assert main([*words, "--table"]) == 0
    assert f"{output}: 1 of 1 runs are there" in capsys.readouterr().out
    assert main(words) == 0
    assert "1 of 1 runs are there, 0 to do" in capsys.readouterr().out and output.exists()
    document = json.loads(output.read_text())
    document["runs"]["an older name"] = document["runs"]["64 × 64 pixels"]
    output.write_text(json.dumps(document))
    assert main([*words, "--table"]) == 0
    assert "1 of 1 runs are there; 1 more, of settings or seeds other than the requested" in capsys.readouterr().out
    assert main([*words, "--cell", "1"]) == 2
    assert "there is no run 1" in capsys.readouterr().err
