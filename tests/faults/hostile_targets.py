"""Readers of hostile files, which name other files or absurd sizes; their cases follow those of ``targets``."""

from __future__ import annotations

import json
import os
import random
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.errors import NotGeoreferencedWarning

import chips
from atomizer_io.io.rasters import read_raster
from atomizer_lab.report.report import write_report
from faults.changes import BYTES, flip_bits, nested, odd_value
from faults.checks import check_atoms
from faults.hostile_rasters import HOSTILE, SIDE, mosaic, pam, sound
from faults.targets import Target, make_checkpoint, read_checkpoint, read_scene
from report_results import write_everything

SIZES = (0, -1, 2**31, 10**9, 10**12, 2**70, 1e308, float("inf"), 100_000, True, "1e9", [10**9] * 4)
BEFORE = (
    "\ufeff",
    " \n\t" * 50,
    "<!-- a scene -->",
    '<?xml version="1.0" encoding="UTF-16"?>',
    "II*",
    "\xff\xd8\xff\xfe",
)


def make_scene(folder: Path) -> None:
    """The sound scene; what belongs to others is written beside the folder when a case is made."""
    sound(folder, folder)
    for name in ("private.tif", "private.txt"):
        (folder / name).unlink()


def change_hostile(folder: Path, rng: random.Random) -> tuple[Path, str]:
    """Put a hostile raster instead of the sound one, as it is or in disguise."""
    outside, path = folder.parent / "outside", folder / "scene.tif"
    sound(outside, outside)
    path.unlink()  # it may be one file with the seed
    writer = rng.choice(HOSTILE)
    writer(sound(folder, outside), outside, 9)
    names = sorted(file for file in folder.iterdir() if not file.is_symlink() and file.read_bytes()[:1] == b"<")
    if names and rng.random() < 0.7:
        chosen = rng.choice(names)
        disguise(chosen, rng)
    return path, writer.__name__


def disguise(path: Path, rng: random.Random) -> None:
    """Write an XML so that one reader may take it for another thing than the next."""
    text, what = path.read_text(), rng.random()
    if what < 0.4:
        path.write_bytes((rng.choice(BEFORE) + text).encode("latin-1", "replace"))
    elif what < 0.55:
        path.write_bytes(text.encode(rng.choice(("utf-16", "utf-16-be", "utf-7", "utf-32"))))
    elif what < 0.7:
        path.write_text(rng.choice((text.lower(), text.upper(), text.replace("><", ">\0<"), text + text)))
    else:
        path.write_bytes(rng.choice(BYTES)(text.encode(), rng))


def make_beside(folder: Path) -> None:
    """A scene with everything that GDAL reads beside one: metadata, mask, overviews, the mask's overviews."""
    path = chips.write(folder / "scene.tif", chips.values(SIDE, SIDE))
    gdal = {"GDAL_TIFF_INTERNAL_MASK": False, "TIFF_USE_OVR": True}
    with rasterio.Env(**gdal), rasterio.open(path, "r+") as file:
        file.write_mask(np.arange(SIDE * SIDE).reshape(SIDE, SIDE) > 40)
        file.build_overviews([2, 4])
    (folder / "scene.tif.aux.xml").write_text(pam('<Metadata><MDI key="start_time">2021-07-04</MDI></Metadata>'))
    (folder / "scene.tfw").write_text("10\n0\n0\n-10\n500005\n4649995\n")


XML = (
    *(nested("<a>", "</a>", 20_000), nested("<PAMDataset>", "</PAMDataset>", 20_000), nested("<VRTDataset>", "", 9000)),
    *(b"<VRTDataset/>", b'<VRTDataset rasterXSize="2147483647" rasterYSize="2147483647"/>', b"<PAMDataset", b"<"),
    b'<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;&b;&b;">]><VRTDataset>&c;</VRTDataset>',
)
NAMES = (
    *("/etc/passwd", "/dev/zero", "/vsicurl/http://127.0.0.1:9/a.tif", "/vsizip//a.zip/a.tif", "scene.vrt", "../../a"),
    *("GTIFF_DIR:1:scene.tif", "vrt://scene.tif", "http://127.0.0.1:9/a", "<VRTDataset/>", "", "scene.tif\0", "."),
)


def change_xml(path: Path, rng: random.Random) -> str:
    """Change an XML: another number, another file, an element more, or something that is hard to read."""
    text, what = path.read_text(), rng.random()
    if what < 0.2:
        path.write_bytes(rng.choice(XML))
        return "hard xml"
    if what < 0.4:
        path.write_text(text.replace("scene.tif", rng.choice(NAMES)).replace("2021", str(odd_value(rng))[:9999]))
        return "another file"
    if what < 0.6:
        at = rng.choice([i for i, letter in enumerate(text) if letter == "<"][1:] or [0])
        path.write_text(text[:at] + rng.choice(("<OpenOptions/>", "<Overview/>", f"<SRS>{NAMES[0]}</SRS>")) + text[at:])
        return "another element"
    if what < 0.8:
        digits = [i for i, letter in enumerate(text) if letter.isdigit()]
        at = rng.choice(digits)
        path.write_text(text[:at] + rng.choice(("99999999", "-", "1e308", "nan", "")) + text[at + 1 :])
        return "another number"
    disguise(path, rng)
    return "disguise"


