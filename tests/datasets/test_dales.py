"""DALES: the fixture in its three layouts, windows, and files that are not as they should be."""

from __future__ import annotations

import shutil
from pathlib import Path

import laspy
import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.datasets.dales import VAL_TILES, Dales
from atomizer_io.errors import ConfigError, DataError
from data.dales import FIELDS, write_ply
from scenes import data_folder

TILE = "DALESObjects/train/5080_54435_new.ply"
DATASET = "dales"


def table(path: Path) -> np.ndarray:
    data = path.read_bytes()
    return np.frombuffer(data[data.index(b"end_header\n") + 11 :], dtype=list(FIELDS))


def test_the_fixture_has_the_splits(folder: Path) -> None:
    sets = {split: aio.datasets.create("dales", folder, split) for split in ("train", "val", "test")}
    assert {split: len(dataset) for split, dataset in sets.items()} == {"train": 6, "val": 3, "test": 3}
    assert not any(dataset.info.las_standard for dataset in sets.values())  # its class 7 are poles, not noise
    tiles = {split: {w.id.rsplit("_", 2)[0] for w in dataset.items} for split, dataset in sets.items()}
    assert tiles == {"train": {"5080_54435", "5190_54400"}, "val": {"5145_54340"}, "test": {"5080_54470"}}
    assert len(Dales(folder / "DALESObjects")) == 6  # the folder of the release itself


def test_values_are_those_of_the_tile(folder: Path) -> None:
    dataset = aio.datasets.create("dales", folder, heights="elevation")
    points = table(folder / TILE)
    assert sum(len(s.queries) for s in dataset if s.meta.id.startswith("5080")) == len(points)
    sample = dataset[2]
    assert sample.meta.id == "5080_54435_r01_c00"
    x, y = points["x"].astype(np.float64), points["y"].astype(np.float64)
    inside = (x < x.min() + 50) & (y >= y.min() + 50)
    origin = np.array(sample.meta.origin)
    assert origin == pytest.approx([x.min() + 25, y.min() + 75])
    np.testing.assert_allclose(sample.queries.positions, np.stack([x, y], 1)[inside] - origin, atol=1e-9)
    assert sample.queries.positions[:, 0].abs().max() <= 25
    (point_cloud,) = sample.atoms
    z = points["z"][inside].astype(np.float64)
    np.testing.assert_allclose(point_cloud.values[:, 0], z - z.min(), atol=1e-5)
    order = np.sort(points["intensity"])
    rank = (order.searchsorted(points["intensity"], "left") + order.searchsorted(points["intensity"], "right")) / 2
    np.testing.assert_allclose(point_cloud.site_fields["intensity_rank"], (rank / len(points))[inside], atol=1e-6)
    assert (
        set(point_cloud.site_fields) == {"intensity_rank"}
        and point_cloud.date is None
        and point_cloud.footprint_m == (0.0, 0.0)
    )
    np.testing.assert_array_equal(sample.target, points["sem_class"][inside].astype(np.int64) - 1)  # 0 becomes -1
    assert torch.equal(sample.queries.ignore, sample.target == -1) and sample.queries.ignore.any()
    assert torch.equal(sample.queries.sites[0], torch.arange(inside.sum()))
    assert (sample.meta.crs, sample.meta.dates) == (None, ())
    assert sample.queries.whole == TILE == dataset.whole_of(2)
    np.testing.assert_array_equal(sample.queries.members, np.flatnonzero(inside))


@pytest.mark.parametrize(
    ("heights", "names"), [("ground", ["height"]), ("elevation", ["elevation"]), ("both", ["elevation", "height"])]
)
def test_heights_above_the_ground_of_the_tile(folder: Path, heights: str, names: list[str]) -> None:
    dataset = Dales(folder, heights=heights)
    assert [channel.name for channel in dataset.channels] == names
    (point_cloud,) = dataset[2].atoms
    assert [channel.name for channel in point_cloud.channels] == names
    points = table(folder / TILE)[dataset[2].queries.members]
    above = aio.height_above_ground(np.stack([table(folder / TILE)[axis].astype(np.float64) for axis in "xyz"], 1))
    if heights != "elevation":
        of_tile = above[dataset[2].queries.members]
        np.testing.assert_allclose(point_cloud.heights_m, of_tile, atol=1e-5)
        np.testing.assert_allclose(point_cloud.values[:, -1], point_cloud.heights_m, atol=1e-5)
    if heights != "ground":
        np.testing.assert_allclose(point_cloud.values[:, 0], points["z"] - points["z"].min(), atol=1e-5)
    with pytest.raises(ConfigError, match="heights is 'sea'; it has to be ground or elevation or both"):
        Dales(folder, heights="sea")


