"""PASTIS-R: crops of 2 433 patches in France from a year of Sentinel-2 and of Sentinel-1 in both orbits."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2_L2A
from atomizer_io.datasets.dataset import Dataset, Info, Labels, require
from atomizer_io.errors import DataError
from atomizer_io.io.crs import Box, Transform
from atomizer_io.io.tables import evenly, from_json, read_array

METADATA = "metadata.geojson"
GSD_M = 10.0
NO_OPTICAL = -10000  # what the French L2A products (Theia), of which PASTIS is cut, write where nothing was seen
FOLDS = {"train": (1, 2, 3), "val": (4,), "test": (5,)}
LABELS = Labels(classes=19, ignore=(19,))
# In the order of the files. The catalogue's statistics of all of these are those of PASTIS-R.
CHANNELS: dict[str, tuple[Channel, ...]] = {
    "S2": SENTINEL2_L2A.pick("B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12"),
    "S1A": SENTINEL1.pick("ASC_VV", "ASC_VH", "VV-VH"),
    "S1D": SENTINEL1.pick("DSC_VV", "DSC_VH", "VV-VH"),
}


@dataclass(frozen=True, slots=True)
class Patch:
    """One patch of the metadata: dates as written there, by sensor, and the bounds (west, south, east, north)."""

    id: str
    dates: Mapping[str, Any]
    bounds: Box | None


@dataclass(kw_only=True, eq=False, repr=False)
class PastisR(Dataset):
    """Patches of 128 × 128 pixels of 10 m: series of Sentinel-2 L2A × 10⁴ and Sentinel-1 in dB, 19 kinds of crops.

    ``sensors`` are some of S2, S1A (ascending) and S1D (descending); by default S2 and those others that are there.
    ``dates`` is how many of each sensor to read, spread evenly over its series; all by default. ``folds`` (1 … 5)
    replace those of the split, for cross-validation.
    """

    sensors: Sequence[Literal["S2", "S1A", "S1D"]] | None = None
    dates: int | None = None
    folds: Sequence[int] | None = None

    info = Info.of("pastis-r", channels=tuple(dict.fromkeys(chain(*CHANNELS.values()))))

    def configure(self) -> None:
        """Refuse empty lists and folds that there are not."""
        named = self.sensors is None or len(self.sensors) > 0
        require(named, f"sensors are {self.sensors!r}; use a list of {', '.join(CHANNELS)}")
        counted = self.dates is None or self.dates >= 1
        require(counted, f"dates is {self.dates}; use the number of dates to read of each sensor, or None for all")
        folded = self.folds is None or (len(self.folds) > 0 and {*self.folds} <= {1, 2, 3, 4, 5})
        require(folded, f"folds are {self.folds}; use some of 1, 2, 3, 4, 5")

    def find(self) -> list[Patch]:
        """Return the patches of the folds, in the order of the metadata."""
        # Sentinel-1, which the first release lacks, may be missing unless it is named
        needed = ["S2"] if self.sensors is None else [*self.sensors]
        for sensor in needed:
            self.existing(self.root / f"DATA_{sensor}", f": the {sensor} images")
        present = [sensor for sensor in CHANNELS if (self.root / f"DATA_{sensor}").is_dir()]
        self.present = present if self.sensors is None else [sensor for sensor in present if sensor in needed]
        path = self.root / METADATA
        document = from_json(path)
        features = document.get("features") if isinstance(document, dict) else None
        if not isinstance(features, list):
            raise DataError(path, "is not a GeoJSON feature collection")
        self.crs = projected_crs(document, path)
        folds = FOLDS[self.split] if self.folds is None else self.folds
        return [patch for fold, patch in (_patch(feature, path) for feature in features) if fold in folds]

    def files(self, item: Patch) -> tuple[Path, ...]:
        """Return the series of each sensor, and the labels."""
        series = (self.root / f"DATA_{sensor}" / f"{sensor}_{item.id}.npy" for sensor in self.present)
        return (*series, self.root / "ANNOTATIONS" / f"TARGET_{item.id}.npy")

    def read(self, item: Patch) -> Sample:
        """Return the sample of one patch."""
        *paths, label_path = self.files(item)
        stored = read_array(label_path, "iu")
        if stored.ndim not in (2, 3) or 0 in stored.shape:
            raise DataError(label_path, f"has shape {stored.shape}, expected (3, height, width) or (height, width)")
        labels = stored if stored.ndim == 2 else stored[0]  # the others are of parcels
        grid = Grid(labels.shape[0], labels.shape[1], gsd_m=GSD_M)
        atoms = AtomSet(
            tuple(
                acquisition
                for sensor, path in zip(self.present, paths, strict=True)
                for image in self._series(item, sensor, path, grid)
                for acquisition in image
            )
        )
        meta = Meta(item.id)
        transform = None if self.crs is None else placed(item.bounds, grid)
        if transform is not None:
            middle = (transform[2] + GSD_M * grid.width / 2, transform[5] - GSD_M * grid.height / 2)
            meta = replace(meta, crs=self.crs, transform=transform, origin=middle)
        return Sample.of_map(atoms, grid, LABELS.read(labels, label_path), meta)

    def _series(self, item: Patch, sensor: str, path: Path, grid: Grid) -> Iterator[AtomSet]:
        """Return the chosen dates of one sensor in order of time; only they are read from the file."""
        channels = CHANNELS[sensor]
        days = dates_from(item.dates.get(sensor), self.root / METADATA, f"dates-{sensor} of patch {item.id}")
        series = read_array(path, "iu" if sensor == "S2" else "f", mapped=True)
        if series.ndim != 4 or series.shape[1:] != (len(channels), *grid.shape):
            shape = f"(dates, {len(channels)}, {grid.height}, {grid.width})"
            raise DataError(path, f"has shape {series.shape}, expected {shape} as its labels have")
        if len(series) != len(days):
            raise DataError(path, f"has {len(series)} dates, {METADATA} has {len(days)}")
        for index in evenly(sorted(range(len(days)), key=days.__getitem__), self.dates):
            image = np.array(series[index])
            seen = image > NO_OPTICAL if sensor == "S2" and image.min() <= NO_OPTICAL else None
            yield AtomSet.from_raster(image, channels, GSD_M, days[index], valid=seen, copy=False)


def projected_crs(document: dict[str, Any], path: Path) -> str | None:
    """Return the CRS that the metadata name, such as ``EPSG:2154``; None if they name none, or degrees."""
    if (member := document.get("crs")) is None:
        return None
    try:
        code = member["properties"]["name"].casefold().replace("::", ":").rpartition("epsg:")[2]
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(path, f"'crs' names no known coordinate system: {member!r}") from error
    return f"EPSG:{code}" if code.isdecimal() else None


def dates_from(table: Any, path: Path, what: str) -> list[datetime.date]:
    """Return the dates by number from ``{"0": 20180924, …}`` or that as JSON text."""
    try:
        entries = json.loads(table) if isinstance(table, str) else table
        return [datetime.date.fromisoformat(str(entries[str(i)])) for i in range(len(entries))]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(path, f'{what} are not {{"0": 20180924, "1": …}}: {error}') from error


def placed(bounds: Box | None, grid: Grid) -> Transform | None:
    """Return the transform of ``grid`` around the middle of ``bounds``; None if sizes differ by a pixel or more."""
    if bounds is None:
        return None
    west, south, east, north = bounds
    width, height = grid.width * GSD_M, grid.height * GSD_M
    if not (abs(east - west - width) <= GSD_M and abs(north - south - height) <= GSD_M):  # nor if one is NaN
        return None
    return (GSD_M, 0.0, (west + east - width) / 2, 0.0, -GSD_M, (south + north + height) / 2)


def _patch(feature: Any, path: Path) -> tuple[int, Patch]:
    """Return the fold and the patch of a row of the metadata."""
    try:
        of = feature["properties"]
        dates = {sensor: of[f"dates-{sensor}"] for sensor in CHANNELS if f"dates-{sensor}" in of}
        name = of["ID_PATCH"]
        if isinstance(name, float):  # tables that went through pandas may have 30000.0
            if not name.is_integer():
                raise ValueError(f"ID_PATCH is {name}")
            name = int(name)
        return int(of["Fold"]), Patch(str(name), dates, _bounds(feature.get("geometry")))
    except KeyError as error:
        raise DataError(path, f"a patch has no {error}; it needs ID_PATCH, Fold and dates-S2") from error
    except (TypeError, ValueError, OverflowError, AttributeError, IndexError) as error:
        raise DataError(path, f"a patch is not as expected: {error}") from error


def _bounds(geometry: Any) -> Box | None:
    """Return west, south, east and north of a (multi)polygon, None if it has none."""
    if not geometry or not geometry.get("coordinates"):
        return None
    rings = geometry["coordinates"]
    while isinstance(rings[0][0], list) and isinstance(rings[0][0][0], list):
        rings = rings[0]
    corners = np.asarray(rings[0], dtype=np.float64)[:, :2]
    (west, south), (east, north) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    return west, south, east, north
