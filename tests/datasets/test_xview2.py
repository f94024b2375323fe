"""xView2: the fixture, the real labels and image of xBD, and files that are not as they should be."""

from __future__ import annotations

import datetime
import os
import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch
from scipy import ndimage

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.datasets import xview2
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.geometries import from_wkt
from atomizer_lab.synthetic.rasters import write_raster
from data.content import edit_json as edit
from scenes import data_folder

PLACE = "joplin-tornado_00000000"
DATASET = "xview2"


def read_png(path: Path) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(path) as source:
            return source.read()


def write_png(path: Path, values: np.ndarray) -> None:
    write_raster(path, values, driver="PNG")


def test_the_fixture_has_the_official_splits(folder: Path) -> None:
    sizes = {s: len(aio.datasets.create("xview2", folder, s)) for s in ("train", "tier3", "test", "hold")}
    assert sizes == {"train": 2, "tier3": 1, "test": 1, "hold": 1}
    assert {p.suffix for p in folder.rglob("*") if p.is_file()} == {".png", ".json"}
    with pytest.raises(ConfigError, match="xview2 has no split 'val'"):
        aio.datasets.create("xBD", folder, "val")


def test_pangaea_validates_on_a_tenth_of_each_disaster(folder: Path) -> None:
    def stems(split: str) -> set[str]:
        return {stem for stem, _ in aio.datasets.create("xview2", folder, split, protocol="pangaea").items}

    official = {s: {stem for stem, _ in aio.datasets.create("xview2", folder, s).items} for s in ("train", "tier3")}
    assert stems("train") | stems("val") == official["train"] | official["tier3"]
    assert stems("train") and not stems("train") & stems("val")
    dataset = aio.datasets.create("xview2", folder, "train", protocol="pangaea")
    assert all(isinstance(sample, aio.datasets.Sample) for sample in dataset)
    names = [f"flood_{number:08d}" for number in range(40)] + ["fire_00000001", "storm_00000001", "storm_00000002"]
    held_out = xview2.validated(names)
    assert [sum(name.startswith(kind) for name in held_out) for kind in ("flood", "fire", "storm")] == [4, 0, 1]
    with pytest.raises(ConfigError, match="protocol is 'pangea'"):
        aio.datasets.create("xview2", folder, protocol="pangea")


def test_values_are_those_of_the_files(folder: Path) -> None:
    dataset = aio.datasets.create("xview2", folder)
    sample = dataset[0]
    count = 0
    for step, path in enumerate(dataset.images(PLACE)):
        image = read_png(path).astype(np.float32)
        image[:, (image == 0).all(axis=0)] = np.nan
        np.testing.assert_array_equal(grid_values(sample.atoms, step, (64, 64)), image)
        count += int(np.isfinite(image).sum())
    assert sample.atoms.num_atoms == count == 2 * 3 * 64 * 60
    assert [c.name for c in sample.atoms.channels] == ["R", "G", "B"]
    assert [a.timestep for a in sample.atoms] == [0, 1]
    assert [a.date for a in sample.atoms] == [datetime.date(2009, 8, 8), datetime.date(2011, 5, 29)]
    assert sample.meta.dates == (datetime.date(2009, 8, 8), datetime.date(2011, 5, 29))
    assert sample.meta.extra["disaster"] == "joplin-tornado"


def test_polygons_and_targets_agree(folder: Path) -> None:
    target = torch.from_numpy(
        read_png(folder / f"train/targets/{PLACE}_post_disaster_target.png")[0].astype(np.int64)
    ).flatten()
    drawn = aio.datasets.create("xview2", folder)[0]
    assert torch.equal(drawn.queries.ignore, drawn.target == -1) and bool(drawn.queries.ignore.any())
    assert torch.equal(drawn.target[~drawn.queries.ignore], target[~drawn.queries.ignore])
    assert bool((target[drawn.queries.ignore] == 1).all()), "un-classified buildings"
    assert set(drawn.target.tolist()) == {-1, 0, 1, 2, 3, 4}
    assert torch.equal(aio.datasets.create("xview2", folder, unclassified=1)[0].target, target)
    painted = aio.datasets.create("xview2", folder, labels="targets")
    assert torch.equal(painted[0].target, target) and painted[0].meta.dates == drawn.meta.dates
    assert painted.files(painted.items[0])[-1].name == f"{PLACE}_post_disaster_target.png"


