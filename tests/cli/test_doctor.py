"""`atomizer doctor`: one line a thing, and an exit code that shows whether anything needed is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atomizer_io.cli import doctor, main


@pytest.mark.slow  # it imports every extra
def test_an_installation_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    *lines, verdict = capsys.readouterr().out.splitlines()
    rows = {line[8:21].strip(): line for line in lines}
    assert {"Python", "torch", "torchvision", "kernels", "geo", "train", "dask", "cache", "disk"} <= set(rows)
    assert all(line.startswith(("ok ", "note ")) for line in lines) and verdict == "all is well"
    assert "right to" in rows["kernels"] and "rasterio" in rows["geo"]


def test_a_broken_thing_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad = doctor.Finding("broken", "thing", "does not work: mend it")
    monkeypatch.setattr(doctor, "CHECKS", (doctor.check_python, lambda: [bad]))
    assert main(["doctor"]) == 1
    assert "broken  thing        does not work: mend it" in capsys.readouterr().out


def write_library(folder: Path, name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def test_a_torchvision_for_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "raise RuntimeError('operator torchvision::nms does not exist')"
    write_library(tmp_path, "torchvision", source, monkeypatch)
    (finding,) = doctor.check_torchvision()
    assert finding.state == "broken" and "RuntimeError: operator torchvision::nms does not exist" in finding.text
    assert "pip uninstall torchvision" in finding.text


@pytest.mark.parametrize(
    ("source", "words"), [("import nowhere", "No module named 'nowhere'"), ("import os; os._exit(7)", "exit code 7")]
)
def test_an_extra_that_cannot_be_imported(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atomizer_io import extras

    write_library(tmp_path, "brokenlibrary", source, monkeypatch)
    monkeypatch.setattr(extras, "EXTRAS", {"geo": ("brokenlibrary",), "dask": ("no_such_library",)})
    broken, note = doctor.check_extras()
    assert (broken.state, broken.name) == ("broken", "geo") and words in broken.text
    assert (note.state, note.text) == (
        "note",
        "without no_such_library: pip install 'atomizer-io[dask]' if you need it",
    )


def test_predictions_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "disagreement", lambda: 0.5)
    (finding,) = doctor.check_kernels()
    assert finding.state == "broken" and "ATOMIZER_KERNELS=off" in finding.text


def test_the_stages_of_a_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "small.yaml"
    options = "{like: texture, size: 16, length: 4}"
    config.write_text(
        f"data: {{name: synthetic, workers: 0, measure: 4, options: {options}}}\noutput: {tmp_path}/runs\n"
    )
    command = ["doctor", "--run", str(config), "training.max_steps=1"]
    assert main([*command, "model.preset=atomizer_io_tiny"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["stage", "common", "differing", "entropy", "gradient"]
    assert lines[0].startswith("encoder ") and lines[-1].startswith("decoder ") and not (tmp_path / "runs").exists()
    assert main([*command, "model.preset=unknown"]) == 2
