"""``atomizer predict`` with rasters."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.models.storage import seal_at
from chips import CORNER, NAMES, model_folder, read, scene, values, without_crs, write
from predicting import command
from scenes import SMALL, data_folder

BANDS = "B01,B02,B03,B04,B05,B06,B07,B08,B8A,B09,B10,B11,B12"


def test_options_belong_to_the_raster_before_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "a.tif", values(14, 14), names=None)
    two = write(tmp_path / "b.tif", values(14, 14, 1, ("B05",)), names=None)
    code = command(
        *("--raster", one, "--sensor", "sentinel2", "--bands", "B02,B03,B08", "--date", "2021-07-04"),
        *("--raster", two, "--sensor", "sentinel2", "--bands", "B05", "-o", tmp_path / "map.tif"),
        *("--layers", "confidence,probabilities", "--output-gsd", "20"),
    )
    text = capsys.readouterr().out
    assert code == 0
    assert "a.tif: sentinel2 B02, sentinel2 B03, sentinel2 B08, 2021-07-04, 10 m" in text
    assert "b.tif: sentinel2 B05, no date, 10 m" in text
    assert "map.confidence.tif" in text
    assert "wet" in text
    assert read(tmp_path / "map.tif").shape == (1, 7, 7)


def test_the_seal_of_the_model_is_printed_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.tif", values(14, 14))
    assert command("--raster", path, "--sensor", "sentinel2", "-o", tmp_path / "map.tif") == 0
    seal = seal_at(model_folder())
    assert capsys.readouterr().out.startswith(f"model {model_folder()}: sealed as {seal}\n")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.tags()["model_seal"] == seal


def test_a_model_with_a_broken_seal_predicts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(shutil.copytree(model_folder(), tmp_path / "model"))
    config = model / "config.json"
    config.write_text(config.read_text().replace('"wet"', '"dryer"'))
    path = write(tmp_path / "a.tif", values(14, 14))
    words = ["predict", "--quiet", "--raster", str(path), "--sensor", "sentinel2", "-o", str(tmp_path / "map.tif")]
    assert main([*words, "--model", str(model)]) == 2
    printed = capsys.readouterr()
    assert "was changed after the model was saved" in printed.err and "sealed as" not in printed.out
    assert not (tmp_path / "map.tif").exists()
    assert main(["info", str(model), "--seal"]) == 0
    assert f"sealed as {seal_at(model)}" in capsys.readouterr().out
    assert main([*words, "--model", str(model)]) == 0
    assert "dryer" in capsys.readouterr().out


def test_a_model_knows_the_channels_it_was_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    channels = (*SENTINEL2.pick(*NAMES), Channel("dem", "elevation", gsd_m=10.0, mean=300.0, std=100.0))
    elevation = np.random.default_rng(0).normal(300, 100, (1, 14, 14)).astype(np.float32)
    path, image = write(tmp_path / "dem.tif", elevation, names=None), scene(tmp_path, 14, 14)["path"]
    words = ["predict", "--quiet", "--workers", "0", "--model", str(model_folder(channels=channels))]
    words += ["--raster", str(image), "--sensor", "sentinel2", "--raster", str(path), "--sensor", "DEM"]
    assert main([*words, "--bands", "elevation", "-o", str(tmp_path / "map.tif")]) == 0
    assert "dem.tif: dem elevation" in capsys.readouterr().out
    assert main([*words, "--bands", "slope", "-o", str(tmp_path / "map2.tif")]) == 2
    assert "trained without dem slope" in capsys.readouterr().err


def test_predictions_at_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "places.csv").write_text(f"x,y\n{CORNER[0] + 45},{CORNER[1] - 45}\n0,0\n")
    raster = scene(tmp_path, 14, 14)
    code = command(
        *("--raster", raster["path"], "--sensor", "sentinel2"),
        *("--at", tmp_path / "places.csv", "-o", tmp_path / "out.csv"),
    )
    assert code == 0
    assert "1 of 2 positions" in capsys.readouterr().out
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


SCENE = ("--raster", "scene0.tif", "--sensor", "sentinel2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is no input"),
        (("--raster", "none.tif"), "none.tif: no such file"),
        (("--raster", "scene0.tif", "--sensor", "sentinel9"), "sentinel9"),
        (("--raster", "scene0.tif", "--sensor", "sentinl2"), "did you mean sentinel2"),
        ((*SCENE, "--layers", "x"), "layer 'x'"),
        ((*SCENE, "--overlap", "1"), "overlap"),
        ((*SCENE, "--scheduler", "tcp://x:1"), "scheduler is for Dask only"),
        ((*SCENE, "--at", "none.csv", "-o", "a.csv"), "none.csv: no such file"),
        ((*SCENE, "--at", "none.csv"), "name must end in .csv"),
        ((*SCENE, "--at", "a.csv", "--layers", "attention"), "for maps only"),
        ((*SCENE, "-o", "map.png"), "name must end in .tif"),
        ((*SCENE, "-o", "scene0.tif"), "is an input of the prediction"),
        ((*SCENE, "-o", "scene0.tif", "--overwrite"), "is an input of the prediction"),
        (("--points", "a.laz", "--at", "none.csv"), "--at is for rasters only"),
        (("--raster", "scene0.tif", "--max-points", "9"), "--max-points is for a point cloud (--points) only"),
        (("--raster", "scene0.tif", "--ask-every", "1"), "--decode-every is for a point cloud (--points)"),  # old name
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    scene(tmp_path, 12, 12)
    monkeypatch.chdir(tmp_path)
    before = Path("scene0.tif").read_bytes()
    assert command("-o", "map.tif", *arguments) == 2
    assert Path("scene0.tif").read_bytes() == before
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert message in printed
    assert not Path("map.tif.parts").exists()


def test_errors_speak_of_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of those that one types, not of what they are called in Python."""
    gray = write(tmp_path / "gray.tif", values(9, 9), names=None)
    bare = write(tmp_path / "bare.tif", values(9, 9), crs=None)
    placed = scene(tmp_path, 9, 9)["path"]
    sentinel2 = ("--sensor", "sentinel2")
    for arguments, message in (
        (("--raster", gray), "pass --sensor and --bands"),
        (("--raster", gray, "--sensor", "aerial"), "pass --bands in the order of the file"),
        (("--raster", gray, "--bands", "R,G,B"), "--bands names the bands of a sensor: pass --sensor as well"),
        (("--raster", bare, *sentinel2), "pass --gsd"),
        (
            ("--raster", placed, *sentinel2, "--raster", bare, *sentinel2, "--gsd", "10"),
            "other rasters have one: pass --crs",
        ),
        (("--raster", placed, *sentinel2, "--raster", bare, *sentinel2, "--crs", "EPSG:32631"), "cannot be placed in"),
        (("--raster", placed, *sentinel2, "--crs", "EPSG:32632"), "leave --crs out"),
    ):
        assert command(*arguments, "-o", tmp_path / "map.tif") == 2
        text = capsys.readouterr().err
        assert message in text
        assert not any(word in text for word in ("sensor=", "bands=", "gsd_m", "crs=", "pick(", "Sensor.define"))


