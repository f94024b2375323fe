"""Which atoms each latent reads, as lists without padding, and how lists become blocks of work.

Shapes: N atoms, L latents, K kinds, G segments.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SIMILAR = 0.7  # segments of a block are at least this long, as a share of its longest: the rest is padding


@dataclass(frozen=True, slots=True)
class Cells:
    """Voronoi cells in CSR form: latent l owns the atoms ``start_L1[l] : start_L1[l + 1]`` of the three lists.

    ``order_N`` counts atoms in the natural order (acquisition, site, channel) of the scene, ``site_N`` its sites (the
    first of those that share a position and have no fields) and ``kind_N`` its (acquisition, channel) pairs. Atoms of
    one site stand together.
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
        """Return at most ``budget`` atoms of each cell, sampled uniformly without replacement (paper, B.8)."""
        counts_L = self.counts_L.numpy()
        if int(counts_L.max()) <= budget:
            return self
        full_L = counts_L > budget
        crowded_N = np.repeat(full_L, counts_L)  # only atoms of cells that are too full are sampled
        draw = torch.rand(int(counts_L[full_L].sum()), generator=generator, dtype=torch.float64).numpy()
        kept_N = ~crowded_N
        kept_N[crowded_N] = among_lowest(draw, counts_L[full_L], budget)
        return self._only(torch.from_numpy(kept_N))

    def sample_points(self, points_K: Tensor, count: int, generator: torch.Generator) -> Cells:
        """Return the cells with ``count`` of the points, sampled uniformly without replacement, and all other sites.

        ``points_K`` marks which kinds are of points. All atoms of a point stay or go together.
        """
        point_N = points_K[self.kind_N]
        present_S = torch.zeros(int(self.site_N.max()) + 1, dtype=torch.bool)
        present_S[self.site_N[point_N]] = True
        sites = present_S.nonzero()[:, 0]
        if len(sites) <= count:
            return self
        drawn_S = torch.zeros_like(present_S)
        drawn_S[sites[torch.randperm(len(sites), generator=generator)[:count]]] = True
        return self._only(~point_N | drawn_S[self.site_N])

    def _only(self, kept_N: Tensor) -> Cells:
        """Return the same cells with some of their atoms."""
        before = torch.cat([torch.zeros(1, dtype=torch.long), kept_N.cumsum(0)])
        kept = kept_N.nonzero()[:, 0]
        return Cells(before[self.start_L1], self.order_N[kept], self.site_N[kept], self.kind_N[kept])

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


def among_lowest(draws: NDArray[np.float64], lengths: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Return which numbers are among the ``count`` lowest of their run; runs are longer than that, one after the other.

    Runs whose lengths differ by less than a factor of two are padded and searched at once, which takes a fraction of
    the time of sorting all numbers.
    """
    first = np.cumsum(lengths) - lengths
    lowest_N = np.zeros(len(draws), dtype=np.bool_)
    doublings = np.frexp(lengths)[1]
    for doubling in np.unique(doublings):
        runs = np.flatnonzero(doublings == doubling)
        step = np.arange(lengths[runs].max())
        inside = step < lengths[runs, None]
        index = np.where(inside, first[runs, None] + step, 0)
        lowest = np.argpartition(np.where(inside, draws[index], np.inf), count - 1, axis=1)[:, :count]
        lowest_N[np.take_along_axis(index, lowest, axis=1)] = True
    return lowest_N
