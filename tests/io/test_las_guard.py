"""Broken LAZ files: whatever is in them, the process that reads lives on and the file is named."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import laspy
import numpy as np
import pytest
import torch

from atomizer_io.datasets.las_folder import LasFolder
from atomizer_io.errors import DataError
from atomizer_io.io import las_guard
from atomizer_io.io.point_clouds import read_point_cloud
from data.fractal import write_laz

CLASSES = {2: "ground"}


def sound(path: Path, points: int = 500) -> bytes:
    rng = np.random.default_rng(0)
    positions = {axis: rng.uniform(0, 90, points).round(2) for axis in "xyz"}
    more = {name: rng.integers(1, 3000, points).astype(np.uint16) for name in ("intensity", "red")}
    write_laz(path, {**positions, **more, "gps_time": rng.uniform(3e8, 3.1e8, points)}, epsg=2154)
    return path.read_bytes()


def damaged(data: bytes, how: str, offset: int, rng: random.Random) -> bytes:
    if how == "deleted":
        return data[:offset] + data[offset + 1 :]
    if how == "truncated":
        return data[:offset]
    return data[:offset] + bytes([data[offset] ^ rng.randint(1, 255)]) + data[offset + 1 :]


@pytest.mark.parametrize("how", ["deleted", "flipped", "truncated"])
def test_a_damaged_byte_never_ends_the_process(tmp_path: Path, how: str) -> None:
    rng = random.Random(how)
    path = tmp_path / "a.laz"
    data = sound(path)
    (start,) = struct.unpack_from("<I", data, 96)
    inside = rng.sample(range(start, len(data)), 35)  # points and the table of chunks
    broken = 0
    for offset in (*rng.sample(range(start), 15), *inside):
        path.write_bytes(damaged(data, how, offset, rng))
        try:
            point_cloud = read_point_cloud(path)
        except DataError as error:
            broken += 1
            assert error.path == str(path)
        else:  # some bytes do not matter, or lead to other points
            assert np.array_equal(point_cloud.x / point_cloud.unit_m, laspy.read(path).x)
    assert broken >= 10


def allocating(path: Path) -> Path:
    """A file that makes lazrs allocate more memory than there is: the size of a layer is 4 GB."""
    data = bytearray(sound(path))
    (start,) = struct.unpack_from("<I", data, 96)
    first_layer = start + 8 + 38 + 4  # offset of the table, first point, number of points
    struct.pack_into("<9I", data, first_layer, *[0xFFFFFFF0] * 9)
    path.write_bytes(data)
    return path


def test_a_broken_file_is_skipped_also_by_workers(tmp_path: Path) -> None:
    sound(tmp_path / "good.laz")
    allocating(tmp_path / "bad.laz")
    with pytest.raises(DataError, match=r"bad\.laz: cannot be read: its compressed points are broken, and the decompr"):
        LasFolder(tmp_path, classes=CLASSES)
    dataset = LasFolder(tmp_path, classes=CLASSES, on_error="skip")
    assert len(list(dataset)) == 4
    (skipped,) = dataset.skipped
    assert skipped.path == str(tmp_path / "bad.laz")
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)  # a process that is daemonic
    assert [bool(item) for item in loader] == [False, True, True, True, True]


def test_a_process_is_used_again(tmp_path: Path) -> None:
    sound(tmp_path / "a.laz")
    read_point_cloud(tmp_path / "a.laz")
    (before,) = las_guard._idle[os.getpid()]
    read_point_cloud(tmp_path / "a.laz")
    assert las_guard._idle[os.getpid()] == [before] and before.poll() is None


@pytest.mark.parametrize("name", ["a.laz", "a.las"])
def test_a_header_that_promises_a_billion_points(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    data = bytearray(sound(path))
    struct.pack_into("<Q", data, 247, 10**9)
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}: cannot be read: truncated, or its header .*1000000000 points"):
        read_point_cloud(path)


@pytest.mark.parametrize(
    ("offset", "form", "number", "cause"),
    [
        (104, "B", 0x80 | 33, "points of format 33"),
        (105, "H", 9, "points of format 8 with 9 bytes"),
        (375 + 20, "H", 65000, "records that reach into the points"),
    ],
)
def test_numbers_that_cannot_be(tmp_path: Path, offset: int, form: str, number: int, cause: str) -> None:
    data = bytearray(sound(tmp_path / "a.laz"))
    struct.pack_into("<" + form, data, offset, number)
    (tmp_path / "a.laz").write_bytes(data)
    with pytest.raises(DataError, match=cause):
        read_point_cloud(tmp_path / "a.laz")


def test_a_table_of_chunks_that_cannot_be(tmp_path: Path) -> None:
    data = bytearray(sound(tmp_path / "a.laz"))
    (start,) = struct.unpack_from("<I", data, 96)
    (table,) = struct.unpack_from("<q", data, start)
    for offset, form, number, cause in (
        (start, "<q", 10**12, "a table of chunks outside of the file"),
        (table + 4, "<I", 2_000_000_000, "2000000000 chunks for 500 points"),
    ):
        wrong = data.copy()
        struct.pack_into(form, wrong, offset, number)
        (tmp_path / "a.laz").write_bytes(wrong)
        with pytest.raises(DataError, match=cause):
            read_point_cloud(tmp_path / "a.laz")
