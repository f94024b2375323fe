"""What the bands of a raster file are: by a sensor and the names of its bands, or as the file describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from atomizer_io.channels import Channel
from atomizer_io.datasets.reading.rasters import Raster, opened, pixel_size
from atomizer_io.datasets.reading.sidecar import sidecar_path
from atomizer_io.errors import ConfigError, DataError, UnknownChannelError, listed
from atomizer_io.grid import Grid
from atomizer_io.sensors import Sensor, from_geotiff, get
from atomizer_io.sensors.catalogue import SENSORS, find
from atomizer_io.sensors.sensor import near_matches


@dataclass(frozen=True, slots=True)
class Header:
    """What a raster file says of itself before its pixels: their grid, and one description (or None) a band."""

    path: Path
    grid: Grid
    descriptions: tuple[str | None, ...]

    @classmethod
    def of(cls, path: Path, gsd_m: float | None = None) -> Header:
        """Read a header; ``gsd_m`` is the pixel size where the file has no coordinate system."""
        with opened(path) as source:
            size = pixel_size(path, source.crs, source.transform, source.height, source.width, gsd_m)
            return cls(path, Grid(source.height, source.width, gsd_m=size), source.descriptions)


@dataclass(frozen=True, slots=True)
class Bands:
    """The bands of the files of one folder, as the first of them has them, and its larger side in metres.

    ``descriptions`` are those in that file; None where the user says what the bands are, not the files.
    """

    channels: tuple[Channel, ...]
    descriptions: tuple[str | None, ...] | None
    extent_m: float

    @classmethod
    def of(cls, raster: Header, sensor: str | Sensor | None, names: Sequence[str] | None) -> Bands:
        """The bands of a file; ``names`` are bands of ``sensor`` in the order of the file."""
        size = max(raster.grid.pixel_m)
        descriptions = None
        if names is None and not isinstance(sensor, Sensor):
            found, descriptions = described(raster, sensor, size), raster.descriptions
        elif sensor is None:
            raise ConfigError("bands= names bands of a sensor: pass sensor= as well")
        elif names is not None and isinstance(sensor, str) and find(sensor) is None:
            found = renamed(described(raster, sensor, size), names)
        else:
            known = sensor if isinstance(sensor, Sensor) else get(sensor)
            found = known if names is None else known.subset(*names)
        count, given = len(raster.descriptions), found.names if names is None else tuple(names)
        if len(given) != count:
            raise DataError(raster.path, f"has {count} bands, {len(given)} are named: {listed(given)}")
        channels = tuple(replace(channel, gsd_m=size) for channel in found)
        return cls(channels, descriptions, max(raster.grid.size_m))

    def channels_of(self, raster: Raster) -> tuple[Channel, ...]:
        """The channels of another file, by its descriptions where those name them: files may differ in their bands."""
        if self.descriptions is None or raster.descriptions == self.descriptions:
            if len(raster.values) != len(self.channels):
                raise DataError(raster.path, f"has {len(raster.values)} bands, expected {len(self.channels)}")
            return self.channels
        known = dict(zip(self.descriptions, self.channels, strict=True))
        new = [text for text in raster.descriptions if text is None or text not in known]
        if not any(raster.descriptions):
            raise DataError(raster.path, "has bands without descriptions, but other images have them: pass bands=")
        if new:
            raise DataError(raster.path, f"has a band described as {new[0]!r}, which other images have not")
        return tuple(known[text] for text in raster.descriptions)


def described(raster: Header, sensor: str | None, gsd_m: float) -> Sensor:
    """What a file says of its bands; ``sensor`` is the name of theirs, which may be one of the user's own."""
    try:
        return from_geotiff(raster.path, sensor=sensor, gsd_m=gsd_m)
    except UnknownChannelError as error:
        if sensor is not None and find(sensor) is None:
            raise ConfigError(
                f"{sensor!r} is not a known sensor; {near_matches(sensor, {key: key for key in SENSORS})}; for one of "
                f"your own, {raster.path.name} would have to say the wavelengths of its bands (in their descriptions, "
                f"such as '560 nm', or tags), or {sidecar_path(raster.path).name} beside it"
            ) from error
        raise DataError(
            raster.path,
            f"its bands are unknown: pass sensor= and bands=, or write both into {sidecar_path(raster.path).name} "
            f"beside it ({error})",
        ) from error


def renamed(sensor: Sensor, names: Sequence[str]) -> Sensor:
    """A sensor of the user's own with other names of its bands, as many as both have."""
    pairs = zip(sensor, names, strict=False)
    return replace(sensor, channels=tuple(replace(channel, name=name) for channel, name in pairs))
