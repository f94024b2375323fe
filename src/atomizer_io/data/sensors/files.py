"""Sensors as files describe them: by descriptions of bands, tags with wavelengths and sizes of pixels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors.catalogue import HLS, SENSORS, SENTINEL1, SENTINEL2, SENTINEL2_L2A, find
from atomizer_io.data.sensors.sensor import Sensor
from atomizer_io.errors import AtomsError, UnknownChannelError

LEFT_OUT = "-"  # instead of the name of a band, or of the sensor of a folder: it is not used

_LENGTH = re.compile(r"(\d+\.?\d*(?:e[+-]?\d+)?)\s*(nm|nanomet(?:er|re)s?|[uµμ]m|micromet(?:er|re)s?|microns?)\b", re.I)


def _micrometres(text: str | None) -> float | None:
    """Return the first length in a text (``band 1 (418.24 Nanometers)``) in micrometres, None if there is none."""
    length = _LENGTH.search(text or "")
    return None if length is None else float(length[1]) / (1000 if length[2][0] in "nN" else 1)


def _spacing(centres: Sequence[float | None], i: int) -> float | None:
    """Return the smaller distance from centre ``i`` to its neighbours: a gap or another detector does not widen it."""
    here, around = centres[i], [c for c in (*centres[max(i - 1, 0) : i], *centres[i + 1 : i + 2]) if c is not None]
    return min((abs(c - here) for c in around if here is not None and c != here), default=None)


def from_descriptions(
    sensor_name: str,
    descriptions: Sequence[str | None],
    *,
    gsd_m: float | None,
    bandwidths_um: Sequence[float | None] | None = None,
) -> Sensor:
    """Return a sensor made from the band descriptions of a file.

    If ``sensor_name`` is in the catalogue, its names and aliases (``B02``, ``VV``) give its channels, native GSD and
    statistics included. Any other description must hold a wavelength: ``band 1 (418.24 Nanometers)``, ``0.56 µm``.
    A missing bandwidth is the spacing to the neighbouring centres in file order, the smaller of the two.
    """
    widths = list(bandwidths_um) if bandwidths_um is not None else [None] * len(descriptions)
    if len(widths) != len(descriptions):
        raise UnknownChannelError(
            f"{sensor_name}: {len(descriptions)} bands but {len(widths)} bandwidths; give one per band"
        )
    return _described(sensor_name, descriptions, [_micrometres(text) for text in descriptions], widths, gsd_m)


def _described(
    sensor_name: str,
    descriptions: Sequence[str | None],
    centres: Sequence[float | None],
    widths: Sequence[float | None],
    gsd_m: float | None,
) -> Sensor:
    known = find(sensor_name)
    name = sensor_name if known is None else known.name
    key = sensor_name if known is None else known.channels[0].sensor
    channels = []
    for i, (text, centre) in enumerate(zip(descriptions, centres, strict=True)):
        length = _LENGTH.search(text or "")
        label = (text or "")[: length.start() if length else None].strip(" ,;:([-")
        if known is not None and label in known:
            channel = known[label]
            channels.append(channel if text == channel.name else replace(channel, source_name=text))
            continue
        if centre is None:
            raise UnknownChannelError(
                f"band {i + 1} of {name} is described as {text!r}: neither a wavelength nor a band of a known sensor; "
                f"name its sensor ({', '.join(SENSORS)}), pick channels yourself (sensors.AERIAL.pick('R', 'G', 'B')), "
                "or describe your own by Sensor.define"
            )
        width = widths[i] or _spacing(centres, i)
        if width is None:
            raise UnknownChannelError(f"band {i + 1} of {name} ({text!r}) has no neighbour to take its width from")
        channels.append(Channel(key, label or f"band {i + 1}", centre, width, gsd_m, source_name=text))
    return Sensor(name, tuple(channels), {} if known is None else known.groups)


# What one unit of the catalogue's statistics is in physical units (reflectance, dB), where they have one.
_UNITS = {SENTINEL2.name: 1e-4, SENTINEL2_L2A.name: 1e-4, HLS.name: 1.0, SENTINEL1.name: 1.0}


def from_geotiff(
    path: str | Path,
    *,
    sensor: str | None = None,
    gsd_m: float | None = None,
    names: Sequence[str] | None = None,
    allow_vrt: bool = False,
) -> Sensor:
    """Return the sensor that a GeoTIFF describes: names and wavelengths from its tags, GSD from its pixels.

    Wavelengths come from the tags ``wavelength``, ``fwhm`` and ``wavelength_units`` (ENVI, EnMAP), else from the
    descriptions; ``sensor`` names a catalogue sensor for files described by ``B02`` or ``VV``, or your own: models
    know the statistics of a channel by its sensor and name. ``names`` are used instead of descriptions, ``-`` for a
    band that is left out. Catalogue statistics are expressed in the raw values of the file by its scales and offsets.
    Other channels have none: add them with ``with_statistics``. ``allow_vrt`` also opens a VRT, a mosaic of others.
    """
    from atomizer_io.io.raster_files import open_raster  # data/ comes before io/

    with open_raster(path if isinstance(path, Path) else Path(path), allow_vrt=allow_vrt) as source:
        gsd_m = _pixel_size_m(path, source) if gsd_m is None else gsd_m
        descriptions, scales, offsets = source.descriptions, source.scales, source.offsets
        tags = [{key.lower(): value for key, value in source.tags(i).items()} for i in source.indexes]
    centres, widths = (
        [_micrometres(f"{tag.get(key, '')} {tag.get('wavelength_units', '')}") for tag in tags]
        for key in ("wavelength", "fwhm")
    )
    centres = [c if c is not None else _micrometres(text) for c, text in zip(centres, descriptions, strict=True)]
    widths = [width or _spacing(centres, i) for i, width in enumerate(widths)]
    labels: Sequence[str | None] = descriptions if names is None else names
    kept = [i for i, label in enumerate(labels) if names is None or label != LEFT_OUT]
    described = _described(
        sensor or "geotiff", [labels[i] for i in kept], [centres[i] for i in kept], [widths[i] for i in kept], gsd_m
    )
    unit, channels = _UNITS.get(described.name), []
    for i, channel in zip(kept, described, strict=True):
        scale, offset = scales[i], offsets[i]
        channel = replace(channel, gsd_m=gsd_m)
        if unit and channel.mean is not None and channel.std is not None and (scale, offset) != (1.0, 0.0):
            mean, std = (channel.mean * unit - offset) / scale, channel.std * unit / abs(scale)
            channel = replace(channel, mean=mean, std=std)
        channels.append(channel)
    return replace(described, channels=tuple(channels))


def _pixel_size_m(path: str | Path, source: Any) -> float:
    """Return the side of a pixel in metres (the root of its area, so that rotated grids count too)."""
    if source.crs is None or not source.crs.is_projected:
        raise AtomsError(f"{path} has no projected CRS, so its pixel size is not in metres; pass gsd_m=...")
    return round(math.sqrt(abs(source.transform.determinant)) * float(source.crs.linear_units_factor[1]), 6)
