"""Which atoms belong to which latent (paper, §3.2 and appendix B.8).

Everything here depends on positions and on which atoms exist, never on weights: it can be built in the workers of a
data loader, kept, and handed to the network.

Shapes: N atoms, S sites, P distinct positions, L latents, 2 = (x, y) in metres.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.acquisition import memory
from atomizer_io.data.atoms import AtomSet
from atomizer_io.errors import AtomsError, ConfigError
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.anchors import HexLattice
from atomizer_io.models.atomizer.geometry.cells import Cells
from atomizer_io.models.atomizer.temporal import time_steps
from atomizer_io.models.sites import TIE_M, Floats, Ints, nearest_anchor

POINTS_SEED = 0  # draws the points where no generator does, as in evaluation


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where everything of one scene lies: anchors around ``center_2``, and one set of cells per time step.

    Positions are relative to the centre of the scene, subtracted in float64: shifting a scene changes nothing.
    """

    center_2: Tensor
    extent_m: float
    anchors_L2: Tensor
    cells: tuple[Cells, ...]
    sites: tuple[int, ...]  # how many each acquisition has
    channels: tuple[int, ...]  # likewise
    points: tuple[bool, ...]  # which acquisitions are of points, not of pixels
    atoms: int  # how many there are in total

    def sample(
        self, budget: int | None, generator: torch.Generator | None = None, max_points: int | None = None
    ) -> Geometry:
        """Return the geometry with at most ``max_points`` points a time step, then ``budget`` atoms in each cell.

        None keeps all. Points that leave the cells can still be queried and seen. Without a generator, the same points
        are sampled each time.
        """
        cells = self.cells
        if max_points is not None and any(self.points):
            points_K = torch.tensor(self.points).repeat_interleave(torch.tensor(self.channels))
            drawing = torch.Generator().manual_seed(POINTS_SEED) if generator is None else generator
            cells = tuple(part.sample_points(points_K, max_points, drawing) for part in cells)
        if budget is not None:
            cells = tuple(part.sample(budget, generator) for part in cells)
        return replace(self, cells=cells)

    def check(self, atoms: AtomSet, index: int) -> None:
        """Refuse atoms other than those it was built for, as far as counts show; ``index`` names the sample."""
        sites, channels = tuple(a.values.shape[0] for a in atoms), tuple(len(a.channels) for a in atoms)
        if (sites, channels, atoms.num_atoms) != (self.sites, self.channels, self.atoms):
            raise ConfigError(
                f"the geometry given for sample {index} was built for {self.atoms} atoms at {self.sites} sites with "
                f"{self.channels} channels, but the sample has {atoms.num_atoms} at {sites} with {channels}"
            )


def geometry_of(
    config: AtomizerConfig,
    atoms: AtomSet,
    *,
    atoms_per_latent: int | None = None,
    max_points: int | None = None,
    anchors: Tensor | None = None,
) -> Geometry:
    """Return the anchors and cells of one scene under the settings ``config``; cells are whole until they are sampled.

    There are as many latents as the points that ``max_points`` leaves need. Without ``anchors`` all but the centre is
    found from positions relative to the first site, so that it is the same to the bit for equal scenes elsewhere.
    """
    if anchors is None:
        first_2 = first_site(atoms)
        geometry = _geometry(config, around(atoms, first_2), atoms_per_latent, max_points)
        return replace(geometry, center_2=geometry.center_2 + first_2)
    return _geometry(config, atoms, atoms_per_latent, max_points, anchors)


def _geometry(
    config: AtomizerConfig,
    atoms: AtomSet,
    atoms_per_latent: int | None,
    max_points: int | None,
    anchors: Tensor | None = None,
) -> Geometry:
    return build_geometry(
        atoms,
        atoms_per_latent=config.atoms_per_latent if atoms_per_latent is None else atoms_per_latent,
        least_latents=config.least_latents if atoms_per_latent is None else 1,  # who names κ gets that many
        max_points=config.max_points if max_points is None else max_points,
        layout=config.layout,
        steps=time_steps(atoms)[0] if config.temporal else None,
        whole_series=config.temporal_residual,
        anchors=anchors,
    )


def first_site(atoms: AtomSet) -> Tensor:
    """Return where the first site of a scene is (2,); zero where it has none."""
    positions = (a.positions[0] for a in atoms if len(a.positions))
    return next(positions, torch.zeros(2, dtype=torch.float64))


