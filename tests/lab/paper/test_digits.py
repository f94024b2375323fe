"""The items on MNIST: a run from synthetic digits to the table, models that are kept, pixels that are removed."""

from __future__ import annotations

import json
from pathlib import Path

from atomizer_lab.paper import digits
from atomizer_lab.paper.item import SMOKE, Where
from atomizer_lab.paper.registry import item


def where(folder: Path) -> Where:
    return Where(folder / "data", folder / "work", folder / "results")


def test_sparse_digits_from_files_to_table(tmp_path: Path) -> None:
    output = tmp_path / "results" / "mnist-sparse-smoke.json"
    shown = item("mnist-sparse").run(SMOKE, where(tmp_path), output, jobs=0)
    assert "94.93" in shown and "paper (tab:mnist_token_drop_darkonly)" in shown and "here (smoke)" in shown
    document = json.loads(output.read_text())
    assert set(document["found"]) == {digits.ATOMIZER, digits.VIT}
    assert list(document["found"][digits.VIT]) == ["100%", "75%", "50%", "25%", "10%"]
    assert str(tmp_path) not in output.read_text()
    # with the kept models nothing is trained again, wherever runs would go
    elsewhere = Where(tmp_path / "data", tmp_path / "elsewhere", tmp_path / "results")
    again = item("mnist-sparse").run(SMOKE, elsewhere, tmp_path / "results" / "again.json", jobs=0)
    assert not (tmp_path / "elsewhere" / "runs").exists() and again.splitlines()[-1] == shown.splitlines()[-1]
