"""What was observed: channels, acquisitions and the set of atoms that a model reads.

A sensor hands over sites (where) × channels (what) → values. A raster is sites on a lattice, a LiDAR tile is sites
anywhere; from here on nothing knows which it was. An atom is one valid (site, channel) pair and is never written out
as a row of metadata.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atomizer_io.channels import Channel, channel_tuple, plain_name
from atomizer_io.echo import encode_echo
from atomizer_io.errors import AtomsError, UnknownChannelError, listed
from atomizer_io.grid import Grid
from atomizer_io.inputs import Array, all_true, as_date, day_number, finite, floating, measured, metres, tensor, usable

LOGARITHMIC_FIELDS = ("intensity",)  # site fields whose log1p is what models read and statistics describe

HEIGHTS = ("height", "elevation")  # channels of points that say how high they are, the better one first


@dataclass(frozen=True, slots=True, eq=False)
class Acquisition:
    """One sensor, one time, one sampling geometry: P sites × C channels.

    ``values`` (P, C) are raw, of the type they were measured in; ``positions`` (P, 2) are metres, kept in float64
    (acquisitions on one grid share them: do not change them in place).
    ``valid`` (P, C) marks the pairs that were observed: NaN, infinite values and those too large for float32 never are,
    and ``None`` means that all were. ``site_fields`` holds metadata per site (P,), NaN where unknown. ``day_of_year``
    is a number or a date; a date is kept as ``date``, and a series may cross New Year (a number may run on past 365).
    ``timestep`` groups acquisitions for temporal aggregation; by default each distinct day is one step.
    ``footprint_m`` is the size of a site along x and y, (0, 0) for points; by default a square of the channels'
    ``gsd_m``.
    """

    values: Tensor
    positions: Tensor
    channels: tuple[Channel, ...]
    day_of_year: Any = None
    site_fields: Mapping[str, Tensor] = field(default_factory=dict)
    valid: Tensor | None = None
    timestep: int | None = None
    footprint_m: tuple[float, float] | None = None
    date: datetime.date | None = None

    def __post_init__(self) -> None:
        def set_(name: str, value: object) -> None:
            object.__setattr__(self, name, value)  # frozen from here on

        set_("channels", channel_tuple(self.channels))
        set_("values", measured(self.values, "values"))
        set_("positions", metres(self.positions, "positions"))
        set_("site_fields", {name: floating(value, name) for name, value in self.site_fields.items()})
        set_("day_of_year", as_date(self.day_of_year))
        if isinstance(self.day_of_year, datetime.date):
            set_("date", self.day_of_year)
        set_("day_of_year", day_number(self.day_of_year))
        if self.valid is not None:
            set_("valid", tensor(self.valid, "valid").to(torch.bool))
        self._check_shapes()
        valid = self.valid if self.valid is None else self.valid.to(self.values.device)
        if self.values.is_floating_point():
            known = usable(self.values)
            valid = known if valid is None else known & valid
        set_("valid", None if valid is None or all_true(valid) else valid)
        if self.footprint_m is None:
            observed = self.observed_channels().tolist()
            sizes = [c.gsd_m for c, seen in zip(self.channels, observed, strict=True) if seen and c.gsd_m is not None]
            set_("footprint_m", (min(sizes), min(sizes)) if sizes else (0.0, 0.0))

    def _check_shapes(self) -> None:
        name = self.sensor
        if self.values.ndim != 2 or self.values.shape[1] != len(self.channels) or not self.channels:
            raise AtomsError(
                f"{name}: values have shape {tuple(self.values.shape)} but {len(self.channels)} channels are named; "
                "expected (sites, channels)"
            )
        sites = self.values.shape[0]
        if self.positions.shape != (sites, 2):
            raise AtomsError(f"{name}: positions have shape {tuple(self.positions.shape)}, expected ({sites}, 2)")
        if self.valid is not None and tuple(self.valid.shape) != tuple(self.values.shape):
            raise AtomsError(
                f"{name}: valid has shape {tuple(self.valid.shape)} but values have {tuple(self.values.shape)}"
            )
        for key, value in self.site_fields.items():
            if value.shape != (sites,):
                raise AtomsError(f"{name}: site field {key!r} has shape {tuple(value.shape)}, expected ({sites},)")
        if not all_true(finite(self.positions)):
            bad = ~finite(self.positions).all(dim=1)
            first = int(bad.nonzero()[0])
            raise AtomsError(
                f"{name}: position of site {first} is {self.positions[first].tolist()} ({int(bad.sum())} such sites); "
                "positions must be finite metres: remove these sites"
            )
        names = [(channel.sensor, channel.name) for channel in self.channels]
        twice = {pair for pair in names if names.count(pair) > 1}
        if twice:
            raise AtomsError(f"channel {sorted(twice)[0][1]!r} of {name} is given twice in one acquisition")

    @property
    def sensor(self) -> str:
        """Name of the sensor (of the first channel), for messages."""
        return self.channels[0].sensor if self.channels else "acquisition"

    @property
    def num_atoms(self) -> int:
        """Number of valid (site, channel) pairs."""
        return self.values.numel() if self.valid is None else int(self.valid.count_nonzero())

    @property
    def heights_m(self) -> Tensor | None:
        """How high each point (P,) lies, by its channel ``height`` or else ``elevation``; None for what is no point.

        NaN where it was not observed.
        """
        names = [channel.name for channel in self.channels]
        found = [names.index(name) for name in HEIGHTS if name in names]
        if self.footprint_m != (0.0, 0.0) or not found:
            return None
        return self.observed()[:, found[0]]

    def valid_mask(self) -> Tensor:
        """Return ``valid`` (P, C) written out, also where ``None`` stands for all."""
        return torch.ones_like(self.values, dtype=torch.bool) if self.valid is None else self.valid

    def observed(self) -> Tensor:
        """Return the values (P, C) as floats, NaN where nothing was observed."""
        values = self.values if self.values.is_floating_point() else self.values.to(torch.float32)
        return values if self.valid is None else values.masked_fill(~self.valid, torch.nan)

    def occupied(self) -> Tensor:
        """Return which sites (P,) have at least one valid channel; the others do not exist for a model."""
        if self.valid is None:
            return torch.ones(self.values.shape[0], dtype=torch.bool)
        return self.valid.any(dim=1)

    def observed_channels(self) -> Tensor:
        """Return which channels (C,) have at least one valid value; the others do not exist for a model."""
        if self.valid is None:
            return torch.ones(len(self.channels), dtype=torch.bool)
        return self.valid.any(dim=0)

    def with_channels(self, keep: Sequence[int]) -> Acquisition:
        """Return the same acquisition with only the channels at the indices ``keep``."""
        index = torch.as_tensor(keep, dtype=torch.long)
        part = self._part(
            values=self.values[:, index],
            channels=tuple(self.channels[i] for i in keep),
            valid=None if self.valid is None else self.valid[:, index],
        )
        part._check_shapes()  # no channel, or one twice
        return part

    def with_sites(self, keep: Tensor, positions: Tensor | None = None) -> Acquisition:
        """Return the same acquisition with only the sites ``keep``, a mask (P,) or indices.

        Acquisitions on one grid go on sharing their ``positions`` where these are handed over.
        """
        return self._part(
            values=self.values[keep],
            positions=self.positions[keep] if positions is None else positions,
            site_fields={name: values[keep] for name, values in self.site_fields.items()},
            valid=None if self.valid is None else self.valid[keep],
        )

    def only(self, valid: Tensor) -> Acquisition:
        """Return the same acquisition with only those of its pairs (P, C) that ``valid`` marks as well."""
        return self._part(valid=valid if self.valid is None else valid & self.valid)

    def moved(self, positions: Tensor, footprint_m: tuple[float, float] | None = None) -> Acquisition:
        """Return the same acquisition at other ``positions`` (P, 2), finite float64 metres that are not checked."""
        return self._part(positions=positions, footprint_m=footprint_m or self.footprint_m)

    def _part(self, **changes: Any) -> Acquisition:
        """Return what is left of an acquisition, or moved: what was checked once need not be checked again."""
        valid = changes.get("valid")
        if valid is not None and all_true(valid):
            changes["valid"] = None
        part = object.__new__(Acquisition)
        for item in _FIELDS:
            object.__setattr__(part, item, changes[item] if item in changes else getattr(self, item))
        return part

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for pickle, which cannot carry tensors of uint16: those travel as arrays."""
        state = {name: getattr(self, name) for name in _FIELDS}
        if self.values.dtype == torch.uint16:
            state["values"] = self.values.cpu().numpy()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["values"], np.ndarray):
            state = {**state, "values": torch.from_numpy(state["values"])}
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def to(self, device: torch.device | str) -> Acquisition:
        """Return the same acquisition with values and fields on ``device``; positions stay on the CPU."""
        return replace(
            self,
            values=self.values.to(device),
            site_fields={name: value.to(device) for name, value in self.site_fields.items()},
            valid=None if self.valid is None else self.valid.to(device),
        )


_FIELDS = tuple(item.name for item in fields(Acquisition))


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
            given = tensor(valid, "valid").to(torch.bool)
            if given.shape not in ((height, width), (count, height, width)):
                raise AtomsError(
                    f"valid has shape {tuple(given.shape)}, expected ({height}, {width}) or {tuple(raster.shape)}"
                )
            mask = given.expand(raster.shape)
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
        from atomizer_io.sensors import LIDAR

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


def memory(tensor: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    """Return what tells whether two tensors that exist now are the same numbers in memory, as of shared positions."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _common_gsd(channels: tuple[Channel, ...]) -> float:
    known = {channel.gsd_m for channel in channels if channel.gsd_m is not None}
    if len(known) != 1:
        raise AtomsError(
            f"the channels have ground sampling distances {sorted(known) or 'unknown'}: pass gsd= in metres per pixel"
        )
    return known.pop()