def around(atoms: AtomSet, origin_2: Tensor) -> AtomSet:
    """Return the scene with positions relative to ``origin_2``; acquisitions that share positions go on doing so."""
    grids: dict[object, Tensor] = {}
    parts = []
    for a in atoms:
        if (key := memory(a.positions)) not in grids:
            grids[key] = a.positions - origin_2
        parts.append(a.moved(grids[key]))
    return AtomSet(tuple(parts))


def build_geometry(
    atoms: AtomSet,
    *,
    atoms_per_latent: int,
    least_latents: int = 1,
    max_points: int | None = None,
    layout: str = "hexagonal",
    steps: Sequence[tuple[int, ...]] | None = None,
    whole_series: bool = False,
    anchors: Tensor | None = None,
) -> Geometry:
    """Place the anchors of one scene and assign every atom to its nearest.

    ``steps`` lists the acquisitions of each time step (default: all in one); steps share their anchors, of which
    there are ⌈N/κ⌉ for the N atoms of an average step, or of the ``whole_series``, of whose points ``max_points`` are
    to be used, and no fewer than ``least_latents`` where there are as many positions. ``anchors`` (L, 2), in the frame
    of the atoms, overrides the layout.
    """
    x_min, y_min, x_max, y_max = atoms.bounds
    center_2 = np.array([(x_min + x_max) / 2, (y_min + y_max) / 2])
    sites = _Sites.of(atoms, center_2)
    numbers = np.split(np.arange(len(sites.counts_S)), np.cumsum([a.values.shape[0] for a in atoms])[:-1])
    steps = [tuple(range(len(atoms)))] if steps is None else steps
    step_sites = [np.concatenate([numbers[a] for a in step]) for step in steps]
    distinct = np.flatnonzero(sites.twin_S == np.arange(len(sites.twin_S)))
    entering = sum(sites.entering(part, max_points) for part in step_sites)
    counted = 1 if whole_series else len(steps)
    count = max(math.ceil(entering / (counted * atoms_per_latent)), min(least_latents, len(distinct)))

    if anchors is not None:
        anchors_L2 = _checked_anchors(anchors) - center_2
        cell_P = nearest_anchor(sites.positions_S2[distinct], anchors_L2)
    elif layout == "sites":
        distinct = sites.occupied(distinct)
        tied_P2 = np.round(sites.positions_S2[distinct] / TIE_M)
        unique_L2, cell_P = np.unique(tied_P2, axis=0, return_inverse=True)
        anchors_L2, cell_P = unique_L2 * TIE_M, cell_P.reshape(-1)
    else:
        half_x, half_y = (x_max - x_min) / 2, (y_max - y_min) / 2
        lattice = HexLattice.over((-half_x, -half_y, half_x, half_y), count)
        anchors_L2, cell_P = lattice.anchors_L2, lattice.nearest(sites.positions_S2[distinct])
    cell_S = np.zeros(len(sites.counts_S), dtype=np.int64)
    cell_S[distinct] = cell_P
    cell_S = cell_S[sites.twin_S]
    return Geometry(
        center_2=torch.from_numpy(center_2),
        extent_m=max(x_max - x_min, y_max - y_min),
        anchors_L2=torch.from_numpy(anchors_L2),
        cells=tuple(sites.cells(part, cell_S, len(anchors_L2)) for part in step_sites),
        sites=tuple(a.values.shape[0] for a in atoms),
        channels=tuple(len(a.channels) for a in atoms),
        points=tuple(a.footprint_m == (0.0, 0.0) for a in atoms),
        atoms=int(sites.counts_S.sum()),
    )


def site_positions(atoms: AtomSet, center_2: Tensor) -> Tensor:
    """Return where the sites of all acquisitions are (S, 2), from the centre of the scene."""
    return torch.cat([a.positions for a in atoms]) - center_2


