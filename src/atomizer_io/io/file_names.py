"""GeoTIFFs by their names: which are in a folder, and which mask belongs to which image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

SUFFIX = re.compile(r"\.(?:tiff?|vrt)$", re.IGNORECASE)


def geotiffs_in(folder: Path, vrt: bool = False) -> Iterator[Path]:
    """Yield the GeoTIFFs of a folder in order, without hidden ones such as the ``._a.tif`` of some systems.

    With ``vrt`` VRT files count, too.
    """
    for path in sorted(folder.glob("*")):
        known = SUFFIX.search(path.name) and (vrt or path.suffix.casefold() != ".vrt")
        if known and not path.name.startswith(".") and path.is_file():
            yield path


def by_stem(folder: Path, vrt: bool = False) -> dict[str, Path]:
    """Return the GeoTIFFs of a folder by name without suffix; nothing if there is no such folder."""
    found: dict[str, Path] = {}
    for path in geotiffs_in(folder, vrt):
        found.setdefault(without_suffix(path.name), path)
    return found


def doubles(folder: Path) -> list[Path]:
    """Return the GeoTIFFs of a folder that :func:`by_stem` leaves out, such as ``a.tiff`` beside ``a.tif``."""
    used = set(by_stem(folder).values())
    return [path for path in geotiffs_in(folder) if path not in used]


def without_suffix(name: str) -> str:
    """Return a name without ``.tif`` in the form in which names are compared: an ü may be one letter or two."""
    return unicodedata.normalize("NFC", SUFFIX.sub("", name.strip()))


def assigned(masks: Mapping[str, Path], images: Collection[str]) -> dict[str, list[Path]]:
    """Return the masks that may belong to each image: the one of its name, else those whose names begin with it.

    A mask that could belong to several images (``tile_2_mask`` to ``tile`` and ``tile_2``) goes to the longest name.
    """
    found: dict[str, list[Path]] = {}
    for stem, path in masks.items():
        ends = [end for end, letter in enumerate(stem) if not (letter.isascii() and letter.isalnum())]
        image = next((stem[:end] for end in (len(stem), *reversed(ends)) if stem[:end] in images), None)
        if image is not None:
            found.setdefault(image, []).append(path)
    return {image: [masks[image]] if image in masks else paths for image, paths in found.items()}
