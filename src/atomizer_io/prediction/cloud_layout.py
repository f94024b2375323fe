"""The pixels of a map of a cloud, and which of them lie in which window of the cloud."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from atomizer_io.data.grid import Grid
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.point_clouds import Bounds, PointCloudHeader
from atomizer_io.prediction.cloud_blocks import Axis, CloudBlocks, CloudWindow
from atomizer_io.prediction.options import CloudWindows
from atomizer_io.prediction.products import MapGrid
from atomizer_io.prediction.raster_windows import RasterWindow, WindowLayout

MOST_PIXELS = 4 << 20  # of a window
ROUNDING = 1e-6  # of a pixel: what lies this little beyond an edge is on it


@dataclass(frozen=True, slots=True)
class CloudMapWindow(RasterWindow):
    """The pixels of a map whose centres lie in a window of a cloud, and that window."""

    cloud: CloudWindow

    def grid(self, map_grid: MapGrid, unit_m: float) -> Grid:
        """Return the pixels as a grid in metres around the centre of the window of the cloud."""
        step, _, west, _, down, north = map_grid.transform
        x = (west + step * (self.left + self.width / 2)) * unit_m - self.cloud.centre[0]
        y = (north + down * (self.top + self.height / 2)) * unit_m - self.cloud.centre[1]
        return Grid(self.height, self.width, step * unit_m, (x, y))


@dataclass(frozen=True, slots=True)
class CloudLayout(WindowLayout):
    """The windows of a cloud on the pixels of its map, rows from the north.

    ``numbers`` are the rows and the columns of the windows in ``blocks``, whose rows count from the south.
    """

    blocks: CloudBlocks
    numbers: tuple[tuple[int, ...], tuple[int, ...]]

    @classmethod
    def on(cls, map_grid: MapGrid, blocks: CloudBlocks, unit_m: float) -> CloudLayout:
        """Return the windows of a cloud that contain the centre of any pixel."""
        step, _, west, _, down, north = map_grid.transform
        tops, heights, rows = _inside(blocks.rows, north * unit_m, down * unit_m, map_grid.height)
        lefts, widths, columns = _inside(blocks.columns, west * unit_m, step * unit_m, map_grid.width)
        return cls(map_grid.height, map_grid.width, tops, lefts, heights, widths, blocks, (rows, columns))

    def window(self, row: int, column: int) -> CloudMapWindow:
        """Return the window at (row, column), which may have no points."""
        place = (row, column, self.tops[row], self.lefts[column], self.heights[row], self.widths[column])
        return CloudMapWindow(*place, self.blocks.window(self.numbers[0][row], self.numbers[1][column]))


def map_grid_of(bounds: Bounds, header: PointCloudHeader, gsd_m: float) -> MapGrid:
    """Return the grid of pixels of ``gsd_m`` metres that covers ``bounds`` (metres) in the CRS of a cloud.

    Edges of pixels are multiples of the pixel size, so that maps of neighbouring tiles fit together.
    """
    west, south = (math.floor(edge / gsd_m + ROUNDING) for edge in bounds[:2])
    east, north = (math.ceil(edge / gsd_m - ROUNDING) for edge in bounds[2:])
    step = gsd_m / header.unit_m
    shape = max(1, north - south), max(1, east - west)
    return MapGrid(header.crs, (step, 0.0, west * step, 0.0, -step, (south + shape[0]) * step), *shape)


def check_pixels(gsd_m: float, windows: CloudWindows, header: PointCloudHeader, path: object) -> None:
    """Refuse pixels that are larger than the step from window to window, or too many for a window."""
    if not 0 < gsd_m < math.inf:
        raise ConfigError(f"gsd_m, the pixel size of the map, must be a positive number of metres, got {gsd_m}")
    if windows.ask_every_m is not None:
        raise ConfigError("ask_every_m is for classified points; a map is asked at its pixels: leave it out")
    if gsd_m > windows.step_m:
        raise ConfigError(
            f"a pixel of {gsd_m:g} m is larger than the step of {windows.step_m:g} m from window to window: choose "
            "smaller pixels or larger windows (--window)"
        )
    if (windows.side_m / gsd_m) ** 2 > MOST_PIXELS:
        raise ConfigError(
            f"a window of {windows.side_m:g} m has more than {MOST_PIXELS:,} pixels of {gsd_m:g} m: choose larger "
            "pixels or smaller windows (--window)"
        )
    if header.crs is None and header.unit_m != 1:
        raise DataError(
            str(path),
            "has a unit other than metres but no coordinate system, which a map needs: --crs EPSG:..., in Python crs=",
        )


def _inside(axis: Axis, start_m: float, step_m: float, count: int) -> tuple[tuple[int, ...], ...]:
    """Return the windows along an axis as first pixels, numbers of pixels and numbers of windows, in order of pixels.

    Pixel i has its centre at ``start_m`` + (i + ½) ``step_m``, whose step is negative from north to south. A window
    without the centre of any pixel is left out; of windows that begin at the same pixel only the longest stays.
    """
    block = axis.block(start_m + (np.arange(count, dtype=np.float64) + 0.5) * step_m)
    found = []
    for window in range(len(axis.centres)):
        pixels = np.flatnonzero((block >= axis.first[window]) & (block < axis.last[window]))
        if len(pixels):
            found.append((int(pixels[0]), len(pixels), window))
    longest = {first: (first, length, window) for first, length, window in sorted(found)}
    firsts, lengths, windows = zip(*longest.values(), strict=True)
    return firsts, lengths, windows
