"""The table of all models: every row is measured, and what a model cannot do is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atomizer_io.cli import main
from atomizer_io.errors import ConfigError
from atomizer_io.experiments.bench import models
from atomizer_io.experiments.bench.models import made_up, measure


def test_a_row_per_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["atomizer_io_tiny", "unet_small", "pixels"]
    options = ["--input", "24x32x3x2", "--repeats", "1", "--output", str(tmp_path / "models.json")]
    assert main(["bench", "models", *names, *options]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    found = json.loads((tmp_path / "models.json").read_text())
    assert found["input"] == [24, 32, 3, 2] and [row["name"] for row in found["rows"]] == names
    for row in found["rows"]:
        assert row["failed"] is None and row["parameters"] > 0 and row["gflops"] > 0
        assert min(row["prepare_s"], row["answer_s"], row["step_s"]) > 0
    assert found["rows"][1]["gflops"] > found["rows"][2]["gflops"]


def test_what_a_model_cannot_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConfigError("it answers for whole scenes")

    monkeypatch.setattr(models, "create_model", refuse)
    assert measure("unet", (4, 4, 1, 1)).line() == f"{'unet':26} does not answer: it answers for whole scenes"


def test_the_made_up_scene() -> None:
    atoms, channels, queries = made_up(6, 5, 2, 3)
    assert atoms.num_atoms == 6 * 5 * 2 * 3 and len(channels) == 2 and len(queries) == 30


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "models", "unett"]) == 2
    assert "did you mean 'unet'" in capsys.readouterr().err
    assert main(["bench", "models", "pixels", "--input", "12x"]) == 2
