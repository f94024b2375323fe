"""The catalogue of common sensors: ``catalogue.toml`` has every number with its source.

Statistics hold for the raw units named there. For values in other units (a reflectance of 0–1 where the table has DN)
replace them: ``SENTINEL2.subset("B04", "B08").with_statistics(values)``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import Channel, plain_name
from atomizer_io.data.sensors.sensor import Sensor, near_matches
from atomizer_io.errors import UnknownChannelError


def _sensor(key: str, described: Mapping[str, Any], rows: Mapping[str, list[list[Any]]]) -> Sensor:
    """Return a sensor of the rows of its instrument that are among its bands, with their statistics."""
    statistics = zip(described["mean"], described["std"], strict=True)
    known: dict[str, tuple[float | None, float | None]] = dict(zip(described["bands"].split(), statistics, strict=True))
    known |= dict.fromkeys(described.get("without_statistics", "").split(), (None, None))
    channels = []
    for band, *numbers, aliases in rows[described["rows"]]:
        if band in known:
            centre_um, width_um = (nm / 1000 for nm in numbers[:2]) if len(numbers) == 3 else (None, None)
            gsd_m = described.get("gsd_m", numbers[-1] if numbers else None)
            names = tuple(filter(None, aliases.split(", ")))
            channels.append(Channel(key, band, centre_um, width_um, gsd_m, *known[band], aliases=names))
    groups = {group: tuple(bands.split()) for group, bands in described.get("groups", {}).items()}
    return Sensor(described["title"], tuple(channels), groups)


with Path(__file__).with_suffix(".toml").open("rb") as _file:
    _CATALOGUE = tomllib.load(_file)
_ROWS = _CATALOGUE.pop("rows")
SENSORS: dict[str, Sensor] = {key: _sensor(key, described, _ROWS) for key, described in _CATALOGUE.items()}

SENTINEL2, SENTINEL2_L2A, SENTINEL1 = SENSORS["sentinel2"], SENSORS["sentinel2_l2a"], SENSORS["sentinel1"]
LANDSAT8, HLS, AERIAL, VHR = SENSORS["landsat8"], SENSORS["hls"], SENSORS["aerial"], SENSORS["vhr"]
GRAYSCALE = SENSORS["grayscale"]
LIDAR_HEIGHT = SENSORS["lidar"].subset("height")
LIDAR = SENSORS["lidar"] = SENSORS["lidar"].subset("elevation")  # heights: by an option of datasets


def find(name: str) -> Sensor | None:
    """Return a sensor of the catalogue by key or name, whatever the case and separators; None if there is none."""
    return next((sensor for key, sensor in SENSORS.items() if plain_name(key) == plain_name(name)), None)


def get(name: str) -> Sensor:
    """Return a sensor of the catalogue by its key (``sentinel2_l2a``) or its name (``Sentinel-2 L2A``)."""
    sensor = find(name)
    if sensor is None:
        raise UnknownChannelError(
            f"{name!r} is not a known sensor; {near_matches(name, {key: key for key in SENSORS})}"
        )
    return sensor
