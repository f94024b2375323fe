"""What ``atomizer data check`` reports of folders that are not as they should be."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.crs import CRS
from rasterio.transform import Affine

from atomizer_io.cli import main
from atomizer_io.datasets.checking import check
from atomizer_io.datasets.sen1floods11 import METADATA, Sen1Floods11
from atomizer_io.errors import UnknownChannelError
from atomizer_lab.synthetic.rasters import write_raster

DATASET = "sen1floods11"


def test_a_list_that_fails_in_an_unforeseen_way_is_no_stack_trace(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: Sen1Floods11) -> list[str]:
        raise ZeroDivisionError("what nobody foresaw")

    monkeypatch.setattr(Sen1Floods11, "find", fail)
    assert main(["data", "check", "sen1floods11", str(folder), "--split", "val"]) == 1
    shown = capsys.readouterr().out
    assert "ZeroDivisionError: what nobody foresaw" in shown and "1 missing or broken" in shown


def test_a_wrong_option_is_still_an_error_of_the_user(folder: Path) -> None:
    with pytest.raises(UnknownChannelError):
        options = {"sensor": "sentinel2", "bands": ["B99"], "classes": 2, "image_folder": "S2Hand"}
        list(check("geotiff-folder", str(folder / "v1.1/data/flood_events/HandLabeled"), ["all"], **options))


def test_undated_floods_are_worth_a_look(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "sen1floods11", str(folder), "--split", "val"]) == 0
    assert "no dates" not in capsys.readouterr().out
    (folder / METADATA).unlink()
    assert main(["data", "check", "sen1floods11", str(folder), "--split", "val"]) == 0
    assert f"look     no dates: {METADATA} is missing" in capsys.readouterr().out


def test_an_event_without_a_date_is_broken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / METADATA
    path.write_text(path.read_text().replace('"Cambodia"', '"Camelot"'))
    assert main(["data", "check", "sen1floods11", str(folder), "--split", "train"]) == 1
    assert f"broken   {METADATA}: has no event 'Cambodia'" in capsys.readouterr().out


PLACE = {"crs": CRS.from_epsg(32632), "transform": Affine(8, 0, 600000, 0, -8, 5000000)}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Four scenes of 224 bands described by wavelength, one of them not dated, with masks."""
    rng = np.random.default_rng(0)
    texts = [f"band {i + 1} ({nm:.1f} nm)" for i, nm in enumerate(np.linspace(420, 2400, 224))]
    for name in ("a_20210704", "b_20210801", "c", "d_20210801"):
        values = rng.uniform(0, 1, (224, 4, 4)).astype(np.float32)
        write_raster(tmp_path / f"image/{name}.tif", values, descriptions=texts, **PLACE)
        write_raster(tmp_path / f"mask/{name}.tif", rng.integers(0, 2, (4, 4)).astype(np.uint8), **PLACE)
    return tmp_path


def checked(root: Path, *options: str) -> int:
    return main(["data", "check", "geotiff-folder", str(root), "classes=2", *options])


def test_check_prints_a_short_summary(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(own, "sensor=enmap") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  read     enmap: 224 channels (band 1, band 2, ") and "band 13" not in lines[1]
    assert lines[1].endswith(
        "… and 212 more), pixels of 8 m, 16 sites a sample, 0 … 1 dates a sample (2021-07-04 … 2021-08-01), "
        "in 4 of 4 samples"
    )
    assert lines[-1] == "all: nothing is missing or broken"
    assert main(["data", "stats", "geotiff-folder", str(own), "--split", "all", "classes=2", "sensor=enmap"]) == 0
    shown = capsys.readouterr().out
    assert "… and 212 more; -o FILE writes all" in shown and len(shown.splitlines()) < 25
    assert checked(own, "sensor=sentinel2", "bands=[B02, B03]") == 1
    assert "has 224 bands, 2 are named: B02, B03" in capsys.readouterr().out


def test_an_unknown_sensor_is_an_error_with_near_matches(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (own / "image").iterdir():
        write_raster(path, np.ones((2, 4, 4), np.float32), descriptions=("B02", "B03"), **PLACE)
    assert checked(own, "sensor=sentinell2") == 2
    shown = capsys.readouterr().err
    assert "'sentinell2' is not a known sensor; did you mean sentinel2" in shown and ".bands.yaml beside it" in shown


def test_every_broken_file_is_listed(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("image/a_20210704.tif", "mask/a_20210704.tif", "image/d_20210801.tif"):
        (own / name).write_bytes((own / name).read_bytes()[:300])
    (own / "mask/c.tif").unlink()
    assert checked(own, "sensor=enmap") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("all        4 samples, 1 read")
    assert [line.split()[1].rstrip(":") for line in lines if line.startswith("  broken")] == [
        "image/a_20210704.tif",
        "mask/a_20210704.tif",
        "mask/c.tif",
        "image/d_20210801.tif",
    ]
    assert lines[-1] == "4 missing or broken"


def test_check_looks_at_what_may_be_a_mistake(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "train.txt").write_text("a_20210704\nb_20210801\nb_20210801.tif\nc\n")
    (own / "val.txt").write_text("c\nd_20210801\n")
    with rasterio.open(own / "image/b_20210801.tif") as source:
        values, texts = source.read(), source.descriptions
    write_raster(own / "image/b_20210801.tif", (1e4 * values).astype(np.uint16), descriptions=texts, **PLACE)
    wide = PLACE | {"transform": Affine(8, 0, 599968, 0, -8, 5000032)}
    write_raster(own / "mask/a_20210704.tif", np.ones((12, 12), np.uint8), **wide)
    write_raster(own / "mask/c.tif", np.full((4, 4), 255, np.uint8), **PLACE)
    assert checked(own, "sensor=enmap", "--split", "train") == 0
    shown = capsys.readouterr().out
    assert "train      3 samples, 3 read" in shown
    assert [line.strip() for line in shown.splitlines() if line.startswith("  look")] == [
        "look     also in the list of split 'val': c",
        "look     enmap has 2 of float32 and 1 of uint16: are they in the same unit?",
        "look     nothing is known of the target, as all of it is ignored or absent: c",
        "look     more than half of the target lies outside of the images: a_20210704",
    ]
    write_raster(own / "image/c.tif", values, **PLACE)
    assert checked(own, "sensor=enmap", "--split", "train") == 1
    assert "has bands without descriptions, but other images have them" in capsys.readouterr().out


def test_splits_in_folders_are_looked_for_there(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "train").mkdir()
    for kind in ("image", "mask"):
        (own / kind).rename(own / "train" / kind)
    assert checked(own, "sensor=enmap") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "test       is not there (looked for test/image)" in lines
    assert lines[-1] == "train: nothing is missing or broken"
    assert checked(own, "sensor=enmap", "--split", "test") == 1
    assert "test/image: no such folder" in capsys.readouterr().out


def test_splits_of_any_name_are_checked(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("north", "south"):
        (own / part).mkdir()
        for kind in ("image", "mask"):
            shutil.copytree(own / kind, own / part / kind)
    for kind in ("image", "mask"):
        shutil.rmtree(own / kind)
    assert checked(own, "sensor=enmap") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "north, south: nothing is missing or broken"


def test_what_is_wrong_with_all_splits_is_reported_once(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(own, "sensor={s2: sentinel2}") == 1
    shown = capsys.readouterr().out
    assert shown.count("image_s2: no such folder, but sensor= names it") == 1 and "1 missing or broken" in shown
