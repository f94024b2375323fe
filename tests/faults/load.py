"""Load: many predictions in one process, many files in one dataset, and a raster far larger than memory."""

from __future__ import annotations

import os
import resource
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import Affine

import chips
from atomizer_io.datasets.registry import create
from atomizer_io.prediction.options import Execution, Windows
from atomizer_io.prediction.rasters import predict_raster
from processes import command, exit_code, start

GROWTH_BYTES = 20 << 20  # allowed in many predictions
LISTED_S = 20.0  # for ten thousand files
BIG_BYTES = 2 << 30  # of memory for a large raster


def resident() -> int:
    """Return the memory that this process holds now, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def predict_often(work: Path, count: int = 1000) -> dict[str, float]:
    """Many predictions in one process do not make it grow."""
    scene = chips.scene(work, 8, 8)
    model = chips.model_folder()

    def predict(number: int) -> None:
        output = work / f"map{number % 4}.tif"
        predict_raster(model, scene, output, windows=Windows(100), execution=Execution(progress=False, overwrite=True))

    for number in range(count // 10):
        predict(number)
    before = resident()
    for number in range(count - count // 10):
        predict(number)
    grown = resident() - before
    assert grown < GROWTH_BYTES, f"grew by {grown >> 20} MB"
    return {"predictions in one process": count, "growth MB": round(grown / 1e6, 1)}


def list_files(work: Path, count: int = 10_000) -> dict[str, float]:
    """A dataset of very many files is listed in seconds."""
    for kind, array in (("image", chips.values(4, 4)), ("mask", np.ones((1, 4, 4), np.uint8))):
        (work / kind).mkdir()
        first = chips.write(work / kind / "s00000.tif", array, names=chips.NAMES if kind == "image" else None)
        for number in range(1, count // 2):
            os.link(first, work / kind / f"s{number:05d}.tif")
    began = time.process_time()
    dataset = create("geotiff-folder", work, "all", sensor="sentinel2", classes=3)
    assert len(dataset) == count // 2 and dataset[count // 4]
    seconds = time.process_time() - began
    assert seconds < LISTED_S, f"took {seconds:.0f} s"
    return {"files of a dataset": count, "listed in s": round(seconds, 2)}


def map_large_raster(work: Path, side: int = 20_000) -> dict[str, float]:
    """A prediction of a very large raster is planned, started, killed and resumed, in bounded memory."""
    profile = {"driver": "GTiff", "width": side, "height": side, "count": 3, "dtype": "uint16", "tiled": True}
    profile |= {"crs": chips.UTM, "transform": Affine(10, 0, *chips.CORNER[:1], 0, -10, chips.CORNER[1])}
    with warnings.catch_warnings(), rasterio.open(work / "big.tif", "w", sparse_ok=True, **profile) as target:
        target.descriptions = chips.NAMES
        window = rasterio.windows.Window(0, 0, 512, 512)
        target.write(chips.values(512, 512), window=window)
    words = (
        "predict",
        "--model",
        str(chips.model_folder()),
        "--raster",
        str(work / "big.tif"),
        "--sensor",
        "sentinel2",
    )
    words += ("--window", "640", "-o", str(work / "map.tif"), "--resume", "--quiet", "--workers", "1")
    parts, peak, done = work / "map.tif.parts", 0, []
    for _ in range(2):
        process = start(command, words)
        deadline, windows = time.monotonic() + 300, 0
        while process.is_alive() and time.monotonic() < deadline and windows < (done[-1] if done else 0) + 3:
            windows = len(list(parts.glob("window-*.npy"))) + len(list(parts.glob("strip-*.npy")))
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if process.pid else ():
                if line.startswith("VmHWM"):
                    peak = max(peak, int(line.split()[1]) * 1024)
            time.sleep(0.05)
        assert process.pid
        os.kill(process.pid, signal.SIGKILL)
        assert exit_code(process) == -signal.SIGKILL, "it ended before it was killed"
        done.append(windows)
    assert done[1] > done[0] > 0 and peak < BIG_BYTES, (done, peak)
    figures = {"pixels of the large raster": side * side, "killed and resumed": len(done)}
    return {**figures, "windows kept at the last kill": done[-1], "most memory for it MB": round(peak / 1e6)}
