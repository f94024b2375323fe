"""What the fuzzer found, each as one small file: a clear error, and never a traceback, a hang or gigabytes."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from rasterio.windows import Window

import chips
import data as fixtures
from atomizer_io.datasets.registry import create
from atomizer_io.datasets.statistics import Statistics
from atomizer_io.decoding.calibration import load_all, seal_again
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.io.ground import ground_of
from atomizer_io.io.ply import read_ply
from atomizer_io.io.point_clouds import read_point_cloud
from atomizer_io.io.raster_pixels import opened, pixels
from atomizer_io.io.raster_sources import open_rasters
from atomizer_io.io.rasters import read_raster
from atomizer_io.io.tile_cache import TileCache
from atomizer_io.prediction.at_positions import PositionTable
from atomizer_io.texts import parse_yaml, read_text
from atomizer_io.training import config, state
from atomizer_io.training.results import read_curve
from faults.headers import ENDLESS, gzip_bomb
from faults.targets import make_checkpoint, make_geotiff, make_point_cloud, make_points, make_state

DEEP = "[" * 100_000


def grown(path: Path, width: int, height: int, *, strips: bool = True) -> Path:
    """Write another size into the header of a GeoTIFF, of its ``strips`` as well."""
    data = bytearray(path.read_bytes())
    (at,) = struct.unpack_from("<I", data, 4)
    for i in range(struct.unpack_from("<H", data, at)[0]):
        entry = at + 2 + 12 * i
        tag = struct.unpack_from("<H", data, entry)[0]
        if tag in (256, 257, *((278,) if strips else ())):
            struct.pack_into("<HII", data, entry + 2, 4, 1, width if tag == 256 else height)
    path.write_bytes(data)
    return path


def test_an_image_that_its_file_cannot_hold_takes_no_memory(tmp_path: Path) -> None:
    make_geotiff(tmp_path, compress="deflate")
    with pytest.raises(DataError, match=r"scene.tif: .*GB of pixels in a file of 0.* MB: its header is broken"):
        read_raster(grown(tmp_path / "scene.tif", 100_000, 1_000_000))


@pytest.mark.parametrize("size", [(46_341, 46_341), (100_000, 30_000)])
@pytest.mark.parametrize("number", [1, 3])  # the first image is the one by which the size of all is known
def test_a_png_that_its_file_cannot_hold_takes_no_memory(tmp_path: Path, size: tuple[int, int], number: int) -> None:
    fixtures.write("xview2", tmp_path)
    path = sorted((tmp_path / "train" / "images").iterdir())[number]
    data = bytearray(path.read_bytes())
    struct.pack_into(">II", data, 16, *size)
    struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
    path.write_bytes(data)
    dataset = create("xview2", tmp_path, "train")
    index = next(index for index, item in enumerate(dataset.items) if path in dataset.files(item))
    with pytest.raises(DataError, match=rf"{path.name}: .*GB of pixels in a file of 0.* MB: its header is broken"):
        dataset[index]


def test_an_image_of_many_missing_strips_is_refused_before_any_is_read(tmp_path: Path) -> None:
    """A prediction would go through millions of windows without data."""
    make_geotiff(tmp_path)
    with pytest.raises(DataError, match=r"scene.tif: .*27.8 GB of pixels in a file of 0.00 MB: its header is broken"):
        open_rasters([grown(tmp_path / "scene.tif", 100_000, 46_341, strips=False)])


def test_a_sparse_image_is_read(tmp_path: Path) -> None:
    """Blocks without data are left out of a file on purpose: this one would have 3 GB."""
    import rasterio

    tiles = {"tiled": True, "blockxsize": 512, "blockysize": 512, "sparse_ok": True}
    where = {"crs": "EPSG:32631", "transform": rasterio.Affine(10.0, 0.0, 500_000.0, 0.0, -10.0, 4_650_000.0)}
    with rasterio.open(tmp_path / "a.tif", "w", "GTiff", 40_000, 40_000, 1, dtype="uint16", **where, **tiles):
        pass
    with opened(tmp_path / "a.tif") as source:
        assert pixels(source, [1], Window(30_000, 30_000, 8, 8))[0].shape == (1, 8, 8)


def test_a_packed_file_is_not_unpacked_beyond_the_size_in_its_header(tmp_path: Path) -> None:
    images, labels = (tmp_path / f"train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    labels.write_bytes(gzip.compress(struct.pack(">II", 0x801, 2) + b"\1\2"))
    images.write_bytes(gzip_bomb(struct.pack(">4I", 0x803, 2, 4, 4), 3 << 30))
    with pytest.raises(DataError, match="has more values, its header states 32"):
        create("mnist", tmp_path)[0]
    images.write_bytes(gzip_bomb(struct.pack(">4I", 0x803, 2, 100_000, 100_000), 1 << 24))
    with pytest.raises(DataError, match="has no room for the 20000000000 values"):
        create("mnist", tmp_path)[0]


@pytest.mark.parametrize("name", ["config.yaml", "statistics.json", "places.csv", "state.safetensors"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    readers = {
        "config.yaml": config.load,
        "statistics.json": Statistics.load,
        "places.csv": PositionTable.read,
        "state.safetensors": state.read,
    }
    with pytest.raises(AtomizerError, match=name):
        readers[name](tmp_path / name)


def test_a_device_without_end_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "statistics.json").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="not an ordinary file"):
        Statistics.load(tmp_path / "statistics.json")
    with pytest.raises(OSError, match="ordinary"):
        read_text(tmp_path / "statistics.json")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(i)}: &{chr(i)} [{', '.join(['*' + chr(i - 1)] * 9)}]\n" for i in range(98, 110)
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        *((DEEP, "too deeply"), (BOMB, "without end"), ("a: &a [*a]", "without end"), ("a\0b", "not allowed")),
        *(("2001-99-99", "month"), ("!!python/name:os.system", "could not determine a constructor")),
    ],
    ids=["deep", "repeated", "inside itself", "zero", "date", "name"],
)
def test_hostile_yaml_is_refused(tmp_path: Path, text: str, cause: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"(?s)config.yaml cannot be read as YAML: .*{cause}"):
        config.load(tmp_path / "config.yaml")
    with pytest.raises(ValueError, match=cause):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["sensor: [1]", "gsd_m: x", "crs: 7", "bands: 1", "date: [2021]", DEEP[:9000]])
def test_a_bad_value_in_a_sidecar_is_an_error(tmp_path: Path, text: str) -> None:
    chips.write(tmp_path / "scene.tif", chips.values(4, 4))
    (tmp_path / "scene.bands.yaml").write_text(text)
    with pytest.raises(DataError, match=r"scene\.bands\.yaml"):
        open_rasters([tmp_path / "scene.tif"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((("alpha",), 2), (("curve",), []), (("point", "strategy"), "none")),
        *((("spread",), "x"), (("squares",), None)),  # old name
        *(
            (("point", "margin"), "x"),
            (("curve", 0, "bound"), None),
            (("point", "settings"), []),
            (("restricted",), []),
        ),
    ],
)
def test_a_damaged_calibration_is_named(tmp_path: Path, path: tuple, value: object) -> None:
    make_checkpoint(tmp_path)
    document = json.loads((tmp_path / "calibration.json").read_text())
    inner = document["calibrations"][0]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    (tmp_path / "calibration.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"calibration.json was changed after it was stored.*atomizer calibrate"):
        load_all(tmp_path)
    with pytest.raises(ConfigError, match=r"calibration.json is damaged or of another version \(.*atomizer calibrate"):
        seal_again(tmp_path)


def test_brackets_in_brackets(tmp_path: Path) -> None:
    (tmp_path / "calibration.json").write_text(DEEP)
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_all(tmp_path)


def test_a_history_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"step": 1, "score": 0.5}\n[]\n{"step": 2, "score": 0.6}\n{"step": 3, "sc')
    assert read_curve(tmp_path / "history.jsonl", "score") == [(1, 0.5), (2, 0.6)]


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE gpkg_geometry_columns SET column_name = ''",
        "UPDATE places SET geom = x'47500001000000'",
        "UPDATE places SET geom = 'text'",
        ENDLESS,
        "UPDATE gpkg_geometry_columns SET table_name = 'a\"b'",
    ],
)
def test_hostile_geopackages_are_refused(tmp_path: Path, command: str) -> None:
    make_points(tmp_path)
    source = sqlite3.connect(tmp_path / "places.gpkg")
    if command == ENDLESS:
        source.execute("DROP TABLE places")
    source.execute(command)
    source.commit()
    source.close()
    with pytest.raises(DataError, match=r"places\.gpkg"):
        PositionTable.read(tmp_path / "places.gpkg")


def test_a_text_point_cloud_that_its_file_cannot_hold(tmp_path: Path) -> None:
    lines = (
        "ply\nformat ascii 1.0\nelement vertex {}\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
    )
    (tmp_path / "a.ply").write_text(lines.format("9" * 30) + "1 2 3\n")
    with pytest.raises(DataError, match=r"no room for the 9+ points"):
        read_ply(tmp_path / "a.ply")


def test_points_all_over_the_world_take_no_memory() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 3e6, (2, 300))
    with pytest.raises(AtomizerError, match=r"extend over .* km"):
        ground_of(x, y, np.zeros(300))
    wide = ground_of(x / 100, y / 100, np.zeros(300))  # 30 km: few points, so few cells
    assert wide.elevation.size <= 2 << 20 and np.isfinite(wide.at(x / 100, y / 100)).all()


def test_a_height_beyond_the_earth_is_refused(tmp_path: Path) -> None:
    make_point_cloud(tmp_path, "a.las")
    data = bytearray((tmp_path / "a.las").read_bytes())
    struct.pack_into("<d", data, 147, 1e200)  # the scale of z
    (tmp_path / "a.las").write_bytes(data)
    with pytest.raises(DataError, match=r"300 points have no finite z, or one beyond"):
        read_point_cloud(tmp_path / "a.las")


def test_a_changed_description_of_a_point_store_is_noticed(tmp_path: Path) -> None:
    make_point_cloud(tmp_path, "a.las")
    cache = TileCache.of(tmp_path / "cache")
    assert cache is not None
    box = (500000.0, 4000000.0, 500050.0, 4000030.0)
    sound = cache.use(tmp_path / "a.las", None, lambda store: store.read(box).z)
    (last,) = (tmp_path / "cache").rglob("*.json")
    about = json.loads(last.read_text())
    about["x_cuts"][0] += 10.0
    last.write_text(json.dumps(about))
    fresh = TileCache.of(tmp_path / "cache")
    assert fresh is not None
    from atomizer_io.io import tile_cache

    tile_cache._opened.cache_clear()
    assert np.array_equal(fresh.use(tmp_path / "a.las", None, lambda store: store.read(box).z), sound)


def test_messages_can_be_read_on_a_terminal() -> None:
    text = str(DataError("file", "x" * 100_000 + "\x1b[2J\udcff"))
    assert len(text) < 2100 and "\x1b" not in text and text.encode() and text.startswith("file: xxx")


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    make_state(tmp_path)
    assert torch.equal(state.read(tmp_path / "state.safetensors")["weights"]["a"], torch.arange(6.0))
