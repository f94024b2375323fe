"""The cloud of a sample, and the layers in which it is drawn: height, class, prediction, error and latent cell.

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
from atomizer_io.figures.clouds import CloudLayer, CloudView, Floats, Ints, by_cell, by_class, by_error, by_value
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.sites import colocated_sites


@dataclass(frozen=True, slots=True, eq=False)
class SampleCloud:
    """The points of a sample: acquisition ``number``, how they are seen, and which point (M,) each query looks at.

    ``points_M`` is None where the queries do not look at points, as those of a map.
    """

    number: int
    view: CloudView
    points_M: Ints | None

    @classmethod
    def of(cls, sample: Sample) -> SampleCloud | None:
        """Return the first cloud of a sample, None if it has none."""
        found = (i for i, a in enumerate(sample.atoms) if a.footprint_m == (0.0, 0.0) and len(a.positions))
        number = next(found, None)
        if number is None:
            return None
        acquisition = sample.atoms.acquisitions[number]
        xyz = np.column_stack([acquisition.positions.numpy(), heights_of(acquisition)])
        return cls(number, CloudView.of(xyz), _looked_at(sample, number))

    def answer_layers(self, sample: Sample, info: Info, answers: Tensor | None = None) -> list[CloudLayer]:
        """Return what is true of the points and, with ``answers`` (M, outputs), what was predicted and the error."""
        if self.points_M is None or sample.queries is None:
            return []
        count, wanted = len(self.view.xyz), "class" if info.classes else info.target_name or "target"
        ignore = sample.queries.ignore.numpy()
        if not info.classes:
            true = self._spread(np.where(ignore, np.nan, sample.target.double().numpy()), np.full(count, np.nan))
            layers = [by_value(wanted, true, info.unit or "")]
            if answers is not None:
                value = self._spread(answers[:, 0].double().numpy(), np.full(count, np.nan))
                layers += [by_value("prediction", value, info.unit or "")]
                layers += [by_value("error", value - true, info.unit or "", centred=True)]
            return layers
        nothing = np.full(count, IGNORE)
        true = self._spread(np.where(ignore, IGNORE, sample.target.numpy()), nothing)
        layers = [by_class(wanted, true, info.classes)]
        if answers is not None:
            label = self._spread(answers.argmax(dim=-1).numpy(), nothing)
            layers += [by_class("prediction", label, info.classes)]
            layers += [by_error(label != true, (true >= 0) & (label >= 0))]
        return layers

    def height_layer(self) -> CloudLayer:
        """Return the heights of the points."""
        return by_value("height", self.view.xyz[:, 2], "m")

    def cell_layer(self, geometry: Geometry) -> CloudLayer:
        """Return the cells in which the latents of ``geometry`` gather the points."""
        anchors = (geometry.anchors_L2 + geometry.center_2).numpy()
        low, high = self.view.xyz[:, :2].min(axis=0), self.view.xyz[:, :2].max(axis=0)
        inside = ((anchors >= low) & (anchors <= high)).all(axis=1)
        return by_cell(f"{len(anchors):,} latent cells", self._cells(geometry), anchors[inside])

    def _cells(self, geometry: Geometry) -> Ints:
        """Return the number of the cell that each point is in, −1 for none."""
        first, count = sum(geometry.sites[: self.number]), len(self.view.xyz)
        found = np.full(count, -1)
        for cells in geometry.cells:
            owner_N = np.repeat(np.arange(len(cells)), cells.counts_L.numpy())
            point_N = cells.site_N.numpy() - first
            own = (point_N >= 0) & (point_N < count)
            found[point_N[own]] = owner_N[own]
        return found

    def _spread(self, of_queries: NDArray[Any], empty: NDArray[Any]) -> NDArray[Any]:
        """Return values of queries (M,) as values of points (P,), ``empty`` where no query looks."""
        assert self.points_M is not None
        empty, seen = empty.copy(), self.points_M >= 0
        empty[self.points_M[seen]] = of_queries[seen]
        return empty


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


def _looked_at(sample: Sample, number: int) -> Ints | None:
    """Return the point (M,) that each query looks at, −1 for none; None if hardly any does."""
    queries = sample.queries
    if queries is None or queries.grid is not None:
        return None
    if number in queries.sites:
        found = queries.sites[number].numpy()
    else:
        acquisition = sample.atoms.acquisitions[number]
        where, occupied = acquisition.positions.numpy(), acquisition.occupied().cpu().numpy()
        found = colocated_sites(queries.positions.numpy(), where, occupied, (0.0, 0.0))
    return found if (found >= 0).mean() > 0.1 else None
