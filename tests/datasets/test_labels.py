"""Images with labels in a vector file: positions, classes, weights, dates, splits, spatial folds, and the check."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import shapely
import torch
from rasterio.crs import CRS
from rasterio.transform import Affine

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.checking import check
from atomizer_io.datasets.crop import cropped
from atomizer_io.datasets.labels import Labelled
from atomizer_io.datasets.spatial_folds import blocks_of
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.training.losses import loss_sum
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches
from data.fractal import write_laz
from data.vectors import moved, write_vector

BANDS = ("B02", "B03", "B04", "B08")
WEST, NORTH = 600000.0, 5000000.0
NAMES = ("forest", "meadow", "water")
IMAGE = {"sensor": "sentinel2", "bands": BANDS}


def write_image(path: Path, cover: np.ndarray, west: float = WEST, north: float = NORTH, epsg: int = 32632) -> None:
    image = bands(np.random.default_rng(1), cover, SENTINEL2.pick(*BANDS), np.uint16)
    write_raster(path, image, nodata=0, crs=CRS.from_epsg(epsg), transform=Affine(10, 0, west, 0, -10, north))


def at(cover: np.ndarray, xy: np.ndarray) -> list[str]:
    rows, columns = ((NORTH - xy[:, 1]) // 10).astype(int), ((xy[:, 0] - WEST) // 10).astype(int)
    return [NAMES[number] for number in cover[rows, columns]]


@pytest.fixture
def cover() -> np.ndarray:
    return patches(np.random.default_rng(0), 200, 180, 3)


@pytest.fixture
def scene(tmp_path: Path, cover: np.ndarray) -> Path:
    """One image of 2 × 1.8 km, and 300 points with the class of their pixel."""
    write_image(tmp_path / "scene.tif", cover)
    xy = np.random.default_rng(2).uniform((WEST, NORTH - 2000), (WEST + 1800, NORTH), (300, 2))
    write_vector(tmp_path / "labels.gpkg", shapely.points(xy), {"cover": at(cover, xy)})
    return tmp_path


def labelled(root: Path, split: str = "all", **options: Any) -> Labelled:
    dataset = aio.datasets.create("labels", root, split, **{**IMAGE, **options})
    assert isinstance(dataset, Labelled)
    return dataset


def positions_of(dataset: Labelled) -> np.ndarray:
    """The positions of all queries in the coordinate system of their window."""
    parts = []
    for sample in dataset:
        assert sample.queries is not None and sample.meta.origin is not None
        parts.append(sample.queries.positions.numpy() + np.array(sample.meta.origin))
    return np.concatenate(parts)


def test_each_label_is_a_query_where_it_lies(scene: Path, cover: np.ndarray) -> None:
    dataset = labelled(scene)
    assert dataset.info.classes == NAMES and dataset.info.codes == (0, 1, 2) and dataset.info.extent_m == 640
    assert [channel.name for channel in dataset.channels] == list(BANDS)
    total = 0
    with rasterio.open(scene / "scene.tif") as source:
        for item, sample in zip(dataset.items, dataset, strict=True):
            xy = sample.queries.positions.numpy() + np.array(sample.meta.origin)
            assert [NAMES[number] for number in sample.target.tolist()] == at(cover, xy)
            assert sample.queries.weight is None and sample.queries.footprint_m.tolist() == [10, 10]
            assert dataset.files(item) == (scene / "scene.tif", scene / "labels.gpkg")
            distance = torch.cdist(sample.queries.positions, sample.atoms.acquisitions[0].positions)
            near = sample.atoms.acquisitions[0].values[distance.argmin(dim=1)]
            np.testing.assert_array_equal(near, list(source.sample(xy)))
            west, south, east, north = sample.atoms.bounds
            assert east - west <= 650 and north - south <= 650
            total += len(xy)
    assert total == 300
    assert len(pickle.loads(pickle.dumps(dataset))[0].queries) == len(dataset[0].queries)


def test_small_tiles_are_samples_as_they_are(tmp_path: Path, cover: np.ndarray) -> None:
    """In three coordinate systems; the labels are in a fourth."""
    xy = np.random.default_rng(2).uniform((WEST, NORTH - 2000), (WEST + 1800, NORTH), (300, 2))
    for number, (row, column) in enumerate(((0, 0), (60, 60), (120, 120))):
        part = cover[row : row + 60, column : column + 60]
        write_image(tmp_path / f"image/tile{number}.tif", part, WEST + 10 * column, NORTH - 10 * row)
    write_image(tmp_path / "image/tile3.tif", cover[:50, :50], 126000, NORTH, epsg=32633)
    write_vector(tmp_path / "labels.geojson", moved(shapely.points(xy), 32632, 4326), {"cover": at(cover, xy)}, 4326)
    dataset = labelled(tmp_path)
    assert dataset.scenes.crs == "EPSG:4326"
    assert [item.id for item in dataset.items] == ["tile0", "tile1", "tile2"]
    inside = [
        ((xy >= (WEST + 600 * k, NORTH - 600 * k - 600)) & (xy < (WEST + 600 * k + 600, NORTH - 600 * k))).all(axis=1)
        for k in range(3)
    ]
    expected = np.concatenate([xy[mask] for mask in inside])
    ours = positions_of(dataset)
    np.testing.assert_allclose(ours[np.lexsort(ours.T)], expected[np.lexsort(expected.T)], atol=0.01)
    assert len(dataset.outside) == 300 - len(expected)
    assert all(sample.atoms.num_atoms == 4 * 60 * 60 for sample in dataset)


def test_folds_never_share_a_block_or_a_polygon(scene: Path, cover: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    corners = rng.uniform((WEST, NORTH - 1900), (WEST + 1700, NORTH - 100), (150, 2))
    fields = [shapely.box(x, y, x + 60, y + 45) for x, y in corners]
    write_vector(scene / "labels.gpkg", fields, {"cover": at(cover, corners)})
    options = {"block_m": 200.0, "margin_m": 5.0, "folds": 4}
    blocks, polygons, counts = [], [], Counter[str]()
    for fold in range(4):
        dataset = labelled(scene, "test", **options, fold=fold)
        own = dataset.in_split()
        cells = blocks_of(dataset.vector.xy[own], dataset.vector.crs, 200.0)
        blocks.append({tuple(cell) for cell in cells.tolist()})
        polygons.append(set(dataset.vector.feature[own].tolist()))
        parts = {split: labelled(scene, split, **options, fold=fold).in_split() for split in ("train", "val", "test")}
        np.testing.assert_array_equal(sum(part.astype(int) for part in parts.values()), 1)
        counts.update({fold: len(polygons[-1])})
    for first in range(4):
        for second in range(first):
            assert not blocks[first] & blocks[second] and not polygons[first] & polygons[second]
    assert set().union(*polygons) == set(dataset.vector.feature.tolist())
    assert max(counts.values()) < 2 * min(counts.values())
    with pytest.raises(ConfigError, match="the labels lie in 1 blocks that no polygon connects, fewer than 4 folds"):
        labelled(scene, "train", **options | {"block_m": 1e7})


def test_blocks_have_their_size_in_degrees_too() -> None:
    xy = np.random.default_rng(0).uniform(0, 5000, (2000, 2)) + np.array([WEST, NORTH])
    there = shapely.get_coordinates(moved(shapely.points(xy), 32632, 4326))
    cells = blocks_of(there, "EPSG:4326", 500.0)
    for cell in np.unique(cells, axis=0):
        assert (np.ptp(xy[(cells == cell).all(axis=1)], axis=0) < 540).all()
    assert 90 < len(np.unique(cells, axis=0)) < 160


def test_a_column_names_the_split(scene: Path, cover: np.ndarray) -> None:
    xy = np.random.default_rng(2).uniform((WEST, NORTH - 2000), (WEST + 1800, NORTH), (300, 2))
    part = np.where(xy[:, 0] < WEST + 900, "Train", np.where(xy[:, 1] < NORTH - 1000, "validation", "extra"))
    write_vector(scene / "labels.gpkg", shapely.points(xy), {"cover": at(cover, xy), "part": part.astype(object)})
    options = {"column": "cover", "split_column": "part"}
    dataset = labelled(scene, "train", **options)
    assert set(dataset.info.splits) == {"train", "val", "extra", "test", "all"}
    assert (positions_of(dataset)[:, 0] < WEST + 900).all()
    assert {len(positions_of(labelled(scene, split, **options))) for split in ("train", "val", "extra")} == {
        *np.unique(part, return_counts=True)[1].tolist()
    }
    with pytest.raises(DataError, match="no sample of split 'test'"):
        labelled(scene, "test", **options)


def test_labels_see_images_of_about_their_date(tmp_path: Path, cover: np.ndarray) -> None:
    for day in ("20210504", "20210713"):
        write_image(tmp_path / f"image/s2_{day}.tif", cover[:60, :60])
    xy = np.random.default_rng(2).uniform((WEST, NORTH - 600), (WEST + 600, NORTH), (30, 2))
    dates = ["2021-05-10", "2021-07-01", "2021-01-01"] * 10
    write_vector(tmp_path / "labels.csv", shapely.points(xy), {"cover": at(cover, xy), "seen": dates})
    dataset = labelled(tmp_path, date_column="seen", days=15)
    assert [[str(day) for day in sample.meta.dates] for sample in dataset] == [["2021-05-04"], ["2021-07-13"]]
    assert [len(sample.queries) for sample in dataset] == [10, 10] and len(dataset.unmatched) == 10
    assert len({item.id for item in dataset.items}) == 2
    both = labelled(tmp_path, column="cover")
    assert [len(sample.meta.dates) for sample in both] == [2] and len(both[0].queries) == 30


def test_weights_reach_the_loss_and_stay_with_their_query(scene: Path, cover: np.ndarray) -> None:
    field = shapely.box(WEST + 100, NORTH - 300, WEST + 300, NORTH - 100)
    point = shapely.Point(WEST + 400.0, NORTH - 200.0)
    write_vector(scene / "labels.gpkg", [field, point], {"cover": ["forest", "water"], "trust": [0.5, 2.0]})
    sample = labelled(scene, column="cover", weight_column="trust", positions=20, window_m=2000)[0]
    weight, target = sample.queries.weight, sample.target
    assert float(weight[target == 0].sum()) == pytest.approx(0.5) and weight[target == 1].tolist() == [2]
    east = cropped(sample, (float(sample.queries.positions[target == 1][0, 0]) - 1, -1e4, 1e4, 1e4))
    assert east.queries.weight.tolist() == [2] and len(east.queries) == 1
    outputs = torch.randn(len(target), 2, generator=torch.Generator().manual_seed(0))
    spec = TaskSpec(num_outputs=2)
    for class_weights in (None, torch.tensor([1.0, 3.0])):
        total, count = loss_sum(outputs, target, spec, class_weights, weight)
        losses = torch.nn.functional.cross_entropy(outputs, target, class_weights, reduction="none")
        of_class = torch.ones(2) if class_weights is None else class_weights
        assert float(total) == pytest.approx(float((losses * weight).sum()), rel=1e-5)
        assert float(count) == pytest.approx(float((weight * of_class[target]).sum()), rel=1e-5)
        same = loss_sum(outputs, target, spec, class_weights, torch.ones(len(target)))
        assert torch.allclose(torch.stack(same), torch.stack(loss_sum(outputs, target, spec, class_weights)))
    regression = TaskSpec("regression", 1, target_std=2.0)
    total, count = loss_sum(outputs[:, :1], target.float(), regression, None, weight)
    assert float(total) == pytest.approx(float((((outputs[:, 0] - target) / 2) ** 2 * weight).sum()), rel=1e-5)
    assert float(count) == pytest.approx(2.5)


def test_rasters_of_several_sensors_by_their_options(scene: Path, cover: np.ndarray) -> None:
    radar = np.random.default_rng(0).normal(-12, 3, (2, 100, 90)).astype(np.float32)
    write_raster(scene / "radar.tif", radar, crs=CRS.from_epsg(32632), transform=Affine(20, 0, WEST, 0, -20, NORTH))
    rasters = [
        {"path": "scene.tif", "sensor": "sentinel2", "bands": list(BANDS), "date": "2021-05-04"},
        {"path": str(scene / "radar.tif"), "sensor": "sentinel1", "bands": ["VV", "VH"]},
    ]
    dataset = aio.datasets.create("labels", scene, "all", rasters=rasters)
    assert [(c.sensor, c.name) for c in dataset.channels][-2:] == [("sentinel1", "VV"), ("sentinel1", "VH")]
    assert all(len(sample.atoms.acquisitions) == 2 for sample in dataset)
    assert [len(dataset.files(item)) for item in dataset.items] == [3] * len(dataset)


def test_regression_and_codes(scene: Path) -> None:
    xy = np.random.default_rng(2).uniform((WEST, NORTH - 2000), (WEST + 1800, NORTH), (40, 2))
    columns = {"height": np.linspace(0, 30, 40), "code": np.arange(40) % 2 * 30 + 10}
    write_vector(scene / "labels.gpkg", shapely.points(xy), columns)
    height = labelled(scene, column="height", task="regression", unit="m")
    assert height.info.task == "regression" and (height.info.target_name, height.info.unit) == ("height", "m")
    assert sorted(float(v) for sample in height for v in sample.target) == pytest.approx(
        np.linspace(0, 30, 40).tolist()
    )
    codes = labelled(scene, column="code", classes={10: "grass", 40: "trees"})
    assert codes.info.classes == ("grass", "trees") and codes.info.codes == (10, 40)


def test_labels_over_point_clouds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(2):
        x, y = rng.uniform(0, 100, 4000), rng.uniform(0, 100, 4000)
        trees = x > 50
        columns = {
            "x": np.round(500000 + 100 * number + x, 2),
            "y": np.round(6500000 + y, 2),
            "z": np.round(100 + trees * rng.uniform(0, 15, 4000), 2),
            "intensity": rng.integers(1, 900, 4000).astype(np.uint16),
            "return_number": np.ones(4000, np.uint8),
            "number_of_returns": np.ones(4000, np.uint8),
            "classification": np.ones(4000, np.uint8),
        }
        write_laz(tmp_path / f"tile{number}.laz", columns, epsg=2154)
    xy = rng.uniform((500001, 6500001), (500199, 6500099), (80, 2))
    cover = np.where(xy[:, 0] % 100 > 50, "trees", "open").astype(object)
    write_vector(tmp_path / "labels.gpkg", moved(shapely.points(xy), 2154, 4326), {"cover": cover}, 4326)
    dataset = aio.datasets.create("labels", tmp_path, "all", cache=False)
    assert dataset.scenes.crs == "EPSG:2154" and len(dataset) == 8
    total = 0
    for sample in dataset:
        there = sample.queries.positions.numpy() + np.array(sample.meta.origin)
        expected = np.where(there[:, 0] % 100 > 50, "trees", "open")
        assert [dataset.info.classes[number] for number in sample.target.tolist()] == expected.tolist()
        assert sample.queries.footprint_m.tolist() == [1, 1]
        total += len(there)
    assert total == 80


def test_the_check_names_what_deserves_a_look(scene: Path, cover: np.ndarray, capsys: pytest.CaptureFixture) -> None:
    xy = np.random.default_rng(2).uniform((WEST, NORTH - 2000), (WEST + 1800, NORTH), (60, 2))
    xy[50:53] -= (5000, 0)  # outside
    xy[53], xy[54] = xy[10], xy[11]
    names = [*at(cover, xy[:50]), *["forest"] * 10]
    names[10], names[53], names[11], names[54], names[20] = "water", "water", "water", "forest", "rock"
    shapes = [*shapely.points(xy), shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]), None]
    write_vector(scene / "labels.gpkg", shapes, {"cover": [*names, "forest", "forest"]})
    with pytest.raises(DataError, match=r"labels\.gpkg: feature 62 has no geometry"):
        labelled(scene)
    (report,) = check("labels", str(scene), ["all"], **IMAGE)
    assert [fault.cause.partition(" (")[0] for fault in report.faults] == [
        "feature 62 has no geometry",
        "feature 61 has an invalid geometry",
    ]
    notes = "\n".join(report.warnings)
    assert "labels outside of all images: 3 features (51, 52, 53)" in notes
    assert "class 'rock' has 1 label\n" in notes + "\n"
    assert "1 positions are there twice, with one label: features 11 and 54" in notes
    assert "1 positions are there with labels that contradict: features 12 and 55" in notes
    options = ["sensor=sentinel2", f"bands={','.join(BANDS)}", "classes=[forest, meadow, water]", "folds=3"]
    assert main(["data", "check", "labels", str(scene), *options]) == 1
    out = capsys.readouterr().out
    assert out.count("feature 61") == 1 and "values that are not among the classes: rock (1)" in out
    assert "are dealt to 3 folds (block_m=... for another size)" in out


def test_what_is_missing_is_named(scene: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fold is 5; the folds are 0 … 4"):
        labelled(scene, fold=5)
    write_vector(scene / "dates.csv", [shapely.Point(1, 2)], {"cover": ["a"]})
    assert len(labelled(scene).vector) == 300
    write_vector(scene / "more.gpkg", [shapely.box(WEST, NORTH - 50, WEST + 8, NORTH)], {"cover": ["a"]})
    with pytest.raises(
        ConfigError, match=r"name the file of the labels \(labels=\.\.\.\): it has dates\.csv, labels\.gpkg, more\.gpkg"
    ):
        labelled(scene)
    assert len(labelled(scene, labels="labels.gpkg").vector) == 300
    with pytest.raises(DataError, match=r"'cover' that can be used; 1 are narrower than twice the margin \(margin_m="):
        labelled(scene, labels="more.gpkg")
    with pytest.raises(DataError, match="no such file"):
        labelled(scene, labels="none.gpkg")


@pytest.mark.slow
def test_a_short_training_is_better_than_the_majority(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    settings = [
        *("data.name=labels", f"data.root={scene}", "data.workers=0", f"output={tmp_path / 'runs'}", "name=points"),
        f"data.options={json.dumps({'sensor': 'sentinel2', 'bands': list(BANDS), 'block_m': 200, 'window_m': 240})}",
        *("training.validate_every=100", "training.baselines=false"),
        *("model.preset=atomizer_io_tiny", "training.max_steps=60", "training.figures=1", "training.accelerator=cpu"),
    ]
    (tmp_path / "empty.yaml").write_text("data: {}\n")
    assert main(["train", str(tmp_path / "empty.yaml"), "--quiet", *settings]) == 0
    result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    target = np.concatenate([s.target.numpy() for s in labelled(scene, "test", block_m=200) if isinstance(s, Sample)])
    majority = np.bincount(target).max() / len(target)
    assert result["scores"]["test"]["accuracy"] > majority + 0.15
