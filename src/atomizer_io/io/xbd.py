"""Label files of xBD: buildings in pixels and in degrees, by which an image is located."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import DataError, first_line
from atomizer_io.io.crs import Transform, as_gsd, metres_per_degree
from atomizer_io.io.dates import as_day
from atomizer_io.io.geometries import from_wkt
from atomizer_io.io.tables import from_json

PUBLISHED_SHAPE = (1024, 1024)
NOMINAL_GSD_M = 0.5
FAR = 1e6  # pixels; no building of an image has a corner beyond
LEAST_GSD_M, LARGEST_GSD_M = 0.2, 3.0  # pixel sizes that a very-high-resolution image can have

Points = NDArray[np.float64]  # (N, 2)


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A label file: its metadata, and its buildings in pixels (``xy``) and in degrees (``lng_lat``)."""

    path: Path
    metadata: dict[str, Any]
    xy: list[dict[str, Any]]
    lng_lat: list[dict[str, Any]]

    @classmethod
    def of(cls, path: Path) -> LabelFile:
        """Read a label file; the error for an incomplete one names what is missing."""
        content = from_json(path)
        try:
            metadata, features = dict(content["metadata"]), content["features"]
            parts = [[{"wkt": f["wkt"], **f["properties"]} for f in features[key]] for key in ("xy", "lng_lat")]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(path, f"is not a label of xBD: no {first_line(error)} where it is expected") from error
        return cls(path, metadata, *parts)

    def date(self) -> datetime.date:
        """Return the date on which the image was taken."""
        written = self.metadata.get("capture_date")
        day = as_day(str(written))
        if day is None:
            raise DataError(self.path, f"has no date in metadata.capture_date: {written!r}")
        return day

    def corners(self) -> tuple[Points, Points]:
        """Return the corners of all buildings in pixels and in degrees."""
        import shapely

        degrees = {str(building.get("uid")): building["wkt"] for building in self.lng_lat}
        pairs = [np.empty((0, 2, 2))]
        for building in self.xy:
            if (uid := str(building.get("uid"))) in degrees:
                texts = (building["wkt"], degrees[uid])
                ours, theirs = (shapely.get_coordinates(from_wkt(text, self.path)) for text in texts)
                pairs += [np.stack([ours, theirs], axis=1)] if len(ours) == len(theirs) else []
        corners = np.concatenate(pairs)
        return corners[:, 0], corners[:, 1]


@dataclass(frozen=True, slots=True)
class ImageLocation:
    """Where an image lies: metres per pixel (one number, or x and y), and its CRS and transform where known."""

    gsd_m: float | tuple[float, float]
    gsd_from: str
    crs: str | None = None
    transform: Transform | None = None


def locate(documents: list[LabelFile]) -> ImageLocation:
    """Return where an image lies, by its buildings, else by the metadata of its sensor."""
    for document in documents:
        if (location := fitted(*document.corners())) is not None:
            return location
    for key, largest in (("pan_resolution", LARGEST_GSD_M), ("gsd", 1.2)):  # a larger gsd is of multispectral bands
        for document in documents:
            size = document.metadata.get(key)
            if isinstance(size, int | float) and LEAST_GSD_M <= size <= largest:
                return ImageLocation(float(size), key)
    return ImageLocation(NOMINAL_GSD_M, "nominal")


def fitted(pixels: Points, degrees: Points) -> ImageLocation | None:
    """Return the affine map from pixels to coordinates, in the CRS (UTM or degrees) in which the image is north up.

    It is None where corners are too few or far away, lie on a line, or are off by more than a quarter of a pixel.
    """
    from rasterio.warp import transform as project

    if len(pixels) < 3 or not (np.abs(pixels) <= FAR).all() or not (np.abs(degrees) <= (180, 84)).all():
        return None
    if np.linalg.svd(pixels - pixels.mean(0), compute_uv=False)[1] < 3 * len(pixels) ** 0.5:
        return None
    longitude, latitude = degrees.mean(0).tolist()
    zone = min(int((longitude + 180) // 6), 59) + 1
    utm = f"EPSG:{(32600 if latitude >= 0 else 32700) + zone}"
    projected = np.stack(project("EPSG:4326", utm, degrees[:, 0], degrees[:, 1]), axis=1)
    turned: ImageLocation | None = None
    for crs, coordinates, metres in (
        (utm, projected, (1.0, 1.0)),
        ("EPSG:4326", degrees, metres_per_degree(latitude)),
    ):
        fit = affine(pixels, coordinates, metres)
        if fit is None:
            return None
        gsd_m, (a, b, c, d, e, f) = fit
        edge = max(PUBLISHED_SHAPE)  # north up: off by less than a pixel at the far side
        if a > 0 > e and abs(b) * edge < a and abs(d) * edge < -e:
            return ImageLocation(gsd_m, "buildings", crs, (a, 0.0, c, 0.0, e, f))
        turned = turned or ImageLocation(gsd_m, "buildings")
    return turned


def affine(
    pixels: Points, coordinates: Points, metres: tuple[float, float]
) -> tuple[float | tuple[float, float], Transform] | None:
    """Return pixel size and transform of the best fit, None if it is not a good one; ``metres`` are those per unit."""
    design = np.column_stack([pixels, np.ones(len(pixels))])
    solution = np.linalg.lstsq(design, coordinates, rcond=None)[0]
    (a, d), (b, e), (c, f) = solution.tolist()
    across, down = float(np.hypot(a * metres[0], d * metres[1])), float(np.hypot(b * metres[0], e * metres[1]))
    if not all(LEAST_GSD_M <= size <= LARGEST_GSD_M for size in (across, down)):
        return None
    off = (design @ solution - coordinates) * metres
    if not float(np.sqrt((off**2).mean())) < 0.25 * across:
        return None
    return as_gsd(across, down, 1e-3), (a, b, c, d, e, f)