def test_without_json_files_targets_are_read(folder: Path) -> None:
    shutil.rmtree(folder / "train/labels")
    sample = aio.datasets.create("xview2", folder)[0]
    assert sample.target.max() == 4 and sample.meta.dates == ()
    assert sample.queries.grid.pixel_m == (0.5, 0.5) and sample.meta.extra["gsd_from"] == "nominal"
    with pytest.raises(DataError, match=rf"{PLACE}_pre_disaster\.json: no such file"):
        aio.datasets.create("xview2", folder, labels="json")[0]


def test_windows_tile_the_image(folder: Path) -> None:
    whole = aio.datasets.create("xview2", folder, size=None)
    tiled = aio.datasets.create("xview2", folder, size=40)
    assert len(whole) == 2 and len(tiled) == 8
    assert [window for stem, window in tiled.items if stem == PLACE] == [
        (0, 0, 40, 40),
        (0, 40, 40, 24),
        (40, 0, 24, 40),
        (40, 40, 24, 24),
    ]
    target = torch.full((64, 64), -9)
    values = np.full((3, 64, 64), np.nan)
    for (stem, (row, column, height, width)), sample in zip(tiled.items, tiled, strict=True):
        if stem == PLACE:
            place = slice(row, row + height), slice(column, column + width)
            target[place] = sample.target.reshape(height, width)
            values[:, *place] = grid_values(sample.atoms, 1, (height, width))
            a, _, c, _, e, f = whole[0].meta.transform
            assert sample.meta.transform == pytest.approx((a, 0, c + a * column, 0, e, f + e * row), abs=1e-6)
            middle = (c + a * (column + width / 2), f + e * (row + height / 2))
            assert sample.meta.origin == pytest.approx(middle, abs=1e-6)
            assert sample.meta.id == f"{PLACE}_{row}_{column}"
    assert torch.equal(target.flatten(), whole[0].target)
    np.testing.assert_array_equal(values, grid_values(whole[0].atoms, 1, (64, 64)))


def test_the_pixel_size_follows_from_the_buildings(folder: Path) -> None:
    sample = aio.datasets.create("xview2", folder)[0]
    assert sample.queries.grid.pixel_m == (0.451269, 0.451269)
    assert [a.footprint_m for a in sample.atoms] == [(0.451269, 0.451269)] * 2
    assert sample.meta.crs == "EPSG:32615" and sample.meta.extra["gsd_from"] == "buildings"
    assert sample.meta.transform == pytest.approx((0.451269, 0, 369023.41, 0, -0.451269, 4103556.59), abs=1e-5)
    x_min, _, x_max, _ = sample.atoms.bounds
    assert x_max - x_min == pytest.approx(60 * 0.451269)  # four columns are black


@pytest.mark.parametrize(
    ("metadata", "gsd", "source"),
    [
        ({}, 0.585882604122162, "pan_resolution"),
        ({"pan_resolution": None, "gsd": 0.6}, 0.6, "gsd"),
        ({"pan_resolution": None}, 0.5, "nominal"),  # 2.35 m is of the multispectral bands
    ],
)
def test_without_buildings_the_metadata_give_the_pixel_size(folder: Path, metadata, gsd: float, source: str) -> None:
    for path in (folder / "hold/labels").iterdir():
        edit(path, lambda document: document["metadata"].update(metadata))
    sample = aio.datasets.create("xview2", folder, "hold")[0]
    assert sample.queries.grid.pixel_m == (gsd, gsd) and sample.meta.extra["gsd_from"] == source
    assert sample.meta.crs is None and sample.meta.transform is None
    assert set(sample.target.tolist()) == {0}


def relocate(path: Path, matrix: np.ndarray, noise: float = 0.0) -> None:
    """Rewrite the coordinates in degrees as an affine map (3, 2) of the pixels."""
    rng = np.random.default_rng(0)

    def change(document) -> None:
        for pixels, degrees in zip(document["features"]["xy"], document["features"]["lng_lat"], strict=True):
            polygon = from_wkt(pixels["wkt"], path)
            rings = [np.array(ring.coords) for ring in (polygon.exterior, *polygon.interiors)]
            moved = [np.column_stack([ring, np.ones(len(ring))]) @ matrix for ring in rings]
            moved = [ring[:-1] + rng.normal(0, noise, ring[:-1].shape) for ring in moved]
            moved = [np.concatenate([ring, ring[:1]]) for ring in moved]
            text = ", ".join("(" + ", ".join(f"{x:.12f} {y:.12f}" for x, y in ring) + ")" for ring in moved)
            degrees["wkt"] = f"POLYGON ({text})"

    edit(path, change)


