"""What depends on positions only: where the latents of a scene lie, and what lies around a query.

None of it needs weights, so it is built in the workers of a data loader and kept for grids that come again.

Shapes: L latents, M queries, P sites, A acquisitions, k neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atomizer_io.atoms import Acquisition, AtomSet
from atomizer_io.errors import QueryError
from atomizer_io.inputs import check_count
from atomizer_io.models.atomizer import geometry as geo
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.decoder import Near
from atomizer_io.models.atomizer.geometry import Geometry
from atomizer_io.models.atomizer.temporal import time_steps
from atomizer_io.models.sites import Floats, colocated_sites, nearest_anchors

SitesOfQueries = Mapping[int, Tensor]


@dataclass(frozen=True, slots=True)
class Located:
    """Positions of one scene with their nearest latents and, per acquisition, the site that each sees (−1: none)."""

    near: Near
    sites_MA: Tensor | None
    sites: tuple[int, ...]  # of each acquisition of the scene

    def __len__(self) -> int:
        return len(self.near.queries_M2)

    def check(self, geometry: Geometry, index: int) -> None:
        """Refuse to be used in another geometry than the one it was made for, as far as counting tells."""
        made_for, here = len(self.near.anchors_L2), len(geometry.anchors_L2)
        if made_for != here or self.sites != geometry.sites:
            raise QueryError(
                f"the positions given for sample {index} were located among {made_for} latents and {self.sites} sites, "
                f"but the sample has {here} latents and {geometry.sites} sites: locate them again"
            )


def geometry_of(
    config: AtomizerConfig, atoms: AtomSet, *, atoms_per_latent: int | None = None, anchors: Tensor | None = None
) -> Geometry:
    """Anchors and cells of one scene."""
    return geo.build_geometry(
        atoms,
        atoms_per_latent=config.atoms_per_latent if atoms_per_latent is None else atoms_per_latent,
        layout=config.layout,
        steps=time_steps(atoms)[0] if config.temporal else None,
        anchors=anchors,
    )


def sampled(geometry: Geometry, budget: int | None, generator: torch.Generator | None) -> Geometry:
    """``geometry`` with at most ``budget`` atoms in each cell."""
    if budget is None:
        return geometry
    cells = tuple(part.sample(budget, generator) for part in geometry.cells)
    return replace(geometry, cells=cells)


def locate(
    config: AtomizerConfig,
    atoms: AtomSet,
    geometry: Geometry,
    positions: Tensor,
    *,
    sites: SitesOfQueries | None = None,
    neighbors: int | None = None,
) -> Located:
    """The nearest latents of ``positions`` (M, 2) and the sites that they see."""
    queries_M2 = geo.local_queries(positions, geometry)
    k = config.neighbors if neighbors is None else neighbors
    check_count("neighbors", k)
    return Located(
        near_latents(queries_M2, geometry, k),
        sites_at(queries_M2, atoms, geometry, sites) if config.observation_conditioning else None,
        geometry.sites,
    )


def near_latents(queries_M2: Floats, geometry: Geometry, neighbors: int) -> Near:
    """The nearest latents of each query."""
    latents_Mk = nearest_anchors(queries_M2, geometry.anchors_L2.numpy(), neighbors)
    return Near(torch.from_numpy(latents_Mk), torch.from_numpy(queries_M2), geometry.anchors_L2)


def sites_at(queries_M2: Floats, atoms: AtomSet, geometry: Geometry, named: SitesOfQueries | None) -> Tensor:
    """Site (M, A) of each acquisition that each query sees, −1 for none."""
    named = {} if named is None else named
    unknown = [a for a in named if not 0 <= a < len(atoms)]
    if unknown:
        raise QueryError(f"sites are given for acquisition {unknown[0]}, but the scene has {len(atoms)} acquisitions")
    columns: list[Tensor] = []
    occupied = [acquisition.occupied().cpu() for acquisition in atoms]
    for a, acquisition in enumerate(atoms):
        if a in named:
            column = torch.as_tensor(named[a]).to("cpu", torch.long)
            count = acquisition.values.shape[0]
            if column.shape != (len(queries_M2),):
                raise QueryError(
                    f"sites of acquisition {a} have shape {tuple(column.shape)}, expected one per query: "
                    f"({len(queries_M2)},)"
                )
            wrong = column[(column < -1) | (column >= count)]
            if len(wrong):
                raise QueryError(f"site {int(wrong[0])} of acquisition {a} does not exist: it has {count} (−1: none)")
            columns.append(column)
            continue
        before = ((b, atoms.acquisitions[b]) for b in range(a) if b not in named)
        same = (b for b, other in before if _same_sites(acquisition, other) and torch.equal(occupied[a], occupied[b]))
        twin = next(same, None)
        if twin is not None:
            columns.append(columns[twin])
            continue
        positions_P2, footprint = (acquisition.positions - geometry.center_2).numpy(), acquisition.footprint_m
        assert footprint is not None
        found = colocated_sites(queries_M2, positions_P2, occupied[a].numpy(), footprint)
        columns.append(torch.from_numpy(found))
    return torch.stack(columns, dim=1)


def _same_sites(a: Acquisition, b: Acquisition) -> bool:
    """Whether two acquisitions observed the same sites, as two sensors on one grid do."""
    if a.footprint_m != b.footprint_m or a.positions.shape != b.positions.shape:
        return False
    return torch.equal(a.positions, b.positions)
