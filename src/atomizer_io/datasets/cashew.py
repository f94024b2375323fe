"""Cashew plantations in Benin: one tile of 120 km², a year of Sentinel-2; as published, and GEO-Bench's chips."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Sample
from atomizer_io.data.task_spec import IGNORE
from atomizer_io.datasets.dataset import Dataset, Info, Labels, meta_of, read_image, require
from atomizer_io.datasets.geobench import SENTINEL2_KEYS, GeoBench, geobench_info
from atomizer_io.errors import DataError
from atomizer_io.io.crs import Box, Transform, shifted
from atomizer_io.io.dates import as_day
from atomizer_io.io.geometries import POLYGONS, Objects, rasterised
from atomizer_io.io.raster_pixels import opened
from atomizer_io.io.rasters import PixelBox, Raster, read_raster
from atomizer_io.io.tables import evenly
from atomizer_io.io.vector_files import VectorFile, numbers_of
from atomizer_io.io.vector_labels import is_geographic, mover

IMAGERY = "imagery/00"
LABEL_FILE = "labels/00.geojson"
DATE_FOLDER = re.compile(r"00_(\d{8})")
LABELS = Labels(classes=7, ignore=(0,))
INFO = Info.of("cashew")
OPTICAL = INFO.channels
TRAIN_WIDTH, TEST_HEIGHT = 0.7, 2 / 3  # shares of the tile, and of what is left of it


@dataclass(frozen=True, slots=True)
class Tile:
    """The pixel grid that all bands and dates share."""

    path: Path  # the file it was read from
    shape: tuple[int, int]
    crs: str
    transform: Transform

    @property
    def bounds(self) -> Box:
        """Bounds (x_min, y_min, x_max, y_max) in the CRS."""
        east, south = shifted(self.transform, *self.shape)[2::3]
        return (self.transform[2], south, east, self.transform[5])


@dataclass(kw_only=True, eq=False, repr=False)
class Cashew(Dataset):
    """Windows of 256 × 256 pixels of 10 m in a tile of 1186 × 1122, on up to 70 dates, Sentinel-2 L2A × 10⁴.

    ``size`` and ``stride`` (by default the same) lay out the windows; the last row and column of windows are shifted
    inwards, so that all have the full size and may overlap others of their split. ``dates`` is how many dates to read,
    evenly spaced from the first to the last (1: the middle one; None: all there are). Where the cloud probability of a
    date is above ``max_cloud`` (0 … 100; None: nowhere) its pixels are absent.
    """

    size: int = 256
    stride: int | None = None
    dates: int | None = None
    max_cloud: float | None = None

    info = INFO

    def configure(self) -> None:
        """Refuse sizes and probabilities that are none."""
        for name, value in (("size", self.size), ("stride", self.stride), ("dates", self.dates)):
            require(value is None or value >= 1, f"{name} is {value!r}; use a whole number from 1")
        require(
            self.max_cloud is None or 0 <= self.max_cloud <= 100,
            f"max_cloud is {self.max_cloud!r}; use a probability from 0 to 100, or None to keep all pixels",
        )

    def find(self) -> list[PixelBox]:
        """Return the windows of the split."""
        self.days = evenly(find_dates(self.existing(self.root / IMAGERY)), self.dates)
        self.tile = read_tile(next(path for date in self.days for path in self.bands(date).values()))
        return list(windows(region(self.split, *self.tile.shape), self.size, self.stride or self.size))

    def bands(self, date: datetime.date) -> dict[str, Path]:
        """Return the files of the bands that exist on a date."""
        return {c.name: path for c in OPTICAL if (path := band_file(self.root, date, c.name)).is_file()}

    def files(self, item: PixelBox) -> tuple[Path, ...]:
        """Return the bands of all dates, which all windows share, and the polygons."""
        paths = [path for date in self.days for path in self.bands(date).values()]
        if self.max_cloud is not None:
            paths += [band_file(self.root, date, "CLD") for date in self.days]
        return (*paths, self.root / LABEL_FILE)

    def read(self, item: PixelBox) -> Sample:
        """Return the sample of one window, with all dates."""
        acquisitions = [self.acquisition(date, item) for date in self.days]
        atoms = sum((acquired for acquired, _ in acquisitions if acquired.num_atoms), AtomSet())
        raster, (row, column) = acquisitions[0][1], item[:2]
        meta = meta_of(f"00_{row:04d}_{column:04d}", raster, row=row, column=column)
        return Sample.of_map(atoms, raster.grid, self.labels(raster), meta)

    def acquisition(self, date: datetime.date, window: PixelBox) -> tuple[AtomSet, Raster]:
        """Return the bands of one date that exist, as atoms, and one of their rasters, which is placed as all are."""
        rasters = {name: self.band(path, window) for name, path in self.bands(date).items()}
        values = np.concatenate([raster.values for raster in rasters.values()])
        valid = np.broadcast_to((values != 0).any(axis=0), values.shape).copy()
        for layer, raster in zip(valid, rasters.values(), strict=True):
            if (own := raster.valid()) is not None:
                layer &= own[0]
        if self.max_cloud is not None:
            clouds = self.band(band_file(self.root, date, "CLD"), window)
            clear, own = clouds.values[0] <= self.max_cloud, clouds.valid()
            valid &= clear if own is None else clear & own[0]
        first = next(iter(rasters.values()))
        channels = [c for c in OPTICAL if c.name in rasters]
        return AtomSet.from_raster(values, channels, first.grid.pixel_m, date, valid=valid), first

    def band(self, path: Path, window: PixelBox) -> Raster:
        """Read a window of one band, which must lie on the grid of the tile."""
        raster = read_image(path, "iuf", bands=1, window=window)
        expected = shifted(self.tile.transform, *window[:2])
        slack = 1e-3 * expected[0]
        if raster.crs != self.tile.crs or not np.allclose(raster.transform or (), expected, rtol=0, atol=slack):
            raise DataError(path, f"lies on another grid than {self.tile.path}")
        return raster

    def labels(self, raster: Raster) -> NDArray[np.int64]:
        """Return the class of the polygon around the centre of each pixel of ``raster``, −1 where there is none."""
        assert raster.transform is not None  # that of the tile
        return rasterised(self.polygons, raster.grid.shape, raster.transform, fill=IGNORE)

    @cached_property
    def polygons(self) -> list[tuple[Any, int]]:
        """Polygons in the coordinates of the tile, with their classes (−1: ignored)."""
        path = self.root / LABEL_FILE
        geometries, numbers = read_polygons(path, "class", self.tile.crs, self.tile.bounds)
        return list(zip(geometries, LABELS.read(numbers, path).tolist(), strict=True))


class MCashewPlant(GeoBench):
    """GEO-Bench's cashew plantations: 256 × 256 pixels of 10 m on one date, 25 least cloudy dates a location."""

    info = geobench_info(Cashew.info, "m-cashew-plant")
    # all but the cirrus band
    known_bands: ClassVar = {key: c for key in SENTINEL2_KEYS for c in OPTICAL if c.called(key)}
    pixel_m = 10.0


