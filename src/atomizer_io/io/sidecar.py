"""Files ``NAME.bands.yaml`` beside rasters, in which a user writes their sensor, bands, date, pixel size and CRS."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import Sensor
from atomizer_io.errors import DataError
from atomizer_io.texts import parse_yaml, read_text

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
    """Return what ``scene.bands.yaml`` says of ``scene.tif``: any of ``KEYS``, nothing if there is no such file."""
    if not path.name:  # the root of the file system lies in no folder
        return {}
    beside = sidecar_path(path)
    if not beside.is_file():
        return {}
    try:
        found = parse_yaml(read_text(beside))
    except (ValueError, OSError) as error:
        raise DataError(beside, f"is not YAML: {error}") from error
    if not isinstance(found, dict) or set(found) - set(KEYS):
        raise DataError(beside, f"may only say {', '.join(KEYS)}")
    for key, kinds in KINDS.items():
        value = found.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise DataError(beside, f"{key} is {value!r}: write {WRITTEN[key]}")
    return found


def own_sensor(path: Path, name: str, bands: Mapping[str, Any]) -> Sensor:
    """Return a sensor of the user's own.

    Each band has [wavelength, bandwidth] in µm, nothing, or settings of a channel by name.
    """
    channels = []
    for band, given in bands.items():
        try:
            if not isinstance(given, Mapping):
                given = {} if given is None else dict(zip(("wavelength_um", "bandwidth_um"), given, strict=True))
            channels.append(Channel(name, str(band), **given))
        except (TypeError, ValueError) as error:
            raise DataError(path, f"band {band!r}: write [wavelength, bandwidth] in µm, not {given!r}") from error
    return Sensor(name, tuple(channels))
