"""Files by their names: the GeoTIFFs of a folder, and which mask is that of which image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

SUFFIX = re.compile(r"\.tiff?$", re.IGNORECASE)


def geotiffs_in(folder: Path) -> Iterator[Path]:
    """The GeoTIFFs of a folder in order, but for hidden ones such as the ``._a.tif`` of some systems."""
    for path in sorted(folder.glob("*")):
        if SUFFIX.search(path.name) and not path.name.startswith(".") and path.is_file():
            yield path


def by_stem(folder: Path) -> dict[str, Path]:
    """The GeoTIFFs of a folder by name; none if there is no folder."""
    found: dict[str, Path] = {}
    for path in geotiffs_in(folder):
        found.setdefault(without_suffix(path.name), path)
    return found


def doubles(folder: Path) -> list[Path]:
    """The GeoTIFFs of a folder that :func:`by_stem` leaves out, as ``a.tiff`` beside ``a.tif``."""
    used = set(by_stem(folder).values())
    return [path for path in geotiffs_in(folder) if path not in used]


def without_suffix(name: str) -> str:
    """A name with or without ``.tif``, in the form that names are compared in: an ü may be one letter or u and dots."""
    return unicodedata.normalize("NFC", SUFFIX.sub("", name.strip()))


def assigned(masks: Mapping[str, Path], images: Collection[str]) -> dict[str, list[Path]]:
    """The masks that may be those of each image: the one of its name, else those whose names go on from it.

    A mask whose name goes on from several images' (``tile_2_mask`` from ``tile`` and ``tile_2``) is the longest's.
    """
    found: dict[str, list[Path]] = {}
    for stem, path in masks.items():
        ends = [end for end, letter in enumerate(stem) if not (letter.isascii() and letter.isalnum())]
        image = next((stem[:end] for end in (len(stem), *reversed(ends)) if stem[:end] in images), None)
        if image is not None:
            found.setdefault(image, []).append(path)
    return {image: [masks[image]] if image in masks else paths for image, paths in found.items()}
