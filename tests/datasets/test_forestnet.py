"""ForestNet and m-forestnet: fixtures, the choice of images and labels, and files that are not as they should be."""

from __future__ import annotations

import datetime
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
import torch
from rasterio.errors import NotGeoreferencedWarning

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.datasets.forestnet import FINE, GEOBENCH_KEYS, MERGED
from atomizer_io.errors import DataError
from atomizer_lab.synthetic.rasters import write_raster
from data.forestnet import GEOBENCH_OF, SIZE

SHAPE = (SIZE, SIZE)
FIRST = "0.59_99.77"  # train, images of three dates
UNDATED = "-0.83_102.51"  # train, composite only
DATASET = "forestnet"
GEOBENCH = "m-forestnet"


def images(folder: Path, event: str = FIRST) -> Path:
    return folder / "examples" / event / "images"


def png(path: Path) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as source:
            return source.read()


def by_id(dataset: aio.datasets.Dataset) -> dict[str, aio.datasets.Sample]:
    return {sample.meta.id: sample for sample in dataset}


def edit_csv(folder: Path, old: str, new: str, name: str = "train.csv") -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


def test_the_fixture_has_the_official_splits(folder: Path) -> None:
    sizes = {s: len(aio.datasets.create("forestnet", folder, s)) for s in ("train", "val", "test")}
    assert sizes == {"train": 6, "val": 2, "test": 3}
    for split in sizes:
        (folder / f"{split}.csv").rename(folder / f"{split}_filtered.csv")  # IBM's copy
    assert {s: len(aio.datasets.create("forestnet", folder, s)) for s in sizes} == sizes


def test_values_are_those_of_the_files(folder: Path) -> None:
    sample = aio.datasets.create("forestnet", folder)[0]
    stem = "2014_11_28_cloud_3"  # 3 cloudy pixels, as 2016_07_09 has, but earlier
    infrared = np.load(images(folder) / f"infrared/{stem}.npy")
    values = np.concatenate([png(images(folder) / f"visible/{stem}.png"), np.moveaxis(infrared, 2, 0)])
    np.testing.assert_array_equal(grid_values(sample.atoms, 0, SHAPE), values)
    (acquisition,) = sample.atoms
    assert [c.name for c in acquisition.channels] == ["B4", "B3", "B2", "B5", "B6", "B7"]
    assert acquisition.date == datetime.date(2014, 11, 28)
    assert sample.atoms.num_atoms == 6 * SIZE * SIZE
    assert sample.meta.dates == (acquisition.date,) and sample.meta.extra["cloud_pixels"] == (3,)
    assert [Path(p).name for p in sample.meta.files] == [f"{stem}.png", f"{stem}.npy", "train.csv"]


def test_which_images_make_a_sample(folder: Path) -> None:
    every = by_id(aio.datasets.create("forestnet", folder, images="all"))
    dates = [datetime.date(2014, 3, 1), datetime.date(2014, 11, 28), datetime.date(2016, 7, 9)]
    assert [a.date for a in every[FIRST].atoms] == dates and every[FIRST].meta.dates == tuple(dates)
    assert every[FIRST].meta.extra["cloud_pixels"] == (120, 3, 3)
    composite = by_id(aio.datasets.create("forestnet", folder, images="composite"))
    assert all(len(s.atoms) == 1 and s.meta.dates == () for s in composite.values())
    np.testing.assert_array_equal(
        grid_values(composite[FIRST].atoms, 0, SHAPE)[:3], png(images(folder) / "visible/composite.png")
    )
    for choice in ("least-cloudy", "all"):  # an event without a dated image
        sample = by_id(aio.datasets.create("forestnet", folder, images=choice))[UNDATED]
        assert torch.equal(sample.atoms.acquisitions[0].values, composite[UNDATED].atoms.acquisitions[0].values)
        assert sample.meta.dates == () and sample.atoms.acquisitions[0].day_of_year is None


def test_labels_fine_and_merged(folder: Path) -> None:
    fine, merged = (aio.datasets.create("forestnet", folder, labels=kind) for kind in ("fine", "merged"))
    assert [int(s.target) for s in fine] == [0, 4, 3, 7, 0, 11]
    assert [int(s.target) for s in merged] == [0, 1, 2, 3, 0, 3]
    assert (fine.info.classes, merged.info.classes) == (FINE, MERGED)
    assert merged.info.num_outputs == 4 and aio.datasets.describe("forestnet").num_outputs == 12
    assert fine[0].target.dtype == torch.int64 and fine[0].queries is None
    assert FINE[7] == "Mining" and fine[3].meta.extra["merged_label"] == "Other"


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.made),)


