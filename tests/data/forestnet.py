"""ForestNet in small: scenes of 48 pixels, some of them without a dated image or with half of one missing."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.sensors import LANDSAT8
from atomizer_io.datasets.forestnet import FINE, GEOBENCH_KEYS, GSD_M, INFRARED, MERGED, VISIBLE
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches
from data.geobench import band_stats, write_folder_files, write_sample

SIZE = 48
FOREST = len(FINE)  # what surrounds a loss has levels of its own
MERGED_OF = (0, 0, 0, 2, 1, 1, 1, 3, 3, 3, 3, 3)  # class among the merged by class among the fine
COLUMNS = ("label", "merged_label", "latitude", "longitude", "year", "example_path")
# class, dated images; "no infrared" lacks half of an image, "float" keeps infrared in another type, as some files do
EVENTS_OF: dict[str, tuple[tuple[int, tuple[str, ...], str], ...]] = {
    "train": (
        (0, ("2014_03_01_cloud_120", "2014_11_28_cloud_3", "2016_07_09_cloud_3"), ""),
        (4, ("2013_08_17_cloud_0",), "float"),
        (3, (), ""),
        (7, ("2015_02_05_cloud_900", "2015_06_13_cloud_41"), "no infrared"),
        (0, ("2017_09_30_cloud_12",), ""),
        (11, ("2016_01_23_cloud_77", "2017_05_25_cloud_8"), ""),
    ),
    "val": ((0, ("2014_05_04_cloud_5",), ""), (6, ("2013_12_07_cloud_60",), "")),
    "test": ((3, ("2014_05_04_cloud_5", "2015_05_23_cloud_2"), ""), (4, ("2016_10_13_cloud_0",), ""), (8, (), "")),
}
# event, class, dates of its images; 1 January is the composite in place of a missing year
GEOBENCH_OF: dict[str, tuple[tuple[str, int, tuple[str, ...]], ...]] = {
    "train": (("-0.12_101.14", 0, ("2014-11-28", "2015-01-01")), ("0.59_99.77", 4, ("2013-08-17",))),
    "valid": (("-2.25_105.25", 0, ("2017-09-30",)),),
    "test": (("-2.96_106.62", 4, ("2016-01-23", "2018-01-01")),),
}


def write(folder: Path, seed: int = 0) -> None:
    """Write the folder ``ForestNetDataset``."""
    rng = np.random.default_rng(seed)
    number = 0
    for split, events in EVENTS_OF.items():
        listed = []
        for label, dated, awkward in events:
            number += 1
            latitude, longitude = round(1.3 - 0.71 * number, 6), round(98.4 + 1.37 * number, 6)
            name = f"{latitude}_{longitude}"
            write_event(folder / "examples" / name, rng, label, dated, awkward)
            merged = MERGED[MERGED_OF[label]]
            listed.append((FINE[label], merged, latitude, longitude, 2010 + number % 7, f"examples/{name}"))
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as target:
            csv.writer(target).writerows((COLUMNS, *listed))


def write_event(folder: Path, rng: np.random.Generator, label: int, dated: tuple[str, ...], awkward: str) -> None:
    """Write one folder of ``examples``."""
    loss = np.where(patches(rng, SIZE, SIZE, 2) == 1, label, FOREST)
    for kind in ("visible", "infrared"):
        (folder / "images" / kind).mkdir(parents=True)
    for stem in (*dated, "composite"):
        visible = bands(rng, loss, VISIBLE, np.uint8)
        write_raster(folder / "images" / "visible" / f"{stem}.png", visible, driver="PNG")
        infrared = bands(rng, loss, INFRARED, np.float32 if awkward == "float" else np.uint8)
        np.save(folder / "images" / "infrared" / f"{stem}.npy", np.moveaxis(infrared, 0, 2))
    if awkward == "no infrared":
        (folder / "images" / "infrared" / f"{dated[-1]}.npy").unlink()
    (folder / "forest_loss_region.pkl").write_bytes(b"a pickle in the real dataset: never opened")
    (folder / "auxiliary").mkdir()
    city = {"closest_city": {"lat": "-0.5", "lon": "101.4", "distance": 31.5}}
    (folder / "auxiliary" / "osm.json").write_text(json.dumps(city))


def write_geobench(folder: Path, seed: int = 0) -> None:
    """Write the folder ``m-forestnet``."""
    rng = np.random.default_rng(seed)
    partition: dict[str, list[str]] = {split: [] for split in GEOBENCH_OF}
    samples: list[dict[str, NDArray[Any]]] = []
    for split, events in GEOBENCH_OF.items():
        for event, label, dates in events:
            inside = patches(rng, SIZE, SIZE, 2) == 1
            for date in dates:
                values = bands(rng, np.where(inside, label, FOREST), LANDSAT8.pick(*GEOBENCH_KEYS), np.uint8)
                faded = np.where(inside, values, (values * (192 / 255) + 63).astype(np.uint8))
                name = f"{event}_{date.replace('-', '_')}"
                samples.append({f"{key}_{date}": layer for key, layer in zip(GEOBENCH_KEYS, faded, strict=True)})
                write_sample(folder / f"{name}.hdf5", samples[-1], label=label, gsd_m=GSD_M, kind="Landsat8")
                partition[split].append(name)
    write_folder_files(folder, partition, band_stats(samples))
