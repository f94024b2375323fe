"""Rasters: metres from any coordinate system, windows, masks, nodata per band."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.crs import CRS
from rasterio.transform import Affine

from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.errors import DataError
from atomizer_io.io.crs import metres_per_degree
from atomizer_io.io.rasters import Raster, read_raster
from atomizer_lab.synthetic.rasters import write_raster

BANDS = SENTINEL2.pick("B02", "B03")
VALUES = np.arange(1, 2 * 6 * 8 + 1, dtype=np.int16).reshape(2, 6, 8)


def tiff(folder: Path, values: np.ndarray = VALUES, epsg: int | None = 32632, step: float = 10.0, **more) -> Path:
    path = folder / "a.tif"
    georeference = (
        {} if epsg is None else {"crs": CRS.from_epsg(epsg), "transform": Affine(step, 0, 500000, 0, -step, 5e6)}
    )
    write_raster(path, values, **{**georeference, **more})
    return path


def test_a_window_is_read_alone(tmp_path: Path) -> None:
    raster = read_raster(tiff(tmp_path), window=(1, 2, 3, 4), indexes=[2])
    np.testing.assert_array_equal(raster.values, VALUES[1:, 1:4, 2:6])
    assert raster.transform[2] == 500020.0 and raster.transform[5] == 5e6 - 10
    with pytest.raises(DataError, match=r"a.tif: window \(4, 0, 3, 4\) lies outside of 6 × 8"):
        read_raster(tmp_path / "a.tif", window=(4, 0, 3, 4))


def test_feet_become_metres(tmp_path: Path) -> None:
    raster = read_raster(tiff(tmp_path, epsg=2263, step=10.0))  # New York, US survey feet
    assert raster.grid.pixel_m[0] == pytest.approx(3.048006, abs=1e-5)


def test_degrees_become_metres_at_the_middle(tmp_path: Path) -> None:
    georeference = Affine(1e-4, 0, 10.0, 0, -1e-4, 60.0)
    raster = read_raster(tiff(tmp_path, epsg=4326, transform=georeference))
    x, y = raster.grid.pixel_m
    assert x == pytest.approx(5.58, abs=0.01) and y == pytest.approx(11.14, abs=0.01)
    # one degree of longitude at the equator, one of latitude at the equator and at the pole
    assert metres_per_degree(0)[0] == pytest.approx(111319.49, abs=0.01)
    assert [metres_per_degree(d)[1] for d in (0, 90)] == pytest.approx([110574.28, 111693.98], abs=0.1)


def test_nodata_that_the_type_cannot_hold_marks_nothing(tmp_path: Path) -> None:
    values = np.zeros((2, 6, 8), np.uint8)
    raster = read_raster(tiff(tmp_path, values))
    for mark in (0.5, -9999.0, 300.0, float("nan")):
        assert replace(raster, nodata=(mark, mark)).atoms(BANDS).num_atoms == 96
    assert replace(raster, nodata=(0.0, 0.5)).atoms(BANDS).num_atoms == 48


def test_a_raster_stored_from_east_to_west_is_turned(tmp_path: Path) -> None:
    raster = read_raster(tiff(tmp_path, transform=Affine(-10, 0, 500080, 0, -10, 5e6)))
    np.testing.assert_array_equal(raster.values, VALUES[:, :, ::-1])
    assert raster.transform == (10, 0, 500000, 0, -10, 5e6)


def test_a_raster_stored_south_up_is_turned(tmp_path: Path) -> None:
    path = tiff(tmp_path, transform=Affine(10, 0, 500000, 0, 10, 4e6))
    raster = read_raster(path)
    np.testing.assert_array_equal(raster.values, VALUES[:, ::-1])
    assert raster.transform == (10, 0, 500000, 0, -10, 4e6 + 60)


def test_no_coordinate_system_needs_a_pixel_size(tmp_path: Path) -> None:
    path = tiff(tmp_path, epsg=None)
    with pytest.raises(DataError, match=r"a\.tif: has no coordinate system.*gsd_m="):
        read_raster(path)
    assert read_raster(path, gsd_m=20.0).grid.pixel_m == (20.0, 20.0)


def test_nodata_and_masks_are_absent(tmp_path: Path) -> None:
    path = tiff(tmp_path, nodata=5)
    assert read_raster(path).atoms(BANDS).num_atoms == VALUES.size - 1
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        path = tiff(tmp_path)
        with rasterio.open(path, "r+") as target:
            mask = np.full((6, 8), 255, np.uint8)
            mask[0] = 0
            target.write_mask(mask)
    atoms = read_raster(path).atoms(BANDS)
    assert atoms.num_atoms == VALUES.size - 16
    assert not atoms.acquisitions[0].valid_mask()[:8].any()


@pytest.mark.parametrize("kind", ["tif", "png"])
def test_nodata_of_all_bands_together_leaves_a_zero_in_one(tmp_path: Path, kind: str) -> None:
    values = np.full((3, 6, 8), 7, np.uint8)
    values[:, 0] = 0
    values[0, 3, 3] = 0  # no red at all, but seen
    path = tmp_path / "a.png"
    write_raster(path, values, driver="PNG", nodata=0)  # GDAL adds the tag by itself
    if kind == "tif":
        path = tiff(tmp_path, values, nodata=0)
        assert (read_raster(path, gsd_m=1.0).valid() == (values != 0)).all()
        with rasterio.open(path, "r+") as target:
            target.update_tags(NODATA_VALUES="0 0 0")
    raster = read_raster(path, gsd_m=1.0)
    assert raster.nodata == (None, None, None)
    np.testing.assert_array_equal(raster.valid(), np.broadcast_to(values.any(axis=0), values.shape))


def test_rasters_on_other_pixels_are_refused(tmp_path: Path) -> None:
    def shifted(name: str, west: float = 500000.0, width: int = 8, step: float = 10.0) -> Raster:
        georeference = {"crs": CRS.from_epsg(32632), "transform": Affine(step, 0, west, 0, -step, 5e6)}
        write_raster(tmp_path / name, VALUES[:, :, :width], **georeference)
        return read_raster(tmp_path / name)

    first = read_raster(tiff(tmp_path))
    shifted("near.tif", 500004.0).check_grid(first)
    with pytest.raises(DataError, match=r"small\.tif: has \(6, 7\) pixels, but a\.tif has \(6, 8\)"):
        shifted("small.tif", width=7).check_grid(first)
    with pytest.raises(DataError, match=r"far\.tif: lies at .*, but a\.tif lies at"):
        shifted("far.tif", 500006.0).check_grid(first)
    with pytest.raises(DataError, match=r"coarse\.tif: lies at"):
        shifted("coarse.tif", step=11.0).check_grid(first)
    read_raster(tiff(tmp_path / "unplaced", epsg=None), gsd_m=1.0).check_grid(first)


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda p: p.write_bytes(b""), "cannot be read"),
        (lambda p: p.write_bytes(b"not a tiff at all"), "cannot be read"),
        (lambda p: p.write_bytes(p.read_bytes()[:300]), "cannot be read"),
        (lambda p: p.unlink(), "no such file"),
        (lambda p: (p.unlink(), p.mkdir()), "no such file"),
    ],
)
def test_broken_files(tmp_path: Path, make, cause: str) -> None:
    path = tiff(tmp_path)
    make(path)
    with pytest.raises(DataError, match=f"a.tif: {cause}"):
        read_raster(path)


def test_wrong_band_count_and_rotation(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.tif: has 2 bands, but number 3 was requested"):
        read_raster(tiff(tmp_path), indexes=[1, 3])
    with pytest.raises(DataError, match=r"a\.tif: has 2 bands, expected 13"):
        read_raster(tiff(tmp_path), bands=13)
    with pytest.raises(DataError, match="is rotated against north"):
        read_raster(tiff(tmp_path, transform=Affine(10, 2, 500000, 2, -10, 5e6)))


@pytest.mark.parametrize("kind", ["complex_int16", "complex64"])
def test_complex_numbers_are_refused(tmp_path: Path, kind: str) -> None:
    profile = {"driver": "GTiff", "count": 1, "height": 4, "width": 4, "dtype": kind, "crs": "EPSG:32631"}
    with rasterio.open(tmp_path / "radar.tif", "w", **profile, transform=Affine(10, 0, 5e5, 0, -10, 4e6)) as file:
        file.write(np.ones((1, 4, 4), np.complex64))
    with pytest.raises(DataError, match=rf"radar\.tif: holds complex numbers \({kind}\)"):
        read_raster(tmp_path / "radar.tif")


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/sc\xff.tif"))
    path.write_bytes(b"II*\0")
    with pytest.raises(DataError, match=r"has a name that is not UTF-8.*rename the file"):
        read_raster(path)