def test_windows_are_those_of_prediction_where_they_are_scored(folder: Path) -> None:
    dataset = Dales(folder, "test", stride_m=40)
    scored = dataset.for_evaluation()
    assert [w.bounds for w in scored.items] == [w.bounds for w in Dales(folder, "test", stride_m=25).items]
    assert len(dataset) == len(Dales(folder, "test", stride_m=40)) and scored.for_evaluation() is scored
    seen = np.zeros(len(table(folder / "DALESObjects/test/5080_54470_new.ply")), int)
    for sample in scored:
        assert sample.queries.whole == "DALESObjects/test/5080_54470_new.ply"
        np.add.at(seen, sample.queries.members.numpy(), 1)
    assert seen.min() >= 1 and seen.max() == 4


def test_one_point_of_each_cube_in_training(folder: Path) -> None:
    every, sparse = Dales(folder, "test"), Dales(folder, "test", grid_m=5.0)
    whole, sample = every[1], sparse[1]
    cubes = np.floor(np.stack([table(folder / "DALESObjects/test/5080_54470_new.ply")[axis] for axis in "xyz"], 1) / 5)
    kept = cubes[sample.queries.members]
    assert len(np.unique(kept, axis=0)) == len(kept) == len(np.unique(cubes[whole.queries.members], axis=0))
    assert len(kept) < len(whole.queries) and sample.atoms.num_atoms == len(kept) == len(sample.queries.sites[0])
    positions = whole.queries.positions[torch.isin(whole.queries.members, sample.queries.members)]
    assert torch.equal(positions, sample.queries.positions)
    scored = sparse.for_evaluation()  # every point counts there
    assert sum(len(s.queries) for s in scored) == sum(len(s.queries) for s in every.for_evaluation())
    with pytest.raises(ConfigError, match="grid_m is 0"):
        Dales(folder, grid_m=0)


def as_las(folder: Path, suffix: str) -> None:
    """The same tiles as the release in LAS: no intensity, no returns."""
    for path in folder.rglob("*_new.ply"):
        points = table(path)
        las = laspy.LasData(laspy.LasHeader(point_format=1, version="1.2"))
        las.header.scales = np.full(3, 0.0001)
        las.x, las.y, las.z = (points[axis].astype(np.float64) for axis in "xyz")
        las.classification = points["sem_class"].astype(np.uint8)
        target = folder / "dales_las" / path.parent.name / path.name.replace("_new.ply", suffix)
        target.parent.mkdir(parents=True, exist_ok=True)
        las.write(target)


@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_the_release_in_las(folder: Path, suffix: str) -> None:
    plain = Dales(folder)[1]
    as_las(folder, suffix)
    shutil.rmtree(folder / "DALESObjects")
    dataset = Dales(folder)
    assert len(dataset) == 6 and len(Dales(folder, "val")) == 3
    sample = dataset[1]
    assert torch.equal(sample.target, plain.target) and sample.meta.id == plain.meta.id
    torch.testing.assert_close(sample.queries.positions, plain.queries.positions, atol=2e-4, rtol=0)
    fields = sample.atoms.acquisitions[0].site_fields
    assert not [name for name in fields if "intensity" in name] and fields["echo_before"].isnan().all()


@pytest.mark.parametrize("kind", ["empty", "truncated", "no classes", "not ply", "nan"])
def test_broken_tiles_are_named(folder: Path, kind: str) -> None:
    path = folder / TILE
    points, data = table(path).copy(), path.read_bytes()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "no classes":
        path.write_bytes(data.replace(b"sem_class", b"something"))
    elif kind == "not ply":
        path.write_bytes(b"\x1f\x8b" + data)
    else:
        points["x"][3] = np.nan
        write_ply(path, points)
    with pytest.raises(DataError, match=r"5080_54435_new\.ply: "):
        list(Dales(folder))
    skipping = Dales(folder, on_error="skip")
    assert {s.meta.id[:10] for s in skipping} == {"5190_54400"}
    assert {Path(s.path).name for s in skipping.skipped} == {"5080_54435_new.ply"}


@pytest.mark.realdata
def test_the_validation_tiles_are_those_of_the_list() -> None:
    text = (data_folder("splits") / "dales_tiles_superpoint_transformer.txt").read_text()
    names = [part.removesuffix("_new") for part in text.split("'")[1::2]]
    validation = names[names.index("val") + 1 : names.index("test")]
    assert sorted(validation) == sorted(VAL_TILES)
