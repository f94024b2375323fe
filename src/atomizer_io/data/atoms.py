"""All that was observed of a scene: the set of atoms that a model reads, acquisition by acquisition."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.channels import Channel, channel_tuple, plain_name
from atomizer_io.data.grid import Grid
from atomizer_io.data.inputs import Array, floating, measured, metres, tensor
from atomizer_io.errors import AtomsError, UnknownChannelError, listed


@dataclass(frozen=True, slots=True, eq=False)
class AtomSet:
    """All observations of one scene: acquisitions of any sensors, dates and geometries, in one frame of metres."""

    acquisitions: tuple[Acquisition, ...] = ()

    @classmethod
    def from_raster(
        cls,
        values: Array,
        channels: Iterable[Channel],
        gsd: float | tuple[float, float] | None = None,
        day_of_year: float | str | datetime.date | np.datetime64 | None = None,
        *,
        valid: Array | None = None,
        nodata: float | None = None,
        center_m: tuple[float, float] = (0.0, 0.0),
        timestep: int | None = None,
        copy: bool = True,
    ) -> AtomSet:
        """Return the atoms of a raster (C, H, W), north up, with its centre at ``center_m``.

        NaN, ``nodata`` and what ``valid`` ((H, W) or (C, H, W)) marks false are absent. ``gsd`` is the pixel size in
        metres (one number, or x and y); without it the channels' common ``gsd_m`` is used. ``copy=False`` takes the
        array over instead of copying it.
        """
        raster = measured(values, "values")
        if copy:  # what the caller does with the array later does not reach the atoms
            raster = raster.clone()
        listed = channel_tuple(channels)
        if raster.ndim != 3 or raster.shape[0] != len(listed) or 0 in raster.shape:
            hint = " (a series: call from_raster once per date and add the results)" if raster.ndim == 4 else ""
            raise AtomsError(
                f"raster has shape {tuple(raster.shape)} for {len(listed)} channels; expected "
                f"({len(listed)}, height, width){hint}"
            )
        count, height, width = raster.shape
        grid = Grid(height, width, gsd_m=_common_gsd(listed) if gsd is None else gsd, center_m=center_m)
        mask = None
        if valid is not None:
            observed = tensor(valid, "valid").to(torch.bool)
            if observed.shape not in ((height, width), (count, height, width)):
                raise AtomsError(
                    f"valid has shape {tuple(observed.shape)}, expected ({height}, {width}) or {tuple(raster.shape)}"
                )
            mask = observed.expand(raster.shape)
        if nodata is not None and not math.isnan(nodata):
            present = (raster if raster.is_floating_point() else raster.to(torch.float32)) != nodata
            mask = present if mask is None else mask.to(present.device) & present
        return cls(
            (
                Acquisition(
                    values=raster.reshape(count, -1).T,  # a view: turning it over costs more than reading
                    positions=grid.shared_positions(),
                    channels=tuple(replace(channel, gsd_m=max(grid.pixel_m)) for channel in listed),
                    day_of_year=day_of_year,
                    valid=None if mask is None else mask.reshape(count, -1).T,
                    timestep=timestep,
                    footprint_m=grid.pixel_m,
                ),
            )
        )

    @classmethod
    def from_points(
        cls,
        xyz: Array,
        return_number: Array | None = None,
        number_of_returns: Array | None = None,
        intensity: Array | None = None,
        *,
        values: Array | None = None,
        channels: Iterable[Channel] = (),
        day_of_year: float | str | datetime.date | np.datetime64 | None = None,
        datum_m: float | None = None,
        timestep: int | None = None,
    ) -> AtomSet:
        """Return the atoms of a point cloud (P, 3) in metres; each return has its elevation above ``datum_m``.

        ``datum_m`` is the lowest z by default. ``return_number`` and ``number_of_returns`` go together; pairs outside
        1 ≤ r ≤ R (0 in files that never recorded them) count as unknown. ``values`` (P, C) with ``channels`` adds
        further measurements per point, such as colour. Positions are kept as given, so rasters and points line up
        when they share a frame (``center_m`` of ``from_raster``).
        """
        from atomizer_io.data.sensors import LIDAR

        points = metres(xyz, "xyz")
        if points.ndim != 2 or points.shape[1] != 3:
            raise AtomsError(f"points have shape {tuple(points.shape)}, expected (points, 3): x, y, z in metres")
        if (return_number is None) != (number_of_returns is None):
            raise AtomsError("return_number and number_of_returns describe a return together: pass both or neither")
        fields: dict[str, Tensor] = {}
        if return_number is not None and number_of_returns is not None:
            fields["echo_before"], fields["echo_after"] = encode_echo(return_number, number_of_returns)
        if intensity is not None:
            fields["intensity"] = floating(intensity, "intensity")
        elevation = points[:, 2]
        known = elevation[torch.isfinite(elevation)]
        datum = datum_m if datum_m is not None else (float(known.min()) if known.numel() else 0.0)
        columns = [(elevation - datum).to(torch.float32)[:, None]]
        if values is not None:
            extra = floating(values, "values")
            if extra.ndim != 2 or extra.shape[0] != points.shape[0]:
                raise AtomsError(f"values have shape {tuple(extra.shape)} for {points.shape[0]} points")
            columns.append(extra.to(torch.float32))
        return cls(
            (
                Acquisition(
                    values=torch.cat(columns, dim=1),
                    positions=points[:, :2].contiguous(),
                    channels=(*LIDAR.channels, *channel_tuple(channels)),
                    day_of_year=day_of_year,
                    site_fields=fields,
                    timestep=timestep,
                    footprint_m=(0.0, 0.0),
                ),
            )
        )

    def __add__(self, other: AtomSet) -> AtomSet:
        if not isinstance(other, AtomSet):
            return NotImplemented
        return AtomSet(self.acquisitions + other.acquisitions)

    def __radd__(self, other: int) -> AtomSet:
        return self if other == 0 else NotImplemented  # sum([...]) starts from 0

    def __iter__(self) -> Iterator[Acquisition]:
        return iter(self.acquisitions)

    def __len__(self) -> int:
        return len(self.acquisitions)

    def __repr__(self) -> str:
        parts = [
            f"{a.sensor}: {a.values.shape[0]} sites × {len(a.channels)} channels"
            + ("" if a.day_of_year is None else f" on {a.date or f'day {a.day_of_year:g}'}")
            for a in self.acquisitions
        ]
        return f"AtomSet({self.num_atoms} atoms; {'; '.join(parts)})"

    @property
    def num_atoms(self) -> int:
        """Number of valid measurements."""
        return sum(acquisition.num_atoms for acquisition in self.acquisitions)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The distinct channels, in order of first appearance."""
        return tuple(dict.fromkeys(channel for a in self.acquisitions for channel in a.channels))

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Bounds (x_min, y_min, x_max, y_max) in metres of what was observed, pixels with their whole footprint."""
        corners = []
        for acquisition in self.acquisitions:
            sites = acquisition.positions
            if acquisition.valid is not None:
                sites = sites[acquisition.occupied().cpu()]
            if sites.shape[0]:
                half = torch.tensor(acquisition.footprint_m, dtype=torch.float64) / 2
                corners.append(torch.stack([sites.amin(dim=0) - half, -(sites.amax(dim=0) + half)]))
        if not corners:
            raise AtomsError(f"{self!r} has no valid atom: every value is NaN, nodata or masked")
        (x_min, y_min), (x_max, y_max) = torch.stack(corners).amin(dim=0).tolist()
        return (x_min, y_min, -x_max, -y_max)

    def select(self, *names: str, sensor: str | None = None) -> AtomSet:
        """Return only the channels called one of ``names`` (all names if none is given), of ``sensor`` if given."""
        return self._filter(names, sensor, keep=True)

    def drop(self, *names: str, sensor: str | None = None) -> AtomSet:
        """Return the set without the channels called one of ``names``, exactly as if they had never been observed."""
        return self._filter(names, sensor, keep=False)

    def _filter(self, names: tuple[str, ...], sensor: str | None, *, keep: bool) -> AtomSet:
        if not names and sensor is None:
            raise UnknownChannelError("name at least one channel or a sensor")
        present = self.channels
        for name in names:
            if not any(channel.called(name) for channel in present):
                raise UnknownChannelError(
                    f"{name!r} is not in this set; it has {listed(f'{c.sensor} {c.name}' for c in present)}"
                )
        if sensor is not None and not any(plain_name(channel.sensor) == plain_name(sensor) for channel in present):
            raise UnknownChannelError(
                f"no channel of sensor {sensor!r} in this set; it has {', '.join(sorted({c.sensor for c in present}))}"
            )

        def matches(channel: Channel) -> bool:
            named = not names or any(channel.called(name) for name in names)
            return named and (sensor is None or plain_name(channel.sensor) == plain_name(sensor))

        if not any(matches(channel) for channel in present):
            raise UnknownChannelError(f"{', '.join(names)} of sensor {sensor!r}: no such channel in this set")
        kept = []
        for acquisition in self.acquisitions:
            indices = [i for i, channel in enumerate(acquisition.channels) if matches(channel) == keep]
            if len(indices) == len(acquisition.channels):
                kept.append(acquisition)
            elif indices:
                kept.append(acquisition.with_channels(indices))
        return AtomSet(tuple(kept))

    def to(self, device: torch.device | str) -> AtomSet:
        """Return the same set on ``device``."""
        if all(a.values.device == torch.device(device) for a in self.acquisitions):
            return self
        return AtomSet(tuple(acquisition.to(device) for acquisition in self.acquisitions))


def encode_echo(return_number: Array, number_of_returns: Array) -> tuple[Tensor, Tensor]:
    """Return (a, b) = ((r − 1)/R, (R − r)/R): the share of a pulse's returns before and after this one (paper, C.1).

    Pairs outside 1 ≤ r ≤ R carry no information and give NaN.
    """
    r, total = (
        tensor(return_number, "return_number").to(torch.float64),
        tensor(number_of_returns, "number_of_returns").to(torch.float64),
    )
    if r.shape != total.shape:
        raise AtomsError(f"return_number has shape {tuple(r.shape)}, number_of_returns {tuple(total.shape)}")
    nan = torch.full_like(r, torch.nan)
    known = (r >= 1) & (r <= total)
    before = torch.where(known, (r - 1) / total, nan)
    after = torch.where(known, (total - r) / total, nan)
    return before.to(torch.float32), after.to(torch.float32)


def _common_gsd(channels: tuple[Channel, ...]) -> float:
    known = {channel.gsd_m for channel in channels if channel.gsd_m is not None}
    if len(known) != 1:
        raise AtomsError(
            f"the channels have ground sampling distances {sorted(known) or 'unknown'}: pass gsd= in metres per pixel"
        )
    return known.pop()
