"""Windows in which Perceiver-IO reads a map that is wider than the crops it was trained on.

Windows lie on a lattice that covers the scene, and overlap where its width is no multiple of theirs. A window holds the
sites whose centres lie in it, as the crops of training do, and decodes the queries that are nearest to its middle.

Shapes: P sites, M queries, W windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition, memory
from atomizer_io.data.atoms import AtomSet


@dataclass(frozen=True, slots=True)
class Stretch:
    """The windows along one axis: their middles (W,), and how far each reaches to both sides."""

    middle_W: Tensor
    reach_m: float

    @classmethod
    def over(cls, first: float, last: float, side_m: float, pixel_m: float) -> Self:
        """Return windows of ``side_m`` from ``first`` to ``last``; one that is a pixel longer is still a single one."""
        if last - first <= side_m + pixel_m:
            return cls(torch.tensor([(first + last) / 2], dtype=torch.float64), math.inf)
        count = math.ceil((last - first) / side_m - 1e-6)
        middle_W = torch.linspace(first + side_m / 2, last - side_m / 2, count, dtype=torch.float64)
        return cls(middle_W, side_m / 2)

    def __len__(self) -> int:
        return len(self.middle_W)

    def nearest(self, where_M: Tensor) -> Tensor:
        """Return the number of the window (M,) whose middle is nearest."""
        if len(self) == 1:
            return torch.zeros(len(where_M), dtype=torch.long)
        step_m = self.middle_W[1] - self.middle_W[0]
        return ((where_M - self.middle_W[0]) / step_m).round().clamp(0, len(self) - 1).long()

    def inside(self, where_P: Tensor) -> list[Tensor]:
        """Return, for each window, the numbers of the coordinates that lie in it."""
        sorted_P, order_P = where_P.sort()
        first_W = torch.searchsorted(sorted_P, self.middle_W - self.reach_m)
        last_W = torch.searchsorted(sorted_P, self.middle_W + self.reach_m)
        return [order_P[first:last] for first, last in zip(first_W.tolist(), last_W.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class Lattice:
    """The windows over a scene, numbered column by column."""

    columns: Stretch
    rows: Stretch

    @classmethod
    def over(cls, atoms: AtomSet, side_m: float, pixel_m: float) -> Self:
        """Return windows of ``side_m`` over all that was observed; ``pixel_m`` is the size of a pixel."""
        where_P2 = torch.cat([part.positions[part.occupied().cpu()] for part in atoms])
        low, high = where_P2.amin(dim=0) - pixel_m / 2, where_P2.amax(dim=0) + pixel_m / 2
        return cls(*(Stretch.over(*ends, side_m, pixel_m) for ends in zip(low.tolist(), high.tolist(), strict=True)))

    def __len__(self) -> int:
        return len(self.columns) * len(self.rows)

    def nearest(self, where_M2: Tensor) -> Tensor:
        """Return the number of the window (M,) whose middle is nearest to each position."""
        return self.columns.nearest(where_M2[:, 0]) * len(self.rows) + self.rows.nearest(where_M2[:, 1])

    def middles(self, number_W: Tensor) -> Tensor:
        """Return the middles (W, 2) of windows."""
        column_W, row_W = number_W // len(self.rows), number_W % len(self.rows)
        return torch.stack([self.columns.middle_W[column_W], self.rows.middle_W[row_W]], dim=1)

    def sites(self, acquisition: Acquisition) -> dict[int, Tensor]:
        """Return the observed sites of an acquisition in each window that has any, in their order."""
        site_P = acquisition.occupied().cpu().nonzero()[:, 0]
        where_P2 = acquisition.positions[site_P]
        sites = {}
        for column, of_column in enumerate(self.columns.inside(where_P2[:, 0])):
            for row, of_row in enumerate(self.rows.inside(where_P2[of_column, 1])):
                if len(of_row):
                    sites[column * len(self.rows) + row] = site_P[of_column[of_row]].sort().values
        return sites


def cut(atoms: AtomSet, where_M2: Tensor, lattice: Lattice) -> list[tuple[AtomSet, Tensor]]:
    """Return the atoms of each window, and which of the queries at ``where_M2`` it decodes, where there are any.

    Queries whose own window shows nothing go to the nearest one that does.
    """
    grids: dict[object, dict[int, Tensor]] = {}  # acquisitions that were made on one grid, whole, are cut alike
    sites = []
    for part in atoms:
        key = memory(part.positions) if part.valid is None else id(part)
        if key not in grids:
            grids[key] = lattice.sites(part)
        sites.append(grids[key])
    shown_W = torch.tensor(sorted({window for by_window in sites for window in by_window}))
    window_M = lattice.nearest(where_M2)
    blind_M = ~torch.isin(window_M, shown_W)
    if bool(blind_M.any()):
        from scipy.spatial import KDTree  # to build a model torch is enough

        _, nearest = KDTree(lattice.middles(shown_W).numpy()).query(lattice.middles(window_M[blind_M]).numpy())
        window_M[blind_M] = shown_W[torch.from_numpy(nearest)]
    if not len(window_M):  # no queries: the first window, with none
        return [(_part(atoms, sites, int(shown_W[0])), torch.arange(0))]
    queried_W, count_W = window_M.unique(return_counts=True)
    rows = window_M.argsort(stable=True).split(count_W.tolist())
    return [(_part(atoms, sites, window), row) for window, row in zip(queried_W.tolist(), rows, strict=True)]


def _part(atoms: AtomSet, sites: list[dict[int, Tensor]], window: int) -> AtomSet:
    """Return what was observed in a window."""
    pairs = zip(atoms, sites, strict=True)
    return AtomSet(tuple(part.with_sites(sites_W[window]) for part, sites_W in pairs if window in sites_W))
