"""What the bands of a raster file are: by a sensor and the names of its bands, as the file describes them, or by
``NAME.bands.yaml`` beside it, in which a user writes sensor, bands, date, pixel size and CRS.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.sensors import Sensor, from_geotiff
from atomizer_io.data.sensors.catalogue import SENSORS, find
from atomizer_io.data.sensors.files import LEFT_OUT
from atomizer_io.data.sensors.sensor import near_matches
from atomizer_io.errors import ConfigError, DataError, UnknownChannelError, listed
from atomizer_io.io.crs import Transform
from atomizer_io.io.raster_pixels import opened
from atomizer_io.io.rasters import Raster, crs_of, pixel_size
from atomizer_io.texts import parse_yaml, read_text

COLOURS = ("red", "green", "blue")
BESIDE_COLOURS = ("nir", "undefined")  # what GDAL calls the fourth band of an infrared orthophoto


@dataclass(frozen=True, slots=True)
class RasterHeader:
    """The header of a raster file: the grid of its pixels, and a description (or None) of each band.

    ``colours`` are GDAL's colour interpretations (red, alpha, undefined); ``scaled`` is whether the file has a scale or
    an offset, by which stored values would become physical ones. ``crs`` is rasterio's, or None.
    """

    path: Path
    grid: Grid
    crs: Any
    transform: Transform  # as stored
    descriptions: tuple[str | None, ...]
    colours: tuple[str, ...] = ()
    scaled: bool = False
    allow_vrt: bool = False

    @classmethod
    def of(
        cls, path: Path, gsd_m: float | None = None, crs: str | None = None, allow_vrt: bool = False
    ) -> RasterHeader:
        """Read a header; ``crs`` and ``gsd_m`` are for files that do not name a coordinate system."""
        with opened(path, allow_vrt=allow_vrt) as source:
            known = crs_of(path, source, crs)
            if known is None and source.gcps[0]:
                check_control_points(path, gsd_m)
            size = pixel_size(path, known, source.transform, source.height, source.width, gsd_m)
            grid = Grid(source.height, source.width, gsd_m=size)
            scaled = any(scale != 1 for scale in source.scales) or any(offset != 0 for offset in source.offsets)
            colours = tuple(colour.name for colour in source.colorinterp)
            return cls(path, grid, known, tuple(source.transform)[:6], source.descriptions, colours, scaled, allow_vrt)


def check_control_points(path: Path, gsd_m: float | None) -> None:
    """Refuse a file that is placed by ground control points only; with a pixel size, warn that they are not used."""
    advice = "warp it by them first (gdalwarp -t_srs EPSG:...)"
    if gsd_m is None:
        raise DataError(path, f"has no grid but ground control points, which are not used: {advice}, or pass gsd_m=")
    text = f"{path.name}: its ground control points are not used, and all pixels are taken as {gsd_m:g} m wide and high"
    warnings.warn(f"{text}: if it is to be placed correctly, {advice}", stacklevel=5)


@dataclass(frozen=True, slots=True)
class Bands:
    """The bands that the files of one folder have, by the first file, and the larger side of that file in metres.

    ``numbers`` (from 1) are the band of the file that each channel is; bands that are left out have no channel.
    ``descriptions`` are the file's own; None where the user, not the file, names the bands.
    """

    channels: tuple[Channel, ...]
    numbers: tuple[int, ...]
    descriptions: tuple[str | None, ...] | None
    extent_m: float
    count: int  # number of bands in the file

    @classmethod
    def of(cls, raster: RasterHeader, sensor: str | Sensor | None, names: Sequence[str] | None) -> Bands:
        """Return the bands of a file; ``names`` are bands of ``sensor`` in its order, ``-`` for one to leave out."""
        size, count = max(raster.grid.pixel_m), len(raster.descriptions)
        numbers, descriptions = tuple(range(1, count + 1)), None
        if names is not None:
            known = sensor if isinstance(sensor, Sensor) or sensor is None else find(sensor)
            if known is not None:  # first, as a name that the sensor does not have is no fault of the file
                known.subset(*(name for name in names if name != LEFT_OUT))
            numbers = kept(raster.path, names, count)
            warn_contradicted(raster, known, names)
            sensor_bands = named(raster, sensor, names, size)
        elif isinstance(sensor, Sensor):
            sensor_bands, opaque = sensor, tuple(i for i in numbers if raster.colours[i - 1 : i] != ("alpha",))
            numbers = opaque if len(opaque) == len(sensor) else numbers
        elif (colours := coloured(raster, sensor)) is not None:
            sensor_bands, numbers = colours, numbers[: len(colours)]
        else:
            sensor_bands, descriptions = described(raster, sensor, size), raster.descriptions
        if len(sensor_bands) != len(numbers):
            raise DataError(
                raster.path, f"has {count} bands, {len(sensor_bands)} are named: {listed(sensor_bands.names)}"
            )
        channels = tuple(replace(channel, gsd_m=size) for channel in sensor_bands)
        return cls(channels, numbers, descriptions, max(raster.grid.size_m), count)

    @property
    def to_read(self) -> dict[str, Any]:
        """Arguments for ``read_raster``: which bands of how many, or none where files describe their own bands."""
        return {} if self.descriptions is not None else {"bands": self.count, "indexes": self.numbers}

    def channels_of(self, raster: Raster) -> tuple[Channel, ...]:
        """Return the channels of another file, by its descriptions where those name them: files may differ in bands."""
        if self.descriptions is None or raster.descriptions == self.descriptions:
            if len(raster.values) != len(self.channels):
                raise DataError(raster.path, f"has {len(raster.values)} bands, expected {len(self.channels)}")
            return self.channels
        known = dict(zip(self.descriptions, self.channels, strict=True))
        new = [text for text in raster.descriptions if text is None or text not in known]
        if not any(raster.descriptions):
            raise DataError(raster.path, "has bands without descriptions, but other images have them: pass bands=")
        if new:
            raise DataError(raster.path, f"has a band described as {new[0]!r}, which the other images do not have")
        return tuple(known[text] for text in raster.descriptions)


def kept(path: Path, names: Sequence[str], count: int) -> tuple[int, ...]:
    """Return the numbers (from 1) of the bands of a file that are not left out; ``names`` must name every band."""
    if len(names) != count:
        raise DataError(path, f"has {count} bands, {len(names)} are named: {listed(names)}")
    numbers = tuple(number for number, name in enumerate(names, start=1) if name != LEFT_OUT)
    if not numbers:
        raise DataError(path, "all its bands are left out")
    return numbers


def warn_contradicted(raster: RasterHeader, known: Sensor | None, names: Sequence[str]) -> None:
    """Warn of bands that the file itself describes as other bands of the sensor than the user names."""
    both = [(text, name) for text, name in zip(raster.descriptions, names, strict=True) if text and name != LEFT_OUT]
    odd = [
        f"{name} where the file has {text}"
        for text, name in both
        if known is not None and text in known and known[text].name != known[name].name
    ]
    if odd:
        warnings.warn(
            f"{raster.path.name}: the bands are named {listed(odd)}; the names that you give are used: leave them out "
            "if the file is right",
            stacklevel=5,
        )


def named(raster: RasterHeader, sensor: str | Sensor | None, names: Sequence[str], gsd_m: float) -> Sensor:
    """Return the bands by the names that the user gives them.

    A sensor that is not in the catalogue needs files that state the wavelengths of their bands.
    """
    if sensor is None:
        raise ConfigError("bands= names the bands of a sensor: pass sensor= as well")
    known = sensor if isinstance(sensor, Sensor) else find(sensor)
    if known is not None:
        return known.subset(*(name for name in names if name != LEFT_OUT))
    return described(raster, str(sensor), gsd_m, names)


def coloured(raster: RasterHeader, sensor: str | None) -> Sensor | None:
    """Return red, green and blue of a sensor for an orthophoto whose bands are colours and have no descriptions.

    A fourth band is the infrared where the sensor has exactly these four; alpha is a mask, which reading applies.
    """
    known = None if sensor is None else find(sensor)
    if known is None or any(raster.descriptions) or raster.colours[:3] != COLOURS:
        return None
    if not all(colour in known for colour in COLOURS):
        return None
    beside = raster.colours[3:]
    if beside in ((), ("alpha",)):
        return known.subset(*COLOURS)
    if len(beside) == 1 and beside[0] in BESIDE_COLOURS and len(known) == 4 and "nir" in known:
        return known.subset(*COLOURS, "nir")
    return None


def described(raster: RasterHeader, sensor: str | None, gsd_m: float, names: Sequence[str] | None = None) -> Sensor:
    """Return the sensor that a file describes, called ``sensor``; ``names`` are used instead of descriptions."""
    try:
        return from_geotiff(raster.path, sensor=sensor, gsd_m=gsd_m, names=names, allow_vrt=raster.allow_vrt)
    except UnknownChannelError as error:
        fact = str(error).partition(";")[0]  # what follows is advice for those who call Python
        if sensor is not None and find(sensor) is None:
            near = near_matches(sensor, {key: key for key in SENSORS})
            raise ConfigError(
                f"{raster.path}: {sensor!r} is not a known sensor; {near}; one of "
                f"your own needs the wavelengths of its bands, in the file (descriptions such as '560 nm', or "
                f"tags) or in {sidecar_path(raster.path).name} beside it: {fact}"
            ) from error
        missing = "sensor= and bands=" if sensor is None else "bands= in the order of the file"
        raise DataError(
            raster.path,
            f"its bands are unknown: pass {missing}, or write sensor and bands into {sidecar_path(raster.path).name} "
            f"beside it ({fact})",
        ) from error


KINDS: dict[str, tuple[type, ...]] = {
    "sensor": (str,),
    "bands": (str, list, dict),
    "date": (str, int, datetime.date),
    "gsd_m": (int, float),
    "crs": (str,),
    "nodata": (int, float),
}
WRITTEN = {
    "sensor": "the name of a sensor",
    "bands": "a list of names, or a wavelength and a bandwidth for each",
    "date": "a date like 2021-07-04",
    "gsd_m": "a number of metres",
    "crs": "a coordinate system like EPSG:32632",
    "nodata": "a number",
}
KEYS = tuple(KINDS)


def sidecar_path(path: Path) -> Path:
    """Return where facts about a raster are looked for: ``scene.bands.yaml`` for ``scene.tif`` or folder ``scene``."""
    return path.with_name(f"{path.name if path.is_dir() else path.stem}.bands.yaml")


def sidecar(path: Path) -> dict[str, Any]:
    """Return the facts of ``scene.bands.yaml`` for ``scene.tif``, any of ``KEYS``; nothing if there is no such file."""
    if not path.name:  # the root of the file system lies in no folder
        return {}
    beside = sidecar_path(path)
    if not beside.is_file():
        return {}
    try:
        facts = parse_yaml(read_text(beside))
    except (ValueError, OSError) as error:
        raise DataError(beside, f"is not YAML: {error}") from error
    if not isinstance(facts, dict) or set(facts) - set(KEYS):
        raise DataError(beside, f"may only hold the keys {', '.join(KEYS)}")
    for key, kinds in KINDS.items():
        value = facts.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise DataError(beside, f"{key} is {value!r}: write {WRITTEN[key]}")
    return facts


def own_sensor(path: Path, name: str, bands: Mapping[str, Any]) -> Sensor:
    """Return a sensor of the user's own.

    Each band has [wavelength, bandwidth] in µm, nothing, or settings of a channel by name.
    """
    channels = []
    for band, facts in bands.items():
        try:
            if not isinstance(facts, Mapping):
                facts = {} if facts is None else dict(zip(("wavelength_um", "bandwidth_um"), facts, strict=True))
            channels.append(Channel(name, str(band), **facts))
        except (TypeError, ValueError) as error:
            raise DataError(path, f"band {band!r}: write [wavelength, bandwidth] in µm, not {facts!r}") from error
    return Sensor(name, tuple(channels))
