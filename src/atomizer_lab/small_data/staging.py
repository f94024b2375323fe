"""The files of the small tasks, arranged in the work folder as the datasets of this package read them."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from atomizer_io.errors import DataError
from atomizer_io.io.raster_files import open_raster
from atomizer_io.locks import alone

Stage = Callable[[Path, Path], None]  # from the folder of all data to that of the task

GAP_PX = 5  # between the parts of a scene
RONDONIA, RONDONIA_BANDS = "SENTINEL-2_MSI_20LLQ", ("B02", "B03", "B04", "B8A", "B11", "B12")
ENMAP = {
    "train": ("128_0", "128_32", "64_32", "160_96", "96_96", "128_128", "96_32"),
    "val": ("128_96", "64_0"),
    "test": ("96_0", "96_128", "160_64"),
}
ENMAP_FRAME_PX = 2  # along the sides of tiles that are not for training, where no label counts
SITE = "433D_629L_3_1"
SITE_PARTS = {"s1": "S1RTC", "s2": "S2L2A", "dem": "DEM"}
PATCHES, PATCH_LABELS = "s2_20m_patches_A.tif", "s2_labels_A.tif"
PATCH_GAP = 100  # patches left out between splits


def staged(name: str, stage: Stage, source: Path, work: Path) -> Path:
    """Return ``work/data/NAME`` with the files of a task; they are written once, whole or not at all.

    Of several processes one writes, the others wait.
    """
    folder = work / "data" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.parent):
        if not folder.exists():
            part = folder.with_name(f".{name}.part")
            if part.is_symlink():
                part.unlink()
            shutil.rmtree(part, ignore_errors=True)
            stage(source, part)
            part.rename(folder)
    return folder


def linked(name: str) -> Stage:
    """Return what links a folder that a dataset of this package reads as it is."""

    def stage(source: Path, folder: Path) -> None:
        if not (source / name).is_dir():
            raise DataError(source / name, "no such folder: the data of a small task")
        folder.symlink_to((source / name).resolve(), target_is_directory=True)

    return stage


def stage_rondonia(source: Path, folder: Path) -> None:
    """Stack the scene of Rondônia that is in the folder of all data."""
    stack_rondonia(source / "rondonia-20llq", folder)


def stack_rondonia(place: Path, folder: Path) -> None:
    """Stack the bands of each date to ``image_<date>/20LLQ.tif`` and write the most probable classes as the mask.

    The classes are another model's opinion, not ground truth.
    """
    dates = sorted(path.stem.rpartition("_")[2] for path in place.glob(f"{RONDONIA}_B02_*.tif"))
    if not dates:
        raise DataError(place / f"{RONDONIA}_B02_2021-07-04.tif", "no such file, nor one of another date")
    for date in dates:
        paths = [existing(place / f"{RONDONIA}_{band}_{date}.tif") for band in RONDONIA_BANDS]
        bands = []
        for path in paths:
            with open_raster(path) as raster:
                bands.append(raster.read(1))
                profile = raster.profile
        target = folder / f"image_{date.replace('-', '')}" / "20LLQ.tif"
        _write(target, np.stack(bands), profile, RONDONIA_BANDS, {"start_time": date})
    with open_raster(existing(next(place.glob(f"{RONDONIA}_*_probs_*.tif"), place / "probs.tif"))) as raster:
        classes, profile = raster.read().argmax(axis=0).astype(np.uint8), {**raster.profile, "nodata": 255}
    _write(folder / "mask" / "20LLQ.tif", classes[None], profile)


def stage_enmap(source: Path, folder: Path) -> None:
    """Copy the tiles with lists of splits; a frame of tiles that do not train is ignored, as tiles touch each other."""
    place = source / "enmap-potsdam"
    for kind in ("image", "mask"):
        (folder / kind).mkdir(parents=True)
    for split, numbers in ENMAP.items():
        names = [f"enmap_potsdam_tile_{number}" for number in numbers]
        listed(folder / f"{split}.txt", names)
        for name in names:
            shutil.copyfile(existing(place / "images" / f"{name}.tif"), folder / "image" / f"{name}.tif")
            with open_raster(existing(place / "labels" / f"{name}.tif")) as raster:
                classes, profile = raster.read().astype(np.uint8), {**raster.profile, "dtype": "uint8"}
            if split != "train":
                inner = np.zeros_like(classes, dtype=bool)
                inner[:, ENMAP_FRAME_PX:-ENMAP_FRAME_PX, ENMAP_FRAME_PX:-ENMAP_FRAME_PX] = True
                classes[~inner] = 0
            _write(folder / "mask" / f"{name}.tif", classes, profile)


def stage_site(source: Path, folder: Path) -> None:
    """Copy Sentinel-1, Sentinel-2, elevation and land cover of the site 433D to folders by sensor."""
    place = source / "terramind-sites"
    for kind, name in {**{f"image_{key}": part for key, part in SITE_PARTS.items()}, "mask": "LULC"}.items():
        (folder / kind).mkdir(parents=True)
        shutil.copyfile(existing(place / name / f"{SITE}.tif"), folder / kind / f"{SITE}.tif")
    about: dict[str, Any] = {"sensor": "dem", "bands": {"elevation": None}}
    (folder / "image_dem.bands.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")


def stage_patches(source: Path, folder: Path) -> None:
    """Write each stacked patch to a file, with labels and lists of splits.

    Patches that follow each other are of neighbouring places (of the most similar pairs every sixth lies within 50
    numbers, ten times as many as by chance), so the splits are stretches of numbers with some left out between them:
    the last fifth tests, the tenth before validates.
    """
    rasterio, place = _rasterio(), source / "s2-patches"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with open_raster(existing(place / PATCHES)) as raster:
            stack: NDArray[Any] = raster.read()
        with open_raster(existing(place / PATCH_LABELS)) as raster:
            labels = raster.read(1).reshape(-1).tolist()
        size, count = stack.shape[2], len(labels)
        names = [f"patch_{number:05d}" for number in range(count)]
        (folder / "image").mkdir(parents=True)
        for number, name in enumerate(names):
            profile = {"driver": "GTiff", "height": size, "width": size, "dtype": stack.dtype}
            _write(folder / "image" / f"{name}.tif", stack[:, number * size : (number + 1) * size], profile)
    rows = (f"{name},{label}" for name, label in zip(names, labels, strict=True))
    listed(folder / "labels.csv", ("image,label", *rows))
    for split, (first, last) in stretches(count, PATCH_GAP).items():
        listed(folder / f"{split}.txt", names[first:last])


def stretches(count: int, gap: int) -> dict[str, tuple[int, int]]:
    """Return first and last (not included) number of each split of ``count`` things in a row."""
    val, test = round(0.7 * count), round(0.8 * count)
    return {"train": (0, val - gap), "val": (val, test - gap), "test": (test, count)}


def west_to_east(width: int, train: int, val: int) -> dict[str, list[float]]:
    """Return the parts of a scene of ``width`` pixels: columns up to ``train``, up to ``val``, and the rest.

    Between them :data:`GAP_PX` columns are left out.
    """
    columns = {"train": (0, train), "val": (train + GAP_PX, val), "test": (val + GAP_PX, width)}
    return {use: [first / width, 0.0, last / width, 1.0] for use, (first, last) in columns.items()}


def north_to_south(height: int, train: int, val: int) -> dict[str, list[float]]:
    """Return the parts of a scene of ``height`` pixels: rows up to ``train``, up to ``val``, and the rest."""
    columns = west_to_east(height, train, val)  # rotated by a quarter: a share from the west is one from the north
    return {use: [0.0, 1 - last, 1.0, 1 - first] for use, (first, _, last, _) in columns.items()}


def existing(path: Path) -> Path:
    """Return ``path``; a file that is not there is an error."""
    if not path.is_file():
        raise DataError(path, "no such file: the data of a small task")
    return path


def listed(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _rasterio() -> Any:
    import rasterio
    import rasterio.errors

    return rasterio


def _write(
    path: Path,
    values: NDArray[Any],
    profile: Mapping[str, Any],
    names: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
) -> None:
    """Write bands (C, H, W) with names and tags."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _rasterio().open(path, "w", **{**profile, "count": len(values), "dtype": values.dtype}) as target:
        target.write(values)
        target.update_tags(**(tags or {}))
        for number, name in enumerate(names, start=1):
            target.set_band_description(number, name)
