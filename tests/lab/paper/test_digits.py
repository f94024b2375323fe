"""The items on MNIST: a run from synthetic digits to the table, models that are kept, pixels that are removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import data as fixtures
from atomizer_io.datasets.mnist import Mnist
from atomizer_io.models.registry import create_model
from atomizer_lab.paper import digits
from atomizer_lab.paper.item import SMALL, SMOKE, Where
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


def test_networks_of_one_size_see_the_same_pixels(tmp_path: Path) -> None:
    fixtures.write("mnist", tmp_path / "mnist")
    sizes = {}
    for name in (digits.ATOMIZER, digits.VIT):
        model = digits.document(name, SMALL, 0)["model"]
        built = create_model(model["preset"], **model["settings"])
        sizes[name] = built.num_parameters
    assert sizes[digits.VIT] == pytest.approx(sizes[digits.ATOMIZER], rel=0.05)
    seen: list[list[int]] = []

    class Watching:
        def preparer(self) -> object:
            return lambda atoms, queries: atoms

        def eval(self) -> None: ...

        def predict(self, inputs: list[object]) -> list[torch.Tensor]:
            seen.append([atoms.num_atoms for atoms in inputs])  # type: ignore[attr-defined]
            return [torch.arange(10.0) for _ in inputs]

    dataset = Mnist(tmp_path / "mnist", "test")
    nines = digits.confusion(Watching(), dataset, 1.0)
    digits.confusion(Watching(), dataset, 0.1)
    assert int(nines[:, 9].sum()) == len(dataset) == int(nines.sum()) and seen[0] == [784] * 3
    assert max(seen[-1]) < 300 and all(sum(counts) <= digits.PIXELS for counts in seen)
