"""How fast windows of a large raster are read, by the layout of its file, and what share of a prediction that is."""

from __future__ import annotations

import cProfile
import pstats
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.io.raster_pixels import limited_cache
from atomizer_io.io.raster_sources import RasterInput, RasterSource
from atomizer_io.io.rasters import read_raster
from atomizer_io.models.registry import create_model
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.rasters import predict_raster
from atomizer_lab.bench.measure import seconds

SIDE, WINDOW, WINDOWS = 1024, 128, 16  # pixels of the file and of a window, and windows that are read
GSD_M = 10.0
TILED = {"tiled": True, "blockxsize": 256, "blockysize": 256}
LAYOUTS: dict[str, dict[str, Any]] = {
    "pixel tiles": {"interleave": "pixel", **TILED},
    "band tiles": {"interleave": "band", **TILED},
    "pixel strips": {"interleave": "pixel", "blockysize": 1},
    "band strips": {"interleave": "band", "blockysize": 1},
}
READING = ("read_raster", "overview_values")  # the functions of a prediction that read


@dataclass(frozen=True, slots=True)
class LayoutReading:
    """Seconds for a window, beside rasterio alone, and for its mean and standard deviation; the shortest repeat."""

    layout: str
    seconds: float
    plain_seconds: float
    overview_seconds: float

    def line(self) -> str:
        """Return this measurement as a row of the printed table."""
        ratio = self.seconds / self.plain_seconds
        numbers = (1000 * number for number in (self.seconds, self.plain_seconds, self.overview_seconds))
        return f"{self.layout:16} " + " ".join(f"{number:12.2f}" for number in numbers) + f" {ratio:8.2f}"


HEADER = f"{'layout':16} {'ms/window':>12} {'plain ms':>12} {'overview ms':>12} {'ratio':>8}"


def write_layouts(folder: Path, side: int = SIDE) -> dict[str, Path]:
    """Write the same 13 bands of Sentinel-2, deflated, once per layout."""
    import rasterio
    from rasterio.transform import Affine

    rng = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side] / 90.0
    bands = []
    for i, channel in enumerate(SENTINEL2):
        ground = np.sin(x + i) + np.cos(1.3 * y - i) + 0.1 * rng.standard_normal((side, side))
        bands.append(np.clip((channel.mean or 0) + (channel.std or 1) * ground, 1, 60000).astype(np.uint16))
    profile = {"driver": "GTiff", "height": side, "width": side, "count": len(bands), "dtype": "uint16"}
    profile |= {"crs": "EPSG:32631", "transform": Affine(GSD_M, 0, 5e5, 0, -GSD_M, 4.65e6), "compress": "deflate"}
    rows = {}
    for name, layout in LAYOUTS.items():
        rows[name] = folder / f"{name.replace(' ', '-')}.tif"
        with rasterio.open(rows[name], "w", **profile, **layout) as target:
            target.write(np.stack(bands))
            target.descriptions = SENTINEL2.names
    return rows


def measure(folder: Path, repeats: int, side: int = SIDE) -> dict[str, Any]:
    """Measure and print a table of all layouts and the share of reading in a prediction; the same as plain values."""
    files = write_layouts(folder, side)
    print(f"\nwindows of {WINDOW} × {WINDOW} pixels and {len(SENTINEL2)} bands\n{HEADER}")
    rows = []
    for name, path in files.items():
        rows.append(measure_layout(name, path, repeats))
        print(rows[-1].line(), flush=True)
    name, path = next(iter(files.items()))
    share = share_of_reading(path, folder)
    print(f"predict, {name}: {100 * share['reading']:.1f} % of {share['seconds']:.1f} s are reading", flush=True)
    return {"windows": [asdict(row) for row in rows], "predict": share}


def measure_layout(name: str, path: Path, repeats: int) -> LayoutReading:
    """Time the reading of windows along the diagonal of a file."""
    import rasterio
    from rasterio.windows import Window

    source = RasterSource.open(RasterInput(path, "sentinel2"))
    last = source.height - WINDOW
    starts = [round(i * last / max(1, WINDOWS - 1)) for i in range(WINDOWS)]

    def ours() -> None:
        with limited_cache():
            for start in starts:
                read_raster(path, window=(start, start, WINDOW, WINDOW))

    def plain() -> None:
        for start in starts:
            with rasterio.open(path) as file:
                file.read(window=Window(start, start, WINDOW, WINDOW))

    of_ours, of_plain = (seconds(call, repeats) / WINDOWS for call in (ours, plain))
    return LayoutReading(name, of_ours, of_plain, seconds(source.overview, repeats))


def share_of_reading(path: Path, folder: Path) -> dict[str, float]:
    """Seconds of a prediction of a file with an untrained tiny model in one process, and the share of reading."""
    model = create_model("atomizer_io_tiny", num_outputs=3, channels=SENTINEL2.channels)
    profile, quiet = cProfile.Profile(), Execution(progress=False)
    profile.runcall(predict_raster, model, RasterInput(path, "sentinel2"), folder / "map.tif", execution=quiet)
    taken = {key[2]: times[3] for key, times in pstats.Stats(profile).stats.items()}  # type: ignore[attr-defined]
    total = taken["predict_raster"]
    return {"seconds": total, "reading": sum(taken[name] for name in READING) / total}