def test_nothing_is_unpickled(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    for path in folder.rglob("forest_loss_region.pkl"):
        path.write_bytes(pickle.dumps(Bomb(made)))
    np.save(images(folder) / "infrared/2014_11_28_cloud_3.npy", np.array([Bomb(made)], dtype=object), allow_pickle=True)
    assert len(by_id(aio.datasets.create("forestnet", folder, on_error="skip"))) == 5
    assert not made.exists()
    pickle.loads(pickle.dumps(Bomb(made)))
    assert made.exists()  # it would have


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def pickled(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def scrambled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[11:40] = b"(" * 29  # numpy's own parser of headers gives a TokenError
    path.write_bytes(data)


def write_ones(path: Path, shape: tuple[int, ...], dtype: type) -> None:
    write_raster(path, np.ones(shape, dtype), driver="PNG")


@pytest.mark.parametrize(
    ("name", "damage", "cause"),
    [
        ("infrared/2014_11_28_cloud_3.npy", truncated, "cannot be read: truncated"),
        ("infrared/2014_11_28_cloud_3.npy", lambda p: p.write_bytes(b""), "cannot be read: truncated"),
        ("infrared/2014_11_28_cloud_3.npy", scrambled, "cannot be read: truncated"),
        ("infrared/2014_11_28_cloud_3.npy", pickled, "pickled, which is never opened"),
        ("infrared/2014_11_28_cloud_3.npy", lambda p: p.write_bytes(pickle.dumps([1])), "pickled, which is never"),
        ("infrared/2014_11_28_cloud_3.npy", lambda p: p.write_bytes(b"no numbers"), "not a .npy array"),
        ("infrared/2014_11_28_cloud_3.npy", lambda p: np.save(p, np.zeros((3, SIZE, SIZE))), "expected .height, wid"),
        ("infrared/2014_11_28_cloud_3.npy", lambda p: np.save(p, np.zeros(SHAPE)), "expected .height, width, 3"),
        ("infrared/2014_11_28_cloud_3.npy", lambda p: np.save(p, np.zeros((9, 9, 3))), r"has \(9, 9\) pixels"),
        ("infrared/2014_11_28_cloud_3.npy", lambda p: np.save(p, np.full((*SHAPE, 3), "a")), "an array of numbers"),
        ("visible/2014_11_28_cloud_3.png", truncated, "cannot be read: truncated or not a raster"),
        ("visible/2014_11_28_cloud_3.png", lambda p: p.write_bytes(p.read_bytes()[:-40]), "cannot be read"),
        ("visible/2014_11_28_cloud_3.png", lambda p: p.write_bytes(b""), "cannot be read"),
        ("visible/2014_11_28_cloud_3.png", lambda p: write_ones(p, (1, *SHAPE), np.uint8), "has 1 bands"),
        ("visible/2014_11_28_cloud_3.png", lambda p: write_ones(p, (3, *SHAPE), np.uint16), "holds uint16"),
        ("visible/2014_03_01_cloud_120.png", lambda p: p.rename(p.with_name("2014_03_41_cloud_1.png")), ""),
    ],
)
def test_broken_images_are_named(folder: Path, name: str, damage: Callable[[Path], object], cause: str) -> None:
    path = images(folder) / name
    damage(path)
    named = path.name if path.exists() else "2014_03_41_cloud_1.png: has no date in its name"
    with pytest.raises(DataError, match=rf"{named}.*{cause}"):
        aio.datasets.create("forestnet", folder)[0]
    skipping = aio.datasets.create("forestnet", folder, on_error="skip")
    assert FIRST not in by_id(skipping) and len(skipping.skipped) == 1 and len(by_id(skipping)) == 5


def test_lists_that_are_wrong_are_named(folder: Path) -> None:
    edit_csv(folder, "Small-scale agriculture", "Small scale agriculture")
    dataset = aio.datasets.create("forestnet", folder)
    with pytest.raises(DataError, match=r"train\.csv: row 2: label 'Small scale agriculture' is none of Oil palm"):
        dataset[1]
    assert len(by_id(aio.datasets.create("forestnet", folder, on_error="skip"))) == 5
    edit_csv(folder, "merged_label", "merged")
    with pytest.raises(DataError, match=r"train\.csv: has no column merged_label"):
        aio.datasets.create("forestnet", folder, labels="merged")
    with (folder / "val.csv").open("a") as target:
        target.write("Mining,Other\n")
    with pytest.raises(DataError, match=r"val\.csv: row 3 has no example_path"):
        aio.datasets.create("forestnet", folder, "val")
    (folder / "test.csv").unlink()
    with pytest.raises(DataError, match=r"test\.csv: no such file: the list of events of split 'test'"):
        aio.datasets.create("forestnet", folder, "test")


def test_geobench_values_dates_and_labels(geobench: Path) -> None:
    for split, official in (("train", "train"), ("val", "valid"), ("test", "test")):
        dataset = aio.datasets.create("m-forestnet", geobench, split)
        listed = [(label, date) for _, label, dates in GEOBENCH_OF[official] for date in dates]
        assert [int(s.target) for s in dataset] == [label for label, _ in listed]
    dataset = aio.datasets.create("m-forestnet", geobench)
    sample = dataset[0]
    with h5py.File(dataset.files(dataset.items[0])[0]) as source:
        values = np.stack([source[f"{key}_2014-11-28"][:] for key in GEOBENCH_KEYS])
    np.testing.assert_array_equal(grid_values(sample.atoms, 0, SHAPE), values)
    assert [c.name for c in sample.atoms.channels] == ["B2", "B3", "B4", "B5", "B6", "B7"]
    assert sample.meta.dates == (datetime.date(2014, 11, 28),)
    assert sample.atoms.acquisitions[0].footprint_m == (15.0, 15.0)
    composite = dataset[1]
    assert composite.meta.id.endswith("_2015_01_01") and composite.meta.dates == ()
    assert pickle.loads(pickle.dumps(dataset))[1].atoms.num_atoms == composite.atoms.num_atoms
    assert {c.name: c.mean for c in dataset.channels}["B2"] == pytest.approx(72.852258)