def test_an_image_on_a_grid_of_degrees_has_pixels_of_two_sizes(folder: Path) -> None:
    for path in (folder / "test/labels").iterdir():
        relocate(path, np.array([[5e-6, 0], [0, -5e-6], [-94.5, 37.0]]))
    sample = aio.datasets.create("xview2", folder, "test")[0]
    across, down = sample.queries.grid.pixel_m
    assert (across, down) == (pytest.approx(0.4448, abs=1e-3), pytest.approx(0.5549, abs=1e-3))
    assert sample.meta.crs == "EPSG:4326"
    assert sample.meta.transform == pytest.approx((5e-6, 0, -94.5, 0, -5e-6, 37.0), rel=1e-6)


def test_what_is_kept_is_not_that_of_another_file(folder: Path) -> None:
    dataset = aio.datasets.create("xview2", folder, size=32)
    before = dataset[0].atoms.acquisitions[0].values.clone()
    dataset[0].atoms.acquisitions[0].values.zero_()  # a sample is a copy
    assert torch.equal(dataset[0].atoms.acquisitions[0].values, before)
    path = folder / f"train/images/{PLACE}_pre_disaster.png"
    write_png(path, np.full((3, 64, 64), 9, np.uint8))
    os.utime(path, ns=(1, 1))
    assert (dataset[0].atoms.acquisitions[0].values == 9).all()
    assert len(pickle.dumps(dataset)) < 5000


PRE, POST, LABELS = "images/{}_pre_disaster.png", "images/{}_post_disaster.png", "labels/{}_post_disaster.json"
INFINITE, LINESTRING = "POLYGON ((0 0, 1e999 0, 1 1, 0 0))", "LINESTRING (0 0, 1 1)"


def building(part: str = "xy", **changes: object):
    """What changes the first building of a label file; ``None`` takes something away."""

    def change(document) -> None:
        first = document["features"][part][0]
        target = first if "wkt" in changes else first["properties"]
        for key, value in changes.items():
            if value is None:
                del target[key]
            else:
                target[key] = value

    return change


@pytest.mark.parametrize(
    ("how", "file", "cause"),
    [
        ("truncated", POST, "cannot be read"),
        ("empty", PRE, "cannot be read"),
        ("missing", PRE, "no such file"),
        ("missing", POST, "no such file"),
        ("gray", POST, "has 1 bands, expected 3"),
        ("small", POST, r"has \(40, 40\) pixels, others have \(64, 64\)"),
        ("missing", LABELS, "no such file"),
        ("missing", "labels/{}_pre_disaster.json", "no such file"),
        ("truncated", LABELS, "is not JSON"),
        ("empty", LABELS, "is not JSON"),
        (lambda d: d.clear(), LABELS, "is not a label of xBD: no 'metadata'"),
        (lambda d: d["features"].pop("xy"), LABELS, "is not a label of xBD: no 'xy'"),
        (building(wkt=None), LABELS, "is not a label of xBD: no 'wkt'"),
        (lambda d: d["metadata"].pop("capture_date"), "labels/{}_pre_disaster.json", "has no date in metadata"),
        (building(subtype="gone"), LABELS, "has a building with subtype 'gone'"),
        (building(subtype=[1], uid={}), LABELS, r"has a building with subtype \[1\]"),
        (building(subtype=None), LABELS, "has a building with subtype None"),
        (building(wkt=INFINITE), LABELS, "has a polygon with a corner at infinity"),
        (building("lng_lat", wkt=INFINITE), LABELS, "has a polygon with a corner at infinity"),
        (building(wkt=LINESTRING), LABELS, "has a geometry that is not a POLYGON"),
    ],
)
def test_broken_files_are_named(folder: Path, how, file: str, cause: str) -> None:
    stem = "joplin-tornado_00000003"
    path = folder / "train" / file.format(stem)
    if how == "missing":
        path.unlink()
    elif how in ("truncated", "empty"):
        path.write_bytes(path.read_bytes()[: 3000 if how == "truncated" else 0])
    elif how == "gray":
        write_png(path, np.ones((1, 64, 64), np.uint8))
    elif how == "small":
        write_png(path, np.ones((3, 40, 40), np.uint8))
    else:
        edit(path, how)
    dataset = aio.datasets.create("xview2", folder)
    with pytest.raises(DataError, match=rf"{path.name}: {cause}"):
        dataset[1]
    skipping = aio.datasets.create("xview2", folder, on_error="skip")
    assert [sample.meta.id for sample in skipping] == [f"{PLACE}_0_0"]
    assert [Path(s.path).name for s in skipping.skipped] == [path.name]


