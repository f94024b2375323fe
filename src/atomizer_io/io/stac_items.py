"""Rasters of STAC items: each asset with bands of a known sensor, or with wavelengths of its own, is a raster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import Sensor
from atomizer_io.data.sensors.catalogue import find
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.texts import parse_json, read_text

RASTERS = ("image/tiff", "image/jp2", "image/vnd.stac.geotiff")  # how media types of assets begin
PREVIEWS = ("thumbnail", "overview", "visual")


def rasters_of_stac(
    items: Any, *, sensor: str | Sensor | None = None, bands: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the rasters of a STAC item or of a search result, as the functions of prediction take them.

    ``items`` is an item or item collection of pystac, the same as a dictionary, or the path of its JSON file. Bands are
    found by name, by common name or by wavelength in the ``sensor``, by default the one that collection, platform or
    constellation name; ``bands`` takes only some of them. Values stay as they are stored: scales are not applied.
    """
    path = Path(items) if isinstance(items, str | Path) else None
    document: Any = items
    if path is not None:
        try:
            document = parse_json(read_text(path))
        except (OSError, ValueError) as error:
            raise DataError(path, f"cannot be read as a STAC item: {error}") from error
    elif hasattr(items, "to_dict"):
        document = items.to_dict()
    if not isinstance(document, Mapping) or document.get("type") not in ("Feature", "FeatureCollection"):
        raise ConfigError("this is neither a STAC item nor an item collection: pass one of pystac, or its JSON file")
    features = document["features"] if document["type"] == "FeatureCollection" else [document]
    return [raster for item in features for raster in _of_item(item, path, sensor, bands)]


def _of_item(
    item: Mapping[str, Any], path: Path | None, sensor: str | Sensor | None, bands: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return the rasters of one item."""
    known = find(sensor) if isinstance(sensor, str) else sensor
    known = known or _sensor_of(item)
    names = bands
    if bands is not None and known is not None:
        names = [channel.name for channel in known.pick(*bands)]
    rasters, day = [], str(item.get("properties", {}).get("datetime") or "")[:10]
    for key, asset in item.get("assets", {}).items():
        if not str(asset.get("type", "image/tiff")).startswith(RASTERS) or {*asset.get("roles", ())} & {*PREVIEWS}:
            continue
        described = asset.get("eo:bands") or asset.get("bands") or [{"name": key}]
        channels = [_channel(band, key if len(described) == 1 else "", known, asset) for band in described]
        if any(channel is None or (names is not None and channel.name not in names) for channel in channels):
            continue
        kept = tuple(channel for channel in channels if channel is not None)
        own = Sensor(known.name if known else kept[0].sensor, kept)
        raster: dict[str, Any] = {"path": _address(str(asset["href"]), item, path), "sensor": own, "bands": own.names}
        nodata = next((band.get("nodata") for band in (*asset.get("raster:bands", ()), *described)), None)
        raster |= {"nodata": nodata} if isinstance(nodata, int | float) else {}
        rasters.append(raster | ({"date": day} if day else {}))
    if not rasters:
        raise ConfigError(
            f"item {item.get('id')!r} has no raster of a known band among {listed(item.get('assets', {}))}: pass "
            "sensor= (`atomizer info sensors`)"
        )
    return rasters


def _sensor_of(item: Mapping[str, Any]) -> Sensor | None:
    """Return the sensor of the catalogue that an item names: its collection, platform or constellation."""
    properties = item.get("properties", {})
    names = [item.get("collection"), properties.get("platform"), properties.get("constellation")]
    every = [str(name) for name in names if name]
    every += [re.sub(r"(\d)[a-d]$", r"\1", name.casefold()) for name in every]  # sentinel-1a
    return next((sensor for name in every if (sensor := find(name)) is not None), None)


def _channel(band: Mapping[str, Any], key: str, known: Sensor | None, asset: Mapping[str, Any]) -> Channel | None:
    """Return the channel of a band: of the sensor by its names or its wavelength, else by its own wavelength."""
    common = band.get("common_name") or band.get("eo:common_name")
    centre = band.get("center_wavelength") or band.get("eo:center_wavelength")
    width = band.get("full_width_half_max") or band.get("eo:full_width_half_max")
    name = str(band.get("name") or key)
    for label in (name, key, str(common or "")):
        if known is not None and label and label in known:
            return known[label]
    if centre is None:
        return None
    near = [c for c in known or () if c.wavelength_um and abs(c.wavelength_um - centre) <= (c.bandwidth_um or 0) / 4]
    if len(near) == 1:
        return near[0]
    sensor = "stac" if known is None else known.channels[0].sensor
    return Channel(sensor, name, float(centre), float(width) if width else None, asset.get("gsd"))


def _address(href: str, item: Mapping[str, Any], path: Path | None) -> str:
    """Return where an asset lies; a relative address counts from the item."""
    if re.match(r"[a-z0-9]+://|/", href):
        return href
    own = next((str(link["href"]) for link in item.get("links", ()) if link.get("rel") == "self"), "")
    return str(path.absolute().parent / href) if path is not None else urljoin(own, href)
