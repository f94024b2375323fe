"""GEO-Bench v1 in small: its HDF5 files and lists, and a folder of aerial images with a map of land cover."""

from __future__ import annotations

import datetime
import json
import pickle
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.sensors import AERIAL
from atomizer_io.data.sensors.catalogue import find
from atomizer_io.io.geobench import DATED
from data.content import bands, patches

MODULE = "ccb.io.dataset"  # module of the classes in real files, which no reader has installed
PARTS = ("train", "valid", "test")
AERIAL_KEYS = {"Red": 0.665, "Green": 0.56, "Blue": 0.49, "NearInfrared": 0.876}
SIZE, CLASSES = 48, 7


def write(folder: Path, seed: int = 0) -> None:
    """Write a folder like m-chesapeake: four bands of 1 m, reflectance-like values from 0 to 1, seven classes."""
    rng = np.random.default_rng(seed)
    partition = {"train": ("id_000051", "id_000138"), "valid": ("id_000181",), "test": ("id_000222",)}
    samples = []
    for name in sum(partition.values(), ()):
        cover = patches(rng, SIZE, SIZE, CLASSES)
        values = bands(rng, cover, AERIAL.pick("R", "G", "B", "NIR"), np.uint8) / np.float32(255)
        samples.append(dict(zip(AERIAL_KEYS, values, strict=True)))
        write_sample(folder / f"{name}.hdf5", samples[-1], label=cover, gsd_m=1.0, kind="SpectralBand")
    write_folder_files(folder, partition, band_stats(samples))


def write_sample(
    path: Path, bands: Mapping[str, NDArray[Any]], *, label: int | NDArray[Any], gsd_m: float, kind: str = "Sentinel2"
) -> None:
    """Write one GEO-Bench file; ``bands`` (H, W) by name (``02 - Blue``, ``02 - Blue_2019-11-15``).

    ``label`` is a class or a map (H, W); ``kind`` is GEO-Bench's class of the bands: Sentinel2, Landsat8, SpectralBand.
    The attribute ``pickle`` is a real pickle with instances of classes that do not exist where it is read.
    """
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {}
    with h5py.File(path, "w") as target, _classes(kind, "SegmentationClasses") as (band_class, label_class):
        for name, values in bands.items():
            match = DATED.fullmatch(name)
            date = None if match is None else datetime.date.fromisoformat(match["date"])
            plain = name if match is None else match["name"]
            target.create_dataset(name, data=values)
            facts[name] = _facts(band_class, date, gsd_m, name=plain, wavelength=_wavelength(plain, kind))
        if isinstance(label, np.ndarray):
            target.create_dataset("label", data=label)
            facts["label"] = _facts(
                label_class, None, gsd_m, name="label", n_classes=int(label.max()) + 1, _class_names=None
            )
        else:
            facts = {"label": label} | facts
        facts["bands_order"] = [name for name in facts if name in target]
        target.attrs["pickle"] = str(pickle.dumps(facts, protocol=4))


def write_folder_files(
    folder: Path, partition: Mapping[str, Sequence[str]], band_stats: Mapping[str, Mapping[str, float]]
) -> None:
    """Write ``default_partition.json`` (train, valid, test → names of samples) and ``band_stats.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = {part: list(partition[part]) for part in PARTS}
    (folder / "default_partition.json").write_text(json.dumps(listed, indent=2))
    (folder / "band_stats.json").write_text(json.dumps(band_stats, indent=2))


def band_stats(samples: Iterable[Mapping[str, NDArray[Any]]]) -> dict[str, dict[str, float]]:
    """Return the content of ``band_stats.json`` for the bands of ``samples``, dates taken off their names."""
    gathered: dict[str, list[NDArray[Any]]] = {}
    for sample in samples:
        for name, values in sample.items():
            match = DATED.fullmatch(name)
            gathered.setdefault(name if match is None else match["name"], []).append(values.ravel())
    statistics = {}
    for name, parts in gathered.items():
        values = np.concatenate(parts).astype(np.float64)
        statistics[name] = {key: float(getattr(np, key)(values)) for key in ("max", "mean", "median", "min", "std")}
        for percent in (0.1, 1, 5, 95, 99, 99.9):
            statistics[name][f"percentile_{percent:g}".replace(".", "_")] = float(np.percentile(values, percent))
    return statistics


def _facts(of: type, date: datetime.date | None, gsd_m: float, **state: Any) -> dict[str, Any]:
    """Return what a file holds of one of its arrays."""
    band = of()
    vars(band).update(state, alt_names=(), spatial_resolution=gsd_m)
    placed = {"transform": None, "crs": None}
    return {"date": date, "date_id": date, "spatial_resolution": gsd_m, "band_info": band, "meta_info": None} | placed


def _wavelength(name: str, kind: str) -> float | None:
    sensor = find(kind)
    return sensor[name].wavelength_um if sensor is not None and name in sensor else AERIAL_KEYS.get(name)


@contextmanager
def _classes(*names: str) -> Iterator[list[type]]:
    """Provide classes of GEO-Bench's own module, which exists only within the context."""
    parts = MODULE.split(".")
    made = {".".join(parts[: i + 1]): types.ModuleType(parts[i]) for i in range(len(parts))}
    classes = [type(name, (), {"__module__": MODULE}) for name in names]
    vars(made[MODULE]).update(zip(names, classes, strict=True))
    before = {name: sys.modules.get(name) for name in made}
    sys.modules.update(made)
    try:
        yield classes
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
