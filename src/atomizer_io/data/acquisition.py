"""One sensor at one time: sites (where) × channels (what) → values.

A raster is sites on a lattice, a LiDAR tile is sites anywhere; from here on nothing knows which it was. An atom is one
valid (site, channel) pair and is never written out as a row of metadata.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.channels import Channel, channel_tuple
from atomizer_io.data.inputs import all_true, as_date, day_number, finite, floating, measured, metres, tensor, usable
from atomizer_io.errors import AtomsError

LOGARITHMIC_FIELDS = ("intensity",)  # site fields whose log1p is what models read and statistics describe

# what files call what a site field is made of
FIELD_SOURCES = {
    **dict.fromkeys(("echo_before", "echo_after"), "number_of_returns"),
    **dict.fromkeys(("intensity", "intensity_rank"), "intensity"),
}

HEIGHTS = ("height", "elevation")  # channels that are heights of points, the better one first


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
        """Height of each point (P,), from its channel ``height`` or else ``elevation``; None for rasters.

        NaN where it was not observed.
        """
        names = [channel.name for channel in self.channels]
        columns = [names.index(name) for name in HEIGHTS if name in names]
        if self.footprint_m != (0.0, 0.0) or not columns:
            return None
        return self.observed()[:, columns[0]]

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


def memory(tensor: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    """Return a key by which live tensors that share memory, such as shared positions, can be recognised."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def varying_fields(acquisitions: Iterable[Acquisition]) -> set[str]:
    """Return the site fields that have several values: one that is the same everywhere was hardly ever measured."""
    low, high = dict[str, float](), dict[str, float]()
    for acquisition in acquisitions:
        for name, values in acquisition.site_fields.items():
            known = values[values.isfinite()]
            if len(known):
                low[name] = min(low.get(name, math.inf), float(known.min()))
                high[name] = max(high.get(name, -math.inf), float(known.max()))
    return {name for name in low if low[name] < high[name]}
