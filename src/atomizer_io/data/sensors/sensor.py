"""A sensor: a named tuple of channels, looked up by any of their names.

A sensor of one's own, with statistics from one's own array, takes three lines::

    mysat = Sensor.define("mysat", gsd_m=3.0, bands={"green": (0.56, 0.04), "nir": (0.85, 0.08), "wetness": None})
    mysat = mysat.with_statistics(values)  # (C, H, W), NaN = absent
    atoms = AtomSet.from_raster(values, channels=mysat, gsd=3.0)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from atomizer_io.data.channels import Channel, fold
from atomizer_io.errors import AtomsError, UnknownChannelError, listed

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def near_matches(name: str, known: Mapping[str, str]) -> str:
    """Return ``did you mean B08 or B8A?`` for a wrong name, or the whole list where nothing is near.

    ``known`` maps each name, as it is compared, to the name to show.
    """
    key = fold(name)
    close = get_close_matches(key, known, n=6, cutoff=0.6) + [k for k in known if len(key) > 1 and key in k]
    shown = list(dict.fromkeys(known[k] for k in close))[:3]
    if not shown:
        return f"known are {listed(dict.fromkeys(known.values()))}"
    return "did you mean " + " or ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) + "?"


@dataclass(frozen=True, slots=True)
class Sensor:
    """A named tuple of channels, looked up by name, alias or source name, in any case."""

    name: str
    channels: tuple[Channel, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        owner: dict[str, int] = {}
        for i, channel in enumerate(self.channels):
            for key in channel.folded_names():
                if owner.setdefault(key, i) != i:
                    raise UnknownChannelError(
                        f"{self.name}: bands {owner[key] + 1} and {i + 1} are both called {key!r}"
                    )

    @classmethod
    def define(cls, name: str, *, gsd_m: float | None, bands: Mapping[str, tuple[float, float] | None]) -> Sensor:
        """Return a sensor of your own: band name → (centre, width) in micrometres, or None without a wavelength.

        A band without spectral support (an index, a polarisation, a height) is known to a model by its name alone.
        """
        channels = []
        for band, support in bands.items():
            centre, width = support or (None, None)
            if centre is not None and width is not None and not (0 < centre < 100 and 0 < width < 100):
                raise UnknownChannelError(
                    f"{name} {band!r}: centre {centre:g} and width {width:g} must be positive and in micrometres"
                    " (560 nm is 0.56)"
                )
            channels.append(Channel(name, band, wavelength_um=centre, bandwidth_um=width, gsd_m=gsd_m))
        return cls(name, tuple(channels))

    @property
    def names(self) -> tuple[str, ...]:
        """Canonical names of the channels, in order."""
        return tuple(channel.name for channel in self.channels)

    def pick(self, *names: str) -> tuple[Channel, ...]:
        """Return the channels with these names, in the order of the names."""
        lookup = {key: channel for channel in self.channels for key in channel.folded_names()}
        picked: dict[str, str] = {}
        for name in names:
            if not isinstance(name, str):
                raise UnknownChannelError(f"name the bands one by one, pick('B02', 'B03'); got {name!r}")
            if fold(name) not in lookup:
                near = near_matches(name, {key: channel.name for key, channel in lookup.items()})
                article = "an" if self.name[:1].upper() in "AEIO" else "a"
                raise UnknownChannelError(f"{name!r} is not {article} {self.name} band; {near}")
            canonical = lookup[fold(name)].name
            if canonical in picked:
                again = "" if name == picked[canonical] else f" (as {picked[canonical]!r} and {name!r})"
                raise UnknownChannelError(f"{self.name} band {canonical} is named twice{again}; name it once")
            picked[canonical] = name
        return tuple(lookup[fold(name)] for name in names)

    def subset(self, *names: str) -> Sensor:
        """Return the same sensor with only the channels of these names, in the order of the names."""
        return replace(self, channels=self.pick(*names))

    def group(self, name: str) -> tuple[Channel, ...]:
        """Return a named group such as ``rgb`` or ``swir`` (see ``groups``), or all channels of one GSD: ``10m``."""
        by_gsd: dict[str, tuple[str, ...]] = {}
        for channel in self.channels:
            if channel.gsd_m is not None:
                key = f"{channel.gsd_m:g}m"
                by_gsd[key] = (*by_gsd.get(key, ()), channel.name)
        known = {key: names for key, names in self.groups.items() if all(n in self for n in names)} | by_gsd
        if fold(name) not in known:
            near = near_matches(name, {key: key for key in known}) if known else "it has none"
            raise UnknownChannelError(f"{name!r} is not a group of {self.name} bands; {near}")
        return self.pick(*known[fold(name)])

    def with_statistics(
        self,
        values: ArrayLike | None = None,
        *,
        nodata: float | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> Sensor:
        """Return the same sensor with mean and std per channel, from your own array or from two lists.

        ``values`` is (C, H, W), (T, C, H, W) or (P, C); NaN, infinite, masked and ``nodata`` entries
        count as absent.
        A channel absent throughout is left without statistics.
        """
        if (values is None) == (mean is None and std is None):
            raise AtomsError(f"{self.name}: give statistics either as values or as mean=[...] and std=[...]")
        if values is not None:
            return replace(self, channels=_measured(self, values, nodata))
        if mean is None or std is None or not len(mean) == len(std) == len(self):
            raise AtomsError(f"{self.name} has {len(self)} bands; give one mean and one std for each")
        channels = []
        for channel, m, s in zip(self.channels, mean, std, strict=True):
            if not (math.isfinite(m) and math.isfinite(s) and s > 0):
                raise AtomsError(f"{self.name} {channel.name}: mean {m} and std {s} must be finite and std above zero")
            channels.append(replace(channel, mean=float(m), std=float(s), min=None, max=None))
        return replace(self, channels=tuple(channels))

    def __getitem__(self, name: str) -> Channel:
        return self.pick(name)[0]

    def __iter__(self) -> Iterator[Channel]:
        return iter(self.channels)

    def __len__(self) -> int:
        return len(self.channels)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(channel.called(name) for channel in self.channels)


def _measured(sensor: Sensor, values: ArrayLike, nodata: float | None) -> tuple[Channel, ...]:
    """Return the sensor's channels with mean, std, min and max of the finite, unmasked values."""
    import numpy as np

    array = np.ma.filled(np.ma.asarray(values).astype(np.float64), np.nan)
    if nodata is not None:
        array[array == nodata] = np.nan
    axis = {2: 1, 3: 0, 4: 1}.get(array.ndim)
    if axis is None or array.shape[axis] != len(sensor):
        raise AtomsError(
            f"{sensor.name} has {len(sensor)} bands, but values have shape {array.shape}; "
            "give (C, H, W), (T, C, H, W) or (P, C)"
        )
    measured = []
    for channel, column in zip(sensor.channels, np.moveaxis(array, axis, 0), strict=True):
        valid = column[np.isfinite(column)]
        if valid.size == 0:
            measured.append(replace(channel, mean=None, std=None, min=None, max=None))
            continue
        low, high = float(valid.min()), float(valid.max())
        if low == high:
            raise AtomsError(f"{sensor.name} {channel.name} is {low:g} everywhere: leave it out, or give mean and std")
        measured.append(replace(channel, mean=float(valid.mean()), std=float(valid.std()), min=low, max=high))
    return tuple(measured)
