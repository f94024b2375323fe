"""One's own GeoTIFFs: layouts, bands, masks, dates, splits, and files that are not as they should be."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch
from rasterio.crs import CRS
from rasterio.transform import Affine

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2, Sensor
from atomizer_io.datasets.geotiff_folder import GeoTiffFolder
from atomizer_io.errors import ConfigError, DataError, UnknownChannelError
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches
from scenes import data_folder

UTM = CRS.from_epsg(32632)
S2 = ("B02", "B03", "B08")
OPTIONS = {"sensor": "sentinel2", "bands": S2, "classes": ["land", "water"]}
STEMS = ("area_1", "area_2", "area_10")


def place(gsd: float = 10.0, west: float = 600000.0, north: float = 5000000.0, crs: CRS = UTM) -> dict:
    return {"crs": crs, "transform": Affine(gsd, 0, west, 0, -gsd, north)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three images of 16 × 12 pixels with masks; bands are not described."""
    rng = np.random.default_rng(0)
    for number, stem in enumerate(STEMS):
        water = patches(rng, 16, 12, 2)
        image = bands(rng, water, SENTINEL2.pick(*S2), np.uint16)
        image[:, :2] = 0
        mask = water.astype(np.uint8)
        mask[-1] = 255
        where = place(west=600000 + 1000 * number)
        write_raster(tmp_path / f"image/{stem}.tif", image, nodata=0, **where)
        write_raster(tmp_path / f"mask/{stem}.tif", mask, **where)
    return tmp_path


def test_values_are_those_of_the_files(folder: Path) -> None:
    dataset = aio.datasets.create("geotiff-folder", folder, "all", **OPTIONS)
    assert dataset.items == ["area_1", "area_10", "area_2"]
    for item, sample in zip(dataset.items, dataset, strict=True):
        image_path, mask_path = dataset.files(item)
        with rasterio.open(image_path) as source:
            image = source.read().astype(np.float32)
        with rasterio.open(mask_path) as source:
            mask, transform = source.read(1).astype(np.int64), source.transform
        np.testing.assert_array_equal(grid_values(sample.atoms, 0, (16, 12)), np.where(image == 0, np.nan, image))
        assert sample.atoms.num_atoms == 3 * 14 * 12
        mask[mask == 255] = -1
        np.testing.assert_array_equal(sample.target.reshape(16, 12), mask)
        assert torch.equal(sample.queries.ignore, sample.target == -1) and int(sample.queries.ignore.sum()) == 12
        assert sample.meta.id == item and sample.meta.files == (str(image_path), str(mask_path))
        assert sample.meta.crs == "EPSG:32632" and sample.meta.transform == tuple(transform)[:6]
        assert sample.meta.origin == (transform.c + 60, transform.f - 80)
        assert sample.queries.grid.pixel_m == (10.0, 10.0)


def test_bands_by_name_option_and_description(folder: Path) -> None:
    with pytest.raises(DataError, match=r"area_1\.tif: its bands are unknown: pass sensor= and bands="):
        GeoTiffFolder(folder, "all", classes=2)
    with pytest.raises(UnknownChannelError, match="'B99' is not a Sentinel-2 band"):
        GeoTiffFolder(folder, "all", sensor="sentinel2", bands=["B99", "B02", "B03"], classes=2)
    with pytest.raises(DataError, match=r"area_1\.tif: has 3 bands, 2 are named: B02, B03"):
        GeoTiffFolder(folder, "all", sensor="sentinel2", bands=["B02", "B03"], classes=2)
    with pytest.raises(ConfigError, match="pass sensor= as well"):
        GeoTiffFolder(folder, "all", bands=S2, classes=2)
    own = Sensor.define("mysat", gsd_m=10, bands={"green": (0.56, 0.04), "red": (0.66, 0.04), "nir": (0.85, 0.1)})
    dataset = GeoTiffFolder(folder, "all", sensor=own, classes=2)
    assert [(c.sensor, c.name, c.mean) for c in dataset.channels] == [
        ("mysat", "green", None),
        ("mysat", "red", None),
        ("mysat", "nir", None),
    ]
    assert [
        c.name for c in GeoTiffFolder(folder, "all", sensor=own, bands=["nir", "red", "green"], classes=2).channels
    ] == ["nir", "red", "green"]


def test_bands_that_are_left_out_are_not_read(folder: Path) -> None:
    all_of, two_of = (
        GeoTiffFolder(folder, "all", sensor="sentinel2", bands=names, classes=2) for names in (S2, ("B02", "-", "B08"))
    )
    assert [c.name for c in two_of.channels] == ["B02", "B08"]
    for whole, part in zip(all_of, two_of, strict=True):
        expected = grid_values(whole.atoms, 0, (16, 12))[[0, 2]]
        np.testing.assert_array_equal(grid_values(part.atoms, 0, (16, 12)), expected)
    with pytest.raises(DataError, match="has 3 bands, 2 are named"):
        GeoTiffFolder(folder, "all", sensor="sentinel2", bands=["B02", "-"], classes=2)
    write_raster(folder / "image/area_2.tif", np.ones((4, 16, 12), np.uint16), **place(west=601000))
    with pytest.raises(DataError, match=r"area_2\.tif: has 4 bands, expected 3"):
        two_of[2]


