"""Base of the datasets of point clouds: a budget of points, and the sample of a window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.atoms import AtomSet
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.formats.cloud_atoms import cloud_atoms
from atomizer_io.formats.clouds import Cloud
from atomizer_io.formats.tile_windows import TileWindow
from atomizer_io.sample import Meta, Sample, dates_of


class PointDataset(Dataset):
    """Base of datasets of point clouds with a class for every point; each point is a query.

    ``max_points`` limits how many points of a window become atoms: they are drawn by ``seed`` and the number of the
    sample, so a sample is the same each time (set ``dataset.seed`` anew for another draw). Every point stays a query:
    one that became an atom sees its own return, the others see no return.
    """

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        max_points: int | None = None,
        seed: int = 0,
        **common: Any,
    ) -> None:
        if max_points is not None and max_points < 1:
            raise ConfigError(f"max_points is {max_points}; give at least 1, or None for all points")
        if seed < 0:
            raise ConfigError(f"seed is {seed}; give 0 or more")
        self.max_points, self.seed = max_points, seed
        super().__init__(root, split, **common)

    def files(self, item: TileWindow) -> tuple[Path, ...]:
        """Return the file of the cloud, which has the answers too."""
        return (item.path,)

    def whole_of(self, index: int) -> str | None:
        """Return the tile that a window is of."""
        return str(self.items[index].path)

    def points_sample(
        self,
        item: TileWindow,
        cloud: Cloud,
        target: NDArray[np.int64],
        *,
        centre: tuple[float, float] | None = None,
        datum_m: float | None = None,
        colour: bool = False,
        image: AtomSet | None = None,
    ) -> Sample:
        """Return the sample of a cloud with a class per point, around ``centre`` (by default the window's).

        Acquisition 0 are the points, 1 the ``image`` if there is one. Heights count from ``datum_m``, by default the
        lowest point, drawn or not.
        """
        x_min, y_min, x_max, y_max = cloud.bounds
        x, y = centre or item.centre or ((x_min + x_max) / 2, (y_min + y_max) / 2)
        datum = float(cloud.z.min()) if datum_m is None else datum_m
        positions = np.stack([cloud.x - x, cloud.y - y], axis=1)
        drawn = self.draw(len(cloud), item.number)
        atoms = cloud_atoms(cloud.where(drawn), positions[drawn], datum, colour)
        if image is not None:
            atoms += image
        sites = torch.full((len(cloud),), -1)
        sites[torch.from_numpy(drawn)] = torch.arange(len(drawn))
        meta = Meta(
            item.id,
            tuple(str(path) for path in self.files(item)),
            cloud.crs,
            origin=(x / cloud.unit_m, y / cloud.unit_m),
            dates=dates_of(atoms),
            extra={"datum_m": datum},
        )
        return Sample.of_points(atoms, positions, target, meta, {0: sites})

    def draw(self, points: int, number: int) -> NDArray[np.int64]:
        """Return which of the points of sample ``number`` become atoms, in their order."""
        if self.max_points is None or points <= self.max_points:
            return np.arange(points)
        generator = np.random.default_rng((self.seed, number))
        return np.sort(generator.choice(points, self.max_points, replace=False))


def classes_of(cloud: Cloud) -> NDArray[Any]:
    """Return the class numbers of a cloud as stored; refuse a cloud that has none."""
    if cloud.classification is None:
        raise DataError(cloud.path, "has no classes: no property called sem_class, class, classification or label")
    return cloud.classification
