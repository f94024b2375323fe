"""What a change of names or layout must not change: weights after 20 steps, a map, a point cloud, a table.

``python tests/frozen.py`` prints what this tree computes, ``python tests/frozen.py --write`` records it in
``frozen.json`` for this processor and version of torch; a commit that does so gives the reason. Parameter names and
the salts of random generators are part of the weights.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import math
import platform
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import laspy
import numpy as np
import rasterio
import torch
from rasterio.transform import from_origin
from safetensors.torch import load_file

from atomizer_io.cli import main
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.training import config
from atomizer_io.training.run import train

RECORD = Path(__file__).with_suffix(".json")
TINY = {"width": 24, "depth": 1, "self_head_dim": 8, "cross_head_dim": 8}
TRAINING = {
    "max_steps": 20,
    "batch_size": 1,
    "learning_rate": 1e-3,
    "configurations": [[200, 100], [300, 150]],
    "queries": 200,
    "validation_samples": 2,
    "loggers": [],
    "accelerator": "cpu",
    "figures": 0,
    "baselines": False,
}


def document(like: str, size: int, data: dict[str, Any], model: dict[str, Any], **training: Any) -> dict[str, Any]:
    """Return the settings of a short training on synthetic scenes."""
    options = {"like": like, "size": size, "length": 8, **data}
    return {
        "data": {"name": "synthetic", "options": options, "workers": 0, "measure": 4},
        "model": {"preset": "atomizer_io_tiny", "settings": TINY, **model},
        "training": {**TRAINING, **training},
    }


DOCUMENTS = {  # all but one with torch's initial weights, so that these do not change with the initialisation
    "floods": document("sen1floods11", 32, {"length": 40}, {}, channel_dropout={"scheme": "groups"}),
    "fields": document("pastis-r", 16, {"dates": 3}, {"settings": {**TINY, "temporal": True}}, initialisation="torch"),
    "biomass": document("biomassters", 16, {"dates": 2}, {}, initialisation="torch", ema=0.9),
    "points": document(
        "dales", 30, {}, {}, initialisation="torch", point_augmentation={"slope": 0.1, "height_m": 2.0, "thinning": 0.5}
    ),
    "land-use": document("eurosat", 32, {}, {}, initialisation="torch"),
    "unet": document("hard-floods", 32, {}, {"preset": "unet_small", "settings": {}}),
}


def machine() -> str:
    """Return what decides the last bits of a sum: libraries of linear algebra differ by the maker of the processor."""
    found = re.search(r"^vendor_id\s*:\s*(\S+)", read_cpuinfo(), re.MULTILINE)
    parts = (platform.machine(), found[1] if found else platform.processor(), torch.backends.cpu.get_cpu_capability())
    return f"{' '.join(parts)} torch {torch.__version__.split('+')[0]}"


def read_cpuinfo() -> str:
    """Return what Linux says of the processor; nothing elsewhere."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def digest(*parts: bytes) -> str:
    """Return a short checksum of some bytes."""
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    return checksum.hexdigest()[:16]


@cache
def run(name: str) -> Path:
    """Train by the settings of this name, once in a process, and return the folder of the last weights."""
    folder = tempfile.mkdtemp(prefix="atomizer-frozen-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    train(config.parse({**DOCUMENTS[name], "name": name, "output": folder}), progress=False)
    return Path(folder, name, "last")


def weights_of(folder: Path, name: str) -> dict[str, Any]:
    """Return checksums of the weights after a training and of their names, and how large they are."""
    tensors = sorted(load_file(run(name) / "model.safetensors").items())
    names = json.dumps([(name, tuple(values.shape)) for name, values in tensors]).encode()
    size = math.sqrt(sum(float(values.double().square().sum()) for _, values in tensors))
    exact = digest(*(values.numpy().tobytes() for _, values in tensors))
    return {"names": digest(names), "size": size, "exact": exact}


def map_of(folder: Path) -> dict[str, Any]:
    """Return the checksum of the probabilities of a map of a random raster, and their mean."""
    values = np.random.default_rng(0).normal(1500, 500, (13, 40, 48)).astype(np.float32)
    where = {"crs": "EPSG:32631", "transform": from_origin(500_000, 5_000_000, 10, 10)}
    raster, model = folder / "S2_20200601.tif", run("floods")
    with rasterio.open(raster, "w", driver="GTiff", count=13, height=40, width=48, dtype="float32", **where) as file:
        file.write(values)
    words = ["predict", "--model", model, "--raster", raster, "--sensor", "sentinel2", "--window", 250]
    bands = ",".join(SENTINEL2.names)
    made = main(
        [*map(str, words), "--bands", bands, "--layers", "probabilities", "-o", str(folder / "map.tif"), "--quiet"]
    )
    assert made == 0
    with rasterio.open(folder / "map.probabilities.tif") as file:
        probabilities = file.read()
    return {"exact": digest(probabilities.tobytes()), "size": float(probabilities.astype(np.float64).std())}


def points_of(folder: Path) -> dict[str, Any]:
    """Return the checksum of the points of a random point cloud with their classes, and the mean entropy of these."""
    random, count, model = np.random.default_rng(1), 3000, run("points")
    las = laspy.LasData(laspy.LasHeader(point_format=6, version="1.4"))
    las.header.scales, las.header.offsets = np.full(3, 0.01), np.array([500_000.0, 5_000_000.0, 0.0])
    las.x, las.y = 500_000 + random.uniform(0, 60, count), 5_000_000 + random.uniform(0, 60, count)
    las.z, las.intensity = random.gamma(1.0, 3.0, count), random.integers(0, 2000, count)
    las.return_number, las.number_of_returns = np.ones(count, dtype=np.uint8), random.integers(1, 4, count)
    las.write(folder / "cloud.laz")
    words = ["predict", "--model", model, "--points", folder / "cloud.laz", "-o", folder / "classes.laz"]
    assert main([*map(str, words), "--crs", "EPSG:32631", "--quiet"]) == 0
    points = laspy.read(folder / "classes.laz")
    return {"exact": digest(points.points.array.tobytes()), "size": float(np.asarray(points["entropy"]).mean())}


def table_of(folder: Path) -> dict[str, Any]:
    """Return the checksum of the scores of a table at the scale of a smoke test, and one of them."""
    words = ["reproduce", "rope", "--scale", "smoke", "--work", folder / "work", "--output", folder / "rope.json"]
    assert main([*map(str, words)]) == 0
    scores = json.loads((folder / "rope.json").read_text())["found"]
    return {
        "exact": digest(json.dumps(scores, sort_keys=True).encode()),
        "size": scores["Atomizer-IO"]["MNIST"]["mean"],
    }


COMPUTED: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{name: partial(weights_of, name=name) for name in DOCUMENTS},
    "map": map_of,
    "point cloud": points_of,
    "table": table_of,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="record it")
    write = parser.parse_args().write
    torch.set_num_threads(1)
    values = {}
    for key, compute in COMPUTED.items():
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values[key] = compute(Path(folder))
    if write:
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        RECORD.write_text(json.dumps({**known, machine(): values}, indent=1) + "\n")
    print(json.dumps({machine(): values}, indent=1))