def test_described_bands_are_known_whatever_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    orders = {"a": ("B02", "B8A", "B11"), "b": ("B11", "B02", "B8A"), "c": ("B11",), "d": ("B02", "B03", "B04")}
    for stem, names in orders.items():
        image = bands(rng, np.zeros((8, 8), np.int64), SENTINEL2.pick(*names), np.float32)
        write_raster(tmp_path / f"image/{stem}.tif", image, descriptions=names, **place())
        write_raster(tmp_path / f"mask/{stem}.tif", np.zeros((8, 8), np.uint8), **place())
    dataset = GeoTiffFolder(tmp_path, "all", sensor="Sentinel-2", classes=2)
    assert [c.name for c in dataset.channels] == ["B02", "B8A", "B11"]
    assert [[c.name for c in dataset[i].atoms.channels] for i in range(3)] == [list(orders[s]) for s in "abc"]
    with rasterio.open(tmp_path / "image/b.tif") as source:
        np.testing.assert_array_equal(grid_values(dataset[1].atoms.select("B02"), 0, (8, 8))[0], source.read(2))
    with pytest.raises(DataError, match=r"d\.tif: has a band described as 'B03', which the other images do not have"):
        dataset[3]


@pytest.fixture
def plots(tmp_path: Path) -> Path:
    """One plot as RGB of 1 m with a coordinate system, and spectra of 4 m with coordinates but without the system."""
    rng = np.random.default_rng(0)
    rgb, spectra = rng.uniform(1, 255, (3, 16, 16)).astype(np.uint8), rng.uniform(1, 9, (2, 4, 4)).astype(np.float32)
    write_raster(tmp_path / "image_rgb/a.tif", rgb, **place(1.0))
    write_raster(tmp_path / "image_hsi/a.tif", spectra, descriptions=["450 nm", "460 nm"], **place(4.0) | {"crs": None})
    write_raster(tmp_path / "mask/a.tif", rng.integers(0, 2, (16, 16)).astype(np.uint8), **place(1.0))
    return tmp_path


def test_a_folder_may_be_given_a_coordinate_system(plots: Path) -> None:
    options = {"sensor": {"rgb": "aerial", "hsi": "hsi"}, "bands": {"rgb": ["R", "G", "B"]}, "classes": 2}
    with pytest.raises(DataError, match=r"only one of this file and a\.tif .* by the option crs"):
        GeoTiffFolder(plots, "all", **options, gsd_m={"hsi": 4})[0]
    sample = GeoTiffFolder(plots, "all", **options, crs={"hsi": "EPSG:32632"})[0]
    rgb, hsi = sample.atoms
    assert hsi.footprint_m == (4.0, 4.0) and hsi.positions.amin() == -6 and rgb.positions.amin() == -7.5
    (plots / "image_hsi.bands.yaml").write_text("crs: EPSG:32632\n")
    assert torch.equal(GeoTiffFolder(plots, "all", **options)[0].atoms.acquisitions[1].positions, hsi.positions)
    with pytest.raises(DataError, match="is in EPSG:32632 by its own tags"):
        GeoTiffFolder(plots, "all", **options, crs="EPSG:32633")


def test_a_pixel_size_is_never_ignored(plots: Path) -> None:
    options = {"sensor": {"rgb": "aerial", "hsi": "-"}, "bands": {"rgb": ["R", "G", "B"]}, "classes": 2}
    with pytest.raises(ConfigError, match=r"names pixels of 3 m for 'rgb', but the file has .* pixels of 1 m"):
        GeoTiffFolder(plots, "all", **options, gsd_m={"rgb": 3})
    with pytest.raises(ConfigError, match="gsd_m names 'hsy', but the folders of images are rgb, hsi"):
        GeoTiffFolder(plots, "all", **options, gsd_m={"hsy": 1})
    assert GeoTiffFolder(plots, "all", **options, gsd_m={"rgb": 1})[0].atoms.num_atoms == 3 * 16 * 16


def test_splits_by_folder(folder: Path) -> None:
    for part in ("train", "Region 7"):
        (folder / part).mkdir()
        for kind in ("image", "mask"):
            (folder / part / kind).mkdir()
            source = folder / kind / ("area_1.tif" if part == "train" else "area_2.tif")
            source.rename(folder / part / kind / source.name)
    assert (
        GeoTiffFolder(folder, **OPTIONS).items == ["area_1"]
        and GeoTiffFolder(folder, "training", **OPTIONS)[0].meta.crs
    )
    assert GeoTiffFolder(folder, "Region 7", **OPTIONS)[0].meta.id == "area_2"
    assert GeoTiffFolder(folder, "all", **OPTIONS).items == ["area_10"]
    assert GeoTiffFolder(folder, **OPTIONS).info.splits == ("Region 7", "train", "val", "test", "all")


