"""A matrix of runs: nothing is computed twice, nothing finished is lost, one failure does not stop the others."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atomizer_io.errors import AtomizerError
from atomizer_lab.matrix import Task, is_there, run_all, run_alone, stored


def note(folder: str, number: int) -> dict[str, Any]:
    """A run that leaves a trace of each time it was computed."""
    with (Path(folder) / "trace").open("a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    return {"number": number, "threads": os.environ["OMP_NUM_THREADS"]}


def fail(folder: str) -> dict[str, Any]:
    """A run that fails."""
    raise ValueError(f"nothing in {folder}")


def tasks(folder: Path, numbers: range) -> list[Task]:
    return [Task(f"run {number}", note, {"folder": str(folder), "number": number}) for number in numbers]


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    run_all(tasks(tmp_path, range(2)), output)
    outcome = run_all(tasks(tmp_path, range(3)), output, jobs=2, about={"what": "numbers"})
    assert {name: result["number"] for name, result in outcome.items()} == {"run 0": 0, "run 1": 1, "run 2": 2}
    assert {result["threads"] for result in outcome.values()} == {"1"}
    assert sorted((tmp_path / "trace").read_text().split()) == ["0", "1", "2"]
    document = json.loads(output.read_text())
    assert document["what"] == "numbers" and document["runs"]["run 2"]["minutes"] >= 0 and "machine" in document


def test_other_arguments_are_another_run(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    run_all([Task("run", note, {"folder": str(tmp_path), "number": 1})], output)
    outcome = run_all([Task("run", note, {"folder": str(tmp_path), "number": 2})], output)
    assert outcome["run"]["number"] == 2 and (tmp_path / "trace").read_text().split() == ["1", "2"]


def test_single_runs_are_gathered(tmp_path: Path) -> None:
    output, all_runs = tmp_path / "results.json", tasks(tmp_path, range(3))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    assert run_alone(all_runs, 1, output)["number"] == 1
    assert run_alone(all_runs, 1, output)["number"] == 1 and not output.exists()
    with pytest.raises(AtomizerError, match="no run 3: the runs have the numbers 0 to 2"):
        run_alone(all_runs, 3, output)

    def about(results: Mapping[str, Any]) -> dict[str, Any]:
        return {"sum": sum(result["number"] for result in results.values())}

    assert run_all(all_runs, output, jobs=0, about=about)["run 2"]["number"] == 2
    assert (tmp_path / "trace").read_text().split() == ["1", "0", "2"]
    document = json.loads(output.read_text())
    assert document["sum"] == 3 and set(document["runs"]) == {"run 0", "run 1", "run 2"}
    assert all(run["machine"]["date"] for run in document["runs"].values())


def test_a_failure_leaves_the_others(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    with pytest.raises(AtomizerError, match=r"1 of 3 runs failed; the first is broken:[\s\S]*nothing in"):
        run_all([Task("broken", fail, {"folder": str(tmp_path)}, minutes=9.0), *tasks(tmp_path, range(2))], output)
    assert set(stored(output)) == {"run 0", "run 1"}


def test_names_and_files_are_checked(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    with pytest.raises(AtomizerError, match="two tasks have the same name: run 0"):
        run_all([*tasks(tmp_path, range(1)), *tasks(tmp_path, range(1))], output)
    output.write_text("{}")
    with pytest.raises(AtomizerError, match="is not a file of results"):
        run_all(tasks(tmp_path, range(1)), output)


def test_a_renamed_setting_is_not_another_run() -> None:
    now = {"document": {"training": {"ema": 0.0, "queries": 9}}, "set": {"training.channel_dropout": {}}}
    kept = {
        "a": {
            "arguments": {
                "document": {"training": {"averaging": 0.0, "queries": 9}},  # old name
                "set": {"training.channel_draws": {}},
            }
        }
    }
    assert is_there(kept, Task("a", dict, now))
    assert not is_there(kept, Task("a", dict, {**now, "set": {}}))
