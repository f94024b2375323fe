"""Bases of the datasets of point clouds: the sample of one, and tiles that are cut into windows."""

from __future__ import annotations

import abc
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.sample import Meta, Sample
from atomizer_io.datasets.dataset import Dataset, require
from atomizer_io.errors import DataError
from atomizer_io.io.point_atoms import (
    HEIGHT_CHANNELS,
    Heights,
    height_channels,
)
from atomizer_io.io.point_clouds import PointCloud
from atomizer_io.io.point_scene import PointScene
from atomizer_io.io.point_windows import TileWindow, check_window, find_windows, numbered, read_window, whole_file
from atomizer_io.io.tile_cache import TileCache


@dataclass(kw_only=True, eq=False, repr=False)
class PointDataset(Dataset):
    """Base of datasets of point clouds: each point is a site and, where its class is predicted, a query.

    ``heights`` selects what is known of the height of a point: ``"ground"`` is its height above the ground around it,
    estimated from the whole file; ``"elevation"`` counts from the lowest point of the sample that is not noise;
    ``"both"`` are two values a point. ``grid_m`` keeps one point, the first, in each cube of that side
    as site and as query; :meth:`for_evaluation` has all points.
    """

    heights: Heights = "ground"
    grid_m: float | None = None

    def configure(self) -> None:
        """Take the channels of the heights."""
        valid = self.grid_m is None or 0 < self.grid_m < float("inf")
        require(valid, f"grid_m is {self.grid_m}; give a positive number of metres, or None for all points")
        others = tuple(channel for channel in self.info.channels if channel not in HEIGHT_CHANNELS["both"])
        self.info = replace(self.info, channels=(*height_channels(self.heights), *others))

    def files(self, item: TileWindow) -> tuple[Path, ...]:
        """Return the file of the points, which has their classes too."""
        return (item.path,)

    def for_evaluation(self) -> Self:
        """Return the dataset with all points."""
        if self.grid_m is None:
            return self
        dataset = copy.copy(self)
        dataset.grid_m, dataset.skipped = None, []
        return dataset

    def scene(
        self, item: TileWindow, points: PointCloud, *, centre: tuple[float, float] | None = None, colour: bool = False
    ) -> PointScene:
        """Return the points of a window as atoms around ``centre``, by default that of the window or of the points."""
        low_x, low_y, high_x, high_y = points.bounds
        centre = centre or item.centre or ((low_x + high_x) / 2, (low_y + high_y) / 2)
        how: dict[str, Any] = {"heights": self.heights, "las_standard": self.info.las_standard, "grid_m": self.grid_m}
        return PointScene.of(points, centre, colour=colour, **how)

    def meta(self, item: TileWindow, scene: PointScene) -> Meta:
        """Return what is known of a scene besides its points."""
        unit_m = scene.points.unit_m
        origin = (scene.centre[0] / unit_m, scene.centre[1] / unit_m)
        return Meta(item.id, crs=scene.points.crs, origin=origin, extra={"datum_m": scene.datum_m})

    def points_sample(self, item: TileWindow, scene: PointScene, target: NDArray[np.int64]) -> Sample:
        """Return the sample whose queries are the points; acquisition 0 of a scene are its points."""
        sites = {0: torch.arange(len(scene.points))}
        return Sample.of_points(scene.atoms, scene.positions, target, self.meta(item, scene), sites)


@dataclass(kw_only=True, eq=False, repr=False)
class TileDataset(PointDataset):
    """Base of datasets of tiles, each a file of points that is cut into windows.

    Windows of ``window_m`` metres (None: the whole tile) lie ``stride_m`` metres apart, by default their side. For
    evaluation they overlap by half, whatever the stride, as they do in prediction; each query knows its tile and the
    number of its point in it, so that every point is scored once.

    Large tiles are sorted once into a cache, of which a window reads only its part: a folder of the user's own
    (``~/.cache/atomizer_io/tiles``), or ``cache=PATH``; ``cache=False`` reads the tiles themselves.
    """

    window_m: float | None = 50.0
    stride_m: float | None = None
    cache: str | Path | bool = True
    crs: str | None = field(init=False, default=None)  # of files that have none

    def configure(self) -> None:
        """Check the windows, and open the cache."""
        check_window(self.window_m, self.stride_m)
        self.tile_cache = TileCache.of(self.cache, las_standard=self.info.las_standard)
        super().configure()

    @abc.abstractmethod
    def paths(self) -> list[Path]:
        """Return the files of the split."""

    def find(self) -> Sequence[TileWindow]:
        """Return the windows with points, for which tiles are cut or x and y are read; or whole files as windows."""
        if self.window_m is None:
            return numbered(whole_file(path) for path in self.paths())
        how: dict[str, Any] = {"skip_broken": self.on_error == "skip", "crs": self.crs, "cache": self.tile_cache}
        return find_windows(self.paths(), self.window_m, self.stride_m, **how)

    def for_evaluation(self) -> Self:
        """Return the dataset with all points, in windows that lie half their side apart."""
        dataset = super().for_evaluation()
        if self.window_m is None or self.stride_m == self.window_m / 2:
            return dataset
        dataset = copy.copy(self) if dataset is self else dataset
        dataset.stride_m, dataset.skipped = self.window_m / 2, []
        dataset.items = dataset.find()
        return dataset

    def whole_of(self, index: int) -> str | None:
        """Return the tile that a window is of, as its queries name it."""
        return self.path_in_root(self.items[index])

    def path_in_root(self, item: TileWindow) -> str:
        """Return the path of a tile in the folder of the dataset."""
        inside = item.path.is_relative_to(self.root)
        return (item.path.relative_to(self.root) if inside else item.path).as_posix()

    def tile_points(self, item: TileWindow) -> PointCloud:
        """Return the points of a window."""
        return read_window(item, self.crs, self.tile_cache, las_standard=self.info.las_standard)

    def in_tile(self, sample: Sample, item: TileWindow, members: NDArray[np.int64]) -> Sample:
        """Return a sample whose queries know their tile and their numbers in it."""
        assert sample.queries is not None
        queries = replace(sample.queries, whole=self.path_in_root(item), members=torch.from_numpy(members))
        return replace(sample, queries=queries)


def classes_of(points: PointCloud) -> NDArray[Any]:
    """Return the class numbers of points as stored; refuse a file that has none."""
    if points.classification is None:
        raise DataError(points.path, "has no classes: no property called sem_class, class, classification or label")
    return points.classification


def numbers_of(points: PointCloud) -> NDArray[np.int64]:
    """Return the numbers of the points in their file."""
    assert points.number is not None
    return points.number