@dataclass(frozen=True, slots=True)
class _Sites:
    """The sites of all acquisitions of a scene."""

    positions_S2: Floats
    counts_S: Ints  # valid atoms of each
    twin_S: Ints  # number of the first site that shares its position
    point_S: NDArray[np.bool_]  # whether it is a point
    kind_N: NDArray[np.int32]  # of all atoms in natural order

    @classmethod
    def of(cls, atoms: AtomSet, center_2: Floats) -> _Sites:
        valid = [None if a.valid is None else a.valid.cpu().numpy() for a in atoms]
        channels, counts = [len(a.channels) for a in atoms], [a.values.shape[0] for a in atoms]
        first_kind = np.cumsum([0, *channels[:-1]])
        kinds = [
            np.tile(np.arange(c, dtype=np.int32), count) + np.int32(first)
            if mask is None
            else np.nonzero(mask)[1].astype(np.int32) + np.int32(first)
            for count, c, mask, first in zip(counts, channels, valid, first_kind, strict=True)
        ]
        numbers = zip(counts, channels, valid, strict=True)
        return cls(
            positions_S2=site_positions(atoms, torch.from_numpy(center_2)).numpy(),
            counts_S=np.concatenate([np.full(n, c) if mask is None else mask.sum(axis=1) for n, c, mask in numbers]),
            twin_S=np.concatenate([first + np.arange(n) for n, first in zip(counts, _first_sites(atoms), strict=True)]),
            point_S=np.repeat([a.footprint_m == (0.0, 0.0) for a in atoms], counts),
            kind_N=np.concatenate(kinds),
        )

    def occupied(self, distinct: Ints) -> Ints:
        """Return those of ``distinct`` positions, by their first sites, that have atoms."""
        atoms_P = np.bincount(self.twin_S, weights=self.counts_S, minlength=len(self.twin_S))[distinct]
        return distinct[atoms_P > 0]

    def entering(self, sites: Ints, max_points: int | None) -> int:
        """Return how many atoms of the ``sites`` of a time step enter its cells with at most ``max_points`` points."""
        of_points = sites[self.point_S[sites] & (self.counts_S[sites] > 0)]
        total = int(self.counts_S[sites].sum())
        if max_points is None or len(of_points) <= max_points:
            return total
        of_them, points = int(self.counts_S[of_points].sum()), len(np.unique(self.twin_S[of_points]))
        return total - of_them + math.ceil(of_them * min(1.0, max_points / points))

    def cells(self, sites: Ints, cell_S: Ints, latents: int) -> Cells:
        """Return the cells of the atoms at ``sites``, sorted by cell, then by position, each site with its atoms."""
        sites = sites[self.counts_S[sites] > 0]
        sites = sites[np.argsort(self.twin_S[sites], kind="stable")]
        small = cell_S[sites].astype(np.uint16 if latents <= 1 << 16 else np.int64)  # 16 bits sort in linear time
        sites = sites[np.argsort(small, kind="stable")]
        per_site = self.counts_S[sites]
        before = np.cumsum(per_site) - per_site
        first_S = np.cumsum(self.counts_S) - self.counts_S
        order_N = np.repeat(first_S[sites] - before, per_site) + np.arange(per_site.sum())
        per_cell = np.bincount(cell_S[sites], weights=per_site, minlength=latents).astype(np.int64)
        return Cells(
            start_L1=torch.from_numpy(np.concatenate([[0], np.cumsum(per_cell)])),
            order_N=torch.from_numpy(order_N),
            site_N=torch.from_numpy(np.repeat(self.twin_S[sites].astype(np.int32), per_site)),
            kind_N=torch.from_numpy(self.kind_N[order_N]),
        )


def _first_sites(atoms: AtomSet) -> list[int]:
    """Return the first site of each acquisition; those on the same sites share them, so offsets are encoded once.

    Those with site fields have sites of their own.
    """
    first, firsts = 0, list[int]()
    for i, a in enumerate(atoms):
        twins = (b for b in atoms.acquisitions[:i] if not b.site_fields and not a.site_fields)
        twin = next((b for b in twins if torch.equal(a.positions, b.positions)), None)
        firsts.append(first if twin is None else firsts[atoms.acquisitions.index(twin)])
        first += a.values.shape[0]
    return firsts


def _checked_anchors(anchors: Tensor) -> Floats:
    anchors_L2: Floats = torch.as_tensor(anchors, dtype=torch.float64).cpu().numpy()
    if anchors_L2.ndim != 2 or anchors_L2.shape[1] != 2 or not len(anchors_L2):
        raise ConfigError(f"anchors have shape {anchors_L2.shape}, expected (latents, 2) in metres, at least one")
    if not np.isfinite(anchors_L2).all():
        first = int(np.flatnonzero(~np.isfinite(anchors_L2).all(axis=1))[0])
        raise ConfigError(f"anchor {first} is not finite: anchors are x, y in metres")
    return anchors_L2


def check_scene(atoms: AtomSet, index: int) -> None:
    """Refuse what is no AtomSet or has no valid atom; ``index`` names the sample."""
    if not isinstance(atoms, AtomSet):
        raise AtomsError(f"sample {index} of the batch is a {type(atoms).__name__}, expected an AtomSet")
    if atoms.num_atoms == 0:
        raise AtomsError(
            f"sample {index} of the batch has no valid atom ({atoms!r}): every value is NaN, nodata or masked; "
            "leave the sample out or check its nodata value"
        )
