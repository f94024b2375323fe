"""What lies around a query: its nearest latents, and the sites it sees.

A query may have a footprint, such as the pixel of a map. Of an acquisition that is finer it then sees all sites inside,
up to a limit; of one that is as coarse or coarser, and without a footprint, it sees one site at most.

None of it needs weights, so it is built in the workers of a data loader and kept for grids that come again.

Shapes: L latents, M queries, P sites, A acquisitions (or columns, of which one may have several), k neighbours,
2 = (x, y) in metres.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.inputs import metres
from atomizer_io.errors import AtomsError, QueryError, check_count
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.sites import Floats, Ints, colocated_sites, nearest_anchors, sites_within

FAR_M = 20_000.0  # no dataset has larger scenes
MOST_SITES = 128  # of one acquisition that a footprint reads
MOST_ATOMS = 4096  # of one acquisition that a footprint reads, where it has many channels
SAME_SIZE = 1.01  # a footprint that is larger than a pixel by no more than this is that pixel
SitesOfQueries = Mapping[int, Tensor]
Footprint = float | tuple[float, float] | Tensor  # metres along x and y: of all queries, or (M, 2); 0: none


@dataclass(frozen=True, slots=True)
class LocatedQueries:
    """Queries of one scene with their nearest latents (M, k) and, per acquisition, the site that each sees (−1: none).

    Positions of queries and anchors are float64 metres from the scene's centre. Where footprints hold several sites, an
    acquisition has several columns, and ``owners`` is the acquisition of each. ``sites`` is how many sites each
    acquisition of the scene has. On another device than the CPU, ``latents_Mk`` and ``delta_Mk2`` are there, the
    offsets from queries to latents; the rest stays behind.
    """

    latents_Mk: Tensor
    queries_M2: Tensor
    anchors_L2: Tensor
    sites_MA: Tensor | None = None
    sites: tuple[int, ...] = ()
    owners: tuple[int, ...] | None = None  # None: each acquisition has one column
    delta_Mk2: Tensor | None = None

    def __len__(self) -> int:
        return len(self.queries_M2)

    @property
    def bytes(self) -> int:
        """How much memory it takes, roughly."""
        tensors = (self.latents_Mk, self.queries_M2, self.sites_MA)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)

    def at(self, index: slice | Tensor) -> LocatedQueries:
        """Return some of the queries, in any order."""
        return replace(
            self,
            latents_Mk=self.latents_Mk[index],
            queries_M2=self.queries_M2[index],
            sites_MA=None if self.sites_MA is None else self.sites_MA[index],
            delta_Mk2=None if self.delta_Mk2 is None else self.delta_Mk2[index],
        )

    def offsets(self) -> Tensor:
        """Return the offsets from each query to its latents (M, k, 2), in metres."""
        if self.delta_Mk2 is not None:
            return self.delta_Mk2
        return self.anchors_L2[self.latents_Mk] - self.queries_M2[:, None]

    def to(self, device: torch.device, exact: torch.dtype) -> LocatedQueries:
        """Move what the decoder on ``device`` reads there at once; offsets are subtracted in float64 before."""
        if device.type == "cpu":
            return self
        delta_Mk2 = self.offsets().to(exact).to(device)
        return replace(self, latents_Mk=self.latents_Mk.to(device), sites_MA=None, delta_Mk2=delta_Mk2)

    def check(self, geometry: Geometry, index: int) -> None:
        """Refuse a geometry other than that it was made for, as far as counts show; ``index`` names the sample."""
        made_for, here = len(self.anchors_L2), len(geometry.anchors_L2)
        if made_for != here or self.sites != geometry.sites:
            raise QueryError(
                f"the positions given for sample {index} were located among {made_for} latents and {self.sites} sites, "
                f"but the sample has {here} latents and {geometry.sites} sites: locate them again"
            )


def locate(
    config: AtomizerConfig,
    atoms: AtomSet,
    geometry: Geometry,
    positions: Tensor,
    *,
    sites: SitesOfQueries | None = None,
    neighbors: int | None = None,
    footprint_m: Footprint | None = None,
) -> LocatedQueries:
    """Return ``positions`` (M, 2) with their nearest latents and the sites that they see."""
    queries_M2 = local_queries(positions, geometry)
    k = config.neighbors if neighbors is None else neighbors
    check_count("neighbors", k)
    located = near_latents(queries_M2, geometry, k)
    if not config.observation_conditioning:
        checked_sites(len(queries_M2), atoms, sites)
        return located
    sites_MA, owners = seen_sites(queries_M2, atoms, geometry, sites, footprint_m)
    return replace(located, sites_MA=sites_MA, owners=owners)


def local_queries(positions: Tensor, geometry: Geometry) -> Floats:
    """Return query positions (M, 2) relative to the scene's centre; refuse those that are not finite or far away."""
    try:
        global_M2: Floats = metres(positions, "positions").numpy()
    except AtomsError as error:
        raise QueryError(str(error)) from None
    if global_M2.ndim != 2 or global_M2.shape[1] != 2:
        raise QueryError(f"positions have shape {global_M2.shape}, expected (queries, 2): x, y in metres")
    finite = np.isfinite(global_M2).all(axis=1)
    if not finite.all():
        first = int(np.flatnonzero(~finite)[0])
        raise QueryError(f"query {first} is at {global_M2[first].tolist()}: positions must be finite metres")
    queries_M2: Floats = global_M2 - geometry.center_2.numpy()
    outside = np.abs(queries_M2).max(axis=1, initial=0.0)
    # up to one scene's width beyond its border; where clouds hide most of a scene, as far as such scenes reach
    limit = max(1.5 * geometry.extent_m, FAR_M)
    if outside.size and outside.max() > limit:
        worst = int(outside.argmax())
        x, y = global_M2[worst].tolist()
        raise QueryError(
            f"query {worst} at ({x:g}, {y:g}) m lies far outside the scene, which is {geometry.extent_m:g} m wide "
            f"around ({float(geometry.center_2[0]):g}, {float(geometry.center_2[1]):g}): are both in the same frame?"
        )
    return queries_M2


