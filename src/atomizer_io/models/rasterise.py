"""Atoms on a grid of fixed channels, for models that cannot read them as they are.

Shapes: T time steps, C channels of the problem, H × W pixels, M queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from atomizer_io.atoms import Acquisition, AtomSet
from atomizer_io.channels import Channel
from atomizer_io.errors import UnknownChannelError
from atomizer_io.grid import Grid
from atomizer_io.models.sites import colocated_sites

MOST_PIXELS = 1 << 26


@dataclass(frozen=True, slots=True, eq=False)
class Raster:
    """Values on one grid: ``values_TCHW`` are standardised, 0 where nothing was observed; ``present_TCHW`` says where.

    ``day_T`` is the day of year of each time step, NaN where it is unknown.
    """

    values_TCHW: Tensor
    present_TCHW: Tensor
    day_T: Tensor
    grid: Grid

    def pixels(self, positions_M2: Tensor) -> Tensor:
        """Return the number (M,) of the pixel that each position lies in, row by row; outside, the nearest one."""
        step_x, step_y = self.grid.pixel_m
        west = self.grid.center_m[0] - self.grid.size_m[0] / 2
        north = self.grid.center_m[1] + self.grid.size_m[1] / 2
        column = ((positions_M2[:, 0] - west) / step_x).floor().clamp(0, self.grid.width - 1)
        row = ((north - positions_M2[:, 1]) / step_y).floor().clamp(0, self.grid.height - 1)
        return (row * self.grid.width + column).long()


def rasterise(
    atoms: AtomSet, channels: Sequence[Channel], *, gsd_m: float | None = None, around: Tensor | None = None
) -> Raster:
    """Put ``atoms`` on one grid with the fixed ``channels``, standardised by their statistics, one step per date.

    Pixels have the size ``gsd_m``, by default that of the finest raster. A pixel takes the value of the site that
    covers it, so coarser rasters are repeated; of points in a pixel it takes the mean. The grid covers all sites and
    the positions ``around`` (M, 2). A channel that is not among ``channels`` has no place on the grid and is an error.
    """
    slots = {(channel.sensor, channel.name): number for number, channel in enumerate(channels)}
    lost = [c for c in atoms.channels if (c.sensor, c.name) not in slots]
    if lost:
        raise UnknownChannelError(
            f"the model has no input for {lost[0].sensor} {lost[0].name}: it was made for "
            f"{', '.join(f'{c.sensor} {c.name}' for c in channels[:12])}{', …' * (len(channels) > 12)}; leave it out"
        )
    grid = grid_over(atoms, gsd_m, around)
    days = sorted({_day(acquisition) for acquisition in atoms}, key=lambda day: (day is None, day or 0.0))
    values = torch.zeros(len(days), len(channels), grid.height * grid.width)
    present = torch.zeros(values.shape, dtype=torch.bool)
    centres = grid.shared_positions().numpy()
    for acquisition in atoms:
        step = days.index(_day(acquisition))
        numbers = [slots[channel.sensor, channel.name] for channel in acquisition.channels]
        means, spreads = _statistics(acquisition, [channels[number] for number in numbers])
        standard_PC = (acquisition.observed().to(torch.float64) - means) / spreads
        found_CX = _on_pixels(acquisition, standard_PC, grid, centres).to(values.dtype)
        seen_CX = found_CX.isfinite()
        for number, found_X, seen_X in zip(numbers, found_CX, seen_CX, strict=True):
            values[step, number][seen_X] = found_X[seen_X].to(values.dtype)
            present[step, number] |= seen_X
    shape = (len(days), len(channels), grid.height, grid.width)
    day_T = torch.tensor([torch.nan if day is None else day for day in days])
    return Raster(values.reshape(shape), present.reshape(shape), day_T, grid)


def grid_over(atoms: AtomSet, gsd_m: float | None = None, around: Tensor | None = None) -> Grid:
    """Return the grid of the finest raster of ``atoms``, grown to cover every site and the positions ``around``."""
    rasters = [a for a in atoms if a.footprint_m is not None and min(a.footprint_m) > 0 and len(a.positions)]
    finest = min(rasters, key=lambda a: a.footprint_m or (0.0, 0.0), default=None)
    step_x, step_y = (1.0, 1.0) if finest is None or finest.footprint_m is None else finest.footprint_m
    if gsd_m is not None:
        step_x = step_y = gsd_m
    everything = [a.positions for a in atoms] + ([] if around is None else [around.to(torch.float64)])
    low, high = torch.cat(everything).amin(dim=0), torch.cat(everything).amax(dim=0)
    centre = low if finest is None else finest.positions[0]  # a pixel centre, which fixes the lattice
    step = torch.tensor([step_x, step_y], dtype=torch.float64)
    first = ((low - centre) / step).round()
    count = ((high - centre) / step).round() - first + 1
    width, height = (int(number) for number in count)
    if width * height > MOST_PIXELS:
        raise UnknownChannelError(
            f"a grid of {step_x:g} m over the scene has {width} × {height} pixels: give the model a larger gsd_m"
        )
    middle = centre + step * (first + (count - 1) / 2)
    return Grid(height, width, (step_x, step_y), (float(middle[0]), float(middle[1])))


def _on_pixels(acquisition: Acquisition, standard_PC: Tensor, grid: Grid, centres: np.ndarray) -> Tensor:
    """Return the values (C, H·W) of one acquisition at the pixels of a grid, NaN where it observed nothing."""
    footprint = acquisition.footprint_m or (0.0, 0.0)
    positions = acquisition.positions
    if min(footprint) > 0 and min(footprint) >= 0.99 * min(grid.pixel_m):
        occupied = acquisition.occupied().cpu().numpy()
        site_X = torch.from_numpy(colocated_sites(centres, positions.numpy(), occupied, footprint))
        found = standard_PC[site_X.clamp(min=0)]
        return torch.where((site_X >= 0)[:, None], found, torch.nan).T
    pixel_P = Raster(torch.empty(0), torch.empty(0), torch.empty(0), grid).pixels(positions)
    known_PC = standard_PC.isfinite()
    total = torch.zeros(len(centres), standard_PC.shape[1], dtype=torch.float64)
    total.index_add_(0, pixel_P, standard_PC.nan_to_num(0.0))
    count = torch.zeros_like(total).index_add_(0, pixel_P, known_PC.to(torch.float64))
    return torch.where(count > 0, total / count.clamp(min=1), torch.nan).T


def _statistics(acquisition: Acquisition, channels: Sequence[Channel]) -> tuple[Tensor, Tensor]:
    """Return mean and spread of each channel: those of the training data, else the sample's own."""
    pairs = []
    for own, usual in zip(acquisition.channels, channels, strict=True):
        source = usual if usual.mean is not None and usual.std is not None else own
        pairs.append((0.0 if source.mean is None else source.mean, 1.0 if source.std is None else source.std))
    means, spreads = torch.tensor(pairs, dtype=torch.float64).T
    return means, spreads


def _day(acquisition: Acquisition) -> float | None:
    return None if acquisition.day_of_year is None else float(acquisition.day_of_year)
