"""A raster is one file: nothing else is read, written, fetched or run for its sake, and VRTs only where allowed."""

from __future__ import annotations

import ast
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio

import atomizer_io
import chips
from atomizer_io.cli import main
from atomizer_io.data.sensors import from_geotiff
from atomizer_io.datasets.registry import create
from atomizer_io.errors import DataError
from atomizer_io.io.raster_files import open_raster
from atomizer_io.io.rasters import read_raster
from faults import hostile_rasters
from faults.hostile_rasters import HOSTILE, SIDE, Writer, hostile_scene, mosaic, pam, sound

PACKAGE = Path(atomizer_io.__file__).parent
READS_BESIDE = {"io/raster_files.py"}  # the door itself
VECTORS = "io/vector_files.py"  # the one for vector files


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which nobody may call."""
    calls: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                calls.append(caller)
                caller.close()

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    assert not calls


def predict(*words: object) -> int:
    line = ["predict", "--quiet", "--workers", "0", "--model", str(chips.model_folder()), "--window", "120"]
    return main([*line, *map(str, words)])


def state(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("writer", HOSTILE, ids=lambda writer: writer.__name__)
def test_a_prediction_refuses_what_reaches_out(
    writer: Writer, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GDAL_VRT_ENABLE_PYTHON", "YES")
    path = hostile_scene(writer, tmp_path / "in", tmp_path / "outside", port)
    before, began = state(tmp_path), time.process_time()
    assert predict("--raster", path, "--sensor", "sentinel2", "-o", tmp_path / "map.tif") == 2
    assert time.process_time() - began < 5
    assert state(tmp_path) == before
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("writer", HOSTILE, ids=lambda writer: writer.__name__)
def test_the_check_of_a_folder_refuses_what_reaches_out(
    writer: Writer, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GDAL_VRT_ENABLE_PYTHON", "YES")
    hostile_scene(writer, tmp_path / "in" / "image", tmp_path / "outside", port)
    (tmp_path / "in" / "mask").mkdir()
    chips.write(tmp_path / "in" / "mask" / "scene.tif", np.ones((1, SIDE, SIDE), np.uint8), names=None)
    before = state(tmp_path)
    words = ["data", "check", "geotiff-folder", str(tmp_path / "in"), "--split", "all", "sensor=sentinel2", "classes=3"]
    assert main(words) == 1
    assert state(tmp_path) == before
    assert "broken   image/scene.tif" in capsys.readouterr().out


@pytest.mark.parametrize("writer", HOSTILE, ids=lambda writer: writer.__name__)
def test_a_vrt_that_is_allowed_still_runs_nothing_and_calls_nobody(
    writer: Writer, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if writer is hostile_rasters.read_private:
        pytest.skip("this is what allowing a VRT allows")
    monkeypatch.setenv("GDAL_VRT_ENABLE_PYTHON", "YES")
    path = hostile_scene(writer, tmp_path / "in", tmp_path / "outside", port)
    before = state(tmp_path)
    with pytest.raises(DataError, match=r"scene\.tif"):
        read_raster(path, allow_vrt=True)
    assert state(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("<SimpleSource>", "<KernelFilteredSource>"), "'KernelFilteredSource'"),
        (('dataType="UInt16"', 'dataType="UInt16" subClass="VRTDerivedRasterBand"'), "'VRTDerivedRasterBand'"),
        (("<SourceBand>", "<OpenOptions/><SourceBand>"), "'OpenOptions'"),
        (("<SRS>", "<sourcefilename>/etc/passwd</sourcefilename><SRS>"), "'sourcefilename'"),
        (("<VRTDataset ", '<!DOCTYPE a [<!ENTITY b "c">]><VRTDataset '), "entities"),
        (("scene.tif", "nowhere.tif"), "not a file on this machine"),
        (("scene.tif", "notes.txt"), "not a GeoTIFF, PNG, JPEG or JPEG 2000"),
        (("</VRTDataset>", ""), "not a sound VRT"),
    ],
)
def test_only_mosaics_are_allowed(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    sound(tmp_path, tmp_path / "outside")
    (tmp_path / "notes.txt").write_text("no raster")
    text = mosaic("scene.tif", relative=True)
    if "Kernel" in change[1]:
        text = text.replace("</SimpleSource>", "</KernelFilteredSource>")
    (tmp_path / "all.vrt").write_text(text.replace(*change))
    with pytest.raises(DataError, match=reason):
        read_raster(tmp_path / "all.vrt", allow_vrt=True)


def test_a_vrt_that_a_user_names_gives_the_map_of_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = sound(tmp_path, tmp_path / "outside")
    (tmp_path / "all.vrt").write_text(mosaic("scene.tif", relative=True))
    (tmp_path / "scenes.csv").write_text("scene,path,sensor\nlisted,all.vrt,sentinel2\n")
    named = ("--raster", tmp_path / "all.vrt", "--sensor", "sentinel2")
    assert predict("--raster", scene, "--sensor", "sentinel2", "-o", tmp_path / "map.tif") == 0
    assert predict(*named, "-o", tmp_path / "no.tif") == 2
    assert "all.vrt: is a VRT, which takes its pixels from other files" in (printed := capsys.readouterr().err)
    assert "--allow-vrt" in printed
    assert predict(*named, "--allow-vrt", "-o", tmp_path / "yes.tif") == 0
    assert predict("--list", tmp_path / "scenes.csv", "--allow-vrt", "-o", tmp_path / "maps") == 0
    for made in (tmp_path / "yes.tif", tmp_path / "maps" / "listed.tif"):
        np.testing.assert_array_equal(chips.read(made), chips.read(tmp_path / "map.tif"))
    assert from_geotiff(tmp_path / "all.vrt", sensor="sentinel2", allow_vrt=True).names == chips.NAMES


def test_a_folder_of_vrts_is_a_setting(tmp_path: Path) -> None:
    scene = sound(tmp_path / "image", tmp_path / "outside")
    chips.write(tmp_path / "target.tif", np.ones((1, SIDE, SIDE), np.uint8), names=None)
    (tmp_path / "mask").mkdir()
    shutil.move(tmp_path / "target.tif", tmp_path / "mask" / "scene.tif")
    shutil.move(scene, tmp_path / "stored.tif")
    (tmp_path / "image" / "scene.vrt").write_text(mosaic("../stored.tif", relative=True))
    options = {"sensor": "sentinel2", "classes": 3}
    with pytest.raises(DataError, match="no sample of split"):
        create("geotiff-folder", tmp_path, "all", **options)
    sample = create("geotiff-folder", tmp_path, "all", allow_vrt=True, **options)[0]
    assert sample.atoms.num_atoms == 3 * SIDE * SIDE


def test_files_beside_a_raster_count(tmp_path: Path) -> None:
    path = chips.write(tmp_path / "scene.tif", chips.values(SIDE, SIDE), crs=None)
    masked = chips.write(tmp_path / "other.tif", chips.values(SIDE, SIDE))
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(masked, "r+") as file:
        file.write_mask(np.arange(SIDE * SIDE).reshape(SIDE, SIDE) > 40)
    (tmp_path / "other.tif.msk").rename(tmp_path / "scene.tif.msk")
    (tmp_path / "scene.tif.aux.xml").write_text(pam(f"<SRS>{chips.UTM}</SRS>"))
    (tmp_path / "scene.tfw").write_text("10\n0\n0\n-10\n500005\n4649995\n")
    raster = read_raster(path)
    assert raster.crs == chips.UTM
    assert raster.transform == (10, 0, 500000, 0, -10, 4650000)
    assert (known := raster.valid()) is not None and not known[:, :2].any() and known[:, 3:].all()


def test_a_linked_raster_keeps_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "stored").mkdir()
    path = chips.write(tmp_path / "stored" / "scene.tif", chips.values(SIDE, SIDE), crs=None)
    (tmp_path / "stored" / "scene.tfw").write_text("10\n0\n0\n-10\n500005\n4649995\n")
    for name in ("scene.tif", "scene.tfw"):
        (tmp_path / name).symlink_to(path.with_name(name))
    assert read_raster(tmp_path / "scene.tif", crs=chips.UTM).transform == (10, 0, 500000, 0, -10, 4650000)


def test_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    values = np.ones((1, 4, 4), np.uint8)
    with rasterio.open(tmp_path / "scene.dat", "w", **{**profile_of(values), "driver": "ENVI"}) as file:
        file.write(values)
    with pytest.raises(DataError, match=r"scene\.dat: .*turn others into GeoTIFF, gdal_translate"):
        read_raster(tmp_path / "scene.dat")


def test_jpeg_2000_and_png_are_read(tmp_path: Path) -> None:
    values = chips.values(64, 64)[:1].astype(np.uint8)
    for driver, name in (("JP2OpenJPEG", "scene.jp2"), ("PNG", "scene.png")):
        more = {"quality": "100", "reversible": "yes"} if name.endswith("jp2") else {}
        with rasterio.open(tmp_path / "plain.tif", "w", **profile_of(values)) as file:
            file.write(values)
        from rasterio.shutil import copy

        copy(tmp_path / "plain.tif", tmp_path / name, driver=driver, **more)
        with open_raster(tmp_path / name) as source:
            np.testing.assert_array_equal(source.read(), values)


def profile_of(values: np.ndarray) -> dict[str, object]:
    count, height, width = values.shape
    known = {"driver": "GTiff", "count": count, "height": height, "width": width, "dtype": values.dtype}
    return known | {"crs": chips.UTM, "transform": rasterio.transform.Affine(10, 0, 500000, 0, -10, 4650000)}


def test_rasters_come_in_by_one_way() -> None:
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.endswith("rasterio.open") or called == "_rasterio().open":
                written = any(isinstance(word, ast.Constant) and word.value == "w" for word in node.args)
                assert written or module in READS_BESIDE, f"{module}: {ast.unparse(node)}"
            others = ("fiona.", "osgeo.", "PIL.", "Image.open", *(() if module == VECTORS else ("pyogrio.",)))
            assert not called.startswith(others), module
