"""Rasters that lie over point clouds: found by where they are, in any coordinate system, not by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import Sensor
from atomizer_io.errors import DataError
from atomizer_io.io.crs import Box, LocalFrame, parsed_crs, units_of
from atomizer_io.io.dates import as_day, date_in, date_of_file
from atomizer_io.io.point_clouds import Bounds, PointCloud, PointCloudHeader
from atomizer_io.io.raster_folders import SUFFIX, ImageFolders
from atomizer_io.io.raster_pixels import opened
from atomizer_io.io.raster_sources import RasterInput, RasterSource, alike, overlap

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Overlay:
    """Rasters of one kind, images or a target, some of which lie over a given point cloud."""

    sources: tuple[RasterSource, ...] = ()

    @classmethod
    def of_images(cls, folders: ImageFolders, crs: str | None = None) -> Overlay:
        """Open the images of one or several folders; what their bands are is known as for a folder of images.

        ``crs`` is the coordinate system of those that have none.
        """
        sources = []
        for name, folder in folders.used().items():
            for number, path in enumerate(rasters_in(folder)):
                own = (
                    folders if folders.description(path, name).get("crs") else replace(folders, crs=_needed(path, crs))
                )
                if not number:
                    own.bands_of(path, name)  # its errors explain how to name the folders
                sources.append(RasterSource.open(raster_input(path, own.description(path, name))))
        return cls(tuple(_placed(source) for source in sources))

    @classmethod
    def of_target(cls, folder: Path, name: str, crs: str | None = None) -> Overlay:
        """Open the rasters of a folder, whose one band holds the regression target ``name``; ``crs`` as for images."""
        if not folder.is_dir():
            raise DataError(folder, f"no such folder: rasters of {name}")
        sensor = Sensor("target", (Channel("target", name),))
        inputs = (RasterInput(path, sensor, crs=_needed(path, crs)) for path in rasters_in(folder))
        sources = [RasterSource.open(raster) for raster in inputs]
        if not sources:
            raise DataError(folder, f"has no GeoTIFF: rasters of {name} are expected there")
        return cls(tuple(_placed(source) for source in sources))

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of all rasters, those of one sensor and name once."""
        known: dict[tuple[str, str], Channel] = {}
        for source in self.sources:
            for channel in source.channels:
                known.setdefault((channel.sensor, channel.name), channel)
        return tuple(known.values())

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the rasters."""
        return tuple(source.path for source in self.sources)

    def over(self, path: Path, header: PointCloudHeader) -> Overlay:
        """Return those rasters that overlap a point cloud."""
        if header.crs is None and self.sources:
            raise DataError(
                path, "has no coordinate system, so that no raster can be laid over it: name it with crs=EPSG:..."
            )
        west, south, east, north = (edge / header.unit_m for edge in header.bounds)
        near = (alike(source, header.crs) for source in self.sources)
        return Overlay(tuple(source for source in near if overlap(source, header.crs, (west, south, east, north))))

    def atoms(self, frame: LocalFrame, box: Box) -> AtomSet:
        """Return what was observed inside ``box`` of a frame; nothing where no raster reaches it."""
        atoms = AtomSet()
        for source in self.sources:
            atoms += source.atoms(frame, box) or AtomSet()
        return atoms

    def centres(self, frame: LocalFrame, box: Box) -> tuple[NDArray[np.int64], Floats]:
        """Return the pixels with their centre inside ``box``: numbers (M,) over all rasters, and positions (M, 2)."""
        starts = self.starts()
        parts = [source.centres(frame, box) for source in self.sources]
        numbers = [numbers + start for (numbers, _), start in zip(parts, starts, strict=True)]
        return np.concatenate([*numbers, np.empty(0, np.int64)]), np.concatenate(
            [*(positions for _, positions in parts), np.empty((0, 2))]
        )

    def values(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the first band (M,) of pixels by the numbers that :meth:`centres` gives, NaN where unknown."""
        values = np.full(len(numbers), np.nan, np.float32)
        for source, start in zip(self.sources, self.starts(), strict=True):
            own = (numbers >= start) & (numbers < start + source.height * source.width)
            if own.any():
                values[own] = source.values(numbers[own] - start)[0]
        return values

    def pixel_sizes(self, numbers: NDArray[np.int64]) -> Floats:
        """Return the sizes (M, 2) along x and y, in metres, of pixels by the numbers that :meth:`centres` gives."""
        owner = np.searchsorted(self.starts(), numbers, side="right") - 1
        return np.array([source.pixel_m for source in self.sources], dtype=np.float64).reshape(-1, 2)[owner]

    def starts(self) -> list[int]:
        """Return the number of the first pixel of each raster."""
        sizes = [source.height * source.width for source in self.sources]
        return [sum(sizes[:number]) for number in range(len(sizes))]


def rasters_in(folder: Path) -> list[Path]:
    """Return the GeoTIFFs in a folder and the folders in it."""
    return sorted(
        path for path in folder.rglob("*") if SUFFIX.search(path.name) and path.name[0] != "." and path.is_file()
    )


def raster_input(path: Path, facts: Mapping[str, Any]) -> RasterInput:
    """Return a raster by the facts about it; its date may be in a file beside it, its name or tags, or its folder."""
    bands, day = facts.get("bands"), facts.get("date")
    date = date_of_file(path) or date_in(path.parent.name) if day is None else as_day(str(day))
    if day is not None and date is None:
        raise DataError(path, f"has date {day!r} in the bands.yaml beside it; write 2021-07-04")
    names = None if bands is None else tuple(map(str, bands))
    return RasterInput(
        path, facts.get("sensor"), names, date, facts.get("gsd_m"), facts.get("crs"), facts.get("nodata")
    )


def frame_of(point_cloud: PointCloud | PointCloudHeader, centre: tuple[float, float]) -> LocalFrame:
    """Return the frame in metres around ``centre``, which is in metres of the coordinate system of a point cloud."""
    unit = point_cloud.unit_m
    return LocalFrame(point_cloud.crs, (centre[0] / unit, centre[1] / unit), (unit, unit))


def inside(bounds: Bounds | None, extent: Bounds) -> Bounds:
    """Return the part of ``bounds`` (None: everywhere) that lies inside ``extent``."""
    if bounds is None:
        return extent
    west, south, east, north = bounds
    return (max(west, extent[0]), max(south, extent[1]), min(east, extent[2]), min(north, extent[3]))


def seen_from(centre: tuple[float, float], bounds: Bounds) -> Box:
    """Return bounds as they lie around ``centre``."""
    return (bounds[0] - centre[0], bounds[1] - centre[1], bounds[2] - centre[0], bounds[3] - centre[1])


def _needed(path: Path, crs: str | None) -> str | None:
    """Return ``crs``, without its heights, if a raster has no coordinate system of its own."""
    if crs is None:
        return None
    with opened(path) as file:
        return None if file.crs is not None else units_of(parsed_crs(crs), path)[0]


def _placed(source: RasterSource) -> RasterSource:
    if source.crs is None:
        raise DataError(
            source.path, "has no coordinate system, so that it cannot be laid over points: name it, crs=EPSG:..."
        )
    return source
