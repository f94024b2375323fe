"""What of a scene is switched off, and how the rest is decoded: the choices of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from atomizer_io.data.atoms import AtomSet
from atomizer_io.decoding.scene_decoder import Decoding
from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Cost

FIELD = "field "  # before the name of a site field such as intensity
COUNTS = {"kappa": "atoms_per_latent", "budget": "budget", "neighbors": "neighbors"}


@dataclass(frozen=True, slots=True)
class Switches:
    """The channels, by (sensor, name), and the dates that are left out as if they had never been observed."""

    channels: frozenset[tuple[str, str]] = frozenset()
    dates: frozenset[str] = frozenset()

    @classmethod
    def of(cls, values: Any) -> Switches:
        """Return the switches of a request: ``{"channels": [[sensor, name], …], "dates": [date, …]}``."""
        try:
            pairs = frozenset((str(sensor), str(name)) for sensor, name in (values or {}).get("channels", ()))
            return cls(pairs, frozenset(str(date) for date in (values or {}).get("dates", ())))
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError("the switches are not lists of channels and dates: load the page again") from error

    def kept(self, atoms: AtomSet) -> AtomSet:
        """Return the atoms that are left on."""
        kept = []
        for acquisition in atoms:
            if date_of(acquisition) in self.dates:
                continue
            sensor = acquisition.sensor
            fields = {k: v for k, v in acquisition.site_fields.items() if (sensor, FIELD + k) not in self.channels}
            if len(fields) < len(acquisition.site_fields):
                acquisition = replace(acquisition, site_fields=fields)
            names = [(channel.sensor, channel.name) for channel in acquisition.channels]
            indices = [index for index, name in enumerate(names) if name not in self.channels]
            if len(indices) == len(names):
                kept.append(acquisition)
            elif indices:
                kept.append(acquisition.with_channels(indices))
        return AtomSet(tuple(kept))


def date_of(acquisition: Any) -> str:
    """Return the date of an acquisition or of a raster as text, empty without one."""
    return "" if acquisition.date is None else str(acquisition.date)


def decoding_of(dial: Mapping[str, Any] | None) -> Decoding:
    """Return the decoding that the dial of the page is set to; without a dial it is dense."""
    dial = dial or {}
    counts: dict[str, Any] = {}
    for name, field in COUNTS.items():
        if (value := dial.get(name)) is not None:
            if not isinstance(value, int):
                raise ConfigError(f"{name} must be a whole number, got {value!r}")
            counts[field] = value
    alpha = dial.get("alpha")
    if alpha is not None and not isinstance(alpha, int | float):
        raise ConfigError(f"alpha must be a number, got {alpha!r}")
    return Decoding(str(dial.get("strategy") or ""), alpha, Cost(**counts))