def change_beside(folder: Path, rng: random.Random, kinds: tuple[str, ...]) -> tuple[Path, str]:
    """Change one of the files beside a scene, or replace it by another or by a link."""
    path = rng.choice([file for file in sorted(folder.iterdir()) if file.suffix in kinds])
    data, what = path.read_bytes(), rng.random()
    path.unlink()
    if what < 0.15:
        path.symlink_to(rng.choice(("/etc/passwd", "/dev/zero", path.name, "scene.tif", "..", "nowhere")))
        return path, "link"
    if what < 0.2:
        os.mkfifo(path)
        return path, "pipe"
    path.write_bytes(data)
    if path.suffix in (".xml", ".vrt") and what < 0.8:
        return path, change_xml(path, rng)
    by_bytes = rng.choice(BYTES)
    path.write_bytes(by_bytes(data, rng))
    return path, by_bytes.__name__


def make_vrt(folder: Path) -> None:
    chips.write(folder / "scene.tif", chips.values(SIDE, SIDE))
    (folder / "all.vrt").write_text(mosaic("scene.tif", relative=True))


def read_allowed(folder: Path, out: Path, touched: Path) -> Any:
    raster = read_raster(folder / "all.vrt", allow_vrt=True)
    check_atoms(raster.atoms(chips.SENTINEL2.pick(*chips.NAMES)[: len(raster.values)]))
    return raster.values


def make_image(folder: Path, name: str, driver: str) -> None:
    """Write an image without a coordinate system."""
    from rasterio.shutil import copy

    chips.write(folder / "plain.tif", (chips.values(64, 64) % 251).astype(np.uint8), crs=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        copy(folder / "plain.tif", folder / name, driver=driver)
    for file in folder.glob("*"):
        if file.name != name:
            file.unlink()


def read_image(folder: Path, out: Path, touched: Path, *, name: str) -> Any:
    raster = read_raster(folder / name, gsd_m=1.0)
    return raster.values, raster.valid()


def change_sizes(folder: Path, rng: random.Random) -> tuple[Path, str]:
    """Write absurd sizes into the settings of a model."""
    path = folder / "config.json"
    document = json.loads(path.read_text())
    path.unlink()
    numbers = numbers_in(document)
    for parent, key in rng.sample(numbers, rng.choice((1, 1, 2, 3))):
        parent[key] = rng.choice(SIZES)
    path.write_text(json.dumps(document))
    return path, "absurd sizes"


def numbers_in(document: Any) -> list[tuple[Any, Any]]:
    """Return where in a document there is a number: what holds it, and its key or index there."""
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    numbers = []
    for key, value in inner:
        numbers += [(document, key)] if isinstance(value, int | float) else numbers_in(value)
    return numbers


def make_results(folder: Path) -> None:
    write_everything(folder, folder / "runs")


def change_result(folder: Path, rng: random.Random) -> tuple[Path, str]:
    """Write brackets in brackets, or odd bytes, into a result of the report."""
    path = rng.choice(sorted(folder.glob("*.json")))
    data = path.read_bytes()
    path.unlink()
    deep = (nested("[", "]"), nested('{"a":', "}"), b'{"found": ' + nested("[", "]") + b"}", b"9" * 100_000)
    path.write_bytes(rng.choice((*deep, flip_bits(data, rng), data[: rng.randrange(len(data))])))
    return path, "deep or torn json"


def read_report(folder: Path, out: Path, touched: Path) -> Any:
    return write_report(folder, folder / "runs", out / "page.html").name


BESIDE, OF_VRT = (".xml", ".msk", ".ovr", ".tfw"), (".vrt",)
HOSTILE_TARGETS: tuple[Target, ...] = (
    Target("hostile raster", make_scene, read_scene, change=change_hostile, sealed=True, share=5),
    Target("files beside a raster", make_beside, read_scene, change=partial(change_beside, kinds=BESIDE), share=5),
    Target("allowed vrt", make_vrt, read_allowed, change=partial(change_beside, kinds=OF_VRT), share=4),
    *(
        Target(kind, partial(make_image, name=name, driver=driver), partial(read_image, name=name), share=share)
        for kind, name, driver, share in (
            ("jpeg 2000", "a.jp2", "JP2OpenJPEG", 3),
            ("jpeg", "a.jpg", "JPEG", 2),
            ("png", "a.png", "PNG", 2),
        )
    ),
    Target("model of absurd sizes", make_checkpoint, read_checkpoint, change=change_sizes, share=3),
    Target("deep results", make_results, read_report, change=change_result),
)
