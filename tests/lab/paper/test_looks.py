"""What is looked at of trained models: from finished trainings, kept where its data allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from atomizer_io.cli import main
from atomizer_io.figures.class_colours import UNKNOWN, WRONG, rgb
from atomizer_io.training.config import parse
from atomizer_lab.paper.item import SMALL, SMOKE, Where
from atomizer_lab.paper.looks import Subject, album_of, write_looks
from atomizer_lab.paper.registry import item
from atomizer_lab.paper.trainings import Trained
from atomizer_lab.report.images import class_map, shrunk, value_map


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


def test_clouds_are_drawn_whole(tmp_path: Path) -> None:
    output = tmp_path / "results" / "lidar-smoke.json"
    item("lidar").run(SMOKE, where(tmp_path), output, jobs=0)
    assert write_looks(item("lidar"), SMOKE, where(tmp_path), output) == []
    looks = json.loads((output.with_suffix("") / "looks.json").read_text())
    files = [run["columns"]["synthetic points"]["cloud"] for run in looks["runs"].values()]
    assert len(files) == 2 and all((output.with_suffix("") / file["file"]).stat().st_size > 5000 for file in files)


def test_digits_are_drawn_with_what_networks_take_them_for(tmp_path: Path) -> None:
    output = tmp_path / "results" / "mnist-sparse-smoke.json"
    item("mnist-sparse").run(SMOKE, where(tmp_path), output, jobs=0)
    write_looks(item("mnist-sparse"), SMOKE, where(tmp_path), output)
    looks = json.loads((output.with_suffix("") / "looks.json").read_text())
    for image in looks["digits"]:
        assert list(image["columns"]) == ["100%", "75%", "50%", "25%", "10%"] and 0 <= image["truth"] <= 9  # old name
        for column in image["columns"].values():
            assert set(column["answers"]) == {"Atomizer-IO", "ViT 1×1"} and column["in"] == "results"  # old name
            assert (output.with_suffix("") / column["file"]).exists()
    for run in json.loads(output.read_text())["runs"].values():
        assert all(len(matrix) == 10 for matrix in run["result"]["confusion"].values())


def test_nothing_is_trained_to_be_looked_at(tmp_path: Path) -> None:
    output = tmp_path / "results" / "table2-smoke.json"
    assert write_looks(item("table2"), SMOKE, where(tmp_path), output) == []
    assert not (tmp_path / "work" / "runs").exists() and not output.with_suffix("").exists()


def test_data_that_are_not_there_are_reported(tmp_path: Path) -> None:
    lines = write_looks(item("temporal"), SMALL, where(tmp_path), tmp_path / "results" / "x.json", [0])
    assert lines and all("was not looked at" in line and str(tmp_path / "data") in line for line in lines)


@pytest.mark.parametrize(("name", "kept"), [("synthetic", True), ("mnist", True), ("sen1floods11", False)])
def test_only_figures_of_our_own_data_lie_with_the_results(tmp_path: Path, name: str, kept: bool) -> None:
    run = parse({"data": {"name": name}, "model": {"preset": "atomizer_io_tiny"}})
    subject = Subject("run", "row", "key", Trained(run, tmp_path / "best", {}), None)  # type: ignore[arg-type]
    folders = {"results": tmp_path / "results" / "table2-small", "work": tmp_path / "work" / "looks" / "table2-small"}
    album = album_of(subject, folders)
    file = album.add("Ünusual / name", torch.zeros(2, 2, 3).numpy())
    place = tmp_path / ("results" if kept else "work/looks") / "table2-small"
    assert file["in"] == ("results" if kept else "work") and (place / file["file"]).exists()


def test_large_figures_are_shrunk_by_whole_blocks() -> None:
    figure = torch.arange(7 * 4 * 3.0).reshape(7, 4, 3).numpy()
    small = shrunk(figure, 4)
    assert small.shape == (3, 2, 3) and small[0, 0, 0] == figure[:2, :2, 0].mean()
    assert (shrunk(figure, 7) == figure).all()


def test_maps_mark_what_is_wrong_and_what_is_not_known() -> None:
    colours = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]).numpy()
    target, labels = torch.tensor([[0, 1, -1]]), torch.tensor([[0, 0, 1]])
    right, wrong, unknown = class_map(labels, colours, target)[0]
    assert tuple(right) == (0, 0, 1) and tuple(wrong) == rgb(WRONG) and tuple(unknown) == rgb(UNKNOWN)
    low, high, nothing = value_map(torch.tensor([[0.0, 10.0, torch.nan]]), 0.0, 10.0)[0]
    assert low.sum() < high.sum() and tuple(nothing) == rgb(UNKNOWN)
