"""Flips and quarter turns: positions move, values stay, nothing is resampled."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from atomizer_io.data.acquisition import memory
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Sample


def turned(sample: Sample, quarter_turns: int, flip: bool) -> Sample:
    """Return ``sample`` mirrored at the north–south axis if ``flip``, then turned counter-clockwise about its origin.

    The queries keep their order, so the target stays as it is; they no longer fill a north-up grid.
    """
    if not flip and not quarter_turns % 4:
        return sample
    matrix = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64).matrix_power(quarter_turns % 4)
    if flip:
        matrix = matrix @ torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)

    grids: dict[object, Tensor] = {}  # acquisitions on one grid share their positions, and go on sharing them

    def moved(positions: Tensor) -> Tensor:
        if (key := memory(positions)) not in grids:
            grids[key] = positions @ matrix.T
        return grids[key]

    sideways = quarter_turns % 2 == 1
    acquisitions = []
    for acquisition in sample.atoms:
        across, along = acquisition.footprint_m or (0.0, 0.0)
        footprint = (along, across) if sideways else (across, along)
        acquisitions.append(acquisition.moved(moved(acquisition.positions), footprint))
    queries = sample.queries
    if queries is not None:
        size_m = queries.footprint_m
        size_m = size_m.flip(-1) if sideways and size_m is not None else size_m
        queries = replace(queries, positions=moved(queries.positions), grid=None, footprint_m=size_m)
    return replace(sample, atoms=AtomSet(tuple(acquisitions)), queries=queries)


def augmented(sample: Sample, generator: torch.Generator, *, flips: bool = True, turns: bool = True) -> Sample:
    """Return the sample in one of the eight arrangements of a square, each as likely as any other."""
    flip = flips and bool(torch.randint(2, (), generator=generator))
    return turned(sample, int(torch.randint(4, (), generator=generator)) if turns else 0, flip)
