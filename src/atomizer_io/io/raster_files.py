"""The one way to open raster files: few drivers, no network, and no file but the raster and its own sidecars.

GDAL has some 150 drivers, several of which read descriptions of other files and of servers (VRT, WMS), and it looks
at files beside a raster with all of them. A file from elsewhere must not choose any of that.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError, is_utf8
from atomizer_io.io.remote import RemoteRaster

SHUT = {
    "GDAL_VRT_ENABLE_PYTHON": "NO",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": "{none}",  # nothing ends so: no file of the network is opened
}
RASTERS_BESIDE = (".msk", ".MSK", ".ovr", ".OVR")  # mask and overviews, GeoTIFFs themselves
WORLD_FILES = ("tfw", "tifw", "tiffw", "wld", "pgw", "pngw", "jgw", "jpgw", "jpegw", "j2w", "jp2w", "tab")
OLD_BESIDE = (".aux", ".AUX", ".rrd", ".RRD")  # of ERDAS, which name further files
OLD_MARK = b"EHFA_HEADER_TAG"
MOST_XML = 64 << 20  # bytes
GRID_FILE = re.compile(r"""(?:grids=|PARAMETERFILE\["[^"]*",\s*")[^"\s]*[/\\~]""")  # in the WKT of a CRS


@contextlib.contextmanager
def open_raster(path: Path, *, allow_vrt: bool = False) -> Iterator[Any]:
    """Open a raster in rasterio for reading.

    A VRT, which is a description of other files, is opened if ``allow_vrt``, and then only as a mosaic of local
    rasters. Errors are those of rasterio, and a :class:`DataError` for what reaches out of the file.
    """
    try:
        import rasterio
        from rasterio.errors import NotGeoreferencedWarning
    except ImportError as error:
        raise ImportError("reading a raster needs rasterio: pip install 'atomizer-io[geo]'") from error
    if isinstance(path, RemoteRaster):
        with _open_remote(path) as source:
            yield source
        return
    if not path.is_file():  # a pipe would be waited for
        raise DataError(path, "no such file")
    path = path.absolute()  # never the name of a driver or of a server
    if not is_utf8(str(path)):
        raise DataError(path, "has a name that is not UTF-8, which GDAL cannot open: rename the file")
    driver, files = driver_of(path), [path]
    name: str | Path = path
    if is_vrt(path):
        if not allow_vrt:
            raise DataError(
                path,
                "is a VRT, which takes its pixels from other files: if it is your own, allow it (--allow-vrt, in "
                "Python and in settings allow_vrt=True), else turn it into a GeoTIFF (gdal_translate)",
            )
        driver, (name, files) = "VRT", plain_vrt(path)
    if driver is None:
        raise DataError(
            path,
            f"cannot be read: truncated or not a raster ({KINDS} are read: turn others into GeoTIFF, gdal_translate)",
        )
    beside = [extra for file in files for extra in sidecars(file)]
    with isolated(beside=bool(beside)), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # callers that need a pixel size require gsd_m
        with rasterio.open(name, driver=driver) as source:
            _check_inside(path, source)
            grids = [extra for extra in beside if extra.suffix in RASTERS_BESIDE]
            for extra in (*grids, *(file for file in files if file != path)):  # of a VRT, what it is a mosaic of
                with rasterio.open(extra, driver=driver_of(extra)) as opened_extra:
                    _check_inside(extra, opened_extra)
            yield source


@contextlib.contextmanager
def _open_remote(path: RemoteRaster) -> Iterator[Any]:
    """Open a GeoTIFF or JPEG 2000 on a server, of which the parts that are needed are read; nothing lies beside it."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    driver = driver_by(path.head())
    if driver not in REMOTE:
        kinds = " and ".join(REMOTE.values())
        raise DataError(path, f"is not one of {kinds}, which are read from servers: download it")
    with isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path.name, driver=driver, opener=path.open_bytes) as source:
            _check_inside(path, source)
            yield source


def isolated(*, beside: bool = False) -> Any:
    """Return a context in which GDAL runs no Python and uses no network; files ``beside`` rasters are optional."""
    import rasterio

    return rasterio.Env(**SHUT, GDAL_DISABLE_READDIR_ON_OPEN="TRUE" if beside else "EMPTY_DIR")


def sidecars(path: Path) -> list[Path]:
    """Return what GDAL would read beside a raster: metadata, mask, overviews and their own, and world files.

    Each must be a plain file in the folder of the raster, or in the one that it is linked from.
    """
    name, stem = str(path), str(path.with_suffix(""))
    names = [name + end for end in (".aux.xml", *RASTERS_BESIDE, *OLD_BESIDE)]
    names += [f"{stem}.{end}" for word in WORLD_FILES for end in (word, word.upper())]
    names += [stem + end for end in OLD_BESIDE]
    paths = [Path(file) for file in dict.fromkeys(names) if os.path.lexists(file)]
    for file in paths:
        _check_sidecar(file, path)
    return paths + [more for file in paths if file.suffix in RASTERS_BESIDE for more in sidecars(file)]


def _check_sidecar(path: Path, raster: Path) -> None:
    """Refuse a file beside a raster that leads elsewhere or is of another kind than its suffix stands for."""
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(path, f"cannot be read, but belongs to {raster.name}: remove it ({error.strerror})") from error
    if path.resolve().parent not in (path.parent.resolve(), raster.resolve().parent):
        raise DataError(path, f"belongs to {raster.name}, but is a link to another folder: put the file itself there")
    if not stat.S_ISREG(state.st_mode) or (path.suffix == ".xml" and state.st_size > MOST_XML):
        raise DataError(path, f"belongs to {raster.name}, but is no plain file of a sensible size: remove it")
    if path.suffix in RASTERS_BESIDE and driver_of(path) != "GTiff":
        raise DataError(path, f"belongs to {raster.name}, but is no GeoTIFF: remove it, or make it anew (gdaladdo)")
    if path.suffix in OLD_BESIDE:
        with path.open("rb") as file:
            if file.read(len(OLD_MARK)) == OLD_MARK:
                raise DataError(path, f"belongs to {raster.name}, but is in a format that can name others: remove it")


def _check_inside(path: Path, source: Any) -> None:
    """Refuse an open file whose tags or coordinate system name further files."""
    named = source.tags(ns="OVERVIEWS").get("OVERVIEW_FILE")
    if named is not None:
        raise DataError(path, f"names {named[:80]!r} as the file of its overviews: remove that tag (OVERVIEW_FILE)")
    if source.crs is not None and GRID_FILE.search(source.crs.wkt):
        raise DataError(path, "has a coordinate system that needs another file, a grid of shifts: warp it (gdalwarp)")


MARKS = {  # drivers of GDAL for the files that begin so; a cloud-optimized GeoTIFF is a GeoTIFF
    "GTiff": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "JPEG": (b"\xff\xd8\xff",),
    "JP2OpenJPEG": (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"),
}
KINDS = "GeoTIFF, PNG, JPEG or JPEG 2000"
REMOTE = {"GTiff": "GeoTIFF", "JP2OpenJPEG": "JPEG 2000"}
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
    return driver_by(_head(path))


def driver_by(head: bytes) -> str | None:
    """Return the same for a file that begins so."""
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


def write_png(path: Path, image: NDArray[np.uint8]) -> None:
    """Write colours (H, W, 4) as a PNG."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    height, width, count = image.shape
    profile = {"driver": "PNG", "count": count, "height": height, "width": width, "dtype": "uint8"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # such a file has no coordinates
        with rasterio.open(path, "w", **profile) as target:
            target.write(image.transpose(2, 0, 1))
