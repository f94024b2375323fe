"""The coordinate system of a point cloud, and the metres in one unit of x and y and of z."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.rasters import crs_text, first_line

UNITS_M = {9001: 1.0, 9002: 0.3048, 9003: 1200 / 3937}  # GeoTIFF codes of metre, foot and US survey foot
HORIZONTAL_KEY, VERTICAL_KEY = 3076, 4099  # GeoTIFF keys of the units


def parsed_crs(text: str) -> Any:
    """Return a coordinate system as a user writes it: EPSG:2263, EPSG:2263+6360 (with the heights') or WKT."""
    from pyproj import CRS
    from pyproj.exceptions import ProjError

    try:
        return CRS.from_user_input(text)
    except ProjError as error:
        raise ConfigError(
            f"crs is {text!r}, which is no coordinate system ({first_line(error)}): give a code such as EPSG:2154"
        ) from error


def system_of(header: Any, path: Path, given: str | None) -> tuple[str | None, float, float, bool]:
    """Return the CRS of x and y, metres per unit of x and y and of z, and whether metres are only assumed.

    ``given`` is the user's, for a file without a coordinate system; one that differs from the file's own is refused.
    """
    named = None if given is None else parsed_crs(given)
    own = _own(header, path, named)
    keys = {key.id: key.value_offset for vlr in header.vlrs.get("GeoKeyDirectoryVlr") for key in vlr.geo_keys}
    height = UNITS_M.get(keys.get(VERTICAL_KEY, 0))
    if own is not None and named is not None and not _flat(own).equals(_flat(named), ignore_axis_order=True):
        raise DataError(
            path, f"has a coordinate system of its own ({own.name}), which is not {named.name}: leave crs out"
        )
    crs = own if named is None else named
    if crs is None:
        unit = UNITS_M.get(keys.get(HORIZONTAL_KEY, 0))
        return None, unit or 1.0, height or unit or 1.0, unit is None
    text, unit, own_height = units_of(crs, path)
    return text, unit, own_height or height or unit, False


def units_of(crs: Any, path: Path) -> tuple[str, float, float | None]:
    """Return the text of a CRS, metres per unit of x and y, and of z where the system has heights."""
    if not crs.is_projected and not crs.is_engineering:
        raise DataError(
            path,
            f"has coordinates in degrees or from the centre of the Earth ({crs.name}): project it to metres first "
            "(pdal translate ... reprojection --filters.reprojection.out_srs=EPSG:...)",
        )
    flat = _flat(crs)
    unit = float(flat.axis_info[0].unit_conversion_factor) if flat.axis_info else 1.0
    height = float(crs.axis_info[2].unit_conversion_factor) if len(crs.axis_info) > 2 else None
    return crs_text(flat), unit, height


def _own(header: Any, path: Path, named: Any) -> Any:
    """Return the coordinate system in the file, or None.

    One that cannot be understood is an error, unless the user names another.
    """
    from pyproj.exceptions import ProjError

    try:
        crs = header.parse_crs()
    except ProjError as error:
        if named is not None:
            return None
        raise DataError(
            path,
            f"has a coordinate system that cannot be understood ({first_line(error)}): name it with crs=EPSG:..., or "
            "write the file with its code (pdal translate --writers.las.a_srs=EPSG:...)",
        ) from error
    # where the projection is the user's own, only its geographic base has a code: those numbers are no degrees
    if crs is not None and crs.is_geographic and max(np.abs([header.mins[:2], header.maxs[:2]]).ravel()) > 360:
        return None
    return crs


def _flat(crs: Any) -> Any:
    return crs.sub_crs_list[0] if crs.sub_crs_list else crs
