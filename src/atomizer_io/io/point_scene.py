"""What is observed in a window of a point cloud, in training as in prediction: its points, and images over them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.io.crs import box_of
from atomizer_io.io.overlays import Overlay, frame_of
from atomizer_io.io.point_atoms import Heights, datum_of, one_per_cube, point_cloud_atoms
from atomizer_io.io.point_clouds import PointCloud


@dataclass(frozen=True, slots=True, eq=False)
class PointScene:
    """The points of a window as atoms in metres around ``centre``; ``datum_m`` is what elevations count from."""

    points: PointCloud
    atoms: AtomSet
    centre: tuple[float, float]
    datum_m: float

    @classmethod
    def of(
        cls,
        points: PointCloud,
        centre: tuple[float, float],
        *,
        colour: bool,
        heights: Heights,
        las_standard: bool = True,
        grid_m: float | None = None,
    ) -> PointScene:
        """Return the scene of points; with ``grid_m`` only the first in each cube of that side is left.

        ``las_standard``: whether classes are those of the LAS standard, of which some are noise.
        """
        datum = datum_of(points, las_standard=las_standard)
        if grid_m is not None:
            points = points.where(one_per_cube(np.column_stack([points.x, points.y, points.z]), grid_m))
        bare = cls(points, AtomSet(), centre, datum)
        return replace(bare, atoms=point_cloud_atoms(points, bare.positions, datum, colour, heights))

    @property
    def positions(self) -> NDArray[np.float64]:
        """The positions (P, 2) of the points around the centre, in metres."""
        return np.stack([self.points.x - self.centre[0], self.points.y - self.centre[1]], axis=1)

    def with_images(self, images: Overlay, window_m: float) -> PointScene:
        """Return the scene with the pixels of images over its window of ``window_m`` metres and all its points."""
        box = box_of(self.positions, window_m)
        return replace(self, atoms=self.atoms + images.atoms(frame_of(self.points, self.centre), box))
