"""``atomizer data``: what a user sees of a folder that is whole and of one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import data as fixtures
from atomizer_io.cli import main
from atomizer_io.datasets.registry import list_datasets
from atomizer_io.datasets.statistics import Statistics
from data import WRITERS

CHIPS = "v1.1/data/flood_events/HandLabeled"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.write("sen1floods11", tmp_path_factory.mktemp("data") / "s1f")


def test_list_and_describe_know_every_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list_datasets()
    for name in listed:
        assert main(["data", "describe", name]) == 0
        shown = capsys.readouterr().out
        assert name in shown and "task" in shown
    assert main(["data", "describe", "sen1floods11"]) == 0
    shown = capsys.readouterr().out
    for text in ("0 dry, 1 water", "B8A", "bolivia", "HandLabeled"):
        assert text in shown


@pytest.mark.parametrize("name", list(WRITERS))
def test_every_fixture_passes_its_check(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixtures.write(name, tmp_path / "f")
    code = main(["data", "check", name, str(tmp_path / "f")])
    shown = capsys.readouterr().out
    assert code == 0, shown
    assert "nothing is missing or broken" in shown and "other units" not in shown


def test_check_reports_file_by_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = fixtures.write("sen1floods11", tmp_path / "copy")
    (copy / CHIPS / "S1Hand/Ghana_103272_S1Hand.tif").unlink()
    truncated = copy / CHIPS / "S2Hand/Ghana_24858_S2Hand.tif"
    truncated.write_bytes(truncated.read_bytes()[:9000])
    (copy / "v1.1/splits/flood_handlabeled/flood_bolivia_data.csv").unlink()
    assert main(["data", "check", "sen1floods11", str(copy)]) == 1
    lines = capsys.readouterr().out.splitlines()
    broken = [line.strip() for line in lines if "broken  " in line]
    assert len(broken) == 2 and lines[-1] == "2 missing or broken"
    assert broken[0] == f"broken   {CHIPS}/S1Hand/Ghana_103272_S1Hand.tif: no such file"
    assert broken[1].startswith(f"broken   {CHIPS}/S2Hand/Ghana_24858_S2Hand.tif: cannot be read")
    assert lines[-2].startswith(
        "bolivia    is not there (looked for v1.1/splits/flood_handlabeled/flood_bolivia_data.csv"
    )
    assert main(["data", "check", "sen1floods11", str(copy), "--split", "test"]) == 0
    assert main(["data", "check", "sen1floods11", str(copy), "--split", "bolivia"]) == 1


def test_a_copy_with_some_splits_passes_and_an_empty_folder_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = fixtures.write("sen1floods11", tmp_path / "copy")
    for split in ("train", "valid", "bolivia"):
        (copy / f"v1.1/splits/flood_handlabeled/flood_{split}_data.csv").unlink()
    assert main(["data", "check", "sen1floods11", str(copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "is not there" in line] == ["train", "val", "bolivia"]
    assert lines[-1] == "test: nothing is missing or broken"
    (tmp_path / "empty").mkdir()
    assert main(["data", "check", "sen1floods11", str(tmp_path / "empty")]) == 1
    assert "flood_train_data.csv: no such file" in capsys.readouterr().out
    assert main(["data", "check", "geotiff-folder", str(tmp_path / "empty"), "classes=2"]) == 1
    shown = capsys.readouterr().out
    assert "image: no such folder; Folder of GeoTIFFs is expected as" in shown and "1 missing or broken" in shown


def test_check_notices_other_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import rasterio

    copy = fixtures.write("sen1floods11", tmp_path / "copy")
    for path in (copy / CHIPS / "S1Hand").iterdir():
        with rasterio.open(path, "r+") as target:
            target.write(10 ** (target.read() / 10))  # power where decibels are expected
    assert main(["data", "check", "sen1floods11", str(copy), "--split", "train"]) == 0
    shown = capsys.readouterr().out
    assert "look     sentinel1 VV is" in shown and "other units?" in shown
    assert "look     sentinel2" not in shown


def test_stats_are_printed_and_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "stats", "sen1floods11", str(folder), "-o", str(tmp_path / "s.json")]) == 0
    shown = capsys.readouterr().out
    assert "sen1floods11 train: 3 samples, 178,176 atoms" in shown and "water" in shown
    assert sum(Statistics.load(tmp_path / "s.json").counts) == 178_176
    assert main(["data", "stats", "sen1floods11", str(folder), "-o", str(tmp_path / "no" / "s.json")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_show_draws_a_figure(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "figures" / "one.png"
    assert main(["data", "show", "sen1floods11", str(folder), "0", "-o", str(figure)]) == 0
    assert figure.read_bytes().startswith(b"\x89PNG") and figure.stat().st_size > 10_000
    assert "Ghana_103272" in capsys.readouterr().out
    assert main(["data", "show", "sen1floods11", str(folder), "9", "-o", str(figure)]) == 2
    assert "has the samples 0 … 2; 9 is not one" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["size=3", "size"])
def test_options_are_checked(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["data", "stats", "sen1floods11", str(folder), "--limit", "1", text])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert "size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "dales", "ROOT", "window_m=abc"], "window_m is 'abc'"),
        (["stats", "sen1floods11", "ROOT", "on_error=skip"], "--on-error"),
        (["stats", "sen1floods11", "ROOT", "--workers", "-1"], "--workers must be at least 0"),
        (["stats", "sen1floods11", "ROOT", "--limit", "0"], "--limit must be at least 1"),
        (["show", "sen1floods11", "ROOT", "0", "-o", "figure"], "name an image file that ends in"),
        (["show", "sen1floods11", "ROOT", "0", "-o", "/proc/x.png"], "error: "),
        (["show", "las-folder", "ROOT", "0", "-o", "x.png", "classes={2:"], "is not YAML"),
        (["check", "las-folder", "ROOT"], "needs the option classes"),
    ],
)
def test_no_stack_traces(arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", *(str(folder) if text == "ROOT" else text for text in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_check_finds_fill_values_and_doubles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    from chips import NAMES, values, write

    for folder in ("image_a", "image_b", "mask"):
        (tmp_path / "train" / folder).mkdir(parents=True)
    for number in range(3):
        array = values(40, 40, number)
        write(tmp_path / f"train/image_b/s{number}_2021-07-04.tif", values(40, 40, 9 + number))
        array[:, : 10 * (number == 1)] = 65535
        write(tmp_path / f"train/image_a/s{number}_2021-07-04.tif", array)
        write(tmp_path / f"train/mask/s{number}_2021-07-04.tif", (array[:1] > 1300).astype(np.uint8), names=None)
    options = ["sensor={a: sentinel2, b: sentinel2}", f"bands=[{', '.join(NAMES)}]", "classes=2"]
    assert main(["data", "check", "geotiff-folder", str(tmp_path), "--split", "train", *options]) == 0
    shown = capsys.readouterr().out
    assert "look     s1_2021-07-04 is 65535 in 25 % of all bands, apart from all other values; if" in shown
    assert "look     s0_2021-07-04 has two images of sentinel2 with the same date (2021-07-04) (likewise s1" in shown
    assert main(["data", "check", "geotiff-folder", str(tmp_path), "--split", "train", *options, "nodata=65535"]) == 0
    assert "65535" not in capsys.readouterr().out
