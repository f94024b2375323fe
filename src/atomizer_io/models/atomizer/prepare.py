"""What a loader worker prepares of a sample for Atomizer-IO: cells and neighbours, which need no weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Queries
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.cache import GeometryCache
from atomizer_io.models.atomizer.geometry.neighbors import LocatedQueries
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.base import Cost

KEPT_GEOMETRIES = 32  # per worker, such as the rotations and flips of a few grids


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSample:
    """Atoms with their cells and, for dense tasks, queries with their nearest latents and the sites they see."""

    atoms: AtomSet
    geometry: Geometry
    located: LocatedQueries | None

    def in_context(self) -> Tensor | None:
        """Return which queries (M,) look at a point of which an atom is in a cell; None where all points are."""
        geometry, cells = self.geometry, self.geometry.cells
        whole = sum(len(part.order_N) for part in cells) == geometry.atoms
        if whole or not any(geometry.points) or self.located is None or self.located.sites_MA is None:
            return None
        firsts = [sum(geometry.sites[:number]) for number in range(len(geometry.sites))]
        sites = [first + a.valid_mask().nonzero()[:, 0] for a, first in zip(self.atoms, firsts, strict=True)]
        entered_S = torch.zeros(sum(geometry.sites), dtype=torch.bool)
        entered_S[torch.cat(sites)[torch.cat([part.order_N for part in cells])]] = True
        inside_M = torch.zeros(len(self.located), dtype=torch.bool)
        owners = range(len(geometry.points)) if self.located.owners is None else self.located.owners
        for column, number in ((column, number) for column, number in enumerate(owners) if geometry.points[number]):
            site_M = self.located.sites_MA[:, column]
            inside_M |= (site_M >= 0) & entered_S[firsts[number] + site_M.clamp(min=0)]
        return inside_M


class SamplePreparer:
    """Prepares samples for models of one ``config``; keeps the geometry of grids that come again."""

    def __init__(self, config: AtomizerConfig, dense: bool) -> None:
        self.config, self.dense = config, dense
        self.cache = GeometryCache(config, KEPT_GEOMETRIES)

    def __call__(
        self,
        atoms: AtomSet,
        queries: Queries | None,
        cost: Cost = Cost(),
        generator: torch.Generator | None = None,
    ) -> PreparedSample:
        """Build cells, cut to ``cost.budget`` atoms each where it is given, and locate the queries.

        ``generator`` also draws the points that enter the cells; without one they are the same each time.
        """
        located, latents = None, {"atoms_per_latent": cost.atoms_per_latent, "max_points": cost.max_points}
        if queries is None or not self.dense:
            geometry = self.cache.geometry(atoms, **latents)
        else:
            geometry, located = self.cache.prepare(
                atoms,
                queries.positions,
                sites=queries.sites,
                neighbors=cost.neighbors,
                footprint_m=queries.footprint_m,
                **latents,
            )
        most = self.config.max_points if cost.max_points is None else cost.max_points
        return PreparedSample(atoms, geometry.sample(cost.budget, generator, most), located)

    def __getstate__(self) -> dict[str, Any]:  # kept geometries are not pickled: workers build their own
        return {"config": self.config, "dense": self.dense}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"], state["dense"])  # type: ignore[misc]
