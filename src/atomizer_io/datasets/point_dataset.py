"""Bases of the datasets of point clouds: the sample of a cloud, and tiles that are cut into windows."""

from __future__ import annotations

import abc
import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Meta, Sample, dates_of
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.point_atoms import (
    HEIGHT_CHANNELS,
    Heights,
    datum_of,
    height_channels,
    one_per_cube,
    point_cloud_atoms,
)
from atomizer_io.io.point_clouds import PointCloud
from atomizer_io.io.tile_cache import TileCache
from atomizer_io.io.tile_windows import (
    TileWindow,
    check_window,
    find_windows,
    numbered,
    read_window,
    whole_file,
)


@dataclass(frozen=True, slots=True)
class Scene:
    """The points of a window, what is observed there, and where that is: metres around ``centre``."""

    cloud: PointCloud
    atoms: AtomSet
    centre: tuple[float, float]
    meta: Meta

    @property
    def positions(self) -> NDArray[np.float64]:
        """The positions (P, 2) of the points around the centre, in metres."""
        return np.stack([self.cloud.x - self.centre[0], self.cloud.y - self.centre[1]], axis=1)


class PointDataset(Dataset):
    """Base of datasets of point clouds: each point is a site and, where its class is asked, a query.

    ``heights`` says what is known of the height of a point: ``"ground"`` is its height above the ground around it,
    estimated from the whole file; ``"elevation"`` counts from the lowest point of the sample that is not noise;
    ``"both"`` are two values a point. ``grid_m`` keeps one point, the first, in each cube of that side
    as site and as query; :meth:`for_evaluation` has all points.
    """

    coded = True  # whether the classes in the files are those of the LAS standard, of which some are noise

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        heights: Heights = "ground",
        grid_m: float | None = None,
        **common: Any,
    ) -> None:
        if grid_m is not None and not 0 < grid_m < float("inf"):
            raise ConfigError(f"grid_m is {grid_m}; give a positive number of metres, or None for all points")
        self.heights, self.grid_m = heights, grid_m
        others = tuple(channel for channel in self.info.channels if channel not in HEIGHT_CHANNELS["both"])
        self.info = replace(self.info, channels=(*height_channels(heights), *others))
        super().__init__(root, split, **common)

    def files(self, item: TileWindow) -> tuple[Path, ...]:
        """Return the file of the cloud, which has the answers too."""
        return (item.path,)

    def for_evaluation(self) -> Self:
        """Return the dataset with all points."""
        if self.grid_m is None:
            return self
        other = copy.copy(self)
        other.grid_m, other.skipped = None, []
        return other

    def scene(
        self,
        item: TileWindow,
        cloud: PointCloud,
        *,
        centre: tuple[float, float] | None = None,
        colour: bool = False,
    ) -> Scene:
        """Return the points of a window as atoms around ``centre``, by default that of the window or of the points."""
        low_x, low_y, high_x, high_y = cloud.bounds
        centre = centre or item.centre or ((low_x + high_x) / 2, (low_y + high_y) / 2)
        datum = datum_of(cloud, coded=self.coded)
        if self.grid_m is not None:
            cloud = cloud.where(one_per_cube(np.column_stack([cloud.x, cloud.y, cloud.z]), self.grid_m))
        meta = Meta(
            item.id,
            tuple(str(path) for path in self.files(item)),
            cloud.crs,
            origin=(centre[0] / cloud.unit_m, centre[1] / cloud.unit_m),
            extra={"datum_m": datum},
        )
        bare = Scene(cloud, AtomSet(), centre, meta)
        return replace(bare, atoms=point_cloud_atoms(cloud, bare.positions, datum, colour, self.heights))

    def points_sample(self, scene: Scene, target: NDArray[np.int64]) -> Sample:
        """Return the sample that asks for the class of each point; acquisition 0 of a scene are its points."""
        meta = replace(scene.meta, dates=dates_of(scene.atoms))
        sites = {0: torch.arange(len(scene.cloud))}
        return Sample.of_points(scene.atoms, scene.positions, target, meta, sites)


class TileDataset(PointDataset):
    """Base of datasets of tiles, each a file of points that is cut into windows.

    Windows of ``window_m`` metres (None: the whole tile) lie ``stride_m`` metres apart, by default their side. For
    evaluation they overlap by half, whatever the stride, as they do in prediction; each query knows its tile and the
    number of its point in it, so that every point is scored once.

    Large tiles are sorted once into a cache, of which a window reads only its part: a folder of the user's own
    (``~/.cache/atomizer_io/tiles``), or ``cache=PATH``; ``cache=False`` reads the tiles themselves.
    """

    crs: str | None = None  # of files that have none

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        window_m: float | None = 50.0,
        stride_m: float | None = None,
        cache: str | Path | bool = True,
        **options: Any,
    ) -> None:
        check_window(window_m, stride_m)
        self.window_m, self.stride_m = window_m, stride_m
        self.cache = TileCache.of(cache, coded=self.coded)
        super().__init__(root, split, **options)

    @abc.abstractmethod
    def paths(self) -> list[Path]:
        """Return the files of the split."""

    def find(self) -> Sequence[TileWindow]:
        """Return the windows with points, for which tiles are cut or x and y are read; or whole files as windows."""
        if self.window_m is None:
            return numbered(whole_file(path) for path in self.paths())
        how: dict[str, Any] = {"skip_broken": self.on_error == "skip", "crs": self.crs, "cache": self.cache}
        return find_windows(self.paths(), self.window_m, self.stride_m, **how)

    def for_evaluation(self) -> Self:
        """Return the dataset with all points, in windows that lie half their side apart."""
        other = super().for_evaluation()
        if self.window_m is None or self.stride_m == self.window_m / 2:
            return other
        other = copy.copy(self) if other is self else other
        other.stride_m, other.skipped = self.window_m / 2, []
        other.items = other.find()
        return other

    def whole_of(self, index: int) -> str | None:
        """Return the tile that a window is of, as its queries name it."""
        return self.path_in_root(self.items[index])

    def path_in_root(self, item: TileWindow) -> str:
        """Return the path of a tile in the folder of the dataset."""
        inside = item.path.is_relative_to(self.root)
        return (item.path.relative_to(self.root) if inside else item.path).as_posix()

    def tile_points(self, item: TileWindow) -> PointCloud:
        """Return the points of a window."""
        return read_window(item, self.crs, self.cache, coded=self.coded)

    def in_tile(self, sample: Sample, item: TileWindow, members: NDArray[np.int64]) -> Sample:
        """Return a sample whose queries know their tile and their numbers in it."""
        assert sample.queries is not None
        queries = replace(sample.queries, whole=self.path_in_root(item), members=torch.from_numpy(members))
        return replace(sample, queries=queries)


def classes_of(cloud: PointCloud) -> NDArray[Any]:
    """Return the class numbers of a cloud as stored; refuse a cloud that has none."""
    if cloud.classification is None:
        raise DataError(cloud.path, "has no classes: no property called sem_class, class, classification or label")
    return cloud.classification


def numbers_of(cloud: PointCloud) -> NDArray[np.int64]:
    """Return the numbers of the points in their file."""
    assert cloud.number is not None
    return cloud.number
