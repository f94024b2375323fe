"""Atoms on a grid of fixed channels, for models that cannot read them as they are.

Shapes: T time steps, C channels of the task specification, H × W pixels, X = H·W, M queries, P sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.inputs import FARTHEST
from atomizer_io.errors import AtomsError, ConfigError, UnknownChannelError, listed
from atomizer_io.models.sites import colocated_sites

MOST_NUMBERS = 1 << 29  # T · C · H · W: 2 GB in single precision
POINTS_GSD_M = 1.0  # pixel size where there is no raster to take it from
EDGE = 1e-6  # of a pixel: rounding must not decide


@dataclass(frozen=True, slots=True, eq=False)
class RasterisedScene:
    """Values on one grid: ``values_TCHW`` are standardised, 0 where nothing was observed; ``present_TCHW`` is where.

    ``day_T`` is the day of year of each time step, NaN where it is unknown; ``timesteps`` are the numbers of the steps,
    None where not all acquisitions name one.
    """

    values_TCHW: Tensor
    present_TCHW: Tensor
    day_T: Tensor
    grid: Grid
    timesteps: tuple[int, ...] | None = None

    def mean_over_time(self) -> Tensor:
        """Return the mean (C, H, W) of what was observed over all time steps, 0 where nothing was."""
        return self.values_TCHW.sum(dim=0) / self.present_TCHW.sum(dim=0).clamp(min=1)


def rasterise(
    atoms: AtomSet, channels: Sequence[Channel], *, gsd_m: float | None = None, around: Tensor | None = None
) -> RasterisedScene:
    """Put ``atoms`` on one grid with the fixed ``channels``, standardised by their statistics, one step per date.

    Pixels have the size ``gsd_m``, by default that of the finest raster. A pixel takes the value of the site that
    covers it, so coarser rasters are repeated; of several sites in a pixel (points, a finer raster, two swaths of one
    day) it takes the mean. The grid covers all sites and the positions ``around`` (M, 2).
    """
    slots = slots_of(atoms, channels)
    grid = grid_over(atoms, gsd_m, around)
    steps = sorted({_moment(acquisition) for acquisition in atoms}, key=lambda moment: (moment is None, moment or 0.0))
    shape = (len(steps), len(channels), grid.height, grid.width)
    if math.prod(shape) > MOST_NUMBERS:
        raise ConfigError(
            f"the scene has {shape[0]} dates × {shape[1]} channels × {shape[2]} × {shape[3]} pixels of "
            f"{grid.pixel_m[0]:g} m: take smaller scenes, or give the model a larger gsd_m"
        )
    total, count = torch.zeros(*shape[:2], grid.height * grid.width), torch.zeros(*shape[:2], grid.height * grid.width)
    days = torch.full((len(steps),), torch.nan)
    for acquisition in atoms:
        step = steps.index(_moment(acquisition))
        if acquisition.day_of_year is not None:
            days[step] = float(acquisition.day_of_year)
        numbers = [slots[channel.sensor, channel.name] for channel in acquisition.channels]
        sum_CX, count_CX = _on_pixels(acquisition, standardised(acquisition, [channels[n] for n in numbers]), grid)
        total[step, numbers] += sum_CX.to(total.dtype)
        count[step, numbers] += count_CX.to(count.dtype)
    values = total / count.clamp(min=1)
    named = {acquisition.timestep for acquisition in atoms if acquisition.timestep is not None}
    timesteps = tuple(sorted(named)) if len(named) == len(steps) else None
    return RasterisedScene(values.reshape(shape), (count > 0).reshape(shape), days, grid, timesteps)


def check_rasters(atoms: AtomSet) -> None:
    """Refuse points, for a model that reads rasters only."""
    for acquisition in atoms:
        if acquisition.num_atoms and min(_footprint(acquisition)) <= 0:
            raise AtomsError(
                f"the model reads rasters only, but the sites of {acquisition.sensor} are points without a pixel size: "
                "leave them out, or take a model that reads points (atomizer_io_..., perceiver_io_...)"
            )


def slots_of(atoms: AtomSet, channels: Sequence[Channel]) -> dict[tuple[str, str], int]:
    """Return the number of each (sensor, name) among ``channels``; one of ``atoms`` without a number is an error."""
    slots = {(channel.sensor, channel.name): number for number, channel in enumerate(channels)}
    lost = [c for c in atoms.channels if (c.sensor, c.name) not in slots]
    if lost:
        raise UnknownChannelError(
            f"the model has no input for {lost[0].sensor} {lost[0].name}: it was made for "
            f"{listed(f'{c.sensor} {c.name}' for c in channels)}; leave the channel out"
        )
    return slots


def standardised(acquisition: Acquisition, usual: Sequence[Channel]) -> Tensor:
    """Return the values (P, C), standardised by the statistics of ``usual``, the channels of the training data.

    Where those have none the sample's own count; a channel that never varied in training has a deviation of 1. One
    without any value needs no statistics.
    """
    pairs, observed_PC = [], acquisition.observed().cpu().to(torch.float64)
    for number, (own, known) in enumerate(zip(acquisition.channels, usual, strict=True)):
        source = known if known.mean is not None else own
        if source.mean is None and not bool(observed_PC[:, number].isfinite().any()):
            pairs.append((0.0, 1.0))
            continue
        if source.mean is None:
            raise AtomsError(
                f"channel {own.name!r} of {own.sensor} has no mean and std: give the channel its statistics "
                "(Sensor.with_statistics), or train on data that have them"
            )
        pairs.append((source.mean, 1.0 if source.std is None else source.std))
    mean_C, std_C = torch.tensor(pairs, dtype=torch.float64).T
    return ((observed_PC - mean_C) / std_C).clamp_(-FARTHEST, FARTHEST)


def grid_over(atoms: AtomSet, gsd_m: float | None = None, around: Tensor | None = None) -> Grid:
    """Return a grid whose pixels lie on those of the finest raster, and which covers every site and ``around``."""
    rasters = [a for a in atoms if len(a.positions) and min(_footprint(a)) > 0]
    finest = min(rasters, key=lambda a: math.prod(_footprint(a)), default=None)
    step = torch.tensor(_footprint(finest) if finest is not None else (POINTS_GSD_M,) * 2, dtype=torch.float64)
    edges = [a.positions - torch.tensor(_footprint(a)) / 2 for a in atoms]
    edges += [a.positions + torch.tensor(_footprint(a)) / 2 for a in atoms]
    edges += [] if around is None else [around.to(torch.float64)]
    if not any(len(part) for part in edges):
        raise AtomsError("there is nothing to put on a grid: the scene has neither sites nor positions")
    low, high = torch.cat(edges).amin(dim=0), torch.cat(edges).amax(dim=0)
    corner = low if finest is None else finest.positions.amin(dim=0) - step / 2  # of a pixel, which fixes the lattice
    if gsd_m is not None:
        step = torch.full((2,), gsd_m, dtype=torch.float64)
    first = ((low - corner) / step + EDGE).floor()
    count = (((high - corner) / step - EDGE).ceil() - first).clamp(min=1)
    middle = corner + step * (first + count / 2)
    width, height = (int(number) for number in count)
    return Grid(height, width, (float(step[0]), float(step[1])), (float(middle[0]), float(middle[1])))


def pixels_of(grid: Grid, positions_M2: Tensor) -> Tensor:
    """Return the number (M,) of the pixel that each position lies in, row by row; outside, the nearest one."""
    (step_x, step_y), (wide, high) = grid.pixel_m, grid.size_m
    column = ((positions_M2[:, 0] - grid.center_m[0] + wide / 2) / step_x + EDGE).floor().clamp(0, grid.width - 1)
    row = ((grid.center_m[1] + high / 2 - positions_M2[:, 1]) / step_y - EDGE).floor().clamp(0, grid.height - 1)
    return (row * grid.width + column).long()


def _on_pixels(acquisition: Acquisition, standard_PC: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Return sums and counts (C, X) of the values of one acquisition in the pixels of a grid."""
    footprint, centres = _footprint(acquisition), grid.shared_positions()
    if footprint == grid.pixel_m and torch.equal(acquisition.positions, centres):  # the grid is that of the raster
        return standard_PC.nan_to_num(0.0).T, standard_PC.isfinite().T
    if min(footprint) >= (1 - EDGE) * min(grid.pixel_m):  # as coarse as the grid or coarser: each pixel lies in a site
        occupied: NDArray[np.bool_] = acquisition.occupied().cpu().numpy()
        found_X = colocated_sites(centres.numpy(), acquisition.positions.numpy(), occupied, footprint)
        site_X = torch.from_numpy(found_X)
        value_XC = torch.where((site_X >= 0)[:, None], standard_PC[site_X.clamp(min=0)], torch.nan)
        return value_XC.nan_to_num(0.0).T, value_XC.isfinite().T
    pixel_P = pixels_of(grid, acquisition.positions)
    sum_XC = torch.zeros(len(centres), standard_PC.shape[1], dtype=torch.float64)
    sum_XC.index_add_(0, pixel_P, standard_PC.nan_to_num(0.0))
    count_XC = torch.zeros_like(sum_XC).index_add_(0, pixel_P, standard_PC.isfinite().to(torch.float64))
    return sum_XC.T, count_XC.T


def _footprint(acquisition: Acquisition) -> tuple[float, float]:
    return acquisition.footprint_m or (0.0, 0.0)


def _moment(acquisition: Acquisition) -> float | None:
    """Return what identifies a time step: its number, its date, or its day of year."""
    if acquisition.timestep is not None:
        return float(acquisition.timestep)
    if acquisition.date is not None:
        return float(acquisition.date.toordinal())
    return None if acquisition.day_of_year is None else float(acquisition.day_of_year)
