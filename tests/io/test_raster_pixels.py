"""A sample of a raster's values: mean and standard deviation of the whole file from a small part of it."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.enums import Resampling
from rasterio.errors import NotGeoreferencedWarning

from atomizer_io.io.raster_pixels import MOST_BLOCKS, overview_values
from chips import values, write

LAYOUTS = {
    "pixel tiles": {"interleave": "pixel", "tiled": True, "blockxsize": 64, "blockysize": 64},
    "band tiles": {"interleave": "band", "tiled": True, "blockxsize": 64, "blockysize": 64},
    "pixel strips": {"interleave": "pixel", "blockysize": 1},
    "band strips": {"interleave": "band", "blockysize": 4},
    "one strip": {"interleave": "pixel", "blockysize": 1000},
}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pixels of the file each call of rasterio covered."""
    sizes: list[int] = []
    real = rasterio.io.DatasetReader.read

    def spied(self, indexes=None, *arguments, window=None, **more):
        size = (self.height, self.width) if window is None else (window.height, window.width)
        sizes.append(int(size[0] * size[1]))
        return real(self, indexes, *arguments, window=window, **more)

    monkeypatch.setattr(rasterio.io.DatasetReader, "read", spied)
    return sizes


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_sample_is_like_the_file(tmp_path: Path, layout: str, reads: list[int]) -> None:
    array = values(1000, 900)
    path = write(tmp_path / "a.tif", array, compress="deflate", **LAYOUTS[layout])
    sample = overview_values(path, (1, 3))
    assert sample.shape[0] == 2 and len(reads) <= 36
    if layout != "one strip":
        assert sum(reads) < array[0].size / 4, "most of the file is not read"
    for band, row in zip((0, 2), sample, strict=True):
        assert row.mean() == pytest.approx(array[band].mean(), abs=0.2 * array[band].std())
        assert row.std() == pytest.approx(array[band].std(), rel=0.2)


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    array = values(40, 50)
    sample = overview_values(write(tmp_path / "a.tif", array), (1, 2, 3))
    np.testing.assert_array_equal(np.sort(sample, axis=1), np.sort(array.reshape(3, -1), axis=1))


def test_blocks_without_data_do_not_count(tmp_path: Path, reads: list[int]) -> None:
    """A path of a satellite through a square tile: nine tenths of it are not observed."""
    array = values(1024, 1024)
    array[:, :, 100:] = 0
    path = write(tmp_path / "a.tif", array, nodata=0, sparse_ok=True, tiled=True, blockxsize=64, blockysize=64)
    sample = overview_values(path, (1,))
    known = sample[np.isfinite(sample)]
    assert len(known) > 3000 and len(reads) <= MOST_BLOCKS
    assert known.mean() == pytest.approx(array[0, :, :100].mean(), rel=0.1)
    nothing = write(tmp_path / "b.tif", np.zeros((3, 1024, 1024), np.uint8), nodata=0, tiled=True)
    assert np.isnan(overview_values(nothing, (1, 2))).all()


def test_what_is_masked_is_not_in_the_sample(tmp_path: Path) -> None:
    array = values(64, 64).astype(np.float64)
    array[0, 3, 3], array[0, 4, 4], array[0, 5, 5] = np.nan, np.inf, 1e300
    mask = np.full((64, 64), 255, np.uint8)
    mask[:10, 40:] = 0
    sample = overview_values(write(tmp_path / "a.tif", array, mask=mask), (1,))
    assert np.isfinite(sample).sum() == 64 * 64 - 10 * 24 - 3 and np.nanmax(sample) < 1e5


def test_overviews_of_the_file_are_used(tmp_path: Path, reads: list[int]) -> None:
    array = values(1000, 900)
    path = write(tmp_path / "a.tif", array, tiled=True, blockxsize=64, blockysize=64)
    with rasterio.open(path, "r+") as target:
        target.build_overviews([2, 4], Resampling.nearest)
    sample = overview_values(path, (1, 2, 3))
    assert len(reads) == 1 and sample.shape == (3, 256 * 256)
    np.testing.assert_allclose(sample.mean(axis=1), array.mean(axis=(1, 2)), rtol=0.02)


def test_a_png(tmp_path: Path) -> None:
    array = values(300, 300).astype(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(tmp_path / "a.png", "w", "PNG", 300, 300, 3, dtype="uint8") as target:
            target.write(array)
    assert overview_values(tmp_path / "a.png", (2,)).mean() == pytest.approx(array[1].mean(), rel=0.1)