def test_splits_by_list(folder: Path) -> None:
    (folder / "train.txt").write_text("area_2.tif\n\narea_1\n")
    (folder / "splits").mkdir()
    (folder / "splits/fold3.txt").write_text("area_10\n")
    assert GeoTiffFolder(folder, **OPTIONS).items == ["area_2", "area_1"]
    assert GeoTiffFolder(folder, "fold3", **OPTIONS).items == ["area_10"]
    (folder / "North 2.txt").write_text("area_1\narea_3\n")
    (folder / "readme.txt").write_text("nothing here is the name of an image\n")
    assert GeoTiffFolder(folder, "North 2", **OPTIONS).items == ["area_1", "area_3"]
    assert GeoTiffFolder(folder, **OPTIONS).info.splits == ("fold3", "North 2", "train", "val", "test", "all")
    with pytest.raises(DataError, match=r"val\.txt: no such list. To make split 'val', write the names"):
        GeoTiffFolder(folder, "val", **OPTIONS)
    with pytest.raises(ConfigError, match="has no split 'fold4'; did you mean 'fold3'"):
        GeoTiffFolder(folder, "fold4", **OPTIONS)
    (folder / "train.txt").write_text("area_3\narea_1\n")
    with pytest.raises(DataError, match=r"image/area_3\.tif: no such file"):
        GeoTiffFolder(folder, **OPTIONS)[0]
    (folder / "train.txt").write_text("\n")
    with pytest.raises(DataError, match="no sample of split 'train'"):
        GeoTiffFolder(folder, **OPTIONS)


def test_masks_are_found_by_name_or_by_its_beginning(folder: Path) -> None:
    for stem in STEMS:
        (folder / f"mask/{stem}.tif").rename(folder / f"mask/{stem}_label.tiff")
    dataset = GeoTiffFolder(folder, "all", **OPTIONS)  # area_1 is not the beginning of area_10_label
    assert [Path(sample.meta.files[-1]).name for sample in dataset] == [
        "area_1_label.tiff",
        "area_10_label.tiff",
        "area_2_label.tiff",
    ]
    write_raster(folder / "mask/area_1_v2.tif", np.zeros((16, 12), np.uint8), **place())
    with pytest.raises(DataError, match=r"mask/area_1\.tif: no such mask.*area_1_label\.tiff, area_1_v2\.tif could"):
        GeoTiffFolder(folder, "all", **OPTIONS)[0]
    (folder / "mask/area_2_label.tiff").unlink()
    with pytest.raises(DataError, match=r"mask/area_2\.tif: no such mask, nor one called area_2_<anything>\.tif"):
        GeoTiffFolder(folder, "all", **OPTIONS)[2]


def test_a_mask_belongs_to_the_longest_name_it_begins_with(tmp_path: Path) -> None:
    for stem in ("tile", "tile_2", "tile_2_b"):
        write_raster(tmp_path / f"image/{stem}.tif", np.ones((3, 4, 4), np.uint16), **place())
    for stem in ("tile_2_mask", "tile_2_b", "tile_2_b_old", "tile2_mask"):
        write_raster(tmp_path / f"mask/{stem}.tif", np.ones((4, 4), np.uint8), **place())
    dataset = GeoTiffFolder(tmp_path, "all", **OPTIONS)
    with pytest.raises(
        DataError, match=r"mask/tile\.tif: no such mask, nor one called tile_<anything>\.tif or tile\.tiff; to go on"
    ):
        dataset[dataset.items.index("tile")]
    assert dataset.files("tile")[-1].name == "tile.tif"
    assert [Path(dataset[i].meta.files[-1]).name for i in (1, 2)] == ["tile_2_mask.tif", "tile_2_b.tif"]
    (tmp_path / "train.txt").write_text("tile\n")  # whichever of the images are in the split
    with pytest.raises(DataError, match=r"mask/tile\.tif: no such mask"):
        GeoTiffFolder(tmp_path, "train", **OPTIONS)[0]


def test_classes_by_their_number_in_the_mask(folder: Path) -> None:
    write_raster(folder / "mask/area_1.tif", np.repeat([[3, 7, 0, 9]], 4, 0).repeat(4, 0).repeat(3, 1), **place())
    options = {"sensor": "sentinel2", "bands": S2, "classes": {3: "reed", 7: "sand"}, "ignore": (0, 9)}
    sample = GeoTiffFolder(folder, "all", **options)[0]
    assert sample.target.reshape(16, 12)[0].tolist() == [0] * 3 + [1] * 3 + [-1] * 6
    with pytest.raises(DataError, match=r"area_1\.tif: label 0, 9 \(96 positions\) is not among the classes 3, 7"):
        GeoTiffFolder(folder, "all", **options | {"ignore": ()})[0]


def test_nodata_of_a_mask_is_ignored(folder: Path) -> None:
    mask = np.ones((16, 12), np.float32)
    mask[0], mask[1], mask[2] = -3.4e38, np.nan, 0
    write_raster(folder / "mask/area_1.tif", mask, nodata=-3.4e38, **place())
    target = GeoTiffFolder(folder, "all", **OPTIONS)[0].target.reshape(16, 12)
    assert (target[:2] == -1).all() and (target[2] == 0).all() and (target[3:] == 1).all()


def test_regression(folder: Path) -> None:
    height = np.random.default_rng(1).normal(10, 3, (16, 12)).astype(np.float32)
    height[0], height[1], height[2] = -9999, np.nan, 255
    write_raster(folder / "mask/area_1.tif", height, nodata=-9999, **place())
    options = {"sensor": "sentinel2", "bands": S2, "task": "regression", "unit": "m"}
    sample = GeoTiffFolder(folder, "all", **options)[0]
    assert sample.target.dtype == torch.float32 and sample.queries.ignore.reshape(16, 12)[:2].all()
    assert sample.queries.ignore.sum() == 24
    np.testing.assert_array_equal(sample.target.reshape(16, 12)[2:], height[2:])
    assert GeoTiffFolder(folder, "all", **options, ignore=[255])[0].queries.ignore.sum() == 36