def band_file(root: Path, date: datetime.date, band: str) -> Path:
    """Return the file of a band on a date."""
    name = f"00_{date:%Y%m%d}"
    return root / IMAGERY / name / f"{name}_{band}_10m.tif"


def find_dates(folder: Path) -> list[datetime.date]:
    """Return the dates that have a folder, in order of time."""
    dates = []
    for path in sorted(folder.iterdir()):
        match = DATE_FOLDER.fullmatch(path.name)
        if match is None or not path.is_dir():
            continue
        date = as_day(match[1])
        if date is None:
            raise DataError(path, "has no date in its name")
        if not any(band_file(folder.parents[1], date, channel.name).is_file() for channel in OPTICAL):
            raise DataError(path, f"has no band: expected {path.name}_B01_10m.tif … {path.name}_B12_10m.tif")
        dates.append(date)
    if not dates:
        raise DataError(folder, "has no folder called 00_YYYYMMDD")
    return dates


def read_tile(path: Path) -> Tile:
    """Read the pixel grid of a file."""
    corner = read_raster(path, bands=1, window=(0, 0, 1, 1))  # an error where the file is broken or not on a map
    with opened(path) as source:
        if corner.crs is None or source.transform.e > 0:
            raise DataError(path, "is not a map with north up")
        return Tile(path, source.shape, corner.crs, tuple(source.transform)[:6])


def read_polygons(path: Path, column: str, crs: str, bounds: Box) -> tuple[Objects, NDArray[np.float64]]:
    """Read the polygons of a file in coordinates of ``crs``, and the number that each has in a column.

    At least one of them must lie within ``bounds``. Where numbers cannot be degrees, they are in ``crs`` already.
    """
    import shapely

    file = VectorFile.open(path)
    parts = [(batch.geometry, numbers_of(batch.columns[column]), batch.ids) for batch in file.batches([column])]
    if not parts:
        raise DataError(path, "has no features: expected a GeoJSON collection of polygons")
    geometries, numbers, ids = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    areas = np.isin(shapely.get_type_id(geometries), POLYGONS) & ~shapely.is_empty(geometries)
    for good, cause in ((areas, "is not a polygon"), (np.isfinite(numbers), f"has no number as {column!r}")):
        if not good.all():
            raise DataError(path, f"feature {ids[~good][0]} {cause}")
    known = file.crs is not None and not (
        is_geographic(file.crs) and np.abs(shapely.get_coordinates(geometries)).max() > 180
    )
    if known:
        move = mover(file.crs, crs)
        geometries = shapely.transform(geometries, move)
    boxes = shapely.bounds(geometries)
    if not np.isfinite(boxes).all():
        raise DataError(path, f"has a polygon that {crs} cannot express")
    if not (shapely.box(*bounds).intersects(shapely.box(*boxes.T))).any():
        raise DataError(path, f"no polygon lies on the map, {bounds} in {crs}: are they in {file.crs}?")
    return geometries, numbers


def region(split: str, height: int, width: int) -> PixelBox:
    """Return the part of the tile that belongs to a split."""
    column, row = round(width * TRAIN_WIDTH), round(height * TEST_HEIGHT)
    return {
        "train": (0, 0, height, column),
        "test": (0, column, row, width - column),
        "val": (row, column, height - row, width - column),
        "all": (0, 0, height, width),
    }[split]


def windows(part: PixelBox, size: int, stride: int) -> Iterator[PixelBox]:
    """Yield windows that cover a part of the tile, row by row, the last ones shifted inwards."""
    row, column, height, width = part
    down, across = ([*range(0, side - size, stride), max(side - size, 0)] for side in (height, width))
    for y in down:
        for x in across:
            yield (row + y, column + x, min(size, height), min(size, width))
