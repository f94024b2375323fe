"""Which atoms belong to which latent (paper, §3.2 and appendix B.8).

Everything here depends on positions and on which atoms exist, never on weights: it can be built in the workers of a
data loader, kept, and handed to the network.

Shapes: N atoms, S sites, L latents, 2 = (x, y) in metres.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.atoms import AtomSet
from atomizer_io.errors import AtomsError, ConfigError
from atomizer_io.models.atomizer.cells import Cells
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.lattice import HexLattice
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

        None keeps all. Points that leave the cells can still be asked and seen. Without a generator, the same points
        are drawn each time.
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
        """Refuse atoms other than those it was built for, as far as counting tells; ``index`` names the sample."""
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

    There are as many latents as the points that ``max_points`` leaves need.
    """
    return build_geometry(
        atoms,
        atoms_per_latent=config.atoms_per_latent if atoms_per_latent is None else atoms_per_latent,
        max_points=config.max_points if max_points is None else max_points,
        layout=config.layout,
        steps=time_steps(atoms)[0] if config.temporal else None,
        anchors=anchors,
    )


def build_geometry(
    atoms: AtomSet,
    *,
    atoms_per_latent: int,
    max_points: int | None = None,
    layout: str = "hexagonal",
    steps: Sequence[tuple[int, ...]] | None = None,
    anchors: Tensor | None = None,
) -> Geometry:
    """Place the anchors of one scene and assign every atom to its nearest.

    ``steps`` lists the acquisitions of each time step (default: all in one); steps share their anchors, of which
    there are ⌈N/κ⌉ for the N atoms of an average step, of whose points ``max_points`` are to be used. ``anchors``
    (L, 2), in the frame of the atoms, overrides the layout.
    """
    x_min, y_min, x_max, y_max = atoms.bounds
    center_2 = np.array([(x_min + x_max) / 2, (y_min + y_max) / 2])
    steps = [tuple(range(len(atoms)))] if steps is None else steps
    positions_S2 = np.concatenate([a.positions.numpy() for a in atoms]) - center_2
    valid = [None if a.valid is None else a.valid.cpu().numpy() for a in atoms]
    channels = [len(a.channels) for a in atoms]
    counts_S = np.concatenate(
        [
            np.full(a.values.shape[0], c) if mask is None else mask.sum(axis=1)
            for a, c, mask in zip(atoms, channels, valid, strict=True)
        ]
    )

    firsts = _places(atoms)
    place_S = np.concatenate([first + np.arange(a.values.shape[0]) for a, first in zip(atoms, firsts, strict=True)])
    sites = np.cumsum([0, *(a.values.shape[0] for a in atoms)])
    points = tuple(a.footprint_m == (0.0, 0.0) for a in atoms)
    step_sites = [np.concatenate([np.arange(sites[a], sites[a + 1]) for a in step]) for step in steps]

    lattice = None
    if anchors is not None:
        anchors_L2 = _checked_anchors(anchors) - center_2
    elif layout == "sites":
        anchors_L2 = np.unique(np.round(positions_S2[counts_S > 0] / TIE_M), axis=0) * TIE_M
    else:
        half_x, half_y = (x_max - x_min) / 2, (y_max - y_min) / 2
        point_S = np.repeat(points, np.diff(sites))
        entering = sum(_entering(part, counts_S, place_S, point_S, max_points) for part in step_sites)
        count = math.ceil(entering / (len(steps) * atoms_per_latent))
        lattice = HexLattice.over((-half_x, -half_y, half_x, half_y), count)
        anchors_L2 = lattice.anchors_L2

    places = np.flatnonzero(place_S == np.arange(len(place_S)))
    cell_S = np.zeros(len(counts_S), dtype=np.int64)
    cell_S[places] = (
        nearest_anchor(positions_S2[places], anchors_L2) if lattice is None else lattice.nearest(positions_S2[places])
    )
    cell_S = cell_S[place_S]
    first_S = np.cumsum(counts_S) - counts_S
    first_kind = np.cumsum([0, *channels[:-1]])
    kind_N = np.concatenate(
        [
            np.tile(np.arange(c, dtype=np.int32), a.values.shape[0]) + np.int32(first)
            if mask is None
            else np.nonzero(mask)[1].astype(np.int32) + np.int32(first)
            for a, c, mask, first in zip(atoms, channels, valid, first_kind, strict=True)
        ]
    )
    return Geometry(
        center_2=torch.from_numpy(center_2),
        extent_m=max(x_max - x_min, y_max - y_min),
        anchors_L2=torch.from_numpy(anchors_L2),
        cells=tuple(
            _cells(
                part,
                cell_S=cell_S,
                place_S=place_S,
                counts_S=counts_S,
                first_S=first_S,
                kind_N=kind_N,
                latents=len(anchors_L2),
            )
            for part in step_sites
        ),
        sites=tuple(a.values.shape[0] for a in atoms),
        channels=tuple(channels),
        points=points,
        atoms=int(counts_S.sum()),
    )