def test_classification(folder: Path) -> None:
    labels = folder / "labels.csv"
    labels.write_text("image,label\narea_1.tif,wetland\narea_2,forest\narea_10,wetland\n")
    options = {"sensor": "sentinel2", "bands": S2, "task": "classification"}
    dataset = GeoTiffFolder(folder, "all", **options)
    assert dataset.info.classes == ("forest", "wetland")
    assert [int(sample.target) for sample in dataset] == [1, 1, 0] and dataset[0].queries is None
    assert [Path(p).name for p in dataset[0].meta.files] == ["area_1.tif", "labels.csv"]
    with pytest.raises(DataError, match=r"labels\.csv: area_1 has label 'wetland'; classes are forest, lake"):
        GeoTiffFolder(folder, "all", **options, classes=["forest", "lake"])[0]
    labels.write_text("image,label\narea_1.tif,10\narea_2,9\n")
    assert GeoTiffFolder(folder, "all", **options).info.classes == ("9", "10")
    numbered = GeoTiffFolder(folder, "all", **options, classes={9: "forest", 10: "wetland"})
    assert int(numbered[0].target) == 1
    with pytest.raises(DataError, match=r"labels\.csv: no row area_10"):
        numbered[1]
    labels.write_text("name,label\n")
    with pytest.raises(DataError, match=r"labels\.csv: has no column image"):
        GeoTiffFolder(folder, "all", **options)
    labels.unlink()
    with pytest.raises(DataError, match=r"labels\.csv: no such file"):
        GeoTiffFolder(folder, "all", **options)


@pytest.mark.parametrize(
    ("stem", "date"),
    [
        ("S2A_20210704T103021_T32", datetime.date(2021, 7, 4)),
        ("x-2021-07-04", datetime.date(2021, 7, 4)),
        ("HLS.2021185.v2", None),  # seven digits may be any number: by date_pattern they are a date
        ("Spain_1987365", None),
        ("tile_99999999_20211350_20210704", datetime.date(2021, 7, 4)),  # the first that is a date
        ("tile_12", None),
        ("id_120210704", None),
    ],
)
def test_dates_in_names(tmp_path: Path, stem: str, date: datetime.date | None) -> None:
    write_raster(tmp_path / f"image/{stem}.tif", np.ones((3, 4, 4), np.uint16), **place())
    write_raster(tmp_path / f"mask/{stem}.tif", np.ones((4, 4), np.uint8), **place())
    sample = GeoTiffFolder(tmp_path, "all", **OPTIONS)[0]
    assert sample.atoms.acquisitions[0].date == date and sample.meta.dates == (() if date is None else (date,))


