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


def _sensor(key: str, described: Mapping[str, Any]) -> Sensor:
    """Return a sensor of the rows of its instrument that are among its bands, with their statistics."""
    rows = _rows_of_ranges(_RANGES[described["ranges"]]) if "ranges" in described else _ROWS[described["rows"]]
    measured = described.get("bands", "").split()
    statistics = zip(described.get("mean", ()), described.get("std", ()), strict=True)
    known: dict[str, tuple[float | None, float | None]] = dict(zip(measured, statistics, strict=True))
    every = described.get("without_statistics", "").split() if measured else [row[0] for row in rows]
    known |= dict.fromkeys(every, (None, None))
    channels = []
    for band, *numbers, aliases in rows:
        if band in known:
            centre_um, width_um = (nm / 1000 for nm in numbers[:2]) if len(numbers) >= 2 else (None, None)
            gsd_m = described.get("gsd_m", numbers[-1] if numbers else None)
            names = tuple(filter(None, aliases.split(", ")))
            channels.append(Channel(key, band, centre_um, width_um, gsd_m, *known[band], aliases=names))
    groups = {group: tuple(bands.split()) for group, bands in described.get("groups", {}).items()}
    return Sensor(described["title"], tuple(channels), groups)


def _rows_of_ranges(ranges: list[list[Any]]) -> list[list[Any]]:
    """Return a row for each band of a spectrometer, whose bands are evenly spaced: ``VNIR001`` and so on."""
    return [
        [f"{name}{number + 1:03d}", round(first + number * (last - first) / (count - 1), 2), width, ""]
        for name, first, last, count, width in ranges
        for number in range(count)
    ]


with Path(__file__).with_suffix(".toml").open("rb") as _file:
    _CATALOGUE = tomllib.load(_file)
_ROWS, _RANGES = _CATALOGUE.pop("rows"), _CATALOGUE.pop("ranges")
SENSORS: dict[str, Sensor] = {key: _sensor(key, described) for key, described in _CATALOGUE.items()}

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