def test_broken_targets_are_named(folder: Path) -> None:
    path = folder / f"train/targets/{PLACE}_post_disaster_target.png"
    dataset = aio.datasets.create("xview2", folder, labels="targets")
    write_png(path, np.full((1, 64, 64), 7, np.uint8))
    with pytest.raises(DataError, match=rf"{path.name}: label 7 \(4096 positions\) is not among"):
        dataset[0]
    write_png(path, np.zeros((1, 32, 64), np.uint8))
    with pytest.raises(DataError, match=rf"{path.name}: has \(32, 64\) pixels"):
        dataset[0]
    path.unlink()
    with pytest.raises(DataError, match=rf"{path.name}: no such file"):
        dataset[0]
    with pytest.raises(DataError, match=r"joplin-tornado_00000010_post_disaster_target\.png: no such file"):
        aio.datasets.create("xview2", folder, "tier3", labels="targets")[0]


@pytest.mark.realdata
def test_the_real_polygons_draw_the_real_mask(tmp_path: Path) -> None:
    """Two real label files, with synthetic images; Microsoft's mask of the same place is the reference."""
    real, stem = data_folder("xbd"), "joplin-tornado_00000050"
    for when in ("pre", "post"):
        (tmp_path / "train/labels").mkdir(parents=True, exist_ok=True)
        shutil.copy(real / f"{stem}_{when}_disaster.json", tmp_path / "train/labels")
        write_png(tmp_path / f"train/images/{stem}_{when}_disaster.png", np.full((3, 1024, 1024), 9, np.uint8))
    dataset = aio.datasets.create("xview2", tmp_path)
    assert [window for _, window in dataset.items] == [(r, c, 512, 512) for r in (0, 512) for c in (0, 512)]
    rows = [torch.cat([dataset[2 * r + c].target.reshape(512, 512) for c in (0, 1)], dim=1) for r in (0, 1)]
    drawn = torch.cat(rows).numpy()
    mask = read_png(real / f"{stem}_post_disaster_b1.png")[0].astype(np.int64)
    mask[mask == 5] = -1  # un-classified
    assert set(np.unique(mask)) == set(np.unique(drawn)) == {-1, 0, 3, 4}
    differs = drawn != mask
    assert 1 - differs.mean() == pytest.approx(0.99767, abs=1e-4)  # measured; all of it at the borders:
    inside = np.zeros(mask.shape, bool)
    for value in np.unique(mask):
        inside |= ndimage.binary_erosion(mask == value, np.ones((3, 3)), iterations=2, border_value=1)
    assert inside.mean() > 0.98 and not differs[inside].any(), "more than two pixels from a border"
    assert not differs[(drawn != 0) & (mask != 0)].any(), "no building has another damage"
    both, either = ((drawn != 0) & (mask != 0)).sum(), ((drawn != 0) | (mask != 0)).sum()
    assert both / either > 0.96


@pytest.mark.realdata
def test_the_real_coordinates_give_the_pixel_size(tmp_path: Path) -> None:
    real, stem = data_folder("xbd"), "joplin-tornado_00000050"
    (tmp_path / "train/labels").mkdir(parents=True)
    for when in ("pre", "post"):
        shutil.copy(real / f"{stem}_{when}_disaster.json", tmp_path / "train/labels")
        write_png(tmp_path / f"train/images/{stem}_{when}_disaster.png", np.full((3, 1024, 1024), 9, np.uint8))
    sample = aio.datasets.create("xview2", tmp_path)[3]
    assert sample.queries.grid.pixel_m == (0.451269, 0.451269)  # the file states gsd 2.35, pan_resolution 0.586
    assert sample.meta.crs == "EPSG:32615" and sample.meta.extra["gsd_from"] == "buildings"
    corner = (369023.410 + 512 * 0.451269, 4103556.59 - 512 * 0.451269)
    assert sample.meta.transform[2::3] == pytest.approx(corner, abs=0.01)
    assert sample.meta.dates == (datetime.date(2009, 8, 8), datetime.date(2011, 5, 29))
