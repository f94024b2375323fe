"""Many predictions at once: one output each, nothing done twice, and a failure that stops no other."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import pytest

import atomizer_io as aio
from atomizer_io.decoding import scene_decoder
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.prediction.bulk import read_list
from atomizer_io.prediction.options import Execution
from chips import model_folder, read, scene, values, write
from predicting import command, predict_raster, write_las

laspy = pytest.importorskip("laspy")


predict = functools.partial(command, "--window", 120)


def cloud(path: Path, points: int = 60) -> Path:
    return write_las(path, np.random.default_rng(points).uniform(0, 30, (points, 3)))


def scenes_list(folder: Path) -> Path:
    """Two scenes of two rasters and one; the paths are relative to the list."""
    for name, seed in (("a", 0), ("b", 1)):
        write(folder / f"{name}.tif", values(14, 14, seed))
    write(folder / "a5.tif", values(14, 14, 2, ("B05",)), names=None)
    text = 'scene,path,sensor,bands,date\nlake,a.tif,sentinel2,"B02,B03,B08",2021-07-04\n'
    text += "lake,a5.tif,sentinel2,B05,2021-07-04\nhill,b.tif,sentinel2,B02 B03 B08,\n"
    (folder / "scenes.csv").write_text(text)
    return folder / "scenes.csv"


def test_a_folder_of_clouds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        cloud(tmp_path / "in" / f"tile{number}.las", 50 + number)
    (tmp_path / "in" / "notes.txt").write_text("no cloud")
    more = cloud(tmp_path / "more.las", 40)
    assert predict("--points", tmp_path / "in", more, "-o", tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *(".finished.jsonl", "more.las", "tile0.las", "tile1.las", "tile2.las"),
    ]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.las")}
    assert predict("--points", tmp_path / "in", more, "-o", tmp_path / "out") == 2
    assert "exists, and 3 more: --resume keeps finished outputs, --overwrite" in capsys.readouterr().err
    (tmp_path / "out" / "tile1.las").unlink()
    assert predict("--points", tmp_path / "in", more, "-o", tmp_path / "out", "--resume") == 0
    text = capsys.readouterr().out
    assert "tile0.las: done before: " in text
    assert "1 written, 3 done before, 0 failed" in text
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.las")}
    assert [path.name for path in after if after[path] != before[path]] == ["tile1.las"]


def test_a_broken_cloud_stops_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = cloud(tmp_path / "a.las"), cloud(tmp_path / "c.las")
    (tmp_path / "b.las").write_text("no cloud at all")
    inputs = ("--points", first, tmp_path / "b.las", last)
    assert predict(*inputs, "-o", tmp_path / "out") == 1
    printed = capsys.readouterr()
    assert sorted(path.name for path in (tmp_path / "out").glob("*.las")) == ["a.las", "c.las"]
    assert "b.las: failed: " in printed.err
    assert "2 written, 0 done before, 1 failed: b.las" in printed.out
    assert predict(*inputs, "-o", tmp_path / "fast", "--fail-fast") == 1
    assert [path.name for path in (tmp_path / "fast").glob("*.las")] == ["a.las"]


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    one, two = cloud(tmp_path / "a" / "tile.las"), cloud(tmp_path / "b" / "tile.las")
    with pytest.raises(ConfigError, match=r"would both be written as tile\.las"):
        aio.predict_point_clouds(model_folder(), [one, two], tmp_path / "out")
    with pytest.raises(ConfigError, match="is an input of the prediction"):
        aio.predict_point_clouds(model_folder(), [one], tmp_path / "a", execution=Execution(overwrite=True))
    with pytest.raises(ConfigError, match="several outputs are written into a folder"):
        aio.predict_point_clouds(model_folder(), [tmp_path / "a"], tmp_path / "out.laz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="contains no LAS, LAZ or PLY file"):
        aio.predict_point_clouds(model_folder(), [tmp_path / "empty"], tmp_path / "out")
    for name in ("../up", "a/b", "", ".hidden", "c:d"):
        with pytest.raises(ConfigError, match="cannot be the name of a scene"):
            aio.predict_scenes(model_folder(), {name: scene(tmp_path)}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_list_of_scenes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed, out = scenes_list(tmp_path), tmp_path / "maps"
    assert predict("--list", listed, "-o", out) == 0
    text = capsys.readouterr().out
    assert "lake: 4 windows in " in text
    assert "576 of 576 positions decoded (dense): " in text
    assert "2 written, 0 done before, 0 failed" in text
    rasters = [
        {"path": tmp_path / "a.tif", "sensor": "sentinel2", "bands": "B02,B03,B08", "date": "2021-07-04"},
        {"path": tmp_path / "a5.tif", "sensor": "sentinel2", "bands": "B05", "date": "2021-07-04"},
    ]
    predict_raster(model_folder(), rasters, tmp_path / "alone.tif")
    np.testing.assert_array_equal(read(out / "lake.tif"), read(tmp_path / "alone.tif"))
    assert (out / "hill.areas.json").exists()
    assert predict("--list", listed, "-o", out, "--resume") == 0
    assert "0 written, 2 done before, 0 failed" in capsys.readouterr().out


def test_a_scene_that_fails_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed, out = scenes_list(tmp_path), tmp_path / "maps"
    listed.write_text(listed.read_text().replace("lake,a5.tif,sentinel2,B05", "lake,none.tif,sentinel2,B05"))
    assert predict("--list", listed, "-o", out) == 1
    printed = capsys.readouterr()
    assert "lake: failed: " in printed.err
    assert "none.tif: no such file" in printed.err
    assert "1 written, 0 done before, 1 failed: lake" in printed.out
    assert (out / "hill.tif").exists()
    assert not list(out.glob("lake*"))
    assert [o.name for o in aio.predict_scenes(model_folder(), listed, tmp_path / "x", fail_fast=True)] == ["lake"]


def test_the_model_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, real = [], aio.load_model
    monkeypatch.setattr(scene_decoder, "load_model", lambda *inputs: count.append(inputs) or real(*inputs))
    scene_decoder._scene_decoder.cache_clear()
    assert predict("--list", scenes_list(tmp_path), "-o", tmp_path / "maps") == 0
    assert len(count) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scene,file\na,b\n", "has no column path"),
        ("scene,path,sensr\na,b,c\n", "column 'sensr' is not known; use scene, path, sensor, bands, date, gsd"),
        ("scene,path\na,\n", "row 1 has no path"),
        ("scene,path\n", "lists no scene"),
        ("scene,path,gsd\na,b,wide\n", "gsd is 'wide'; give a number of metres"),
        ("scene,path\na,b,c\n", "row 1: column"),
    ],
)
def test_mistakes_in_a_list(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_list(tmp_path / "list.csv")


def test_what_does_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = scenes_list(tmp_path)
    assert predict("--list", listed, "--raster", tmp_path / "a.tif", "-o", tmp_path / "maps") == 2
    assert "exclude each other" in capsys.readouterr().err
    assert predict("--list", listed, "--at", "x.csv", "-o", tmp_path / "maps") == 2
    assert "for maps only" in capsys.readouterr().err
    assert predict("--list", listed, "-o", tmp_path / "map.tif") == 2
    assert "several outputs are written into a folder" in capsys.readouterr().err
    assert predict("--list", listed, "-o", tmp_path / "maps", model=tmp_path / "none") == 2
    assert "none does not exist: it should be a folder" in capsys.readouterr().err


def test_an_output_whose_name_is_not_utf8_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.tif", values(14, 14))
    output = os.fsdecode(os.fsencode(tmp_path) + b"/m\xff.tif")
    assert predict("--raster", tmp_path / "a.tif", "--sensor", "sentinel2", "-o", output) == 2
    assert "has a name that is not UTF-8" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.tif"]
