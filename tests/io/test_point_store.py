"""Tiles that are cut once: the same points as in the tile, whatever happens to the cache."""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from atomizer_io.errors import DataError
from atomizer_io.io import point_clouds, point_store, point_windows, tile_cache
from atomizer_io.io.point_clouds import PointCloud, read_point_cloud
from atomizer_io.io.point_windows import find_windows, read_window
from atomizer_io.io.tile_cache import TileCache
from data import fractal

write_laz = functools.partial(fractal.write_laz, standard_time=True)


@pytest.fixture(autouse=True)
def small_tiles_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_windows, "LEAST_POINTS", 100)
    monkeypatch.setattr(point_clouds, "CHUNK", 700)
    monkeypatch.setattr(point_store, "CHUNK", 700)


def tile(path: Path, count: int = 3000, size: float = 130.0, seed: int = 0, **more: np.ndarray) -> Path:
    rng = np.random.default_rng(seed)
    positions = np.round(rng.uniform(0, size, (count, 2)), 2)
    positions = positions[(positions < 0.6 * size).any(axis=1)]  # nothing in one corner
    total = rng.integers(1, 4, len(positions))
    columns = {
        "x": 500000 + positions[:, 0],
        "y": 4000000 + positions[:, 1],
        "z": np.round(100 + rng.gamma(1.0, 3.0, len(positions)), 2),
        "intensity": rng.integers(1, 3000, len(positions)).astype(np.uint16),
        "number_of_returns": total.astype(np.uint8),
        "return_number": (1 + rng.integers(0, 3, len(positions)) % total).astype(np.uint8),
        "classification": rng.choice([1, 2, 5, 6, 7], len(positions)).astype(np.uint8),
        "gps_time": fractal.GPS_TIME_S + rng.uniform(0, 9, len(positions)),
        "red": rng.integers(1, 65536, len(positions)).astype(np.uint16),
    }
    write_laz(path, columns | more, epsg=2154)
    return path


def assert_same(one: PointCloud, two: PointCloud) -> None:
    """Both point clouds have the same points in the same order, with the same columns."""
    for column in fields(PointCloud):
        a, b = (getattr(points, column.name) for points in (one, two))
        if column.name in ("height", "intensity_rank"):
            np.testing.assert_allclose(a, b, atol=1e-5)
        elif isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=column.name)
        elif column.name == "colours":
            assert list(a) == list(b)
            np.testing.assert_array_equal(a["red"], b["red"])
        else:
            assert a == b, column.name


@pytest.mark.parametrize(("window", "stride"), [(50.0, 50.0), (50.0, 25.0), (30.0, 17.0)])
def test_windows_are_the_same_with_and_without(tmp_path: Path, window: float, stride: float) -> None:
    path, cache = tile(tmp_path / "a.laz"), TileCache(tmp_path)
    plain, cut = (find_windows([path], window, stride, cache=one) for one in (None, cache))
    assert [(w.id, w.bounds, w.centre, w.extent) for w in plain] == [(w.id, w.bounds, w.centre, w.extent) for w in cut]
    assert all(w.stored for w in cut) and not any(w.stored for w in plain)
    for window_of_file, window_of_store in zip(plain, cut, strict=True):
        assert_same(read_window(window_of_file), read_window(window_of_store, cache=cache))


def test_a_window_does_not_read_its_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = tile(tmp_path / "a.laz"), TileCache(tmp_path / "cache")
    windows = find_windows([path], 50.0, cache=cache)
    whole = read_point_cloud(path)
    for module in (point_windows, point_store):  # from here on the points of the file are not to be had
        for name in ("read_point_cloud", "point_cloud_chunks", "coordinates"):
            monkeypatch.delattr(module, name, raising=False)
    again = find_windows([path], 50.0, 25.0, cache=cache)
    assert len(again) > len(windows)
    assert sum(len(read_window(window, cache=cache)) for window in windows) == len(whole)
    assert {name.partition("-")[0] for name in os.listdir(cache.folder)} == {
        cache.folder_of(path, None).name.partition("-")[0]
    }


def test_small_tiles_are_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = TileCache(tmp_path / "cache")
    find_windows([tile(tmp_path / "one.laz", size=50.0)], 50.0, cache=cache)  # one window
    monkeypatch.setattr(point_windows, "LEAST_POINTS", 100_000)
    find_windows([tile(tmp_path / "few.laz")], 50.0, cache=cache)
    assert not (tmp_path / "cache").exists()


