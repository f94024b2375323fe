"""Which atoms belong to which latent (paper, §3.2 and appendix B.8).

Everything here depends on positions and on which atoms exist, never on weights: it can be built in the workers of a
data loader, kept, and handed to the network.

Shapes: N atoms, S sites, L latents, 2 = (x, y) in metres.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.atoms import AtomSet
from atomizer_io.errors import AtomsError, ConfigError
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.lattice import HexLattice
from atomizer_io.models.atomizer.temporal import time_steps
from atomizer_io.models.sites import TIE_M, Floats, Ints, nearest_anchor

SIMILAR = 0.7  # segments of a block are at least this long, as a share of its longest: the rest is padding


@dataclass(frozen=True, slots=True)
class Cells:
    """Voronoi cells in CSR form: latent l owns the atoms ``start_L1[l] : start_L1[l + 1]`` of the three lists.

    ``order_N`` counts atoms in the natural order (acquisition, site, channel) of the scene, ``site_N`` its sites (the
    first of those that share a place and have no fields) and ``kind_N`` its (acquisition, channel) pairs. Atoms of one
    site stand together.
    """

    start_L1: Tensor
    order_N: Tensor
    site_N: Tensor
    kind_N: Tensor

    def __len__(self) -> int:
        return self.start_L1.numel() - 1

    @property
    def counts_L(self) -> Tensor:
        """Return the number of atoms of each cell."""
        return self.start_L1.diff()

    def sample(self, budget: int, generator: torch.Generator | None = None) -> Cells:
        """Return at most ``budget`` atoms of each cell, drawn uniformly without replacement (paper, B.8)."""
        counts_L = self.counts_L
        if int(counts_L.max()) <= budget:
            return self
        full_L = counts_L > budget
        cell_N = torch.repeat_interleave(torch.arange(len(self)), counts_L)
        crowded = full_L[cell_N].nonzero()[:, 0]  # only atoms of cells that are too full are drawn
        cell = cell_N[crowded]
        draw = torch.rand(len(crowded), generator=generator, dtype=torch.float64)
        order = torch.from_numpy(np.argsort((cell + draw).numpy()))  # several times as fast as torch's
        first = (counts_L * full_L).cumsum(0) - counts_L * full_L
        rank = torch.arange(len(crowded)) - first[cell]
        kept_N = ~full_L[cell_N]
        kept_N[crowded[order[rank < budget]]] = True
        start_L1 = torch.zeros_like(self.start_L1)
        start_L1[1:] = counts_L.clamp(max=budget).cumsum(0)
        return Cells(start_L1, self.order_N[kept_N], self.site_N[kept_N], self.kind_N[kept_N])

    def take(self, cells: Tensor) -> Cells:
        """Return only these cells, in this order."""
        counts = self.counts_L[cells]
        start = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
        atoms = torch.repeat_interleave(self.start_L1[cells] - start[:-1], counts) + torch.arange(int(start[-1]))
        return Cells(start, self.order_N[atoms], self.site_N[atoms], self.kind_N[atoms])

    def segments(self, longest: int) -> Segments:
        """Return the cells cut into nearly equal pieces of at most ``longest`` atoms; empty cells have none."""
        counts_L = self.counts_L
        pieces_L = (counts_L + longest - 1) // longest
        cell_G = torch.repeat_interleave(torch.arange(len(self)), pieces_L)
        piece_G = torch.arange(cell_G.numel()) - (pieces_L.cumsum(0) - pieces_L)[cell_G]
        count_G, pieces_G = counts_L[cell_G], pieces_L[cell_G]
        begin_G = piece_G * count_G // pieces_G
        end_G = (piece_G + 1) * count_G // pieces_G
        return Segments(cell_G, self.start_L1[cell_G] + begin_G, end_G - begin_G)

    @staticmethod
    def concatenate(parts: Sequence[Cells], atoms: Sequence[int], sites: Sequence[int], kinds: Sequence[int]) -> Cells:
        """Join the cells of several scenes or time steps; the lists say where the numbering of each part begins."""
        total, starts = 0, [torch.zeros(1, dtype=torch.long)]
        for part in parts:
            starts.append(part.start_L1[1:] + total)
            total += int(part.start_L1[-1])
        return Cells(
            torch.cat(starts),
            torch.cat([part.order_N + first for part, first in zip(parts, atoms, strict=True)]),
            torch.cat([part.site_N + first for part, first in zip(parts, sites, strict=True)]),
            torch.cat([part.kind_N + first for part, first in zip(parts, kinds, strict=True)]),
        )


@dataclass(frozen=True, slots=True)
class Segments:
    """Runs of atoms within cells: ``cell_G``, and ``length_G`` atoms from ``begin_G`` on."""

    cell_G: Tensor
    begin_G: Tensor
    length_G: Tensor

    def blocks(self, slots: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield segments of similar length, padded: numbers (K,), atoms (K, n) and mask (K, n), with K·n ≤ slots."""
        by_length = torch.argsort(self.length_G, stable=True)
        longest = self.length_G[by_length].flip(0).tolist()
        segments = by_length.flip(0)
        done = 0
        while done < len(longest):
            n = longest[done]
            alike = bisect.bisect_right(longest, -SIMILAR * n, lo=done, key=operator.neg)
            chosen_K = segments[done : min(alike, done + max(1, slots // n))]
            step_n = torch.arange(n)
            mask_Kn = step_n < self.length_G[chosen_K, None]
            yield chosen_K, self.begin_G[chosen_K, None] + torch.where(mask_Kn, step_n, 0), mask_Kn
            done += len(chosen_K)


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
    atoms: int  # how many there are in total

    def sample(self, budget: int | None, generator: torch.Generator | None = None) -> Geometry:
        """Return the geometry with at most ``budget`` atoms in each cell; None keeps whole cells."""
        if budget is None:
            return self
        return replace(self, cells=tuple(part.sample(budget, generator) for part in self.cells))

    def check(self, atoms: AtomSet, index: int) -> None:
        """Refuse atoms other than those it was built for, as far as counting tells; ``index`` names the sample."""
        sites, channels = tuple(a.values.shape[0] for a in atoms), tuple(len(a.channels) for a in atoms)
        if (sites, channels, atoms.num_atoms) != (self.sites, self.channels, self.atoms):
            raise ConfigError(
                f"the geometry given for sample {index} was built for {self.atoms} atoms at {self.sites} sites with "
                f"{self.channels} channels, but the sample has {atoms.num_atoms} at {sites} with {channels}"
            )


def geometry_of(
    config: AtomizerConfig, atoms: AtomSet, *, atoms_per_latent: int | None = None, anchors: Tensor | None = None
) -> Geometry:
    """Return the anchors and cells of one scene under the settings ``config``."""
    return build_geometry(
        atoms,
        atoms_per_latent=config.atoms_per_latent if atoms_per_latent is None else atoms_per_latent,
        layout=config.layout,
        steps=time_steps(atoms)[0] if config.temporal else None,
        anchors=anchors,
    )


def build_geometry(
    atoms: AtomSet,
    *,
    atoms_per_latent: int,
    layout: str = "hexagonal",
    steps: Sequence[tuple[int, ...]] | None = None,
    anchors: Tensor | None = None,
) -> Geometry:
    """Place the anchors of one scene and assign every atom to its nearest.

    ``steps`` lists the acquisitions of each time step (default: all in one); steps share their anchors, of which
    there are ⌈N/κ⌉ for the N atoms of an average step. ``anchors`` (L, 2), in the frame of the atoms, overrides the
    layout.
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

    lattice = None
    if anchors is not None:
        anchors_L2 = _checked_anchors(anchors) - center_2
    elif layout == "sites":
        anchors_L2 = np.unique(np.round(positions_S2[counts_S > 0] / TIE_M), axis=0) * TIE_M
    else:
        half_x, half_y = (x_max - x_min) / 2, (y_max - y_min) / 2
        count = math.ceil(int(counts_S.sum()) / (len(steps) * atoms_per_latent))
        lattice = HexLattice.over((-half_x, -half_y, half_x, half_y), count)
        anchors_L2 = lattice.anchors_L2

    firsts = _places(atoms)
    place_S = np.concatenate([first + np.arange(a.values.shape[0]) for a, first in zip(atoms, firsts, strict=True)])
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
    sites = np.cumsum([0, *(a.values.shape[0] for a in atoms)])
    return Geometry(
        center_2=torch.from_numpy(center_2),
        extent_m=max(x_max - x_min, y_max - y_min),
        anchors_L2=torch.from_numpy(anchors_L2),
        cells=tuple(
            _cells(
                np.concatenate([np.arange(sites[a], sites[a + 1]) for a in step]),
                cell_S=cell_S,
                place_S=place_S,
                counts_S=counts_S,
                first_S=first_S,
                kind_N=kind_N,
                latents=len(anchors_L2),
            )
            for step in steps
        ),
        sites=tuple(a.values.shape[0] for a in atoms),
        channels=tuple(channels),
        atoms=int(counts_S.sum()),
    )


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
