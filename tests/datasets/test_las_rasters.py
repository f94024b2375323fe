"""Point clouds with rasters: images beside the points, and rasters as targets."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.warp
import torch
from rasterio.crs import CRS
from rasterio.transform import Affine, from_origin

from atomizer_io.datasets.checking import check
from atomizer_io.datasets.las_folder import LasFolder
from atomizer_io.errors import ConfigError, DataError
from atomizer_lab.synthetic.rasters import write_raster
from data import fractal

write_laz = functools.partial(fractal.write_laz, standard_time=True)
CLASSES = {2: "ground", 5: "vegetation"}
WEST, SOUTH, SIZE = 500000.0, 6500000.0, 100.0


def tile(path: Path, west: float = WEST, count: int = 2000, epsg: int | None = 2154) -> np.ndarray:
    rng = np.random.default_rng(int(west) % 97)
    place = np.round(rng.uniform(0, SIZE, (count, 2)), 2)
    tree = rng.random(count) < 0.5
    columns = {
        "x": west + place[:, 0],
        "y": SOUTH + place[:, 1],
        "z": np.where(tree, 100 + place[:, 0] / 10, 100.0),  # trees grow from west to east
        "classification": np.where(tree, 5, 2).astype(np.uint8),
        "intensity": np.where(tree, 100, 900).astype(np.uint16),
        "red": np.full(count, 40 * 256, np.uint16),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_laz(path, columns, epsg=epsg)
    return np.stack([columns["x"], columns["y"], columns["z"]], 1)


def ortho(path: Path, west: float = WEST, pixel: float = 2.0, **more: object) -> np.ndarray:
    count = int(SIZE / pixel)
    values = np.random.default_rng(3).integers(1, 255, (3, count, count)).astype(np.uint8)
    place = {"crs": CRS.from_epsg(2154), "transform": from_origin(west, SOUTH + SIZE, pixel, pixel)}
    write_raster(path, values, **(place | {"photometric": "RGB"} | more))
    return values


def test_images_lie_over_the_points(tmp_path: Path) -> None:
    tile(tmp_path / "train" / "a.laz")
    values = ortho(tmp_path / "images" / "any name_20210704.tif")
    dataset = LasFolder(tmp_path, classes=CLASSES, sensor="aerial")
    assert [c.name for c in dataset.channels] == ["height", "R", "G", "B"] and len(dataset) == 4
    total = 0
    for sample in dataset:
        points, image = sample.atoms
        assert [c.name for c in points.channels] == ["height"]  # the photograph has the colours
        assert image.footprint_m == (2.0, 2.0) and str(image.date) == "2021-07-04"
        x, y = (image.positions + torch.tensor(sample.meta.origin, dtype=torch.float64)).T.numpy()
        row, column = ((SOUTH + SIZE - y) // 2).astype(int), ((x - WEST) // 2).astype(int)
        np.testing.assert_array_equal(image.values, values[:, row, column].T)
        assert 24 < image.positions.abs().max() < 26  # pixels that reach into the window
        assert torch.equal(sample.queries.sites[0], torch.arange(len(points.positions)))
        total += len(image.positions)
    assert total >= 2500 and sample.meta.files[0] == str(tmp_path / "images/any name_20210704.tif")
    again = pickle.loads(pickle.dumps(dataset))[0]
    assert torch.equal(again.atoms.acquisitions[1].values, dataset[0].atoms.acquisitions[1].values)


def test_files_of_a_plot_without_a_coordinate_system(tmp_path: Path) -> None:
    """One system is named for all that have none, points, images and target; those that have one keep it."""
    tile(tmp_path / "a.laz", epsg=None)
    ortho(tmp_path / "images" / "a.tif", crs=None)
    ortho(tmp_path / "images" / "b.tif", crs=CRS.from_epsg(2154))
    high = {"transform": from_origin(WEST, SOUTH + SIZE, 10, 10)}
    write_raster(tmp_path / "canopy" / "a.tif", np.ones((1, 10, 10), np.float32), **high)
    how = {"classes": CLASSES, "sensor": "aerial", "window_m": None}
    with pytest.raises(DataError, match=r"a\.tif"):
        LasFolder(tmp_path, **how)
    for crs in ("EPSG:2154", "EPSG:2154+5720"):
        dataset = LasFolder(tmp_path, crs=crs, **how)
        assert [len(part.positions) for part in dataset[0].atoms] == [2000, 2500, 2500] and not dataset.warnings()
    tall = LasFolder(tmp_path, crs="EPSG:2154", target=tmp_path / "canopy", images=False, window_m=None)
    assert len(tall[0].queries) == 100 and float(tall[0].target.min()) == 1
    ortho(tmp_path / "images" / "far.tif", crs=CRS.from_epsg(32631))
    assert len(LasFolder(tmp_path, crs="EPSG:2154", **how)[0].atoms) == 3


def test_each_tile_has_the_rasters_that_reach_it(tmp_path: Path) -> None:
    for number in range(3):
        tile(tmp_path / f"{number}.laz", WEST + 1000 * number)
    ortho(tmp_path / "images" / "deep" / "x.tif", WEST)
    ortho(tmp_path / "images" / "y.tif", WEST + 50)  # half of the first tile
    ortho(tmp_path / "images" / "z.tif", WEST + 1000)
    ortho(tmp_path / "images" / "far.tif", WEST + 9000)
    dataset = LasFolder(tmp_path, classes=CLASSES, sensor="aerial", window_m=None)
    assert [len(sample.atoms) for sample in dataset] == [3, 2, 1]  # points alone are fine
    assert dataset.warnings() == ["rasters that lie over no tile: far.tif"]
    without = LasFolder(tmp_path, classes=CLASSES, images=False, window_m=None)
    assert [len(sample.atoms) for sample in without] == [1, 1, 1]
    assert [c.name for c in without.channels] == ["height", "R", "G", "B", "NIR"]  # the colours of the points


def test_several_sensors_and_a_folder_beside(tmp_path: Path) -> None:
    root = tmp_path / "tiles"
    tile(root / "a.laz")
    ortho(tmp_path / "images_ortho" / "a.tif")
    ortho(tmp_path / "images_drone" / "a.tif", pixel=5.0)
    bands = "sensor: drone\nbands: {g: [0.56, 0.04], r: [0.66, 0.04], n: null}\ndate: 2021-07-04\n"
    (tmp_path / "images_drone.bands.yaml").write_text(bands)
    with pytest.raises(ConfigError, match="name the sensor of each"):
        LasFolder(root, classes=CLASSES, sensor="aerial")
    dataset = LasFolder(root, classes=CLASSES, sensor={"ortho": "aerial"}, window_m=None)
    assert [(c.sensor, c.name) for c in dataset.channels[1:4]] == [("aerial", "R"), ("aerial", "G"), ("aerial", "B")]
    assert [a.sensor for a in dataset[0].atoms] == ["lidar", "aerial", "drone"]
    assert [str(a.date) for a in dataset[0].atoms] == ["None", "None", "2021-07-04"]


def test_images_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    tile(tmp_path / "a.laz")
    with pytest.raises(DataError, match="nowhere: no such folder: images that lie over the points"):
        LasFolder(tmp_path, classes=CLASSES, images=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"sensor and bands are those of images, but .* has no folder images"):
        LasFolder(tmp_path, classes=CLASSES, sensor="aerial")
    ortho(tmp_path / "images" / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif: its bands are unknown: pass sensor= and bands="):
        LasFolder(tmp_path, classes=CLASSES)
    ortho(tmp_path / "images" / "a.tif", crs=None, transform=Affine.identity())
    with pytest.raises(DataError, match=r"a\.tif: has no coordinate system"):
        LasFolder(tmp_path, classes=CLASSES, sensor="aerial")
    ortho(tmp_path / "images" / "a.tif")
    tile(tmp_path / "a.laz", epsg=None)
    with pytest.raises(DataError, match=r"a\.laz: has no coordinate system, so that no raster .*crs=EPSG"):
        LasFolder(tmp_path, classes=CLASSES, sensor="aerial")[0]
    assert len(LasFolder(tmp_path, classes=CLASSES, sensor="aerial", crs="EPSG:2154")[0].atoms) == 2


def canopy(path: Path, west: float = WEST, pixel: float = 1.0, **more: object) -> np.ndarray:
    """How high trees are: a tenth of the distance from the western edge; unknown in the northernmost metres."""
    count = int(SIZE / pixel)
    values = np.tile((np.arange(count, dtype=np.float32) + 0.5) * pixel / 10, (count, 1))
    values[:4] = -9999
    place = {"crs": CRS.from_epsg(2154), "transform": from_origin(west, SOUTH + SIZE, pixel, pixel), "nodata": -9999}
    write_raster(path, values[None], **(place | more))
    return values


def test_a_target_is_queried_at_the_centres_of_pixels(tmp_path: Path) -> None:
    tile(tmp_path / "train" / "a.laz")
    values = canopy(tmp_path / "chm" / "whatever.tif")
    dataset = LasFolder(tmp_path, target=tmp_path / "chm", target_name="canopy height", unit="m")
    assert (dataset.info.task, dataset.info.target_name, dataset.info.unit) == ("regression", "canopy height", "m")
    assert dataset.info.classes == () and dataset.info.num_outputs == 1
    seen = np.zeros(100 * 100, int)
    for sample in dataset:
        x, y = (sample.queries.positions + torch.tensor(sample.meta.origin, dtype=torch.float64)).T.numpy()
        np.testing.assert_allclose((x - WEST) % 1, 0.5, atol=1e-6)
        row, column = (SOUTH + SIZE - y).astype(int), (x - WEST).astype(int)
        np.testing.assert_array_equal(sample.queries.members, row * 100 + column)
        known = ~sample.queries.ignore.numpy()
        np.testing.assert_allclose(sample.target[known], values[row, column][known])
        assert (values[row, column][~known] == -9999).all() and sample.queries.whole == "train/a.laz"
        seen[sample.queries.members] += 1
    assert seen.max() == 1 and seen.sum() > 9700  # what lies outside of the points is no query
    scored = np.zeros(100 * 100, int)
    for sample in dataset.for_evaluation():
        scored[sample.queries.members] += 1
    assert scored.max() == 4 and ((scored > 0) == (seen > 0)).all()


@pytest.mark.parametrize("place", ["tiles/chm", "chm", "working/chm"])
def test_a_target_lies_in_the_folder_of_the_tiles_or_beside_it_or_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "working").mkdir()
    (tmp_path / "tiles").mkdir()
    monkeypatch.chdir(tmp_path / "working")
    tile(tmp_path / "tiles" / "a.laz")
    canopy(tmp_path / place / "one.tif", WEST + 52, crs=CRS.from_epsg(2154))
    assert len(LasFolder(tmp_path / "tiles", target="chm").items) == 2
    with pytest.raises(DataError, match="tiles/none: no such folder: rasters of canopy height"):
        LasFolder(tmp_path / "tiles", target="none")


def test_a_target_stored_south_up_and_in_degrees(tmp_path: Path) -> None:
    tile(tmp_path / "a.laz")
    values = canopy(tmp_path / "chm" / "a.tif")
    plain = LasFolder(tmp_path, target=tmp_path / "chm", window_m=None)[0]
    turned = Affine(1, 0, WEST, 0, 1, SOUTH)
    write_raster(
        tmp_path / "chm" / "a.tif", values[None, ::-1], crs=CRS.from_epsg(2154), transform=turned, nodata=-9999
    )
    again = LasFolder(tmp_path, target=tmp_path / "chm", window_m=None)[0]
    assert torch.equal(again.queries.positions, plain.queries.positions)
    torch.testing.assert_close(again.target, plain.target, equal_nan=True)
    bounds = rasterio.warp.transform_bounds("EPSG:2154", "EPSG:4326", WEST, SOUTH, WEST + SIZE, SOUTH + SIZE)
    transform = rasterio.transform.from_bounds(*bounds, 100, 100)
    write_raster(tmp_path / "chm" / "a.tif", values[None], crs=CRS.from_epsg(4326), transform=transform, nodata=-9999)
    degrees = LasFolder(tmp_path, target=tmp_path / "chm", window_m=None)[0]
    known = ~degrees.queries.ignore
    east = degrees.queries.positions[known, 0] + degrees.meta.origin[0] - WEST
    assert known.sum() > 8000 and (degrees.target[known] * 10 - east).abs().max() < 5


def test_a_check_names_only_rasters_that_lie_over_no_tile_of_any_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from atomizer_io.cli import main

    for number, split in enumerate(("train", "val")):
        tile(tmp_path / "tiles" / split / f"{split}.laz", west=WEST + 1000 * number)
        canopy(tmp_path / "chm" / f"{split}.tif", west=WEST + 1000 * number)
    command = ["data", "check", "las-folder", str(tmp_path / "tiles"), f"target={tmp_path / 'chm'}", "unit=m"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "lie over no tile" not in shown and shown.count("  target   ") == 2 and " m\n" in shown
    canopy(tmp_path / "chm" / "far.tif", west=WEST + 9000)
    assert main(command) == 0
    assert "rasters that lie over no tile: far.tif" in capsys.readouterr().out


def test_a_check_reads_the_rasters_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from atomizer_io.io import point_windows

    monkeypatch.setattr(point_windows, "LEAST_POINTS", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tile(tmp_path / "tiles" / "a.laz")
    ortho(tmp_path / "tiles" / "images" / "a.tif")
    report = next(check("las-folder", str(tmp_path / "tiles"), ["train"], classes=CLASSES, sensor="aerial"))
    assert report.faults == [] and report.read == 4 and "aerial" in report.summary.sensors
    assert not (tmp_path / "cache").exists()
    image = tmp_path / "tiles" / "images" / "a.tif"
    image.write_bytes(image.read_bytes()[:2000])
    report = next(check("las-folder", str(tmp_path / "tiles"), ["train"], classes=CLASSES, sensor="aerial"))
    assert [Path(fault.path).name for fault in report.faults] == ["a.tif"]
