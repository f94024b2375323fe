"""Channels: what each column of values means."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from atomizer_io.errors import AtomsError, UnknownChannelError


@dataclass(frozen=True, slots=True)
class Channel:
    """What one column of values means. Its attribute names are a superset of torchgeo-bench's ``BandSpec``.

    ``wavelength_um`` and ``bandwidth_um`` describe the spectral support; a channel without one (SAR polarisation,
    elevation) has ``wavelength_um=None`` and is known to a model by its ``name``. ``mean`` and ``std`` are in the raw
    units of the values: the model standardises, the data stay as measured.
    """

    sensor: str
    name: str
    wavelength_um: float | None = None
    bandwidth_um: float | None = None
    gsd_m: float | None = None
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    source_name: str | None = None
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in ("wavelength_um", "bandwidth_um", "gsd_m", "std"):
            value = getattr(self, key)
            if value is not None and not 0 < value < math.inf:
                raise UnknownChannelError(
                    f"channel {self.name!r} of {self.sensor}: {key} is {value}; give a positive number, or None where "
                    "it is unknown"
                )
        if self.mean is not None and not math.isfinite(self.mean):
            raise UnknownChannelError(f"channel {self.name!r} of {self.sensor}: mean is {self.mean}, not a number")

    @classmethod
    def of(cls, spec: Any) -> Channel:
        """Return ``spec`` itself, or the channel that any object with the attributes of a ``BandSpec`` describes."""
        if isinstance(spec, cls):
            return spec
        if not (hasattr(spec, "name") and hasattr(spec, "sensor")):
            raise UnknownChannelError(
                f"{spec!r} does not describe a channel: pass channels such as sensors.SENTINEL2.pick('B02'), "
                "or objects with the attributes sensor, name, wavelength_um, mean, std"
            )
        known = ("wavelength_um", "bandwidth_um", "gsd_m", "mean", "std", "min", "max", "source_name")
        described: dict[str, Any] = {key: getattr(spec, key, None) for key in known}
        return cls(str(spec.sensor), str(spec.name), **described)

    def called(self, name: str) -> bool:
        """Return whether ``name`` is one of this channel's names, as :func:`fold` compares them."""
        return fold(name) in self.folded_names()

    def folded_names(self) -> tuple[str, ...]:
        """Return all names of this channel, in the form in which names are compared."""
        return tuple(dict.fromkeys(fold(name) for name in (self.name, self.source_name, *self.aliases) if name))


def channel_tuple(channels: Iterable[Channel]) -> tuple[Channel, ...]:
    """Return channels, or objects that describe them, as a tuple of channels."""
    if isinstance(channels, Channel) or not isinstance(channels, Iterable):
        raise AtomsError(f"channels must be a list of channels or a sensor, got {channels!r}")
    return tuple(Channel.of(channel) for channel in channels)


def fold(name: str) -> str:
    """Return a name as names of channels are compared: case and the choice of space, ``_`` or ``-`` do not matter."""
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def plain_name(name: str) -> str:
    """Return a name as names of sensors and datasets are compared: ``Sentinel-2`` and ``sentinel2`` are the same."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())
