"""``atomizer predict`` with rasters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio

from atomizer_io.cli import main
from chips import CORNER, model_folder, read, scene, values, without_crs, write
from scenes import data_folder

BANDS = "B01,B02,B03,B04,B05,B06,B07,B08,B8A,B09,B10,B11,B12"


def predict(*arguments: object) -> int:
    return main(["predict", "--quiet", "--workers", "0", "--model", str(model_folder()), *map(str, arguments)])


def test_options_belong_to_the_raster_before_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "a.tif", values(14, 14), names=None)
    two = write(tmp_path / "b.tif", values(14, 14, 1, ("B05",)), names=None)
    code = predict(
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


def test_answers_at_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "places.csv").write_text(f"x,y\n{CORNER[0] + 45},{CORNER[1] - 45}\n0,0\n")
    given = scene(tmp_path, 14, 14)
    code = predict(
        *("--raster", given["path"], "--sensor", "sentinel2"),
        *("--at", tmp_path / "places.csv", "-o", tmp_path / "out.csv"),
    )
    assert code == 0
    assert "1 of 2 places" in capsys.readouterr().out
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is no input"),
        (("--raster", "none.tif"), "none.tif: no such file"),
        (("--raster", "scene0.tif", "--sensor", "sentinel9"), "sentinel9"),
        (("--raster", "scene0.tif", "--sensor", "sentinel2", "--layers", "x"), "layer 'x'"),
        (("--raster", "scene0.tif", "--sensor", "sentinel2", "--overlap", "1"), "overlap"),
        (("--raster", "scene0.tif", "--sensor", "sentinel2", "--scheduler", "tcp://x:1"), "scheduler is for Dask only"),
        (
            ("--raster", "scene0.tif", "--sensor", "sentinel2", "--at", "none.csv", "-o", "a.csv"),
            "none.csv: no such file",
        ),
        (("--raster", "scene0.tif", "--sensor", "sentinel2", "--at", "none.csv"), "name must end in .csv"),
        (("--raster", "scene0.tif", "--sensor", "sentinel2", "-o", "map.png"), "name must end in .tif"),
        (("--raster", "scene0.tif", "--sensor", "sentinel2", "-o", "scene0.tif"), "is an input of the prediction"),
        (
            ("--raster", "scene0.tif", "--sensor", "sentinel2", "-o", "scene0.tif", "--overwrite"),
            "is an input of the pred",
        ),
        (("--raster", "scene0.tif", "--sensor", "sentinl2"), "did you mean sentinel2"),
        (("--points", "a.laz", "--at", "none.csv"), "--at is for rasters only"),
        (("--raster", "scene0.tif", "--max-points", "9"), "--max-points is for a cloud (--points) only"),
        (("--raster", "scene0.tif", "--ask-every", "1"), "--ask-every is for a cloud (--points) only"),
        (
            ("--raster", "scene0.tif", "--sensor", "sentinel2", "--at", "a.csv", "--layers", "attention"),
            "for maps only",
        ),
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
    assert predict("-o", "map.tif", *arguments) == 2
    assert Path("scene0.tif").read_bytes() == before
    found = capsys.readouterr().err
    assert found.startswith("error: ")
    assert message in found
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
        assert predict(*arguments, "-o", tmp_path / "map.tif") == 2
        text = capsys.readouterr().err
        assert message in text
        assert not any(word in text for word in ("sensor=", "bands=", "gsd_m", "crs=", "pick(", "Sensor.define"))


def test_a_raster_is_placed_by_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = without_crs(tmp_path / "bare.tif", values(9, 9))
    given = scene(tmp_path, 9, 9)["path"]
    sentinel2 = ("--sensor", "sentinel2")
    arguments = ("--raster", given, *sentinel2, "--raster", path, *sentinel2, "--crs", "EPSG:32631")
    assert predict(*arguments, "-o", tmp_path / "map.tif") == 0
    assert "bare.tif: sentinel2 B02" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--date", "2021-07-04"), ("--raster", "a", "--sensor", "b", "--sensor", "c")])
def test_options_without_a_raster(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        predict(*arguments, "-o", "map.tif")
    text = capsys.readouterr().err
    assert "belongs to the --raster before it" in text or "given twice for a" in text


@pytest.mark.realdata
def test_a_flood_chip(tmp_path: Path) -> None:
    """Sentinel-1 and Sentinel-2 of Sen1Floods11, in degrees, with the bands as a list and as the file says."""
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
    with rasterio.open(tmp_path / "map.tif") as found, rasterio.open(chips / f"S1Hand/{name}_S1Hand.tif") as radar:
        assert found.crs == radar.crs
        np.testing.assert_allclose(found.bounds, radar.bounds, atol=2e-3)
        assert (found.read() < 3).mean() > 0.95  # at the far edges a pixel reaches beyond the chip
