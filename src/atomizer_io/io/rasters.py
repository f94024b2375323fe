"""Rasters through rasterio: values as stored, what is absent, and where the pixels lie in metres."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.inputs import LARGEST
from atomizer_io.errors import ConfigError, DataError, first_line
from atomizer_io.io.crs import Transform, as_gsd, crs_text, full_turn, metres_per_unit, nearest_turn, north_up, shifted
from atomizer_io.io.raster_pixels import observed, opened, pixels

PIXELS_M = (1e-4, 1e6)  # the smallest and the largest pixel that a user may name
PixelBox = tuple[int, int, int, int]  # first row, first column, height, width


@dataclass(frozen=True, slots=True, eq=False)
class Raster:
    """A raster, or a window of one: ``values`` (C, H, W) as stored, north up, on ``grid`` around (0, 0).

    ``nodata`` has one number per band or None. ``mask`` (H, W) is false where the file's own mask or alpha band marks
    that nothing was observed; where that goes by the values of all bands together (GDAL's tag NODATA_VALUES), a band
    has no ``nodata`` of its own. ``declared`` is a further value without data, which a user names.
    """

    path: Path
    values: NDArray[Any]
    grid: Grid
    nodata: tuple[float | None, ...]
    descriptions: tuple[str | None, ...]
    mask: NDArray[np.bool_] | None = None
    crs: str | None = None
    transform: Transform | None = None
    declared: float | None = None

    @property
    def origin(self) -> tuple[float, float] | None:
        """The centre of the raster in its CRS, None where it has none."""
        if self.transform is None:
            return None
        _, _, x, _, _, y = shifted(self.transform, self.grid.height / 2, self.grid.width / 2)
        return (x, y)

    def check_grid(self, first: Raster) -> None:
        """Refuse a raster on other pixels than ``first``: of another shape, or off by half a pixel or more."""
        if self.grid.shape != first.grid.shape:
            raise DataError(self.path, f"has {self.grid.shape} pixels, but {first.path.name} has {first.grid.shape}")
        if self.transform is None or first.transform is None:
            return
        half = np.abs(np.array([first.transform[0], first.transform[4]])) / 2
        for row, column in ((0, 0), first.grid.shape):
            ours, theirs = (np.array(shifted(t, row, column)[2::3]) for t in (self.transform, first.transform))
            if (np.abs(ours - theirs) >= half).any():
                raise DataError(self.path, f"lies at {self.transform}, but {first.path.name} lies at {first.transform}")

    def valid(self) -> NDArray[np.bool_] | None:
        """Return where values (C, H, W) were observed by nodata and mask; None: everywhere but at NaN.

        Finite values that are too large for float32 are absent as well; the first time, there is a warning.
        """
        present = observed(self.values, self.nodata, self.mask, self.declared)
        if self.values.dtype == np.float64:
            large = np.isfinite(self.values) & (np.abs(self.values) > LARGEST)
            if present is not None:
                large &= present
            if large.any():
                _note_large(self.path, int(large.sum()))
                present = ~large if present is None else present & ~large
        return present

    def atoms(
        self,
        channels: Iterable[Channel],
        day_of_year: Any = None,
        *,
        timestep: int | None = None,
        valid: NDArray[np.bool_] | None = None,
        center_m: tuple[float, float] = (0.0, 0.0),
    ) -> AtomSet:
        """Return all bands as atoms; values where ``valid`` ((H, W) or (C, H, W)) is false are absent, too."""
        own = self.valid()
        if valid is not None:
            own = valid if own is None else own & valid
        return AtomSet.from_raster(
            self.values,
            channels,
            self.grid.gsd_m if isinstance(self.grid.gsd_m, float) else self.grid.pixel_m,
            day_of_year,
            valid=own,
            timestep=timestep,
            center_m=center_m,
            copy=False,
        )


_noted: set[Path] = set()  # files that this process has warned about


def _note_large(path: Path, count: int) -> None:
    """Warn once for each file that it has values that are too large to compute with."""
    if path not in _noted:
        _noted.add(path)
        many = "1 value" if count == 1 else f"{count:,} values"
        text = f"{path.name}: {many} beyond ±{LARGEST:.2g} in the first window that has any; such values are absent"
        warnings.warn(text, stacklevel=3)


def stacked(rasters: Sequence[Raster]) -> Raster:
    """Return the bands of rasters on the same pixels, none of which has a mask, as one."""
    first, *more = rasters
    return (
        replace(
            first,
            values=np.concatenate([raster.values for raster in rasters]),
            nodata=tuple(value for raster in rasters for value in raster.nodata),
            descriptions=tuple(text for raster in rasters for text in raster.descriptions),
        )
        if more
        else first
    )


def read_raster(
    path: str | Path,
    *,
    bands: int | None = None,
    indexes: Sequence[int] | None = None,
    gsd_m: float | None = None,
    window: PixelBox | None = None,
    crs: str | None = None,
    allow_vrt: bool = False,
) -> Raster:
    """Read a raster file, or a window of it.

    ``bands`` is the number of bands that the file must have; ``indexes`` (from 1) reads only some of them. ``crs`` is
    the coordinate system of a file that does not name its own, ``gsd_m`` the pixel size where there is none. A pixel in
    degrees is as wide and high as it is at the raster's middle. ``allow_vrt`` also reads a VRT, a mosaic of others.
    """
    path = path if isinstance(path, Path) else Path(path)
    with opened(path, allow_vrt=allow_vrt) as source:
        if bands is not None and source.count != bands:
            raise DataError(path, f"has {source.count} bands, expected {bands}")
        part = None if window is None else _part(path, source, window)
        transform = source.transform if part is None else source.window_transform(part)
        chosen = list(indexes or source.indexes)
        if max(chosen) > source.count:
            raise DataError(path, f"has {source.count} bands, but number {max(chosen)} was requested")
        values, nodata, mask = pixels(source, chosen, part)
        descriptions, known = source.descriptions, crs_of(path, source, crs)
    height, width = values.shape[1:]
    if known is not None:
        own, flipped = north_up(tuple(transform)[:6], height, width)
        rows, columns = (slice(None, None, -1 if flip else None) for flip in flipped)
        values, mask = values[:, rows, columns], None if mask is None else mask[rows, columns]
        transform = type(transform)(*own)
    return Raster(
        path,
        values,
        Grid(height, width, gsd_m=pixel_size(path, known, transform, height, width, gsd_m)),
        nodata,
        tuple(descriptions[i - 1] for i in chosen),
        mask,
        None if known is None else crs_text(known),
        None if known is None else tuple(transform)[:6],
    )


def crs_of(path: Path, source: Any, option: str | None) -> Any:
    """Return the coordinate system of an open file: its own, or the ``option`` of the user where it has none."""
    if option is None:
        return source.crs
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        crs = CRS.from_user_input(option)
    except (CRSError, ValueError) as error:
        raise ConfigError(f"{path}: {option!r} is not a coordinate system: write it like EPSG:32632") from error
    if source.crs is not None and source.crs != crs:
        raise DataError(path, f"is in {crs_text(source.crs)[:40]} by its own tags, not in {option}: leave crs= out")
    if source.transform.is_identity:
        raise DataError(
            path,
            f"cannot be placed in {option}: it does not state where its pixels lie (gdal_translate -a_ullr writes it)",
        )
    return crs


def _part(path: Path, source: Any, window: PixelBox) -> Any:
    """Return a window as rasterio writes it."""
    from rasterio.windows import Window as RasterWindow

    row, column, height, width = window
    if row < 0 or column < 0 or row + height > source.height or column + width > source.width:
        raise DataError(path, f"window {window} lies outside of {source.height} × {source.width} pixels")
    return RasterWindow(column, row, width, height)


def offset_m(frame: Raster, raster: Raster) -> tuple[float, float]:
    """Return the distance in metres (x, y) from the centre of ``frame`` to that of ``raster``; they must overlap."""
    from rasterio.crs import CRS

    spans = (frame.grid.size_m, raster.grid.size_m)
    if frame.origin is None or raster.origin is None or frame.crs is None or raster.crs is None:
        if frame.crs != raster.crs:
            raise DataError(
                raster.path,
                f"only one of this file and {frame.path.name} has a coordinate system: name that of the other by the "
                "option crs, or write it into the file (gdal_edit.py -a_srs EPSG:...)",
            )
        if any(abs(a - b) > max(*frame.grid.pixel_m, *raster.grid.pixel_m) for a, b in zip(*spans, strict=True)):
            raise DataError(
                raster.path,
                f"covers {spans[1]} m, but {frame.path.name} covers {spans[0]} m, and neither has coordinates",
            )
        return (0.0, 0.0)
    crs = CRS.from_user_input(frame.crs)
    if frame.crs != raster.crs and crs != CRS.from_user_input(raster.crs):
        raise DataError(
            raster.path,
            f"is in {raster.crs[:40]}, but {frame.path.name} is in {frame.crs[:40]}: warp it first (gdalwarp)",
        )
    per_unit = metres_per_unit(crs, frame.origin[1])
    there = (nearest_turn(raster.origin[0], frame.origin[0], full_turn(crs)), raster.origin[1])
    dx, dy = ((b - a) * m for a, b, m in zip(frame.origin, there, per_unit, strict=True))
    if any(abs(d) >= (a + b) / 2 for d, a, b in zip((dx, dy), *spans, strict=True)):
        raise DataError(raster.path, f"lies beside {frame.path.name}: {dx:.0f} m east and {dy:.0f} m north of it")
    return (dx, dy)


def pixel_size(
    path: Path, crs: Any, transform: Any, height: int, width: int, gsd_m: float | None
) -> float | tuple[float, float]:
    """Return the metres per pixel along x and y, as one number if they are the same."""
    if crs is None:
        if gsd_m is None:
            raise DataError(path, "has no coordinate system, so the size of its pixels is unknown: pass gsd_m=")
        if not PIXELS_M[0] <= gsd_m <= PIXELS_M[1]:
            raise ConfigError(
                f"{path}: a pixel size of {gsd_m:g} is not possible: pass gsd_m= in metres, from {PIXELS_M[0]:g} to "
                f"{PIXELS_M[1]:g}"
            )
        return gsd_m
    if transform.b or transform.d:
        raise DataError(path, "is rotated against north; warp it to a north-up grid first (gdalwarp)")
    from rasterio.errors import CRSError

    try:
        x, y = metres_per_unit(crs, transform.f + transform.e * height / 2)
    except CRSError as error:
        raise DataError(path, f"has a coordinate system that is not a map's ({first_line(error)}): warp it") from error
    return as_gsd(abs(transform.a) * x, abs(transform.e) * y)
