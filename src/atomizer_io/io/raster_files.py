"""The one way in for raster files: few drivers, no network, and no file but the raster and its own sidecars.

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

from atomizer_io.errors import DataError, is_utf8
from atomizer_io.io.vrt_files import KINDS, driver_of, is_vrt, plain_vrt

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
    beside = [found for file in files for found in sidecars(file)]
    with isolated(beside=bool(beside)), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # who needs a pixel size asks for gsd_m
        with rasterio.open(name, driver=driver) as source:
            _check_inside(path, source)
            others = [found for found in beside if found.suffix in RASTERS_BESIDE]
            for found in (*others, *(file for file in files if file != path)):  # of a VRT, what it is a mosaic of
                with rasterio.open(found, driver=driver_of(found)) as other:
                    _check_inside(found, other)
            yield source


def isolated(*, beside: bool = False) -> Any:
    """Return a context in which GDAL runs no Python, uses no network and looks ``beside`` no file, unless told to."""
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
    found = [Path(each) for each in dict.fromkeys(names) if os.path.lexists(each)]
    for each in found:
        _check_sidecar(each, path)
    return found + [more for each in found if each.suffix in RASTERS_BESIDE for more in sidecars(each)]


def _check_sidecar(path: Path, raster: Path) -> None:
    """Refuse a file beside a raster that leads elsewhere or is of another kind than its name says."""
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
        raise DataError(path, f"says that its overviews are in {named[:80]!r}: remove that tag (OVERVIEW_FILE)")
    if source.crs is not None and GRID_FILE.search(source.crs.wkt):
        raise DataError(path, "has a coordinate system that needs another file, a grid of shifts: warp it (gdalwarp)")
