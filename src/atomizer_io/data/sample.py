"""A sample: observations, query positions, targets, and where they came from."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.data.inputs import Array, floating, metres, tensor
from atomizer_io.data.task_spec import IGNORE
from atomizer_io.errors import AtomsError


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """The M query positions of a sample.

    ``positions`` (M, 2) are metres in the frame of the atoms. ``ignore`` (M,) marks positions without a
    target, which count neither in the loss nor in scores. ``grid`` folds the M predictions back into a map.
    ``sites`` gives, by acquisition, the co-located site (M,) of each query, for points that share x and y.
    ``footprint_m`` is the size of the area of each query, in metres along x and y: (2,) for all, or (M, 2); with zeros,
    or without any, a query is a point. A pixel of ``grid`` is the footprint where there is one.
    Where the sample is a window of a larger ``whole`` (its name), ``members`` (M,) are the numbers of the queries in
    it: windows overlap, and the predictions for one number are averaged and count once.
    ``weight`` (M,) is how much each counts in the loss of training, alike without it; scores count all alike.
    """

    positions: Tensor
    ignore: Tensor
    grid: Grid | None = None
    sites: Mapping[int, Tensor] = field(default_factory=dict)
    whole: str | None = None
    members: Tensor | None = None
    footprint_m: Tensor | None = None
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        if self.footprint_m is None and self.grid is not None:
            object.__setattr__(self, "footprint_m", torch.tensor(self.grid.pixel_m, dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, keep: Tensor, grid: Grid | None = None) -> Queries:
        """Return only the queries ``keep``, a mask (M,) or indices; ``grid`` is the one that they fill, if any."""
        return Queries(
            self.positions[keep],
            self.ignore[keep],
            grid,
            {number: sites[keep] for number, sites in self.sites.items()},
            self.whole,
            None if self.members is None else self.members[keep],
            self.footprint_m if self.footprint_m is None or self.footprint_m.ndim < 2 else self.footprint_m[keep],
            None if self.weight is None else self.weight[keep],
        )


@dataclass(frozen=True, slots=True)
class Meta:
    """Where a sample came from.

    ``crs`` (an authority code or WKT) and ``transform`` (a, b, c, d, e, f of x = a·column + b·row + c, y = d·column +
    e·row + f) place the grid of the queries on Earth. ``origin`` is the point (0, 0) of the sample in that CRS.
    ``dates`` are the known dates of the acquisitions, without repeats.
    """

    id: str
    files: tuple[str, ...] = ()
    crs: str | None = None
    transform: tuple[float, float, float, float, float, float] | None = None
    origin: tuple[float, float] | None = None
    dates: tuple[datetime.date, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What a model reads (``atoms``), the positions that it decodes (``queries``; None: the scene) and their target.

    ``target`` is a class (int64, −1 where ignored) or a physical quantity (float32, NaN where ignored): one value for
    the scene, or (M,), one for each query.
    """

    atoms: AtomSet
    target: Tensor
    queries: Queries | None
    meta: Meta

    @classmethod
    def of_scene(cls, atoms: AtomSet, target: float | Tensor, meta: Meta) -> Sample:
        """Return a sample with one target for the whole scene: a class number, or a float."""
        return cls(atoms, _target(torch.as_tensor(target)), None, meta)

    @classmethod
    def of_map(cls, atoms: AtomSet, grid: Grid, target: Array, meta: Meta) -> Sample:
        """Return a sample with one target per pixel of ``grid``: ``target`` (H, W).

        Classes below 0 and regression targets that are NaN are ignored.
        """
        values = _target(tensor(target, "target"))
        if tuple(values.shape) != grid.shape:
            raise AtomsError(f"the target has shape {tuple(values.shape)} on a grid of {grid.shape}")
        values = values.flatten()
        return cls(atoms, values, Queries(grid.positions(), unknown(values), grid), meta)

    @classmethod
    def of_points(
        cls,
        atoms: AtomSet,
        positions: Array,
        target: Array,
        meta: Meta,
        sites: Mapping[int, Tensor] | None = None,
        footprint_m: Tensor | None = None,
    ) -> Sample:
        """Return a sample with one target per position (M, 2); ``sites``, ``footprint_m`` as in :class:`Queries`."""
        values = _target(tensor(target, "target"))
        where = metres(positions, "positions")
        if values.ndim != 1 or tuple(where.shape) != (len(values), 2):
            raise AtomsError(f"{tuple(values.shape)} targets for positions of shape {tuple(where.shape)}")
        queries = Queries(where, unknown(values), sites=sites or {}, footprint_m=footprint_m)
        return cls(atoms, values, queries, meta)

    def __repr__(self) -> str:
        queries = "the scene" if self.queries is None else f"{len(self.queries):,} positions"
        return f"Sample({self.meta.id!r}: {self.atoms!r}, predicted at {queries})"


def queries_at(
    positions: Array, sites: Mapping[int, Tensor] | None = None, footprint_m: Tensor | None = None
) -> Queries:
    """Return queries at ``positions`` (M, 2) without targets, for a prediction."""
    where = metres(positions, "positions")
    nothing_M = torch.ones(len(where), dtype=torch.bool)
    return Queries(where, nothing_M, sites=sites or {}, footprint_m=footprint_m)


def unknown(target: Tensor) -> Tensor:
    """Return where a target is unknown: at negative classes and at regression targets that are NaN."""
    return target.isnan() if target.is_floating_point() else target < 0


def _target(target: Tensor) -> Tensor:
    if target.is_floating_point():
        return floating(target, "target").to(torch.float32)
    classes = target.to(torch.int64)
    return classes if classes.numel() == 0 or int(classes.min()) >= IGNORE else classes.clamp(min=IGNORE)


def dates_of(atoms: AtomSet) -> tuple[datetime.date, ...]:
    """Return the distinct dates of the acquisitions, in order of time."""
    return tuple(sorted({a.date for a in atoms if a.date is not None}))


def grid_values(atoms: AtomSet, index: int, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return the values (C, H, W) of acquisition ``index`` on the grid of its raster, NaN where absent."""
    return atoms.acquisitions[index].observed().T.reshape(-1, *shape).numpy()
