"""The experiment on LiDAR tiles: disturbances do what they say, the forest reads what it should, a small run ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

laspy = pytest.importorskip("laspy")

from atomizer_io.datasets.registry import create  # noqa: E402
from atomizer_io.errors import DataError  # noqa: E402
from atomizer_io.io.point_clouds import read_point_cloud  # noqa: E402
from atomizer_lab.lidar import tiles  # noqa: E402
from atomizer_lab.lidar.lidar import DENSITIES, OPTIONS, PLAIN, Thinned, changed, forest, network, staged_tests  # noqa: E402
from atomizer_lab.lidar.lidar import test_of as opened  # noqa: E402


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
def plain(tmp_path: Path) -> Path:
    for number, names in enumerate(tiles.SPLITS.values()):
        for place, name in enumerate(names):
            write_tile(tmp_path / "lidar-hd" / "tiles" / tiles.NAME.format(name), 10 * number + place)
    return tiles.stage(tmp_path / "lidar-hd" / "tiles", tmp_path / "staged")


def of(plain: Path, name: str) -> tuple[object, object]:
    """The test tile as it was, and disturbed."""
    (before,) = (plain / "test").glob("*.laz")
    (after,) = (tiles.disturbed(plain, plain.parent, name) / "test").glob("*.laz")
    return laspy.read(before), laspy.read(after)


def test_disturbances_do_what_they_say(plain: Path) -> None:
    before, after = of(plain, "stray point 2 m below")
    assert len(after) == len(before) + 1 and before.z.min() - after.z.min() == pytest.approx(2.0, abs=0.3)
    assert after.classification[-1] == 1 and np.array_equal(after.z[:-1], before.z)
    before, after = of(plain, "slope 30 %")
    rise = np.array(after.z) - np.array(before.z)
    along = (np.array(before.x) - before.x.min() + np.array(before.y) - before.y.min()) / np.sqrt(2)
    np.testing.assert_allclose(rise, 0.3 * along, atol=0.011)
    before, after = of(plain, "intensity ÷ 8")
    assert np.array_equal(after.intensity, np.array(before.intensity) // 8)
    before, after = of(plain, "density 1/10")
    assert len(after) == 150 and set(np.array(after.z)) <= set(np.array(before.z))
    _, after = of(plain, "another day")
    (path,) = (tiles.disturbed(plain, plain.parent, "another day") / "test").glob("*.laz")
    date = read_point_cloud(path).date
    assert date is not None and 2021 <= date.year <= 2022


def test_missing_tiles_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one of the six LiDAR HD tiles"):
        tiles.stage(tmp_path, tmp_path / "work")


def test_labels_follow_the_codes(plain: Path) -> None:
    assert tiles.class_names() == ["ground", "vegetation", "building", "other"]
    (path,) = (plain / "test").glob("*.laz")
    points = laspy.read(path)
    codes = np.array([2, 3, 4, 5, 6, 1, 64, 65, 7])
    points.classification[: len(codes)] = codes
    points.write(path)
    data = opened({"data": {"options": OPTIONS}}, plain)
    assert list(data.info.classes) == tiles.class_names()
    counts = np.zeros(5, dtype=int)
    for code in points.classification:
        counts[{2: 0, 3: 1, 4: 1, 5: 1, 6: 2, 1: 3, 64: 3}.get(int(code), -1)] += 1
    targets = np.concatenate([sample.target.numpy() for sample in data])
    assert [int((targets == label).sum()) for label in (0, 1, 2, 3, -1)] == counts.tolist()


def test_thinned_samples_have_every_density(plain: Path) -> None:
    data = create("las-folder", plain, "train", **OPTIONS)
    samples = Thinned(data)
    assert len(samples) == len(data) * len(DENSITIES)
    counts = [samples[index].atoms.num_atoms / data[0].atoms.num_atoms for index in range(len(DENSITIES))]
    assert counts == pytest.approx(DENSITIES, abs=0.05)
    assert all(len(samples[index].target) == samples[index].atoms.num_atoms for index in range(len(DENSITIES)))


def test_the_forest_separates_houses_from_trees_on_a_slope(plain: Path) -> None:
    pytest.importorskip("sklearn")
    tests = {PLAIN: plain, "slope": tiles.disturbed(plain, plain.parent, "slope 30 %")}
    scores = forest(plain, tests)["scores"]
    assert min(score["miou"] for score in scores.values()) > 0.9
    assert scores[PLAIN]["positions"] == 1500


@pytest.mark.filterwarnings("ignore")
def test_a_small_run_ends_with_scores_of_every_point(plain: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    small = {
        "model.settings.max_points": 400,
        "training.queries": 200,
        "training.repeat": 1,
        "data.options.cache": False,
    }
    folders = {"data": str(tmp_path), "work": str(tmp_path / "work"), "results": str(tmp_path)}
    result = network(small, steps=2, seed=0, tests=[PLAIN], **folders)
    assert result["scores"][PLAIN]["positions"] == 1500 and result["steps"] == 2


def test_tests_are_staged_once(plain: Path, tmp_path: Path) -> None:
    for _ in range(2):
        result, tests = staged_tests(tmp_path, tmp_path / "work", [PLAIN, "slope 5 %"])
        assert tests[PLAIN] == result and len(list((tests["slope 5 %"] / "test").glob("*.laz"))) == 1


def test_settings_are_changed_in_a_copy() -> None:
    document = {"a": {"b": 1}}
    assert changed(document, {"a.b": 2, "c.d": 3}) == {"a": {"b": 2}, "c": {"d": 3}} and document == {"a": {"b": 1}}