def _entering(sites: Ints, counts_S: Ints, place_S: Ints, point_S: NDArray[np.bool_], max_points: int | None) -> int:
    """Return how many atoms of the ``sites`` of a time step enter its cells: those of ``max_points`` points count."""
    of_points = sites[point_S[sites] & (counts_S[sites] > 0)]
    total, found = int(counts_S[sites].sum()), int(counts_S[of_points].sum())
    if max_points is None or len(of_points) <= max_points:
        return total
    points = len(np.unique(place_S[of_points]))
    return total - found + math.ceil(found * min(1.0, max_points / points))


def _places(atoms: AtomSet) -> list[int]:
    """Return the first place of each acquisition; those on the same sites share places, so offsets are encoded once.

    Those with site fields keep places of their own.
    """
    first, places = 0, list[int]()
    for i, a in enumerate(atoms):
        twins = (b for b in atoms.acquisitions[:i] if not b.site_fields and not a.site_fields)
        twin = next((b for b in twins if torch.equal(a.positions, b.positions)), None)
        places.append(first if twin is None else places[atoms.acquisitions.index(twin)])
        first += a.values.shape[0]
    return places


def _cells(
    sites: Ints, *, cell_S: Ints, place_S: Ints, counts_S: Ints, first_S: Ints, kind_N: NDArray[np.int32], latents: int
) -> Cells:
    """Return the cells of the atoms at ``sites``, which are sorted by cell, then by place, each with its atoms."""
    sites = sites[counts_S[sites] > 0]
    sites = sites[np.argsort(place_S[sites], kind="stable")]
    small = cell_S[sites].astype(np.uint16 if latents <= 1 << 16 else np.int64)  # 16 bits sort in linear time
    sites = sites[np.argsort(small, kind="stable")]
    per_site = counts_S[sites]
    before = np.cumsum(per_site) - per_site
    order_N = np.repeat(first_S[sites] - before, per_site) + np.arange(per_site.sum())
    per_cell = np.bincount(cell_S[sites], weights=per_site, minlength=latents).astype(np.int64)
    return Cells(
        start_L1=torch.from_numpy(np.concatenate([[0], np.cumsum(per_cell)])),
        order_N=torch.from_numpy(order_N),
        site_N=torch.from_numpy(np.repeat(place_S[sites].astype(np.int32), per_site)),
        kind_N=torch.from_numpy(kind_N[order_N]),
    )


def _checked_anchors(anchors: Tensor) -> Floats:
    given: Floats = torch.as_tensor(anchors, dtype=torch.float64).cpu().numpy()
    if given.ndim != 2 or given.shape[1] != 2 or not len(given):
        raise ConfigError(f"anchors have shape {given.shape}, expected (latents, 2) in metres, at least one")
    if not np.isfinite(given).all():
        first = int(np.flatnonzero(~np.isfinite(given).all(axis=1))[0])
        raise ConfigError(f"anchor {first} is not finite: anchors are x, y in metres")
    return given


def check_scene(atoms: AtomSet, index: int) -> None:
    """Refuse what is no AtomSet or has no valid atom; ``index`` names the sample."""
    if not isinstance(atoms, AtomSet):
        raise AtomsError(f"sample {index} of the batch is a {type(atoms).__name__}, expected an AtomSet")
    if atoms.num_atoms == 0:
        raise AtomsError(
            f"sample {index} of the batch has no valid atom ({atoms!r}): every value is NaN, nodata or masked; "
            "leave the sample out or check its nodata value"
        )