def test_a_tile_that_changed_is_cut_anew(tmp_path: Path) -> None:
    path, cache = tile(tmp_path / "a.laz"), TileCache(tmp_path / "cache")
    first = [len(read_window(w, cache=cache)) for w in find_windows([path], 50.0, cache=cache)]
    tile(path, seed=1)
    second = find_windows([path], 50.0, cache=cache)
    assert [len(read_window(w, cache=cache)) for w in second] != first
    assert len(os.listdir(cache.folder)) == 1  # what was cut before is gone


@pytest.mark.parametrize("kind", ["truncated", "empty", "garbage", "one byte", "no index", "index", "facts", "pickle"])
def test_what_is_damaged_is_cut_again(tmp_path: Path, kind: str) -> None:
    path, cache = tile(tmp_path / "a.laz"), TileCache(tmp_path / "cache")
    windows = find_windows([path], 50.0, cache=cache)
    sound = [read_window(window, cache=cache) for window in windows]
    store = cache.folder_of(path, None)
    points, runs = store / "points.bin", store / "runs.npy"
    data = bytearray(points.read_bytes())
    tile_cache._opened.cache_clear()
    if kind == "truncated":
        points.write_bytes(data[: len(data) // 2])
    elif kind == "empty":
        points.write_bytes(b"")
    elif kind == "garbage":
        points.write_bytes(b"x" * len(data))
    elif kind == "one byte":
        data[-3000] ^= 1
        points.write_bytes(data)
    elif kind == "no index":
        runs.unlink()
    elif kind == "index":
        table = np.load(runs)
        table["first"][3] += 1
        np.save(runs, table)
    elif kind == "facts":
        (store / "store.json").write_text("{")
    else:
        np.save(runs, np.array([{"run": "code"}]), allow_pickle=True)
    for window, before in zip(windows, sound, strict=True):
        assert_same(read_window(window, cache=cache), before)
    assert len(find_windows([path], 50.0, cache=cache)) == len(windows)


def test_without_room_the_tiles_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = tile(tmp_path / "a.laz"), TileCache(tmp_path / "cache")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.warns(UserWarning, match=r"not stored in a cache.*kB are needed, 1\.0 kB are free in .*cache=PATH"):
        windows = find_windows([path], 50.0, cache=cache)
    assert sum(len(read_window(window, cache=cache)) for window in windows) == len(read_point_cloud(path))
    assert os.listdir(cache.folder) == []


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = tile(tmp_path / "a.laz"), TileCache(tmp_path / "cache")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        windows = find_windows([path], 50.0, cache=cache)
    assert len(windows) > 1 and [name for name in os.listdir(cache.folder) if not name.endswith(".lock")] == []


def test_a_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tile(tmp_path / "a.laz")
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="not stored in a cache"):
        assert len(find_windows([path], 50.0, cache=TileCache.of(tmp_path / "file" / "cache"))) > 1
    assert TileCache.of(False) is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    own = TileCache.of(True)
    assert own is not None and not (tmp_path / "mine").exists()  # until there is something to keep
    find_windows([path], 50.0, cache=own)
    assert own.folder == tmp_path / "mine" / "atomizer_io" / "tiles" and len(os.listdir(own.folder)) == 1
    assert own.folder.stat().st_mode & 0o777 == 0o700
    own.folder.chmod(0o777)
    with pytest.warns(UserWarning, match="can be written to by other users"):
        windows = find_windows([path], 50.0, cache=own)
    assert sum(len(read_window(window, cache=own)) for window in windows) == len(read_point_cloud(path))


def test_broken_tiles_are_named(tmp_path: Path) -> None:
    sound, broken = tile(tmp_path / "a.laz"), tile(tmp_path / "b.laz")
    data = broken.read_bytes()
    broken.write_bytes(data[: len(data) - 2000])
    cache = TileCache(tmp_path / "cache")
    with pytest.raises(DataError, match=r"b\.laz: "):
        find_windows([sound, broken], 50.0, cache=cache)
    windows = find_windows([sound, broken], 50.0, cache=cache, skip_broken=True)
    assert [w.path for w in windows if w.bounds is None] == [broken] and len(windows) > 2


def cut(folder: Path, path: Path) -> int:
    point_windows.LEAST_POINTS = 100
    cache = TileCache(folder)
    return sum(len(read_window(window, cache=cache)) for window in find_windows([path], 50.0, cache=cache))


def test_several_processes_may_cut_at_once(tmp_path: Path) -> None:
    path, folder = tile(tmp_path / "a.laz", 20_000), tmp_path / "cache"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        counts = pool.starmap(cut, [(folder, path)] * 4)
    assert set(counts) == {len(read_point_cloud(path))} and len(os.listdir(folder)) == 1
