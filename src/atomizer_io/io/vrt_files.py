"""VRT files that a user allows: mosaics of local rasters, written anew from the few elements that such a file needs.

GDAL is given the new text, never the file: what was not understood here is not there to be read in another way.
"""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from atomizer_io.errors import DataError

MARKS = {  # drivers of GDAL for the files that begin so; a cloud-optimized GeoTIFF is a GeoTIFF
    "GTiff": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "JPEG": (b"\xff\xd8\xff",),
    "JP2OpenJPEG": (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"),
}
KINDS = "GeoTIFF, PNG, JPEG or JPEG 2000"
HEAD = 1024  # bytes by which GDAL recognises a file
MOST_BYTES = 64 << 20  # of a VRT: one of a hundred thousand files
ELEMENTS = {
    *("VRTDataset", "SRS", "GeoTransform", "Metadata", "MDI", "VRTRasterBand", "NoDataValue", "HideNoDataValue"),
    *("ColorInterp", "ColorTable", "Entry", "Description", "UnitType", "Offset", "Scale", "CategoryNames", "Category"),
    *("SimpleSource", "ComplexSource", "SourceFilename", "SourceBand", "SourceProperties", "SrcRect", "DstRect"),
    *("NODATA", "ScaleOffset", "ScaleRatio", "UseMaskBand", "MaskBand", "OverviewList", "BlockXSize", "BlockYSize"),
}
PLAIN_BANDS = (None, "VRTSourcedRasterBand")
ADVICE = "turn it into a GeoTIFF first (gdal_translate)"


def driver_of(path: Path) -> str | None:
    """Return the driver of ``MARKS`` for a file by its first bytes, None for any other, or one that holds XML there."""
    head = _head(path)
    drivers = (driver for driver, marks in MARKS.items() if head.startswith(marks))
    return None if b"<" in _text(head) else next(drivers, None)


def is_vrt(path: Path) -> bool:
    """Return whether a file is one that GDAL would take for a VRT."""
    return b"<VRTDataset" in _text(_head(path))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _text(head: bytes) -> bytes:
    """Return what GDAL, which looks for the beginnings of XML, takes for text: up to the first zero."""
    return head.partition(b"\0")[0]


def plain_vrt(path: Path) -> tuple[str, list[Path]]:
    """Return a VRT as text with nothing in it but a mosaic of local rasters, and these rasters."""
    if path.stat().st_size > MOST_BYTES:
        raise DataError(path, f"is larger than any VRT should be ({path.stat().st_size / 1e6:.0f} MB): {ADVICE}")
    try:
        text = path.read_text("utf-8")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise ValueError("it declares entities")
        root = ElementTree.fromstring(text)
    except (ValueError, RecursionError, ElementTree.ParseError) as error:
        raise DataError(path, f"is not a sound VRT ({error}): {ADVICE}") from error
    if root.tag != "VRTDataset":
        raise DataError(path, f"is not a VRT of rasters, but of {root.tag[:40]!r}: {ADVICE}")
    for element in root.iter():
        _check_element(path, element)
    files = dict.fromkeys(_source(path, element) for element in root.iter("SourceFilename"))
    return ElementTree.tostring(root, encoding="unicode"), list(files)


def _check_element(path: Path, element: Element) -> None:
    """Refuse what is more than a mosaic: functions, raw bytes of files, warping, options of drivers."""
    if element.tag not in ELEMENTS:
        raise DataError(path, f"is more than a mosaic, it has {str(element.tag)[:40]!r}: {ADVICE}")
    if element.get("subClass") not in PLAIN_BANDS:
        raise DataError(path, f"is more than a mosaic, it has a {element.get('subClass')!r}: {ADVICE}")


def _source(path: Path, element: Element) -> Path:
    """Return a source, which must be a raster on this machine, and name it in full."""
    named = element.text or ""
    beside = element.get("relativeToVRT") == "1"
    source = Path(os.path.normpath(path.resolve().parent / named)) if beside else Path(named)
    if not source.is_absolute() or not source.is_file():
        raise DataError(path, f"takes pixels from {named[:80]!r}, which is not a file on this machine: {ADVICE}")
    if driver_of(source) is None:
        raise DataError(path, f"takes pixels from {named[:80]!r}, which is not a {KINDS}: {ADVICE}")
    element.text, element.attrib = str(source), {"relativeToVRT": "0"}
    return source