def test_dates_in_a_table_a_pattern_or_a_tag(folder: Path) -> None:
    with rasterio.open(folder / "image/area_10.tif", "r+") as target:  # the second is the time of processing
        target.update_tags(start_time="2019-02-03T11:12:13Z", TIFFTAG_DATETIME="2022:02:03 11:12:13")
    table = folder / "dates.csv"
    table.write_text("image,date\narea_1.tif,2020-05-06\narea_2,20200708\n")
    days = [s.atoms.acquisitions[0].date for s in GeoTiffFolder(folder, "all", **OPTIONS)]
    assert days == [datetime.date(2020, 5, 6), datetime.date(2019, 2, 3), datetime.date(2020, 7, 8)]
    table.write_text("image,date\narea_1.tif,May\n")
    with pytest.raises(DataError, match=r"dates\.csv: area_1 has date 'May'; write 2021-07-04"):
        GeoTiffFolder(folder, "all", **OPTIONS)[0]
    table.unlink()
    with rasterio.open(folder / "image/area_2.tif", "r+") as target:
        target.update_tags(TIFFTAG_DATETIME="2022:02:03 11:12:13")
    assert GeoTiffFolder(folder, "all", **OPTIONS)[2].meta.dates == ()
    for kind in ("image", "mask"):
        (folder / kind / "area_1.tif").rename(folder / kind / "area_20200101_on_20210203.tif")
    named = GeoTiffFolder(folder, "all", **OPTIONS, date_pattern=r"on_(\d{8})")
    assert named[2].meta.dates == (datetime.date(2021, 2, 3),)
    with pytest.raises(DataError, match=r"area_10\.tif: has no date in its name where 'on_"):
        named[0]
    for kind in ("image", "mask"):
        (folder / kind / "area_2.tif").rename(folder / kind / "HLS.2021185.v2.tif")
    assert GeoTiffFolder(folder, "all", **OPTIONS, date_pattern=r"\.(\d{7})\.", on_error="skip")[0].meta.dates == (
        datetime.date(2021, 7, 4),
    )
    with pytest.raises(ConfigError, match="has no group"):
        GeoTiffFolder(folder, "all", **OPTIONS, date_pattern=r"\d{8}")
    with pytest.raises(ConfigError, match="is not a regular expression"):
        GeoTiffFolder(folder, "all", **OPTIONS, date_pattern="(")


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Radar at 10 m and optical at 20 m, shifted by a pixel, over masks of 5 m in the middle; one radar is missing."""
    rng = np.random.default_rng(0)
    for stem in ("p", "q"):
        if stem == "p":
            radar = bands(rng, np.zeros((16, 16), np.int64), SENTINEL1.pick("VV", "VH"), np.float32)
            write_raster(tmp_path / f"image_s1/{stem}.tif", radar, **place(10))
        optical = bands(rng, np.zeros((8, 8), np.int64), SENTINEL2.pick(*S2), np.uint16)
        write_raster(tmp_path / f"image_s2/{stem}.tif", optical, **place(20, 600020, 4999980))
        write_raster(tmp_path / f"mask/{stem}.tif", np.ones((8, 8), np.uint8), **place(5, 600060, 4999940))
    (tmp_path / "dates.csv").write_text("image,date\nimage_s1/p,2020-05-06\nimage_s2/p,2020-05-09\nq,2020-06-01\n")
    return tmp_path


SEVERAL = {
    "sensor": {"s1": "sentinel1", "s2": "sentinel2"},
    "bands": {"s1": ["VV", "VH"], "s2": S2},
    "classes": ["land", "water"],
}


def test_several_rasters_lie_where_they_are(several: Path) -> None:
    dataset = GeoTiffFolder(several, "all", **SEVERAL)
    sample = dataset[0]
    radar, optical = sample.atoms.acquisitions
    assert (radar.footprint_m, optical.footprint_m) == ((10.0, 10.0), (20.0, 20.0))
    assert [a.date for a in sample.atoms] == [datetime.date(2020, 5, 6), datetime.date(2020, 5, 9)]
    # the frame is the middle of the radar image, at (600080, 4999920)
    assert sample.meta.origin == (600080.0, 4999920.0)
    assert radar.positions[0].tolist() == [-75.0, 75.0] and optical.positions[0].tolist() == [-50.0, 50.0]
    assert sample.queries.positions[0].tolist() == [-17.5, 17.5] and sample.queries.grid.pixel_m == (5.0, 5.0)
    assert sample.meta.transform == (5.0, 0, 600060.0, 0, -5.0, 4999940.0)
    assert [c.name for c in dataset.channels] == ["VV", "VH", *S2] and dataset.info.extent_m == 160
    assert [Path(p).parent.name for p in sample.meta.files] == ["image_s1", "image_s2", "mask"]


def test_a_raster_that_is_not_there_is_absent(several: Path) -> None:
    sample = GeoTiffFolder(several, "all", **SEVERAL)[1]
    assert len(sample.atoms) == 1 and sample.meta.origin == (600100.0, 4999900.0)
    assert sample.queries.positions[0].tolist() == [-37.5, 37.5]
    only = GeoTiffFolder(several, "all", **SEVERAL | {"sensor": {"s1": "-", "s2": "sentinel2"}})
    assert len(only) == 2 and [c.name for c in only.channels] == list(S2)


def test_several_folders_need_several_sensors(several: Path) -> None:
    with pytest.raises(ConfigError, match=r"sensor=\{'s1': ..., 's2': ...\}"):
        GeoTiffFolder(several, "all", sensor="sentinel2", classes=2)
    with pytest.raises(DataError, match="image_s3: no such folder, but sensor= names it; the folders of images are "):
        GeoTiffFolder(several, "all", sensor={"s3": "sentinel2"}, classes=2)


NANOMETRES = ("green 560 nm", "red 650 nm", "nir 840 nm")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """An aerial image at 1 m and three bands of an unknown sensor at 8 m, which the files describe by wavelength."""
    rng = np.random.default_rng(0)
    for stem in ("a", "b"):
        rgb = rng.integers(1, 255, (3, 16, 16)).astype(np.uint8)
        write_raster(tmp_path / f"image_rgb/{stem}.tif", rgb, descriptions=("R", "G", "B"), **place(1))
        few = rng.uniform(0, 1, (3, 2, 2)).astype(np.float32)
        write_raster(tmp_path / f"image_hsi/{stem}.tif", few, descriptions=NANOMETRES, **place(8))
        write_raster(tmp_path / f"mask/{stem}.tif", np.ones((16, 16), np.uint8), **place(1))
    return tmp_path


def test_a_folder_that_is_not_named_is_used_if_its_files_describe_their_bands(two: Path) -> None:
    dataset = GeoTiffFolder(two, "all", sensor={"rgb": "aerial"}, classes=2)
    assert [a.sensor for a in dataset[0].atoms] == ["aerial", "hsi"]
    assert [c.wavelength_um for c in dataset.channels][3:] == [0.56, 0.65, 0.84]
    (two / "image_rgb").rename(two / "image_aerial")
    assert [a.sensor for a in GeoTiffFolder(two, "all", classes=2)[0].atoms] == ["aerial", "hsi"]


def test_a_folder_that_nobody_understands_is_an_error_unless_left_out(two: Path) -> None:
    for stem in ("a", "b"):
        write_raster(two / f"image_hsi/{stem}.tif", np.ones((3, 2, 2), np.float32), **place(8))
    with pytest.raises(ConfigError, match=r"image_hsi.*or leave it out, sensor=\{'hsi': '-', 'rgb': 'aerial'\}"):
        GeoTiffFolder(two, "all", sensor={"rgb": "aerial"}, classes=2)
    without = GeoTiffFolder(two, "all", sensor={"rgb": "aerial", "hsi": "-"}, classes=2)
    assert [a.sensor for a in without[0].atoms] == ["aerial"]
    assert without.warnings() == ["image_hsi is left out by sensor="]
    absent = GeoTiffFolder(two, "all", sensor={"rgb": "aerial", "hsi": "-", "s3": "-"}, classes=2)
    assert list(absent.folders) == ["rgb"]
    with pytest.raises(ConfigError, match="leaves out every folder"):
        GeoTiffFolder(two, "all", sensor={"rgb": "-", "hsi": "-"}, classes=2)
    (two / "image_rgb").rename(two / "image")  # beside one called image, others count as well
    with pytest.raises(ConfigError, match=r"sensor=\{'image': 'aerial', 'hsi': '-'\}"):
        GeoTiffFolder(two, "all", sensor="aerial", classes=2)
    only = GeoTiffFolder(two, "all", sensor={"image": "aerial", "hsi": "-"}, classes=2)
    assert [a.sensor for a in only[0].atoms] == ["aerial"]


@pytest.mark.parametrize("name", ["hyspex", "hsi", "sentinel3"])
def test_a_sensor_of_ones_own_is_known_by_its_wavelengths(two: Path, name: str) -> None:
    dataset = GeoTiffFolder(two, "all", sensor={"rgb": "aerial", "hsi": name}, classes=2)
    assert [(c.sensor, c.name, c.wavelength_um) for c in dataset.channels][3:] == [
        (name, "green", 0.56),
        (name, "red", 0.65),
        (name, "nir", 0.84),
    ]
    names = {"rgb": ["R", "G", "B"], "hsi": ["g", "r", "n"]}
    renamed = GeoTiffFolder(two, "all", sensor={"rgb": "aerial", "hsi": name}, bands=names, classes=2)
    assert [c.name for c in renamed.channels] == ["R", "G", "B", "g", "r", "n"]
    with pytest.raises(DataError, match="has 3 bands, 4 are named: g, r, n, m"):
        names["hsi"].append("m")
        GeoTiffFolder(two, "all", sensor={"rgb": "aerial", "hsi": name}, bands=names, classes=2)


def test_wavelengths_may_lie_beside_a_file_or_its_folder(two: Path) -> None:
    for stem in ("a", "b"):
        write_raster(two / f"image_hsi/{stem}.tif", np.ones((2, 2, 2), np.float32), **place(8))
    options = {"sensor": {"rgb": "aerial", "hsi": "drone"}, "classes": 2}
    with pytest.raises(ConfigError, match=r"'drone' is not a known sensor; .*a\.bands\.yaml beside it"):
        GeoTiffFolder(two, "all", **options)
    (two / "image_hsi.bands.yaml").write_text("bands:\n  green: [0.56, 0.04]\n  nir: [0.84, 0.1]\ndate: 2021-07-04\n")
    sample = GeoTiffFolder(two, "all", **options)[0]
    assert [(c.sensor, c.name, c.wavelength_um) for c in sample.atoms.channels][3:] == [
        ("drone", "green", 0.56),
        ("drone", "nir", 0.84),
    ]
    assert sample.meta.dates == (datetime.date(2021, 7, 4),)
    (two / "image_hsi/b.bands.yaml").write_text("bands: {nir: [0.84, 0.1], green: [0.56, 0.04]}\ndate: 2022-01-02\n")
    second = GeoTiffFolder(two, "all", **options)[1]
    assert [c.name for c in second.atoms.channels][3:] == ["nir", "green"]
    assert second.meta.dates == (datetime.date(2022, 1, 2),)
    unnamed = GeoTiffFolder(two, "all", sensor={"rgb": "aerial"}, classes=2)
    assert {c.sensor for c in unnamed.channels} == {"aerial", "hsi"}


def test_names_as_people_and_systems_write_them(tmp_path: Path) -> None:
    ones = np.ones((3, 4, 4), np.uint16)
    for name in ("Wald süd 1.TIF", "b.tif", "b.tiff"):
        write_raster(tmp_path / f"image/{name}", ones, **place())
    for name in ("Wald su\u0308d 1_mask.tif", "b.TIFF", "c.tif"):  # the ü of another system
        write_raster(tmp_path / f"mask/{name}", ones[0].astype(np.uint8), **place())
    (tmp_path / "image/._b.tif").write_bytes(b"of another system")
    (tmp_path / "image/b.tif.aux.xml").write_text("<PAMDataset/>")
    (tmp_path / "image/folder.tif").mkdir()
    (tmp_path / "train.txt").write_text("Wald su\u0308d 1.TIF\nb\n")
    dataset = GeoTiffFolder(tmp_path, "train", **OPTIONS)
    assert [sample.meta.id for sample in dataset] == ["Wald süd 1", "b"]
    assert len(GeoTiffFolder(tmp_path, "all", **OPTIONS)) == 2
    assert dataset.warnings() == [
        "image/b.tiff is not used: another file has its name",
        "masks without an image of their name are not used: c.tif",
    ]


def test_rasters_in_degrees_are_shifted_in_metres(several: Path) -> None:
    degrees = CRS.from_epsg(4326)
    write_raster(several / "image_s1/p.tif", np.ones((2, 16, 16), np.float32), **place(1e-4, 10, 45, degrees))
    write_raster(several / "image_s2/p.tif", np.ones((3, 8, 8), np.uint16), **place(2e-4, 10.0002, 44.9998, degrees))
    write_raster(several / "mask/p.tif", np.ones((8, 8), np.uint8), **place(1e-4, 10.0004, 44.9996, degrees))
    sample = GeoTiffFolder(several, "all", **SEVERAL)[0]
    east = 111319.5 * math.cos(math.radians(45))
    x, y = (sample.atoms.acquisitions[1].positions.mean(dim=0)).tolist()
    assert (x, y) == (pytest.approx(2e-4 * east, rel=3e-3), pytest.approx(-2e-4 * 111132, rel=3e-3))
    assert sample.queries.grid.pixel_m == (pytest.approx(1e-4 * east, rel=3e-3), pytest.approx(11.1132, rel=3e-3))
    assert sample.queries.grid.center_m == (pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6))


def test_rasters_that_cannot_be_placed_are_named(several: Path) -> None:
    def cause() -> str:
        with pytest.raises(DataError) as error:
            GeoTiffFolder(several, "all", **SEVERAL, gsd_m=10.0)[0]
        return f"{Path(error.value.path).parent.name}: {error.value.cause}"

    optical, ones = several / "image_s2/p.tif", np.ones((3, 8, 8), np.uint16)
    write_raster(optical, ones, **place(20, 600020, 4999980, CRS.from_epsg(32633)))
    assert cause() == "image_s2: is in EPSG:32633, but p.tif is in EPSG:32632: warp it first (gdalwarp)"
    write_raster(optical, ones)
    assert cause().startswith("image_s2: only one of this file and p.tif has a coordinate system: name that of the")
    write_raster(optical, ones, **place(20, 610000))
    assert cause() == "image_s2: lies beside p.tif: 10000 m east and 0 m north of it"
    write_raster(optical, ones, crs=UTM, transform=Affine(20, 3, 600020, 3, -20, 4999980))
    assert cause().startswith("image_s2: is rotated against north")


def test_files_without_coordinates_need_a_pixel_size(tmp_path: Path) -> None:
    image = np.random.default_rng(0).uniform(1, 2000, (3, 16, 12)).astype(np.float32)
    image[:, 0] = -1
    write_raster(tmp_path / "images/a.tif", image)
    write_raster(tmp_path / "labels/a.tif", np.ones((16, 12), np.uint8))
    options = {**OPTIONS, "image_folder": "images", "mask_folder": "labels"}
    with pytest.raises(DataError, match=r"a\.tif: has no coordinate system.*pass gsd_m="):
        GeoTiffFolder(tmp_path, "all", **options)
    sample = GeoTiffFolder(tmp_path, "all", **options, gsd_m=3.0, nodata=-1)[0]
    assert sample.queries.grid.pixel_m == (3.0, 3.0) and sample.atoms.num_atoms == 3 * 15 * 12
    assert sample.meta.crs is None and sample.meta.origin is None
    assert torch.equal(sample.queries.positions, sample.atoms.acquisitions[0].positions)
    write_raster(tmp_path / "images/a.tif", image, descriptions=S2)
    described = GeoTiffFolder(tmp_path, "all", **{**options, "bands": None}, gsd_m=3.0)
    assert [c.name for c in described.channels] == list(S2)
    write_raster(tmp_path / "labels/a.tif", np.ones((8, 6), np.uint8))
    with pytest.raises(DataError, match=r"labels/a\.tif: has no coordinate system, and \(8, 6\) pixels where a\.tif"):
        GeoTiffFolder(tmp_path, "all", **options, gsd_m=3.0)[0]


@pytest.mark.parametrize(
    ("file", "how", "cause"),
    [
        ("image/area_2.tif", "truncated", "cannot be read"),
        ("image/area_2.tif", "empty", "cannot be read"),
        ("image/area_2.tif", np.ones((2, 16, 12), np.uint16), "has 2 bands, expected 3"),
        ("image/area_2.tif", np.zeros((3, 16, 12), np.uint16), "has no valid measurement"),
        ("mask/area_2.tif", "truncated", "cannot be read"),
        ("mask/area_2.tif", np.ones((2, 16, 12), np.uint8), "has 2 bands, expected 1"),
        ("mask/area_2.tif", np.full((16, 12), 7, np.uint8), r"label 7 \(192 positions\) is not among"),
        ("mask/area_2.tif", np.full((16, 12), 0.5, np.float32), "labels are not whole numbers"),
    ],
)
def test_broken_files_are_named(folder: Path, file: str, how, cause: str) -> None:
    path = folder / file
    if isinstance(how, str):
        path.write_bytes(path.read_bytes()[: 400 if how == "truncated" else 0])
    else:
        write_raster(path, how, nodata=0 if "image" in file else None, **place(west=601000))
    with pytest.raises(DataError, match=rf"{file}: {cause}"):
        GeoTiffFolder(folder, "all", **OPTIONS)[2]
    skipping = GeoTiffFolder(folder, "all", **OPTIONS, on_error="skip")
    assert [s.meta.id for s in skipping] == ["area_1", "area_10"]
    assert [s.path for s in skipping.skipped] == [str(path)]


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"task": "detection"}, "task is 'detection'"),
        ({}, "the classes in the masks are not named"),
        ({"classes": 1}, "two"),
    ],
)
def test_wrong_options_are_named(folder: Path, options, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        GeoTiffFolder(folder, "all", sensor="sentinel2", bands=S2, **options)


@pytest.mark.realdata
def test_enmap_tiles() -> None:
    classes = dict(enumerate(("roof", "pavement", "low vegetation", "tree", "soil", "water"), start=1))
    options = {"image_folder": "images", "mask_folder": "labels", "classes": classes, "ignore": (0,)}
    dataset = GeoTiffFolder(data_folder("enmap-potsdam"), "all", sensor="enmap", **options)
    assert len(dataset) == 12 and len(dataset.channels) == 224 and dataset.info.extent_m == 960
    assert dataset.channels[0].wavelength_um == pytest.approx(0.41824) and dataset.channels[0].mean is None
    assert {c.sensor for c in dataset.channels} == {"enmap"}
    for item, sample in zip(dataset.items, dataset, strict=True):
        image_path, mask_path = dataset.files(item)
        with rasterio.open(image_path) as source:
            image = source.read()
        with rasterio.open(mask_path) as source:
            mask = source.read(1)
        np.testing.assert_array_equal(grid_values(sample.atoms, 0, (32, 32)), np.where(image == -32768, np.nan, image))
        np.testing.assert_array_equal(sample.target.reshape(32, 32), mask.astype(np.int64) - 1)
        assert sample.queries.grid.pixel_m == (30.0, 30.0) and sample.meta.crs == "EPSG:32633"
        assert sample.meta.dates == (datetime.date(2022, 7, 24),)  # from the tag start_time


def test_files_that_lie_otherwise_are_found_by_patterns(folder: Path) -> None:
    """Images and masks in one folder, masks of two bands as PNG, several numbers of one class, splits by names."""
    masks = {}
    for stem in STEMS:
        (folder / "scenes" / stem).mkdir(parents=True)
        (folder / f"image/{stem}.tif").rename(folder / f"scenes/{stem}/{stem}.tif")
        with rasterio.open(folder / f"mask/{stem}.tif") as source:
            masks[stem] = np.where(source.read(1) == 255, -1, source.read(1).astype(np.int64))
            both = np.stack([source.read(1), np.full((16, 12), 9, np.uint8)])
        write_raster(folder / f"scenes/{stem}/{stem}_cl.png", both, driver="PNG")
        (folder / f"mask/{stem}.tif").unlink()
    options = {
        **OPTIONS,
        "image_files": "scenes/{name}/{name}.tif",
        "mask_files": "scenes/{name}/{name}_cl.png",
        "classes": {7: "land", 0: "land", 1: "water"},
        "splits": {"train": ["area_?"], "far": ["area_10"]},
    }
    train, far = (aio.datasets.create("geotiff-folder", folder, split, **options) for split in ("train", "far"))
    assert train.items == ["area_1", "area_2"] and far.items == ["area_10"] and not train.warnings()
    assert train.info.classes == ("land", "water") and train.info.codes == (7, 1)
    for sample in (*train, *far):
        np.testing.assert_array_equal(sample.target.reshape(16, 12), masks[sample.meta.id])
        assert sample.meta.crs == "EPSG:32632"
    with pytest.raises(ConfigError, match="no image is called area_3, which should be in 'train'"):
        aio.datasets.create("geotiff-folder", folder, "train", **{**options, "splits": {"train": ["area_3"]}})
    for pattern in ("scenes/*.tif", "../{name}.tif", "{name}/{place}.tif"):
        with pytest.raises(ConfigError, match=r"has to be a path within the folder with \{name\} in it"):
            aio.datasets.create("geotiff-folder", folder, "train", **{**options, "image_files": pattern})
    with pytest.raises(DataError, match=r"scenes/\{name\}.jpg: no file fits this pattern"):
        aio.datasets.create("geotiff-folder", folder, "train", **{**options, "image_files": "scenes/{name}.jpg"})
    (folder / "other" / "area_1").mkdir(parents=True)
    (folder / "other/area_1/area_1.tif").touch()
    with pytest.raises(DataError, match=r"has the same name, 'area_1', as .*other/area_1/area_1\.tif"):
        aio.datasets.create("geotiff-folder", folder, "all", **{**options, "image_files": "{label}/{name}/{name}.tif"})


def test_folders_named_after_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number, label in enumerate(("River", "Forest", "Forest")):
        image = rng.integers(0, 256, (3, 8, 8), dtype=np.uint8)
        write_raster(tmp_path / f"{label}/{label}_{number}.jpg", image, driver="JPEG")
    options = {"task": "classification", "image_files": "{label}/{name}.jpg", "sensor": "vhr", "gsd_m": 10.0}
    dataset = aio.datasets.create("geotiff-folder", tmp_path, "all", **options)
    assert dataset.info.classes == ("Forest", "River")
    assert [(sample.meta.id, int(sample.target)) for sample in dataset] == [
        ("Forest_1", 0),
        ("Forest_2", 0),
        ("River_0", 1),
    ]
    dataset = aio.datasets.create("geotiff-folder", tmp_path, "all", classes=["Lake", "Forest"], **options)
    with pytest.raises(DataError, match=r"River_0.jpg: River_0 has label 'River'; classes are Lake, Forest"):
        dataset[2]
