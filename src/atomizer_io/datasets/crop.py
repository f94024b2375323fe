"""Crops of samples: the sites and queries inside a box, nothing moved and nothing resampled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition, memory
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import ConfigError
from atomizer_io.io.crs import Transform, shifted

Box = tuple[float, float, float, float]  # west, south, east, north


def cropped(sample: Sample, box: Box) -> Sample:
    """Return the sites and queries of ``sample`` within ``box`` (metres; west and south sides included)."""
    kept: list[Acquisition] = []
    numbers: dict[int, tuple[int, Tensor]] = {}  # old number of an acquisition -> new number, its sites in the box
    grids: dict[object, tuple[Tensor, Tensor]] = {}  # acquisitions on one grid share their positions
    for number, acquisition in enumerate(sample.atoms):
        positions = acquisition.positions
        if (key := memory(positions)) not in grids:
            inside = within(positions, box).nonzero()[:, 0]
            grids[key] = inside, positions[inside]
        inside, positions = grids[key]
        if len(inside):
            numbers[number] = (len(kept), inside)
            kept.append(acquisition.with_sites(inside, positions))
    queries, target = sample.queries, sample.target
    if queries is not None:
        inside = within(queries.positions, box).nonzero()[:, 0]
        sites = {
            numbers[number][0]: renumbered(of, numbers[number][1], len(sample.atoms.acquisitions[number].positions))
            for number, of in queries.sites.items()
            if number in numbers
        }
        grid, transform = queries.grid, sample.meta.transform
        if grid is not None:
            grid, transform = part_of_grid(grid, box, transform)
        queries = replace(queries, sites=sites).part(inside, grid)
        sample = replace(sample, meta=replace(sample.meta, transform=transform), target=target[inside])
    return replace(sample, atoms=AtomSet(tuple(kept)), queries=queries)


def renumbered(sites: Tensor, kept: Tensor, count: int) -> Tensor:
    """Return the new numbers of ``sites`` among the ``kept`` of ``count``; −1 for those that were not kept, or none."""
    number = torch.full((count + 1,), -1)  # the last is for none
    number[kept] = torch.arange(len(kept))
    return number[sites]


def part_of_grid(grid: Grid, box: Box, transform: Transform | None) -> tuple[Grid | None, Transform | None]:
    """Return the pixels of ``grid`` whose centres lie in the box, with their transform; None if there are none."""
    centres_HW2 = grid.shared_positions().reshape(*grid.shape, 2)
    west, south, east, north = box
    x, y = centres_HW2[0, :, 0], centres_HW2[:, 0, 1]
    columns = ((x >= west) & (x < east)).nonzero()[:, 0]
    rows = ((y >= south) & (y < north)).nonzero()[:, 0]
    if not len(rows) or not len(columns):
        return None, None
    center = ((x[columns[0]] + x[columns[-1]]) / 2, (y[rows[0]] + y[rows[-1]]) / 2)
    part = Grid(len(rows), len(columns), grid.gsd_m, (float(center[0]), float(center[1])))
    if transform is None:
        return part, None
    return part, shifted(transform, int(rows[0]), int(columns[0]))


def within(positions: Tensor, box: Box) -> Tensor:
    """Return which positions (P, 2) lie in the box."""
    west, south, east, north = box
    x, y = positions[:, 0], positions[:, 1]
    return (x >= west) & (x < east) & (y >= south) & (y < north)


@dataclass(frozen=True)
class SpatialSplit:
    """A transform for datasets that crops samples: ``share`` is (west, south, east, north), each from 0 to 1.

    With one large scene, its west can be for training and its east for testing.
    """

    share: Box

    def __post_init__(self) -> None:
        west, south, east, north = self.share
        if not (0 <= west < east <= 1 and 0 <= south < north <= 1):
            raise ConfigError(f"part {self.share} is not (west, south, east, north) with 0 ≤ west < east ≤ 1")

    def __call__(self, sample: Sample) -> Sample:
        """Return the part of ``sample``."""
        grid = None if sample.queries is None else sample.queries.grid
        if grid is None:
            x, y, right, top = sample.atoms.bounds
        else:  # the same for every scene, whatever is missing in it
            (x, y), (width, height) = grid.center_m, grid.size_m
            x, y, right, top = x - width / 2, y - height / 2, x + width / 2, y + height / 2
        west, south, east, north = self.share
        width, height = right - x, top - y
        # a point may lie on the far edge of its sample, and would be in no part
        far_x, far_y = x + east * width if east < 1 else math.inf, y + north * height if north < 1 else math.inf
        return cropped(sample, (x + west * width, y + south * height, far_x, far_y))


def random_box(
    sample: Sample, size_m: float, generator: torch.Generator, bounds: Box | None = None, inside: bool = True
) -> Box:
    """Return a box of ``size_m`` somewhere in the sample, or all of it if it is smaller.

    Its centre is anywhere in the sample, or else what lies along the border would hardly ever be in a box. With
    ``inside`` the box is then moved until all of it is in the sample. ``bounds`` are those of the sample's atoms,
    where they are known already.
    """
    west, south, east, north = sample.atoms.bounds if bounds is None else bounds
    shares = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    corner = []
    for first, last, share in zip((west, south), (east, north), shares, strict=True):
        begin = first + share * (last - first) - size_m / 2
        begin = min(max(begin, first), last - size_m) if inside else begin
        corner.append(first if last - first <= size_m else begin)
    return (corner[0], corner[1], corner[0] + size_m, corner[1] + size_m)


def random_crops(dataset: Dataset, count: int, size_m: float, seed: int = 0) -> Iterator[Sample]:
    """Yield ``count`` crops of ``size_m`` from anywhere in the samples, about as many from each, in their order."""
    if count < 1 or not size_m > 0:
        raise ConfigError(f"{count} crops of {size_m:g} m: both numbers must be positive")
    generator = torch.Generator().manual_seed(seed)
    for number in range(min(count, len(dataset))):
        item = dataset[number]
        if isinstance(item, Sample):
            for _ in range(count // len(dataset) + (number < count % len(dataset))):
                yield cropped(item, random_box(item, size_m, generator))
