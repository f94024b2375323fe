"""The benchmark of reading: what it prints and writes, and what it does with files that are not there."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio

from atomizer_io import fixtures
from atomizer_io.cli import main
from atomizer_io.datasets.registry import create
from atomizer_io.errors import DataError
from atomizer_io.experiments.bench import data, layouts


@pytest.mark.parametrize("name", ["sen1floods11", "eurosat", "pastis-r", "xview2", "m-eurosat"])
def test_a_folder_is_measured(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, output = fixtures.write(name, tmp_path / "data"), tmp_path / "results" / "data.json"
    assert main(["bench", "data", f"{name}={root}", "--repeats", "1", "--output", str(output)]) == 0
    header, line, written = capsys.readouterr().out.splitlines()
    assert header == data.HEADER and line.startswith(name) and written == f"written: {output}"
    (row,) = json.loads(output.read_text())["reading"]
    assert row["name"] == name and row["ratio"] == pytest.approx(row["seconds"] / row["plain_seconds"])
    assert row["ratio"] > 0 and row["atoms"] > 0 and row["megabytes"] > 0 and 0 < row["samples"] <= data.ITEMS


def test_files_that_windows_share_are_read_plainly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = create("xview2", fixtures.write("xview2", tmp_path / "data"), size=32)
    read: list[Path] = []
    monkeypatch.setattr(data, "_raster", lambda path, real=data._raster: (read.append(path), real(path))[1])
    reading = data.measure_reading(dataset, repeats=1)
    assert reading.samples == 8
    images = {path for item in dataset.items for path in dataset.images(item[0])}
    assert set(read) == images and len(read) == 2 * len(images)  # once for their size, once for the time
    assert reading.megabytes == pytest.approx(4 * 3 * 64 * 64 / 8 / 1e6)


def test_what_cannot_be_read_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, output = fixtures.write("sen1floods11", tmp_path / "data"), tmp_path / "data.json"
    first, second, _ = create("sen1floods11", root).items
    chips = root / "v1.1/data/flood_events/HandLabeled"
    (chips / f"S1Hand/{first}_S1Hand.tif").unlink()
    (chips / f"LabelHand/{second}_LabelHand.tif").write_bytes(b"")
    command = ["bench", "data", f"sen1floods11={root}", "--repeats", "1", "--output", str(output)]
    assert main(command) == 0
    assert json.loads(output.read_text())["reading"][0]["samples"] == 1
    with pytest.raises(DataError, match=f"{first}_S1Hand.tif: no such file"):
        data.measure_reading(create("sen1floods11", root), repeats=1)
    shutil.rmtree(chips)
    assert main(command) == 2
    assert "no sample of split 'train' can be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["eurosat"], "'eurosat' has no folder: write eurosat=ROOT"),
        (["eurosat="], "'eurosat=' has no folder"),
        (["=/data"], "'=/data' names no dataset"),
        (["synthetic=-", "--repeats", "1"], "synthetic has no files"),
        (["--repeats", "0"], "--repeats must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "data.json"
    assert main(["bench", "data", *arguments, "--output", str(output)]) == 2
    assert cause in capsys.readouterr().err and not output.exists()


def test_made_up_folders_have_the_real_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, dict[str, int]] = {}

    def small(name: str, folder: Path, **options: int) -> Path:
        written[name] = options
        return fixtures.write(name, folder)

    monkeypatch.setattr(data, "write", small)
    datasets = data.made_up(tmp_path)
    assert [dataset.info.name for dataset in datasets] == list(written)
    assert written == {
        "sen1floods11": {"size": 512},
        "biomassters": {"size": 256},
        "burnscars": {"size": 512},
        "eurosat": {},
        "xview2": {"size": 1024},
        "pastis-r": {"size": 128, "dates": 40},
    }


def test_layouts_of_large_rasters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without datasets, windows of one raster in all layouts are measured too, and the share of reading in predict."""
    monkeypatch.setattr(data, "MADE_UP", {"eurosat": {}})
    monkeypatch.setattr("atomizer_io.experiments.bench.layouts.measure", functools.partial(layouts.measure, side=128))
    output = tmp_path / "data.json"
    assert main(["bench", "data", "--repeats", "1", "--output", str(output)]) == 0
    found, text = json.loads(output.read_text()), capsys.readouterr().out
    assert [row["layout"] for row in found["windows"]] == list(layouts.LAYOUTS)
    assert all(row["seconds"] > 0 and row["overview_seconds"] > 0 for row in found["windows"])
    assert 0 < found["predict"]["reading"] < 1 and found["predict"]["seconds"] > 0
    assert "% of " in text and all(name in text for name in layouts.LAYOUTS)
    files = layouts.write_layouts(tmp_path, side=32)
    for path in files.values():
        with rasterio.open(path) as file, rasterio.open(files["pixel tiles"]) as first:
            np.testing.assert_array_equal(file.read(), first.read())


def test_pastis_of_any_size(tmp_path: Path) -> None:
    dataset = create("pastis-r", fixtures.write("pastis-r", tmp_path / "data", size=16, dates=9))
    sample = dataset[0]
    assert sample.queries.grid.shape == (16, 16) and len(sample.atoms) == 27 and sample.meta.crs == "EPSG:2154"
