"""PASTIS-R: the fixture, its options, and files that are not as they should be."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.errors import ConfigError, DataError
from data.content import edit_json

SHAPE = (32, 32)
OPTICAL = ["B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12"]
DATASET = "pastis-r"


def edit(folder: Path, change: Any) -> None:
    """Apply ``change`` to the document of the metadata."""
    edit_json(folder / "metadata.geojson", change)


def test_splits_are_folds(written: Path) -> None:
    ids = {s: [p.id for p in aio.datasets.create("pastis", written, s).items] for s in ("train", "val", "test")}
    assert ids == {"train": ["10000", "10001", "10002", "20000"], "val": ["30000"], "test": ["40000"]}
    folded = aio.datasets.create("PASTIS-R", written, folds=(5, 1))
    assert [p.id for p in folded.items] == ["10000", "20000", "40000"] and sorted(folded.folds) == [1, 5]


def test_values_are_those_of_the_files(written: Path) -> None:
    dataset = aio.datasets.create("pastis-r", written)
    sample = dataset[0]
    index = total = 0
    for sensor in ("S2", "S1A", "S1D"):
        for image in np.load(written / f"DATA_{sensor}" / f"{sensor}_10000.npy").astype(np.float32):
            expected = np.where(image == -10000, np.nan, image)
            np.testing.assert_array_equal(grid_values(sample.atoms, index, SHAPE), expected)
            index, total = index + 1, total + int(np.isfinite(expected).sum())
    assert index == len(sample.atoms) == 16
    assert sample.atoms.num_atoms == total == (7 * 32 - 4) * 32 * 10 + (9 * 32 - 2 * 2) * 32 * 3
    label = np.load(written / "ANNOTATIONS" / "TARGET_10000.npy")[0].astype(np.int64)
    np.testing.assert_array_equal(sample.target.reshape(SHAPE), np.where(label == 19, -1, label))
    assert sample.queries.ignore.sum() == 15 and int(sample.target.max()) == 18
    assert dataset.info.num_outputs == 19


def test_bands_are_named(written: Path) -> None:
    dataset = aio.datasets.create("pastis", written, dates=1)
    optical, ascending, descending = dataset[0].atoms
    assert [c.name for c in optical.channels] == OPTICAL
    assert [c.name for c in ascending.channels] == ["ASC_VV", "ASC_VH", "VV-VH"]
    assert [c.name for c in descending.channels] == ["DSC_VV", "DSC_VH", "VV-VH"]
    assert optical.channels[0].mean == 1161.6764 and ascending.channels[1].mean == -17.36
    assert ascending.channels[2].mean == descending.channels[2].mean == 6.4167
    assert len(dataset.channels) == 15
    assert optical.footprint_m == (10.0, 10.0)


@pytest.mark.parametrize("patch", [0, 1])  # the dates of one are a table, of the other JSON text
def test_dates_cross_new_year(written: Path, patch: int) -> None:
    sample = aio.datasets.create("pastis", written)[patch]
    optical = [a.date for a in sample.atoms if a.sensor == "sentinel2_l2a"]
    assert optical[:3] == [datetime.date(2018, 9, 24), datetime.date(2018, 11, 13), datetime.date(2019, 1, 2)]
    assert len(optical) == 7 - patch
    assert sample.meta.dates == tuple(sorted({a.date for a in sample.atoms}))


def test_sensors_can_be_chosen(written: Path) -> None:
    assert aio.datasets.create("pastis", written).present == ["S2", "S1A", "S1D"]
    dataset = aio.datasets.create("pastis", written, sensors=("S1D",))
    assert {c.name for c in dataset[0].atoms.channels} == {"DSC_VV", "DSC_VH", "VV-VH"}
    assert [p.name for p in dataset.files(dataset.items[0])] == ["S1D_10000.npy", "TARGET_10000.npy"]


def test_the_first_release_has_no_radar(folder: Path) -> None:
    shutil.rmtree(folder / "DATA_S1A")
    shutil.rmtree(folder / "DATA_S1D")
    assert aio.datasets.create("pastis", folder)[0].atoms.channels[-1].name == "B12"
    with pytest.raises(DataError, match=r"DATA_S1A: no such folder"):
        aio.datasets.create("pastis", folder, sensors=("S2", "S1A"))
    shutil.rmtree(folder / "DATA_S2")
    with pytest.raises(DataError, match=r"DATA_S2: no such folder"):
        aio.datasets.create("pastis", folder)


@pytest.mark.parametrize(
    "options",
    [
        *({"sensors": ("S3",)}, {"sensors": "S2"}, {"sensors": ()}, {"dates": 0}, {"dates": 2.5}),
        *({"folds": 6}, {"folds": (0, 1)}, {"folds": ()}),
    ],
)
def test_wrong_options_are_named(written: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        aio.datasets.create("pastis", written, **options)


def test_patches_are_placed_where_their_outline_is_square(written: Path) -> None:
    meta = aio.datasets.create("pastis", written)[1].meta
    assert meta.crs == "EPSG:2154"
    assert meta.transform == (10.0, 0.0, 870640.0, 0.0, -10.0, 6650320.0)
    assert meta.origin == (870800.0, 6650160.0)
    turned = aio.datasets.create("pastis", written, "test")[0]
    assert turned.meta.crs is None and turned.meta.transform is None and turned.meta.origin is None
    assert turned.atoms.bounds == (-160.0, -160.0, 160.0, 160.0)


@pytest.mark.parametrize(
    ("crs", "expected"),
    [
        ({"properties": {"name": "EPSG:2154"}}, "EPSG:2154"),
        ({"properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}, None),  # degrees are of no use here
        (None, None),
    ],
)
def test_the_coordinate_system_is_that_of_the_metadata(folder: Path, crs: Any, expected: str | None) -> None:
    edit(folder, lambda document: document.update(crs=crs))
    assert aio.datasets.create("pastis", folder, dates=1)[0].meta.crs == expected


def change_array(change: Any) -> Any:
    return lambda path: np.save(path, change(np.load(path)))


def with_label(value: int) -> Any:
    def change(array: np.ndarray) -> np.ndarray:
        array[0, 9, 9] = value
        return array

    return change_array(change)


def scrambled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[12:40] = b"(" * 28
    path.write_bytes(data)


S2, TARGET = "DATA_S2/S2_10000.npy", "ANNOTATIONS/TARGET_10000.npy"
BROKEN = {
    "missing": (S2, Path.unlink, "no such file"),
    "truncated": (S2, lambda p: p.write_bytes(p.read_bytes()[:5000]), "cannot be read"),
    "empty": (S2, lambda p: p.write_bytes(b""), "cannot be read"),
    "header": (S2, scrambled, "cannot be read"),
    "pickle": (S2, lambda p: np.save(p, np.array([{}], dtype=object), allow_pickle=True), "cannot be read"),
    "bands": (S2, change_array(lambda a: a[:, :9]), r"has shape \(7, 9, 32, 32\), expected \(dates, 10, 32, 32\)"),
    "image shape": (S2, change_array(lambda a: a[..., :30]), r"has shape \(7, 10, 32, 30\)"),
    "one date": (S2, change_array(lambda a: a[0]), r"has shape \(10, 32, 32\)"),
    "dates": (S2, change_array(lambda a: a[:5]), r"has 5 dates, metadata\.geojson has 7"),
    "kind": (S2, change_array(lambda a: a.astype(np.float32)), "holds float32, expected whole numbers"),
    "radar kind": ("DATA_S1A/S1A_10000.npy", change_array(lambda a: np.nan_to_num(a).astype("i2")), "holds int16"),
    "nothing seen": (S2, change_array(lambda a: np.full_like(a, -10000)), "has no valid measurement"),
    "label": (TARGET, with_label(20), r"label 20 \(1 position"),
    "label shape": (TARGET, change_array(lambda a: a[0, 0]), r"has shape \(32,\)"),
    "label kind": (TARGET, change_array(lambda a: a.astype(np.float32)), "holds float32"),
    "no label": (TARGET, Path.unlink, "no such file"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_files_are_named(folder: Path, what: str) -> None:
    name, damage, cause = BROKEN[what]
    damage(folder / name)
    sensors = ("S1A",) if "S1A" in name else ("S2",)
    with pytest.raises(DataError, match=cause) as caught:
        aio.datasets.create("pastis", folder, sensors=sensors)[0]
    assert caught.value.path == str(folder / name)
    skipping = aio.datasets.create("pastis", folder, sensors=sensors, on_error="skip")
    assert [sample.meta.id for sample in skipping] == ["10001", "10002", "20000"]
    assert [s.path for s in skipping.skipped] == [str(folder / name)]


def properties(**changes: Any) -> Any:
    def change(document: Any) -> None:
        of = document["features"][0]["properties"]
        of.update(changes)
        for key in [key for key, value in changes.items() if value is None]:
            del of[key]

    return change


METADATA = {
    "no features": (lambda d: d.pop("features"), "is not a GeoJSON feature collection"),
    "no fold": (properties(Fold=None), "has no 'Fold'"),
    "fold": (properties(Fold="x"), "is not as expected"),
    "no id": (properties(ID_PATCH=None), "has no 'ID_PATCH'"),
    "no dates": (properties(**{"dates-S2": None}), "dates-S2 of patch 10000"),
    "date": (properties(**{"dates-S2": {"0": 20181345}}), "dates-S2 of patch 10000"),
    "number": (properties(**{"dates-S2": {"1": 20181005}}), "dates-S2 of patch 10000"),
    "text": (properties(**{"dates-S2": "20181005"}), "dates-S2 of patch 10000"),
    "deep text": (properties(**{"dates-S2": "[" * 100_000}), "dates-S2 of patch 10000"),
    "infinite fold": (properties(Fold=float("inf")), "is not as expected"),
    "half an id": (properties(ID_PATCH=30000.5), "is not as expected"),
    "crs": (lambda d: d.update(crs="EPSG:2154"), "'crs' names no known coordinate system"),
    "outline": (lambda d: d["features"][0].update(geometry={"coordinates": [[[[]]]]}), "is not as expected"),
    "row": (lambda d: d["features"].insert(0, None), "is not as expected"),
}


@pytest.mark.parametrize("what", METADATA)
def test_broken_metadata_are_named(folder: Path, what: str) -> None:
    change, cause = METADATA[what]
    edit(folder, change)
    with pytest.raises(DataError, match=cause) as caught:
        aio.datasets.create("pastis", folder, sensors=["S2"])[0]
    assert caught.value.path == str(folder / "metadata.geojson")
