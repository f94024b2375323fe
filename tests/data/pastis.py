"""PASTIS-R in small: patches of 32 pixels in all five folds, series over New Year with absent pixels, void labels."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.pastis import CHANNELS, METADATA, NO_OPTICAL
from data.content import bands, patches

SIZE = 32
GSD_M = 10.0
FOLDS = {10000: 1, 10001: 2, 10002: 3, 20000: 1, 30000: 4, 40000: 5}
START = datetime.date(2018, 9, 24)
STEPS = {"S2": (7, 50), "S1A": (5, 70), "S1D": (4, 90)}  # number of dates, and days between them
DTYPES = {"S2": np.int16, "S1A": np.float16, "S1D": np.float16}
VOID = 19


def write(folder: Path, seed: int = 0, size: int = SIZE, dates: int | None = None) -> None:
    """Write images, labels, metadata and the statistics per fold.

    Real patches have ``size`` 128; ``dates`` is the number of dates of each sensor; real series of Sentinel-2 have 38
    to 61.
    """
    rng = np.random.default_rng(seed)
    for name in (*(f"DATA_{sensor}" for sensor in CHANNELS), "ANNOTATIONS"):
        (folder / name).mkdir(parents=True)
    features = []
    for number, (patch, fold) in enumerate(FOLDS.items()):
        crops = patches(rng, size, size, VOID)
        label = crops.astype(np.uint8)
        label[:3, -5:] = VOID
        parcels = np.zeros_like(label)
        np.save(folder / "ANNOTATIONS" / f"TARGET_{patch}.npy", np.stack([label, parcels, parcels]))
        properties: dict[str, Any] = {"Fold": fold, "ID_PATCH": patch, "TILE": "t31tfm"}
        for sensor in CHANNELS:
            values, days = series(rng, crops, sensor, patch, dates)
            np.save(folder / f"DATA_{sensor}" / f"{sensor}_{patch}.npy", values)
            written = {str(i): int(f"{day:%Y%m%d}") for i, day in enumerate(days)}
            properties[f"dates-{sensor}"] = json.dumps(written) if number % 2 else written
        outline = square(number, patch == 40000, size * GSD_M)
        features.append({"id": str(patch), "type": "Feature", "properties": properties, "geometry": outline})
    document = {
        "type": "FeatureCollection",
        "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::2154"}},
        "features": features,
    }
    (folder / METADATA).write_text(json.dumps(document))
    for sensor, channels in CHANNELS.items():
        statistics = {"mean": [channel.mean for channel in channels], "std": [channel.std for channel in channels]}
        folds = {f"Fold_{fold}": statistics for fold in range(1, 6)}
        (folder / f"NORM_{sensor}_patch.json").write_text(json.dumps(folds))


def series(
    rng: np.random.Generator, crops: NDArray[np.int64], sensor: str, patch: int, dates: int | None
) -> tuple[NDArray[Any], list[datetime.date]]:
    """Return images (T, C, H, W) and their dates; the length differs from patch to patch."""
    count, step = STEPS[sensor] if dates is None else (dates, max(365 // dates, 1))
    count -= patch == 10001
    days = [START + datetime.timedelta(days=step * i) for i in range(count)]
    values = np.stack([bands(rng, crops, CHANNELS[sensor], DTYPES[sensor]) for _ in days])
    if sensor == "S2":
        values[2, :, :4] = NO_OPTICAL  # beyond the swath
    else:
        values[1, :, :, :2] = np.nan
    return values, days


def square(number: int, turned: bool, side: float) -> dict[str, Any]:
    """Return the outline of a patch of ``side`` metres; it is turned if the tile is in another UTM zone."""
    west, south, slip = 870000.0 + 2 * number * side, 6650000.0, side * 0.08 * turned
    corners = [(slip, 0.0), (side, slip), (side - slip, side), (0.0, side - slip), (slip, 0.0)]
    ring = [[west + x * (1 + 0.08 * turned), south + y * (1 + 0.08 * turned)] for x, y in corners]
    return {"type": "MultiPolygon", "coordinates": [[ring]]}