def test_a_raster_is_placed_by_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = without_crs(tmp_path / "bare.tif", values(9, 9, 1))
    raster = scene(tmp_path, 9, 9)["path"]
    sentinel2 = ("--sensor", "sentinel2")
    arguments = ("--raster", raster, *sentinel2, "--raster", path, *sentinel2, "--crs", "EPSG:32631")
    assert command(*arguments, "-o", tmp_path / "map.tif") == 0
    assert "bare.tif: sentinel2 B02" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--date", "2021-07-04"), ("--raster", "a", "--sensor", "b", "--sensor", "c")])
def test_options_without_a_raster(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(*arguments, "-o", "map.tif")
    text = capsys.readouterr().err
    assert "belongs to the --raster before it" in text or "given twice for a" in text


@pytest.mark.realdata
def test_a_flood_chip(tmp_path: Path) -> None:
    """Sentinel-1 and Sentinel-2 of Sen1Floods11, in degrees, with bands as a list and as the file has them."""
    chips = data_folder("sen1floods11") / "v1.1/data/flood_events/HandLabeled"
    name = "Spain_7370579"
    folder = model_folder(rope_scale_m=640.0, atoms_per_latent=4000)
    code = main(
        [
            *("predict", "--quiet", "--workers", "0", "--model", str(folder), "-o", str(tmp_path / "map.tif")),
            *("--raster", str(chips / f"S1Hand/{name}_S1Hand.tif"), "--sensor", "sentinel1", "--output-gsd", "100"),
            *("--raster", str(chips / f"S2Hand/{name}_S2Hand.tif"), "--sensor", "sentinel2", "--bands", BANDS),
            *("--decode", "quadtree"),
        ]
    )
    assert code == 0
    with rasterio.open(tmp_path / "map.tif") as file, rasterio.open(chips / f"S1Hand/{name}_S1Hand.tif") as radar:
        assert file.crs == radar.crs
        np.testing.assert_allclose(file.bounds, radar.bounds, atol=2e-3)
        assert (file.read() < 3).mean() > 0.95  # at the far edges a pixel reaches beyond the chip


HOSTILE = ("\x1b]0;owned\x07\x1b[2J", "=cmd|' /C calc'!A0", "-2+3", "\u202egnp.exe\x9b31m")


def test_names_cannot_command_terminals_or_spreadsheets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Class names, scene names and file names are printed without control characters; formulas in tables are text."""
    settings = {**SMALL, "class_names": HOSTILE, "num_outputs": len(HOSTILE)}
    aio.create_model("atomizer_io_tiny", **settings).save_pretrained(tmp_path / "model")
    files = scene(tmp_path, 14, 14)
    raster = tmp_path / "\x1b[31mscene.tif"
    Path(files["path"]).rename(raster)
    places = f"x,y,id,-height\n{CORNER[0] + 45},{CORNER[1] - 45},+SUM(A1),-3.5e2\n"
    (tmp_path / "places.csv").write_text(places)
    (tmp_path / "scenes.csv").write_text(f"scene,path,sensor\n\x1b[32mone,{raster.name},sentinel2\n")
    words = ["predict", "--quiet", "--workers", "0", "--model", str(tmp_path / "model")]
    inputs = [*words, "--raster", str(raster), "--sensor", "sentinel2"]
    assert main([*inputs, "-o", str(tmp_path / "map.tif")]) == 0
    assert main([*inputs, "--at", str(tmp_path / "places.csv"), "-o", str(tmp_path / "out.csv")]) == 0
    assert main([*words, "--list", str(tmp_path / "scenes.csv"), "-o", str(tmp_path / "maps")]) == 0
    assert main([*words, "--list", str(tmp_path / "scenes.csv"), "-o", str(tmp_path / "maps")]) == 2  # exists
    (tmp_path / "scenes.csv").write_text("scene,path,sensor\n\x1b[32mtwo,none.tif,sentinel2\n")
    assert main([*words, "--list", str(tmp_path / "scenes.csv"), "-o", str(tmp_path / "maps")]) == 1
    assert main([*words, "--raster", str(tmp_path / "\x1b[1mnone.tif"), "-o", str(tmp_path / "b.tif")]) == 2
    assert main(["info", str(tmp_path / "model")]) == 0
    printed = capsys.readouterr()
    assert "scene.tif" in printed.out and "calc" in printed.out and "one" in printed.err and "two" in printed.err
    tables = [(tmp_path / name).read_text() for name in ("map.areas.csv", "out.csv")]
    for text in (printed.out, printed.err, *tables):
        assert all(letter.isprintable() or letter in "\n\t" for letter in text), ascii(text)
    areas = [row.split(",")[0] for row in (tmp_path / "map.areas.csv").read_text().splitlines()[1:]]
    assert areas[1:3] == ["'=cmd|' /C calc'!A0", "'-2+3"]
    with (tmp_path / "out.csv").open(newline="") as file:
        header, row = csv.reader(file)
    assert header[:4] == ["x", "y", "id", "'-height"] and row[2:4] == ["'+SUM(A1)", "-3.5e2"]
    assert float(row[0]) == CORNER[0] + 45 and all(0 <= float(share) <= 1 for share in row[6:10])
