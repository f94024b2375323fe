"""The experiment on point clouds: folds hold out what they should, a forest and a small run end with scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

laspy = pytest.importorskip("laspy")

from atomizer_lab.lidar import tiles  # noqa: E402
from atomizer_lab.lidar.lidar import find_network, network, tabular  # noqa: E402
from atomizer_lab.lidar.lidar import test_of as opened  # noqa: E402
from atomizer_lab.lidar.tiles import FILTER_TEST, LIDAR_HD, SETS  # noqa: E402
from scenes import data_folder  # noqa: E402


def write_tile(path: Path, seed: int, points: int = 1500) -> None:
    """A tile of 50 m: flat ground with a house of 6 m and a tree with several returns."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 50, (2, points))
    house, tree = (x < 20) & (y < 20), (x > 30) & (y > 30)
    z = rng.normal(0, 0.05, points) + np.where(house, 6.0, 0.0) + np.where(tree, rng.uniform(1, 12, points), 0.0)
    header = laspy.LasHeader(point_format=6, version="1.4")
    header.scales, header.offsets = np.full(3, 0.01), np.array([700_000.0, 6_000_000.0, 100.0])
    cloud = laspy.LasData(header)
    cloud.x, cloud.y, cloud.z = x + 700_000, y + 6_000_000, z + 130
    cloud.classification = np.where(house, 6, np.where(tree, 5, 2)).astype(np.uint8)
    cloud.intensity = rng.integers(100, 2000, points).astype(np.uint16)
    cloud.number_of_returns = np.where(tree, 3, 1).astype(np.uint8)
    cloud.return_number = np.where(tree, rng.integers(1, 4, points), 1).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    cloud.write(path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of all data, with the six tiles and the point clouds of other places."""
    for number, name in enumerate((*(tiles.TILE.format(name) for name in tiles.TILES), *tiles.OTHERS.values())):
        write_tile(tmp_path / "data" / "lidar-hd" / name, number)
    return tmp_path / "data"


@pytest.mark.parametrize("points", SETS.values(), ids=list(SETS))
def test_each_place_tests_once_and_trains_elsewhere(points: tiles.PointSet) -> None:
    tests = [name for fold in points.folds for name in fold["test"]]
    every = {name for fold in points.folds for names in fold.values() for name in names}
    assert len(tests) == len(set(tests)) and set(tests) == every
    for fold in points.folds:
        assert {name for names in fold.values() for name in names} == every
        assert len(every) == sum(map(len, fold.values())) and min(map(len, fold.values())) > 0
        if points is FILTER_TEST:  # whole sites
            assert not {name[4] for name in fold["test"]} & {name[4] for name in (*fold["train"], *fold["val"])}


def test_labels_follow_the_codes(data: Path, tmp_path: Path) -> None:
    assert LIDAR_HD.class_names == ["ground", "vegetation", "building", "other"]
    path = data / "lidar-hd" / LIDAR_HD.folds[0]["test"][0]
    points = laspy.read(path)
    codes = np.array([2, 3, 4, 5, 6, 1, 64, 65, 7])
    points.classification[: len(codes)] = codes
    points.write(path)
    root, tests = LIDAR_HD.stage(0, data, tmp_path / "work")
    assert list(tests) == ["LiDAR HD", *tiles.OTHERS] and tests["LiDAR HD"] == root
    dataset = opened("lidar-hd", root)
    assert list(dataset.info.classes) == LIDAR_HD.class_names
    counts = np.zeros(5, dtype=int)
    for code in points.classification:
        counts[{2: 0, 3: 1, 4: 1, 5: 1, 6: 2, 1: 3, 64: 3}.get(int(code), -1)] += 1
    targets = np.concatenate([sample.target.numpy() for sample in dataset])
    assert [int((targets == label).sum()) for label in (0, 1, 2, 3, -1)] == counts.tolist()


def test_baselines_separate_houses_from_trees(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    scores = tabular("lidar-hd", 2, str(data), str(tmp_path / "work"), str(tmp_path))["scores"]
    forest = scores["random forest"]
    assert {"random forest", "gradient boosting", "constant"} < set(scores)
    assert list(forest) == ["LiDAR HD", *tiles.OTHERS] and forest["LiDAR HD"]["positions"] == 1500
    assert min(score["miou"] for score in forest.values()) > 0.9 > 0.5 > scores["constant"]["LiDAR HD"]["miou"]


@pytest.mark.filterwarnings("ignore")
def test_a_small_run_ends_with_scores_of_every_point(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    small = {"model.settings.max_points": 400, "training.queries": 200, "training.repeat": 1}
    small |= {"data.options.cache": False}
    folders = {"data": str(data), "work": str(tmp_path / "work"), "results": str(tmp_path)}
    run = {"key": "lidar-hd", "fold": 0, "changes": small, "steps": 2, "seed": 0}
    assert find_network(**run, **folders) is None
    result = network(**run, **folders)
    assert result["scores"]["LiDAR HD"]["positions"] == 1500 and result["steps"] == 2
    again = find_network(**run, **folders)
    assert again is not None and again[0].run.training.learning_rate == result["learning_rate"]


def test_lzf_is_unpacked() -> None:
    """Runs of new bytes, references that reach into what they write, and long ones."""
    assert tiles.unpacked(b"\x02abc" + b"\x20\x02" + b"\xe0\x03\x00", 3 + 3 + 12) == b"abcabc" + b"c" * 12
    with pytest.raises(ValueError, match="3 bytes where 4 were packed"):
        tiles.unpacked(b"\x02abc", 4)


@pytest.mark.realdata
def test_the_filter_test_has_the_points_that_were_published(tmp_path: Path) -> None:
    root, _ = FILTER_TEST.stage(0, data_folder("isprs-filtertest").parent, tmp_path)
    paths = [path for split in ("train", "val", "test") for path in (root / split).iterdir()]
    published = (38_010, 52_119, 32_706, 28_862, 42_470, 17_845, 34_378, 8_608, 35_060, 15_645)
    counts = {f"samp{name}": count for name, count in zip(tiles.SAMPLES, published, strict=True)}
    assert {path.stem: len(laspy.read(path)) for path in paths} == counts
    sample = opened("isprs-filtertest", root)[0]
    assert FILTER_TEST.class_names == ["ground", "object"] and set(sample.target.tolist()) <= {-1, 0, 1}
