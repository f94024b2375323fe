"""What all datasets share: labels, splits, options, names, samples."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
import data as fixtures
from atomizer_io.datasets import Labels, Meta, Sample, Skipped
from atomizer_io.datasets.registry import DATASETS, canonical, dataset_class, options_of
from atomizer_io.errors import AtomsError, ConfigError, DataError
from scenes import raster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.write("sen1floods11", tmp_path_factory.mktemp("data") / "s1f")


def test_labels_on_disk_become_classes() -> None:
    plain = Labels(3, ignore=(255,))
    np.testing.assert_array_equal(plain.read(np.array([[0, 2], [255, 1]], np.uint8), "a.tif"), [[0, 2], [-1, 1]])
    mapped = Labels(2, ignore=(0,), mapping={2: 0, 6: 1, 65: -1})
    np.testing.assert_array_equal(mapped.read(np.array([0, 2, 6, 65], np.uint8), "a.las"), [-1, 0, 1, -1])
    floats = np.array([0.0, np.nan, 1.0], np.float32)
    np.testing.assert_array_equal(Labels(2).read(floats, "a.tif"), [0, -1, 1])
    assert Labels(2).read(np.zeros((0,), np.uint8), "a.las").shape == (0,)


@pytest.mark.parametrize(
    ("labels", "array", "cause"),
    [
        (Labels(3), np.array([0, 3, 3]), r"label 3 \(2 positions\) is not among the classes 0 … 2"),
        (Labels(3), np.array([-1, 0]), r"label -1 \(1 positions\)"),
        (Labels(3, ignore=(255,)), np.array([7, 255]), r"label 7 .* nor among the ignored 255"),
        (Labels(2, mapping={2: 0, 6: 1}), np.array([0, 2]), r"label 0 .* not among the classes 2, 6"),
        (Labels(3), np.array([0.5, 1.0]), "not whole numbers"),
        (Labels(3), np.array([0, 1 << 40]), "is this the label file"),
    ],
)
def test_other_labels_are_refused(labels: Labels, array: np.ndarray, cause: str) -> None:
    with pytest.raises(DataError, match=f"mask.tif: .*{cause}"):
        labels.read(array, "mask.tif")


def test_every_name_is_found_whatever_its_spelling() -> None:
    assert canonical("PASTIS-R") == canonical("pastis_r") == canonical("pastis") == "pastis-r"
    assert canonical("M Cashew Plant") == "m-cashew-plant"
    with pytest.raises(ConfigError, match=r"did you mean .*sen1floods11"):
        canonical("sen1flood")
    for name in DATASETS:
        assert dataset_class(name).info.name == name


def test_wrong_options_are_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="has no option 'on_eror'; did you mean on_error"):
        aio.datasets.create("sen1floods11", folder, on_eror="skip")
    with pytest.raises(ConfigError, match="on_error is 'ignore'"):
        aio.datasets.create("sen1floods11", folder, on_error="ignore")
    with pytest.raises(ConfigError, match="no split 'tset'; did you mean 'test'"):
        aio.datasets.create("sen1floods11", folder, "tset")
    with pytest.raises(ConfigError, match=r"needs the folder .*like='sen1floods11'"):
        aio.datasets.create("sen1floods11")
    assert {"on_error", "transform"} <= set(options_of(dataset_class("sen1floods11")))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing-here: no such folder; (.|\n)*HandLabeled"):
        aio.datasets.create("sen1floods11", tmp_path / "nothing-here")


def test_indexing(folder: Path) -> None:
    dataset = aio.datasets.create("sen1floods11", folder)
    assert dataset[-1].meta.id == dataset[len(dataset) - 1].meta.id
    with pytest.raises(IndexError, match="has 3 samples, there is no number 3"):
        dataset[3]
    again = pickle.loads(pickle.dumps(dataset))
    assert again[1].meta == dataset[1].meta


def test_what_is_skipped_is_false_and_listed_once(folder: Path, tmp_path: Path) -> None:
    copy = fixtures.write("sen1floods11", tmp_path / "copy", seed=1)
    broken = copy / "v1.1/data/flood_events/HandLabeled/S1Hand/Ghana_24858_S1Hand.tif"
    broken.write_bytes(b"")
    dataset = aio.datasets.create("sen1floods11", copy, on_error="skip")
    for _ in range(2):
        assert len(list(dataset)) == 2
    assert not dataset[1]
    assert dataset.skipped == [Skipped(str(broken), dataset.skipped[0].cause)]


def test_a_sample_without_any_measurement_is_broken(tmp_path: Path) -> None:
    import rasterio

    copy = fixtures.write("sen1floods11", tmp_path / "copy")
    for kind, value in (("S1Hand", np.nan), ("S2Hand", 0)):
        path = copy / f"v1.1/data/flood_events/HandLabeled/{kind}/Ghana_103272_{kind}.tif"
        with rasterio.open(path, "r+") as target:
            target.write(np.full((target.count, target.height, target.width), value, target.dtypes[0]))
    with pytest.raises(DataError, match=r"Ghana_103272_S1Hand\.tif: has no valid measurement"):
        aio.datasets.create("sen1floods11", copy)[0]


def test_targets_and_ignored_positions() -> None:
    atoms, grid = raster(1, size=(2, 3)), aio.Grid(2, 3, gsd_m=10.0)
    classes = Sample.of_map(atoms, grid, np.array([[0, 1, -5], [2, -1, 0]]), Meta("a"))
    assert classes.target.tolist() == [0, 1, -1, 2, -1, 0]
    assert classes.queries.ignore.tolist() == [False, False, True, False, True, False]
    regression = Sample.of_map(atoms, grid, np.array([[0.5, np.nan, 1], [2, 3, 4]]), Meta("b"))
    assert regression.target.dtype == torch.float32 and regression.queries.ignore.tolist()[:2] == [False, True]
    scene = Sample.of_scene(atoms, 3, Meta("c"))
    assert scene.queries is None and scene.target.item() == 3 and scene.target.dtype == torch.int64
    with pytest.raises(AtomsError, match=r"\(3, 2\) on a grid of \(2, 3\)"):
        Sample.of_map(atoms, grid, np.zeros((3, 2)), Meta("d"))
    with pytest.raises(AtomsError, match=r"\(4,\) targets for positions of shape \(3, 2\)"):
        Sample.of_points(atoms, torch.zeros(3, 2), np.zeros(4), Meta("e"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dales", {"seed": 3}, "dales has no option .seed."),
        ("dales", {"grid_m": "fine"}, "grid_m is .fine."),
        ("dales", {"window_m": "wide"}, "window_m is 'wide'; it has to be a number"),
        ("fractal", {"colour": 7}, "colour is 7; it has to be true or false"),
        ("geotiff-folder", {"classes": "ab"}, "classes is 'ab'"),
        ("geotiff-folder", {"bands": "B02"}, "bands is 'B02'"),
        ("las-folder", {}, "las-folder needs the option classes"),
        ("biomassters", {"months": 3}, "months is 3; it has to be a list of whole numbers"),
        ("sen1floods11", {"transform": "foo"}, "transform is 'foo'"),
    ],
)
def test_options_of_the_wrong_kind_are_named(name: str, options: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        aio.datasets.create(name, tmp_path, **options)
