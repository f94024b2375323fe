"""BioMassters: the fixture, the real chip, and files that are not as they should be."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.errors import ConfigError, DataError
from scenes import data_folder

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")  # where the tests read

SHAPE = (32, 32)
OPTICAL = ["B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12"]
DATASET = "biomassters"


def values(path: Path) -> np.ndarray:
    with rasterio.open(path) as source:
        return source.read()


def rewrite(path: Path, array: np.ndarray) -> None:
    with rasterio.open(
        path, "w", driver="GTiff", count=len(array), height=array.shape[1], width=array.shape[2], dtype=array.dtype
    ) as target:
        target.write(array)


def observed(path: Path) -> np.ndarray:
    """Where bands of a file were observed, worked out from the file alone."""
    array = values(path)
    if "_S1_" in path.name:
        return array != -9999
    return (array[:10] > 0) & (array[10] != 255)


def sensor(atoms: aio.AtomSet, name: str) -> dict[int, int]:
    """Index of the acquisition of each month of a sensor."""
    return {a.timestep: i for i, a in enumerate(atoms) if a.sensor == name}


def test_splits_follow_the_table(written: Path) -> None:
    chips = {s: aio.datasets.create("biomassters", written, s).items for s in ("train", "val", "test")}
    assert chips == {"train": ["0003d2eb", "000aa810", "0013b6a1"], "val": ["00143a07"], "test": ["00a3b0c5"]}


def test_splits_do_not_need_the_table(folder: Path) -> None:
    before = {s: aio.datasets.create("biomassters", folder, s).items for s in ("train", "val", "test")}
    (folder / "biomassters_features_metadata.csv").rename(folder / "The_BioMassters_-_features_metadata.csv.csv")
    assert before == {s: aio.datasets.create("biomassters", folder, s).items for s in before}
    (folder / "The_BioMassters_-_features_metadata.csv.csv").unlink()
    assert before == {s: aio.datasets.create("biomassters", folder, s).items for s in before}
    shutil.rmtree(folder / "test_agbm")
    assert aio.datasets.create("biomassters", folder, "test").items == before["test"]


def test_lists_come_first(folder: Path) -> None:
    (folder / "train_Data_list.csv").write_text(",chip_id\n0,00143a07\n1,0013b6a1\n")
    (folder / "val_Data_list.csv").write_text(",chip_id\n0,000aa810\n")
    assert aio.datasets.create("biomassters", folder).items == ["00143a07", "0013b6a1"]
    assert aio.datasets.create("biomassters", folder, "val")[0].meta.id == "000aa810"  # from the training folders
    with pytest.raises(DataError, match=r"test_Data_list\.csv: no such file"):
        aio.datasets.create("biomassters", folder, "test")


def test_values_are_those_of_the_files(written: Path) -> None:
    dataset = aio.datasets.create("biomassters", written)
    sample = dataset[1]
    assert sample.meta.id == "000aa810"
    *features, targets = dataset.files("000aa810")
    assert len(features) == len(sample.atoms) == 18
    for index, path in enumerate(features):
        seen, array = observed(path), values(path)
        expected = np.where(seen, array[: len(seen)], np.nan).astype(np.float32)
        np.testing.assert_array_equal(grid_values(sample.atoms, index, SHAPE), expected)
    assert sample.atoms.num_atoms == sum(int(observed(path).sum()) for path in features)
    np.testing.assert_array_equal(sample.target.reshape(SHAPE), values(targets)[0])
    assert not sample.queries.ignore.any()
    assert sample.meta.files == tuple(map(str, dataset.files("000aa810")))
    assert sample.meta.crs is None and sample.meta.transform is None


def test_bands_are_named(written: Path) -> None:
    radar, *_, optical = aio.datasets.create("biomassters", written)[0].atoms
    assert [c.name for c in radar.channels] == ["ASC_VV", "ASC_VH", "DSC_VV", "DSC_VH"]
    assert [c.name for c in optical.channels] == OPTICAL
    assert optical.channels[8].mean == 1023.90
    assert radar.channels[0].mean < 0  # dB, not the published linear power
    assert optical.footprint_m == radar.footprint_m == (10.0, 10.0)


def test_what_was_not_seen_is_absent(written: Path) -> None:
    atoms = aio.datasets.create("biomassters", written)[1].atoms
    radar = [atoms.acquisitions[i].observed_channels().tolist() for i in sensor(atoms, "sentinel1").values()]
    gaps = range(2, 8)
    assert radar == [[True, True, m not in gaps, m not in gaps] for m in range(12)]
    june = grid_values(atoms, sensor(atoms, "sentinel2_l2a")[9], SHAPE)
    assert np.isfinite(june[:, 1:7]).all() and np.isnan(june[:, 8:]).all()
    assert np.isnan(june[:, 0, 0]).all() and np.isfinite(june[:, 0, 1:]).all()  # cloud probability 255
    assert np.isfinite(june[[0, 1, 2, 6], 7]).all() and np.isnan(june[[3, 4, 5, 7, 8, 9], 7]).all()


def test_months_and_clouds_can_be_chosen(written: Path) -> None:
    dataset = aio.datasets.create("biomassters", written, months=(11, 0), max_cloud=30)
    sample = dataset[0]
    assert [a.timestep for a in sample.atoms] == [0, 0, 11, 11]
    cloud = values(written / "train_features" / "0003d2eb_S2_11.tif")[10]
    clear = np.isfinite(grid_values(sample.atoms, 3, SHAPE))
    np.testing.assert_array_equal(clear, np.broadcast_to(cloud <= 30, clear.shape))
    for wrong in ({"months": (3, 12)}, {"months": ()}, {"months": 3}, {"max_cloud": 101}, {"max_cloud": "30"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            aio.datasets.create("biomassters", written, **wrong)


def test_unpublished_targets_are_ignored(folder: Path) -> None:
    shutil.rmtree(folder / "test_agbm")
    sample = aio.datasets.create("biomassters", folder, "test")[0]
    assert sample.target.isnan().all() and sample.queries.ignore.all() and len(sample.target) == 1024
    shutil.rmtree(folder / "train_agbm")
    with pytest.raises(DataError, match=r"000.*_agbm\.tif: no such file"):
        aio.datasets.create("biomassters", folder)[0]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


BROKEN = {
    "truncated": ("train_features/0003d2eb_S2_06.tif", cut, "cannot be read"),
    "empty": ("train_features/0003d2eb_S1_00.tif", lambda p: p.write_bytes(b""), "cannot be read"),
    "bands": ("train_features/0003d2eb_S2_01.tif", lambda p: rewrite(p, values(p)[:10]), "has 10 bands, expected 11"),
    "kind": ("train_features/0003d2eb_S1_03.tif", lambda p: rewrite(p, np.abs(values(p)).astype("u2")), "holds uint16"),
    "floats": ("train_features/0003d2eb_S2_00.tif", lambda p: rewrite(p, values(p).astype("f4")), "holds float32"),
    "shape": ("train_features/0003d2eb_S1_05.tif", lambda p: rewrite(p, values(p)[:, :9]), r"has \(9, 32\) pixels"),
    "no target": ("train_agbm/0003d2eb_agbm.tif", Path.unlink, "no such file"),
    "target": ("train_agbm/0003d2eb_agbm.tif", lambda p: rewrite(p, values(p) - 9999), "1024 pixels have a biomass"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_files_are_named(folder: Path, what: str) -> None:
    name, damage, cause = BROKEN[what]
    damage(folder / name)
    with pytest.raises(DataError, match=cause) as caught:
        aio.datasets.create("biomassters", folder)[0]
    assert caught.value.path == str(folder / name)
    skipping = aio.datasets.create("biomassters", folder, on_error="skip")
    assert [sample.meta.id for sample in skipping] == ["000aa810", "0013b6a1"]
    assert [s.path for s in skipping.skipped] == [str(folder / name)]


def test_a_chip_without_images_is_named(folder: Path) -> None:
    for path in folder.glob("train_features/0003d2eb_*"):
        path.unlink()
    with pytest.raises(DataError, match=r"0003d2eb_S1_00\.tif: no such file, nor one of another month"):
        aio.datasets.create("biomassters", folder)[0]


@pytest.mark.realdata
def test_the_real_chip() -> None:
    root = data_folder("biomassters")
    dataset = aio.datasets.create("biomassters", root)
    assert dataset.items == ["000aa810"]
    sample = dataset[0]
    atoms, shape = sample.atoms, sample.queries.grid.shape
    assert shape == (256, 256)
    radar, optical = sensor(atoms, "sentinel1"), sensor(atoms, "sentinel2_l2a")
    assert list(radar) == list(range(12)) and list(optical) == [6, 7, 8, 9, 10, 11]
    total = 0
    for month, index in [*radar.items(), *optical.items()]:
        kind = "S1" if index in radar.values() else "S2"
        path = root / "train_features" / f"000aa810_{kind}_{month:02d}.tif"
        seen, array = observed(path), values(path)
        total += int(seen.sum())
        expected = np.where(seen, array[: len(seen)], np.nan).astype(np.float32)
        np.testing.assert_array_equal(grid_values(atoms, index, shape), expected)
    # 36 bands of Sentinel-1 and 50 of Sentinel-2 are complete; in June only a corner of 142 pixels was seen, and 23 of
    # them lack the six bands of 20 m.
    assert atoms.num_atoms == total == 86 * 65536 + 142 * 10 - 23 * 6 == 5_637_378
    descending = [m for m, i in radar.items() if atoms.acquisitions[i].observed_channels()[2:].any()]
    assert descending == [0, 1, 8, 9, 10, 11]
    np.testing.assert_array_equal(sample.target.reshape(shape), values(root / "train_agbm" / "000aa810_agbm.tif")[0])
    assert float(sample.target.max()) == pytest.approx(492.13, abs=0.01)
    assert sample.queries.grid.pixel_m == (10.0, 10.0) and atoms.bounds == (-1280.0, -1280.0, 1280.0, 1280.0)
