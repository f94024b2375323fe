"""Files of experiments that no dataset of this package reads as they lie, written once in the folder of runs."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError
from atomizer_io.io.raster_files import open_raster
from atomizer_io.locks import alone

Stage = Callable[[Path, Path], None]  # from the folder of a dataset to that which is read
RONDONIA, RONDONIA_BANDS = "SENTINEL-2_MSI_20LLQ", ("B02", "B03", "B04", "B8A", "B11", "B12")
SERIES_FILES = {"modis": "br_mt_1_8K_9classes_6bands.rda", "sentinel2": "rondonia_samples.rds"}
TALLEST_M = 60.0  # of a tree; isolated points above are birds


def staged(name: str, stage: Stage, source: Path, work: Path) -> Path:
    """Return ``work/data/NAME`` with the files that ``stage`` writes; they are written once, whole or not at all.

    Of several processes one writes, the others wait.
    """
    folder = work / "data" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.parent):
        if not folder.exists():
            part = folder.with_name(f".{name}.part")
            shutil.rmtree(part, ignore_errors=True)
            stage(source, part)
            part.rename(folder)
    return folder


def stack_rondonia(place: Path, folder: Path) -> None:
    """Stack the bands of each date to ``image_<date>/20LLQ.tif`` and write the most probable classes as the mask.

    The classes are another model's opinion, not ground truth.
    """
    dates = sorted(path.stem.rpartition("_")[2] for path in place.glob(f"{RONDONIA}_B02_*.tif"))
    if not dates:
        raise DataError(place / f"{RONDONIA}_B02_2021-07-04.tif", "no such file, nor one of another date")
    for date in dates:
        bands = []
        for band in RONDONIA_BANDS:
            with open_raster(existing(place / f"{RONDONIA}_{band}_{date}.tif")) as raster:
                bands.append(raster.read(1))
                profile = raster.profile
        target = folder / f"image_{date.replace('-', '')}" / "20LLQ.tif"
        write(target, np.stack(bands), profile, RONDONIA_BANDS, {"start_time": date})
    with open_raster(existing(next(place.glob(f"{RONDONIA}_*_probs_*.tif"), place / "probs.tif"))) as raster:
        classes, profile = raster.read().argmax(axis=0).astype(np.uint8), {**raster.profile, "nodata": 255}
    write(folder / "mask" / "20LLQ.tif", classes[None], profile)


def existing(path: Path) -> Path:
    """Return ``path``; a file that is not there is an error."""
    if not path.is_file():
        raise DataError(path, "no such file: the data of an experiment")
    return path


def write(
    path: Path,
    values: NDArray[Any],
    profile: Mapping[str, Any],
    names: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
) -> None:
    """Write bands (C, H, W) with names and tags."""
    import rasterio

    path.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.open(path, "w", **{**profile, "count": len(values), "dtype": values.dtype}) as target:
        target.write(values)
        target.update_tags(**(tags or {}))
        for number, name in enumerate(names, start=1):
            target.set_band_description(number, name)


def canopy_heights(place: Path, folder: Path) -> None:
    """Write the height of the highest return in each hyperspectral pixel, up to 60 m, beside links to the images.

    Heights in the point clouds are above the ground. Pixels without any return are absent.
    """
    import laspy

    paths = sorted((place / "LiDAR").glob("*.laz"))
    if not paths:
        raise DataError(place / "LiDAR", "no such folder, or no point cloud in it: the data of an experiment")
    for path in paths:
        with open_raster(existing(place / "Hyperspectral" / f"{path.stem}_hyperspectral.tif")) as raster:
            profile, inverse, shape = raster.profile, ~raster.transform, raster.shape
        points = laspy.read(path)
        column, row = (np.floor(part).astype(int) for part in inverse * (np.array(points.x), np.array(points.y)))
        inside = (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])
        heights = np.full(shape, -np.inf, dtype=np.float32)
        np.maximum.at(heights, (row[inside], column[inside]), np.array(points.z, dtype=np.float32)[inside])
        heights = np.where(np.isfinite(heights), np.clip(heights, 0, TALLEST_M), np.nan)
        write(folder / "heights" / f"{path.stem}.tif", heights[None], {**profile, "nodata": np.nan})
    for name in ("RGB", "Hyperspectral"):
        (folder / name).symlink_to((place / name).resolve(), target_is_directory=True)


def series_tables(place: Path, folder: Path) -> None:
    """Write the series of each R file to a folder with ``series.csv`` and ``labels.csv``."""
    import pandas
    import rdata

    for name, file in SERIES_FILES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes of R that have no equal here
            path = existing(place / file)
            read = rdata.read_rds(path) if path.suffix == ".rds" else next(iter(rdata.read_rda(path).values()))
        (folder / name).mkdir(parents=True)
        read["series"] = [f"series-{number:04d}" for number in range(len(read))]
        columns = ["series", "label", "longitude", "latitude"]
        read[columns].to_csv(folder / name / "labels.csv", index=False)
        table = pandas.concat(dict(zip(read["series"], read["time_series"], strict=True)), names=["series"])
        table["date"] = pandas.to_datetime(table.pop("Index"), unit="D").dt.strftime("%Y-%m-%d")
        table.reset_index("series").to_csv(folder / name / "series.csv", index=False)


if __name__ == "__main__":
    chosen = {"rondonia-20llq": stack_rondonia, "neon-plots": canopy_heights, "sits-series": series_tables}
    if len(sys.argv) != 3 or Path(sys.argv[1]).name not in chosen:
        sys.exit(f"python -m atomizer_lab.paper.staging SOURCE OUT, where SOURCE is a folder {', '.join(chosen)}")
    chosen[Path(sys.argv[1]).name](Path(sys.argv[1]), Path(sys.argv[2]))
