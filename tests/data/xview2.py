"""xBD in small: images of 64 pixels with a black border, nine buildings each, an un-classified one among them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.xview2 import CHANNELS, DAMAGE
from atomizer_io.io.geometries import rasterised
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands

SIZE = 64
GSD_M = 0.451269  # pixel size of a real file, on the grid of UTM zone 15
CRS = "EPSG:32615"
PLACES = {
    "train": ("joplin-tornado_00000000", "joplin-tornado_00000003"),
    "tier3": ("joplin-tornado_00000010",),
    "test": ("joplin-tornado_00000021",),
    "hold": ("joplin-tornado_00000030",),
}
EMPTY = "joplin-tornado_00000030"  # no building, so nothing that its pixel size can be fitted to
DATES = {"pre": "2009-08-08T17:16:20.445Z", "post": "2011-05-29T17:29:25.433Z"}
Corners = list[tuple[float, float]]


def write(folder: Path, seed: int = 0, size: int = SIZE) -> None:
    """Write the four folders with images of ``size`` pixels (the real ones have 1024); ``tier3`` has no targets."""
    rng = np.random.default_rng(seed)
    for split, stems in PLACES.items():
        for stem in stems:
            buildings = [] if stem == EMPTY else [building(rng, number, size) for number in range(9)]
            origin = (369023.41 + 500 * int(stem[-8:]), 4103556.59)
            for when in ("pre", "post"):
                name = f"{stem}_{when}_disaster"
                levels = drawn(buildings, dict.fromkeys(DAMAGE, 1) if when == "pre" else DAMAGE, size)
                image = bands(rng, levels, CHANNELS, np.uint8)
                image[:, 30, 30] = (0, 40, 50)  # no red at all, but seen
                image[:, :, size - 4 :] = 0  # beyond the scene
                write_raster(folder / split / "images" / f"{name}.png", image, driver="PNG", nodata=0)
                write_json(folder / split / "labels" / f"{name}.json", buildings, when, stem, origin, size)
                if split != "tier3":
                    target = folder / split / "targets" / f"{name}_target.png"
                    write_raster(target, levels.astype(np.uint8), driver="PNG")


def building(rng: np.random.Generator, number: int, size: int) -> tuple[str, str, list[Corners]]:
    """Return name, damage and rings of a building in pixels; some have a courtyard."""
    row, column = divmod(number, 3)
    cell = size / 3
    left, top = column * cell + rng.uniform(0.05, 0.2) * cell, row * cell + rng.uniform(0.05, 0.2) * cell
    width, height = rng.uniform(0.5, 0.65, 2) * cell
    damage = (*DAMAGE, "un-classified")[number % 5]
    rings = [rectangle(left, top, width, height)]
    if number % 3 == 1:
        rings.append(rectangle(left + width / 3, top + height / 3, width / 3, height / 3))
    return str(uuid.UUID(bytes=rng.bytes(16))), damage, rings


def rectangle(left: float, top: float, width: float, height: float) -> Corners:
    """Return a rectangle as a closed ring."""
    right, bottom = left + width, top + height
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]


def drawn(buildings: list[tuple[str, str, list[Corners]]], values: dict[str, int], size: int) -> NDArray[np.int64]:
    """Return the map of an image; un-classified buildings count as not damaged."""
    shapes = [({"type": "Polygon", "coordinates": rings}, values.get(damage, 1)) for _, damage, rings in buildings]
    return rasterised(shapes, (size, size), (1.0, 0.0, 0.0, 0.0, 1.0, 0.0))


def write_json(
    path: Path,
    buildings: list[tuple[str, str, list[Corners]]],
    when: str,
    stem: str,
    origin: tuple[float, float],
    size: int,
) -> None:
    """Write the label file of an image; before the disaster, buildings have no ``subtype``."""
    features: dict[str, list[dict[str, Any]]] = {"lng_lat": [], "xy": []}
    for uid, damage, rings in buildings:
        properties = {"feature_type": "building", **({"subtype": damage} if when == "post" else {}), "uid": uid}
        features["xy"].append({"properties": properties, "wkt": wkt(rings)})
        features["lng_lat"].append({"properties": properties, "wkt": wkt([degrees(ring, origin) for ring in rings])})
    metadata = {
        "sensor": "WORLDVIEW02",
        "gsd": 2.35255861282349,
        "capture_date": DATES[when],
        "pan_resolution": 0.585882604122162,
        "disaster": stem.rsplit("_", 1)[0],
        "disaster_type": "wind",
        "original_width": size,
        "original_height": size,
        "width": size,
        "height": size,
        "img_name": f"{path.stem}.png",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"features": features, "metadata": metadata}))


def degrees(ring: Corners, origin: tuple[float, float]) -> Corners:
    """Return a ring in pixels as longitude and latitude."""
    from rasterio.warp import transform

    x, y = zip(*((origin[0] + GSD_M * column, origin[1] - GSD_M * row) for column, row in ring), strict=True)
    return list(zip(*transform(CRS, "EPSG:4326", x, y), strict=True))


def wkt(rings: list[Corners]) -> str:
    """Return a polygon as text, with all digits."""
    parts = (", ".join(f"{float(x)!r} {float(y)!r}" for x, y in ring) for ring in rings)
    return f"POLYGON ({', '.join(f'({part})' for part in parts)})"
