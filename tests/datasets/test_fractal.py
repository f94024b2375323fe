"""FRACTAL: the fixture, a real patch with its image, and files that are not as they should be."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import laspy
import numpy as np
import pytest
import rasterio
import torch

import atomizer_io as aio
from atomizer_io.data.sample import Sample, grid_values
from atomizer_io.datasets.fractal import Fractal
from atomizer_io.errors import ConfigError, DataError, UnknownChannelError
from atomizer_lab.synthetic.rasters import write_raster
from scenes import data_folder

NAME = "TRAIN-0436_6399-002955257"
CLASS = {1: 0, 2: 1, 5: 2, 6: 3, 9: 4, 17: 5, 64: 6}
DATASET = "fractal"


def laz(folder: Path) -> Path:
    return folder / "data" / "train" / "00" / f"{NAME}.laz"


def tif(folder: Path) -> Path:
    return folder / "images" / "train" / "00" / f"{NAME}.tif"


def test_values_are_those_of_the_files(folder: Path) -> None:
    dataset = aio.datasets.create("fractal", folder, heights="elevation")
    sample, direct = dataset[0], laspy.read(laz(folder))
    kept = np.array(direct.classification) != 65
    assert (~kept).sum() == 1  # noise 200 m below: no atom, no query, and heights do not count from it
    points, image = sample.atoms
    z = np.array(direct.z)[kept]
    np.testing.assert_allclose(points.values[:, 0], z - z.min(), atol=1e-4)
    rank = points.site_fields["intensity_rank"].numpy()
    assert np.array_equal(np.argsort(rank, kind="stable"), np.argsort(np.array(direct.intensity)[kept], kind="stable"))
    number, total = np.array(direct.return_number)[kept], np.array(direct.number_of_returns)[kept]
    np.testing.assert_allclose(points.site_fields["echo_after"], (total - number) / total)
    assert (number == 2).any() and points.date is None  # the header promises no clock
    assert sample.target.tolist() == [CLASS[code] for code in np.array(direct.classification)[kept].tolist()]
    assert not sample.queries.ignore.any()
    with rasterio.open(tif(folder)) as source:
        np.testing.assert_array_equal(grid_values(sample.atoms, 1, (50, 50)), source.read())
        west, north = source.bounds.left, source.bounds.top
    assert [c.name for c in image.channels] == ["NIR", "R", "G", "B"]
    assert image.footprint_m == (1.0, 1.0) and image.date is None
    assert sample.meta.origin == (west + 25, north - 25) and sample.meta.crs == "EPSG:2154"
    assert sample.atoms.num_atoms == kept.sum() + 4 * 2500
    assert sample.atoms.bounds == pytest.approx((-25, -25, 25, 25))
    assert sample.meta.id == NAME and sample.meta.files == (str(tif(folder)), str(laz(folder)))
    assert torch.equal(pickle.loads(pickle.dumps(dataset))[0].target, sample.target)


def under(sample: Sample, values: np.ndarray, pixel_m: float) -> np.ndarray:
    """The pixels (C, M) of an image, centred as the sample is, that the queries lie over."""
    half = values.shape[1] * pixel_m / 2
    x, y = sample.queries.positions.numpy().T
    return values[:, ((half - y) / pixel_m).astype(int), ((x + half) / pixel_m).astype(int)]


def test_colours_of_the_points(folder: Path) -> None:
    plain, coloured = (Fractal(folder, use_images=False, colour=colour)[0] for colour in (False, True))
    assert [c.name for c in plain.atoms.channels] == ["height"]
    (points,) = coloured.atoms
    assert [c.name for c in points.channels] == ["height", "R", "G", "B", "NIR"]
    assert {c.sensor for c in points.channels[1:]} == {"aerial"}
    direct = laspy.read(laz(folder))
    first = np.array(direct.return_number)[:-1] == 1
    np.testing.assert_array_equal(points.values[first, 4], np.array(direct.nir)[:-1][first] / 256)
    assert not points.valid[~first][:, 1:].any() and points.valid[first].all()


def test_some_bands_of_the_image(folder: Path) -> None:
    """The paper has red, green and blue."""
    dataset = aio.datasets.create("fractal", folder, bands=["R", "G", "B"], heights="elevation", colour=True)
    assert [c.name for c in dataset.channels] == ["elevation", "R", "G", "B"]
    points, image = dataset[0].atoms
    with rasterio.open(tif(folder)) as source:
        np.testing.assert_array_equal(grid_values(dataset[0].atoms, 1, (50, 50)), source.read([2, 3, 4]))
    assert [c.name for c in image.channels] == ["R", "G", "B"]
    assert [c.name for c in points.channels] == ["elevation", "R", "G", "B"]
    with pytest.raises(UnknownChannelError, match="'SWIR'"):
        Fractal(folder, bands=["SWIR"])
    with pytest.raises(ConfigError, match="bands names no band"):
        Fractal(folder, bands=[])


def test_heights_are_above_the_ground_of_the_patch(folder: Path) -> None:
    sample, direct = Fractal(folder)[0], laspy.read(laz(folder))
    points = sample.atoms.acquisitions[0]
    assert [c.name for c in points.channels] == ["height"] and points.values.min() > -3  # for all the noise at −200 m
    ground = points.heights_m.numpy()[sample.target.numpy() == 1]
    assert abs(np.median(ground)) < 0.5 < np.median(points.heights_m.numpy()[sample.target.numpy() == 2])
    thinned = Fractal(folder, grid_m=4.0)
    assert 0 < len(thinned[0].queries) < len(sample.queries) == len(thinned.for_evaluation()[0].queries)
    assert thinned.for_evaluation()[0].atoms.num_atoms == sample.atoms.num_atoms < len(direct.x) + 4 * 2500


def test_images_are_found_in_their_folders(folder: Path, tmp_path: Path) -> None:
    beside = tmp_path / "FRACTAL-IRGB"
    (folder / "images").rename(beside)
    assert len(Fractal(folder)[0].atoms) == 2
    assert len(Fractal(folder, use_images=False)[0].atoms) == 1
    elsewhere = beside.rename(tmp_path / "elsewhere")
    assert len(Fractal(folder)[0].atoms) == 1
    for path in elsewhere.rglob("*.tif"):
        path.rename(path.with_suffix(".tiff"))
    assert len(Fractal(folder, images=elsewhere)[0].atoms) == 2
    with pytest.raises(DataError, match="nowhere: no such folder: the images"):
        Fractal(folder, images=tmp_path / "nowhere")


def test_flat_folders_and_archives(folder: Path) -> None:
    (folder / "train").mkdir()
    for path in (folder / "data" / "train").rglob("*.laz"):
        path.rename(folder / "train" / path.name)
    shutil.rmtree(folder / "data")
    assert len(Fractal(folder)) == 3
    with pytest.raises(DataError, match="val: no such folder: the patches of split 'val'"):
        Fractal(folder, "val")
    (folder / "test").mkdir()
    (folder / "test" / "test-00.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"test-00\.zip: is still zipped"):
        Fractal(folder, "test")


def rewrite(folder: Path, **changes: object) -> None:
    with rasterio.open(tif(folder)) as source:
        values, profile = source.read(), {"crs": source.crs, "transform": source.transform}
    values = changes.pop("values", values)
    write_raster(tif(folder), values, **(profile | changes))


def test_an_image_without_georeference_lies_over_its_patch(folder: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (4, 250, 250)).astype(np.uint8)
    write_raster(tif(folder), values)
    sample = Fractal(folder)[0]
    assert sample.atoms.acquisitions[1].footprint_m == (0.2, 0.2)
    assert sample.atoms.bounds == pytest.approx((-25, -25, 25, 25))
    write_raster(tif(folder), values[:, :100])
    with pytest.raises(DataError, match=r"955257\.tif: has no coordinate system and \(100, 250\) pixels"):
        Fractal(folder)[0]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no image", r"955257\.tif: no such file"),
        ("three bands", r"955257\.tif: has 3 bands, expected 4"),
        ("16 bits", r"955257\.tif: holds uint16, expected 8-bit values"),
        ("far away", r"955257\.tif: lies 1000 m away from its points"),
        ("truncated image", r"955257\.tif: cannot be read"),
        ("empty point cloud", r"955257\.laz: is empty"),
        ("truncated point cloud", r"955257\.laz: cannot be read"),
        ("class 7", r"955257\.laz: label 7 \(2 positions\) is not among the classes"),
        ("all noise", r"955257\.laz: has only points of noise"),
    ],
)
def test_broken_files_are_named(folder: Path, kind: str, message: str) -> None:
    point_cloud, image = laz(folder), tif(folder)
    points, values = laspy.read(point_cloud), np.zeros((4, 50, 50), dtype=np.uint8)
    if kind == "no image":
        image.unlink()
    elif kind == "three bands":
        rewrite(folder, values=values[:3])
    elif kind == "16 bits":
        rewrite(folder, values=values.astype(np.uint16))
    elif kind == "far away":
        rewrite(folder, transform=rasterio.Affine(1, 0, 437000, 0, -1, 6399000))
    elif kind == "truncated image":
        image.write_bytes(image.read_bytes()[:3000])
    elif kind == "empty point cloud":
        point_cloud.write_bytes(b"")
    elif kind == "truncated point cloud":
        point_cloud.write_bytes(point_cloud.read_bytes()[:-2000])
    else:
        points.classification[: 2 if kind == "class 7" else None] = 7 if kind == "class 7" else 65
        points.write(point_cloud)
    dataset = Fractal(folder)
    with pytest.raises(DataError, match=message):
        dataset[0]
    skipping = Fractal(folder, on_error="skip")
    assert len(list(skipping)) == 2 and Path(skipping.skipped[0].path).stem == NAME


def real(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """The tree of FRACTAL with one real patch, and its image: NIR, R, G, B."""
    source = data_folder("lidar-hd")
    (tmp_path / "data" / "train").mkdir(parents=True)
    point_cloud = source / "FRACTALLIKE-0770_6278-000000001.laz"
    (tmp_path / "data" / "train" / point_cloud.name).symlink_to(point_cloud)
    layers = []
    for name, count in (("irc", 1), ("rgb", 3)):
        with rasterio.open(source / "ortho" / f"test_data_{name}.tif") as part:
            layers.append(part.read(list(range(1, count + 1))))
            profile = {"crs": part.crs, "transform": part.transform, "nodata": part.nodata}
    values = np.concatenate(layers)
    write_raster(tmp_path / "images" / f"{point_cloud.stem}.tif", values, **profile)
    return point_cloud, values


@pytest.mark.realdata
def test_a_real_patch_with_its_image(tmp_path: Path) -> None:
    path, values = real(tmp_path)
    (sample,) = Fractal(tmp_path, heights="elevation")
    direct = laspy.read(path)
    points, image = sample.atoms
    assert len(sample.queries) == 60653 and image.num_atoms == 4 * 252 * 252  # 255 is a colour in them
    np.testing.assert_array_equal(grid_values(sample.atoms, 1, (252, 252)), values)
    np.testing.assert_allclose(points.values[:, 0], np.array(direct.z) - direct.z.min(), atol=1e-4)
    origin = np.array(sample.meta.origin)
    assert sample.meta.origin == (770575.0, 6277575.0) and image.footprint_m == pytest.approx((0.2, 0.2))
    np.testing.assert_allclose(sample.queries.positions, np.stack([direct.x, direct.y], 1) - origin, atol=1e-6)
    assert sample.meta.dates == ()  # IGN's header does not promise adjusted standard GPS time
    counts = torch.bincount(sample.target, minlength=7).tolist()
    assert counts == [581, 22343, 2497 + 2449 + 17875, 14908, 0, 0, 0]
    nir, red, *_ = under(sample, values.astype(np.float64), 0.2)
    ndvi = (nir - red) / (nir + red)
    label = sample.target.numpy()
    assert np.median(ndvi[label == 2]) > np.median(ndvi[label == 3]) + 0.1
    # the points were painted from this image: their colours are those of the pixels below, at every first return
    painted = np.stack([direct.nir, direct.red, direct.green, direct.blue]) / 256
    agree = (np.abs(under(sample, values.astype(np.float64), 0.2) - painted) <= 1).all(axis=0)
    assert agree.mean() > 0.9