def near_latents(queries_M2: Floats, geometry: Geometry, neighbors: int) -> LocatedQueries:
    """Return the queries with their nearest latents, and without the sites that they see."""
    latents_Mk = nearest_anchors(queries_M2, geometry.anchors_L2.numpy(), neighbors)
    own = torch.from_numpy(latents_Mk), torch.from_numpy(queries_M2), geometry.anchors_L2
    return LocatedQueries(*own, sites=geometry.sites)


def checked_sites(count: int, atoms: AtomSet, named: SitesOfQueries | None) -> dict[int, Tensor]:
    """Return the sites that ``count`` queries name, by acquisition; refuse those that there are not."""
    columns = {}
    for a, indices in (named or {}).items():
        if not 0 <= a < len(atoms):
            raise QueryError(f"sites are given for acquisition {a}, but the scene has {len(atoms)} acquisitions")
        column, sites = torch.as_tensor(indices).to("cpu", torch.long), atoms.acquisitions[a].values.shape[0]
        if column.shape != (count,):
            raise QueryError(
                f"sites of acquisition {a} have shape {tuple(column.shape)}, expected one per query: ({count},)"
            )
        wrong = column[(column < -1) | (column >= sites)]
        if len(wrong):
            raise QueryError(f"site {int(wrong[0])} of acquisition {a} does not exist: it has {sites} (−1: none)")
        columns[a] = column
    return columns


def seen_sites(
    queries_M2: Floats,
    atoms: AtomSet,
    geometry: Geometry,
    named: SitesOfQueries | None,
    footprint_m: Footprint | None,
) -> tuple[Tensor, tuple[int, ...] | None]:
    """Return the sites that each query sees (M, A), −1 for none, and the acquisition of each column.

    Each acquisition has one column (then the latter is None), or as many as footprints hold sites.
    """
    named_by = checked_sites(len(queries_M2), atoms, named)
    size_M2 = footprint_sizes(footprint_m, len(queries_M2))
    columns: list[Tensor] = []  # (M, W) of each acquisition
    occupied = [acquisition.occupied().cpu() for acquisition in atoms]
    for a, acquisition in enumerate(atoms):
        if a in named_by:
            columns.append(named_by[a][:, None])
            continue
        before = ((b, atoms.acquisitions[b]) for b in range(a) if b not in named_by)
        same = (
            b for b, earlier in before if _same_sites(acquisition, earlier) and torch.equal(occupied[a], occupied[b])
        )
        twin = next(same, None)
        if twin is not None:
            columns.append(columns[twin])
            continue
        positions_P2 = (acquisition.positions - geometry.center_2).numpy()
        sites_MW = _sites_of(acquisition, queries_M2, positions_P2, occupied[a].numpy(), size_M2)
        columns.append(torch.from_numpy(sites_MW))
    several = any(column.shape[1] > 1 for column in columns)
    owners = tuple(a for a, column in enumerate(columns) for _ in range(column.shape[1])) if several else None
    return torch.cat(columns, dim=1), owners


def footprint_sizes(footprint_m: Footprint | None, count: int) -> Floats | None:
    """Return footprints as sizes along x and y of each of ``count`` queries (M, 2); None where none has any."""
    if footprint_m is None:
        return None
    size: Floats = np.asarray(footprint_m, dtype=np.float64)
    if size.shape not in ((), (2,), (count, 1), (count, 2)) or not (np.isfinite(size) & (size >= 0)).all():
        raise QueryError(
            f"a footprint is a size in metres, or two along x and y, of all queries or of each of them ({count}, 2): "
            f"finite numbers that are not negative, not {footprint_m!r}"
        )
    return np.broadcast_to(size, (count, 2)) if size.any() else None


def _sites_of(
    acquisition: Acquisition,
    queries_M2: Floats,
    positions_P2: Floats,
    occupied_P: NDArray[np.bool_],
    size_M2: Floats | None,
) -> Ints:
    """Return the sites (M, W) of one acquisition that each query sees."""
    assert acquisition.footprint_m is not None
    pixel_2 = np.array(acquisition.footprint_m)
    pools_M = None if size_M2 is None else (size_M2 > SAME_SIZE * pixel_2).any(axis=1)
    if size_M2 is None or pools_M is None or not pools_M.any():
        return colocated_sites(queries_M2, positions_P2, occupied_P, acquisition.footprint_m)[:, None]
    most = min(MOST_SITES, max(1, MOST_ATOMS // max(1, len(acquisition.channels))))
    # never smaller than a pixel along either axis: the pixel in which the query lies always counts
    within = sites_within(queries_M2[pools_M], positions_P2, occupied_P, np.maximum(size_M2[pools_M], pixel_2), most)
    sites_MW = np.full((len(queries_M2), within.shape[1]), -1, dtype=np.int64)
    sites_MW[pools_M] = within
    rest = queries_M2[~pools_M]
    sites_MW[~pools_M, 0] = colocated_sites(rest, positions_P2, occupied_P, acquisition.footprint_m)
    return sites_MW


def _same_sites(a: Acquisition, b: Acquisition) -> bool:
    """Return whether two acquisitions observed the same sites, as two sensors on one grid do."""
    if a.footprint_m != b.footprint_m or a.positions.shape != b.positions.shape:
        return False
    return torch.equal(a.positions, b.positions)
