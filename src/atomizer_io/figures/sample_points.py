"""The points of a sample, and the layers in which they are drawn: height, class, prediction, error and latent cell.

Shapes: P points, M queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.sample import Sample
from atomizer_io.data.task_spec import IGNORE
from atomizer_io.datasets.dataset import Info
from atomizer_io.figures.point_clouds import Floats, Ints, PointLayer, PointView, by_cell, by_class, by_error, by_value
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.sites import colocated_sites


@dataclass(frozen=True, slots=True, eq=False)
class SamplePoints:
    """The points of a sample: acquisition ``number``, how they are seen, and the point (M,) of each query.

    ``points_M`` is None where the queries are not at points, as those of a map.
    """

    number: int
    view: PointView
    points_M: Ints | None

    @classmethod
    def of(cls, sample: Sample) -> SamplePoints | None:
        """Return the first point cloud of a sample, None if it has none."""
        numbers = (i for i, a in enumerate(sample.atoms) if a.footprint_m == (0.0, 0.0) and len(a.positions))
        number = next(numbers, None)
        if number is None:
            return None
        acquisition = sample.atoms.acquisitions[number]
        xyz = np.column_stack([acquisition.positions.numpy(), heights_of(acquisition)])
        return cls(number, PointView.of(xyz), _points_of_queries(sample, number))

    def target_layers(self, sample: Sample, info: Info, predictions: Tensor | None = None) -> list[PointLayer]:
        """Return the target of the points and, with ``predictions`` (M, outputs), those and their error."""
        if self.points_M is None or sample.queries is None:
            return []
        name, ignore = "class" if info.classes else info.target_name or "target", sample.queries.ignore.numpy()
        if info.classes:
            target = self._of_points(np.where(ignore, IGNORE, sample.target.numpy()), IGNORE)
            layers = [by_class(name, target, info.classes)]
            if predictions is not None:
                label = self._of_points(predictions.argmax(dim=-1).numpy(), IGNORE)
                layers += [by_class("prediction", label, info.classes)]
                layers += [by_error(label != target, (target >= 0) & (label >= 0))]
            return layers
        unit, target = (
            info.unit or "",
            self._of_points(np.where(ignore, np.nan, sample.target.double().numpy()), np.nan),
        )
        layers = [by_value(name, target, unit)]
        if predictions is not None:
            values = self._of_points(predictions[:, 0].double().numpy(), np.nan)
            layers += [by_value("prediction", values, unit), by_value("error", values - target, unit, centred=True)]
        return layers

    def height_layer(self) -> PointLayer:
        """Return the heights of the points."""
        return by_value("height", self.view.xyz[:, 2], "m")

    def cell_layer(self, geometry: Geometry) -> PointLayer:
        """Return the cells in which the latents of ``geometry`` gather the points."""
        anchors = (geometry.anchors_L2 + geometry.center_2).numpy()
        low, high = self.view.xyz[:, :2].min(axis=0), self.view.xyz[:, :2].max(axis=0)
        inside = ((anchors >= low) & (anchors <= high)).all(axis=1)
        first, count = sum(geometry.sites[: self.number]), len(self.view.xyz)
        cell_P = np.full(count, -1)
        for cells in geometry.cells:
            owner_N = np.repeat(np.arange(len(cells)), cells.counts_L.numpy())
            point_N = cells.site_N.numpy() - first
            own = (point_N >= 0) & (point_N < count)
            cell_P[point_N[own]] = owner_N[own]
        return by_cell(f"{len(anchors):,} latent cells", cell_P, anchors[inside])

    def _of_points(self, of_queries: NDArray[Any], nothing: float) -> NDArray[Any]:
        """Return values of queries (M,) as values of points (P,), ``nothing`` where no query is at a point."""
        assert self.points_M is not None
        values = np.full(len(self.view.xyz), nothing, dtype=of_queries.dtype)
        seen_M = self.points_M >= 0
        values[self.points_M[seen_M]] = of_queries[seen_M]
        return values


def heights_of(acquisition: Acquisition) -> Floats:
    """Return the heights (P,) of points: their elevation if it is known, else the height above ground, else zero."""
    named = [channel.name for channel in acquisition.channels]
    if "elevation" in named:
        heights = acquisition.observed()[:, named.index("elevation")].double().numpy()
    elif acquisition.heights_m is not None:
        heights = acquisition.heights_m.numpy()
    else:
        heights = np.zeros(len(acquisition.positions))
    return np.nan_to_num(heights)


def _points_of_queries(sample: Sample, number: int) -> Ints | None:
    """Return the point (M,) that each query is at, −1 for none; None if hardly any does."""
    queries = sample.queries
    if queries is None or queries.grid is not None:
        return None
    if number in queries.sites:
        points_M = queries.sites[number].numpy()
    else:
        acquisition = sample.atoms.acquisitions[number]
        where, occupied = acquisition.positions.numpy(), acquisition.occupied().cpu().numpy()
        points_M = colocated_sites(queries.positions.numpy(), where, occupied, (0.0, 0.0))
    return points_M if (points_M >= 0).mean() > 0.1 else None
