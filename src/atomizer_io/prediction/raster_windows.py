"""The grid of a map, overlapping windows over it, and the strips of the map, in which the windows are blended.

Windows are computed by an engine and kept on disk until the strip of the map that they reach into is put together; then
only the strip is kept. What is in memory is a few windows, whatever the size of the scene.

Shapes: H × W pixels of a window or a block, C classes (or 1 regression target), K channels.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.grid import Grid
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.io.crs import Transform, as_gsd, metres_per_unit, shifted
from atomizer_io.io.raster_sources import Box, LocalFrame
from atomizer_io.prediction import products
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.parts_folder import PartsFolder, WindowOutputs

Pixels = tuple[int, int]  # the first and the last one, exclusive


@dataclass(frozen=True, slots=True)
class MapGrid:
    """The grid of a map: a coordinate system, a north-up transform and a shape."""

    crs: str | None
    transform: Transform
    height: int
    width: int

    @property
    def bounds(self) -> Box:
        """West, south, east and north edge in units of the CRS."""
        a, _, west, _, e, north = self.transform
        return (west, north + e * self.height, west + a * self.width, north)

    def frame(self, top: int, left: int, height: int, width: int) -> tuple[LocalFrame, Grid]:
        """Return the frame around the middle of a window, and the grid of its pixels there."""
        _, _, x, _, _, y = shifted(self.transform, top + height / 2, left + width / 2)
        frame = LocalFrame.around(self.crs, x, y)
        step_x, step_y = self.transform[0] * frame.unit_m[0], -self.transform[4] * frame.unit_m[1]
        return frame, Grid(height, width, as_gsd(step_x, step_y))

    def row_hectares(self) -> NDArray[np.float64]:
        """Return the area of a pixel of each row in hectares."""
        a, e, north = self.transform[0], self.transform[4], self.transform[5]
        if self.crs is None:
            return np.full(self.height, a * -e / 1e4)
        from rasterio.crs import CRS

        crs = CRS.from_user_input(self.crs)
        middles = north + e * (np.arange(self.height) + 0.5)
        if not crs.is_geographic and crs.to_dict().get("proj") != "merc":
            middles = middles[:1]
        units = np.array([metres_per_unit(crs, float(y)) for y in middles])
        return np.broadcast_to(a * -e * units.prod(axis=1) / 1e4, (self.height,)).copy()


@dataclass(frozen=True, slots=True)
class RasterWindow:
    """A rectangle of pixels of a map; ``row`` and ``column`` count windows."""

    row: int
    column: int
    top: int
    left: int
    height: int
    width: int

    @property
    def name(self) -> str:
        """The name of the file of its outputs."""
        return f"window-{self.row:05d}-{self.column:05d}"


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """The windows along one side of a map of ``length`` pixels: where each starts and ends."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    length: int

    @classmethod
    def over(cls, length: int, size: int, overlap: float) -> WindowAxis:
        """Return windows of ``size`` pixels, cut to the map, evenly from end to end, that overlap by this or more."""
        if length <= size:
            return cls((0,), (length,), length)
        stride = max(1, math.floor(size * (1 - overlap) + 1e-9))
        count = math.ceil((length - size) / stride) + 1
        starts = tuple(round(i * (length - size) / (count - 1)) for i in range(count))
        return cls(starts, tuple(start + size for start in starts), length)

    def strip(self, number: int) -> Pixels:
        """Return the pixels between the starts of a window and of the next one."""
        return self.starts[number], (*self.starts, self.length)[number + 1]

    def covering(self, pixels: Pixels) -> range:
        """Return the windows that overlap these pixels."""
        return range(bisect.bisect_right(self.ends, pixels[0]), bisect.bisect_left(self.starts, pixels[1]))


@dataclass(frozen=True, slots=True)
class WindowLayout:
    """The windows of a map, in rows and columns."""

    rows: WindowAxis
    columns: WindowAxis

    @property
    def size(self) -> tuple[int, int]:
        """The rows and columns of pixels of the largest window."""
        rows, columns = (max(np.subtract(axis.ends, axis.starts).tolist()) for axis in (self.rows, self.columns))
        return rows, columns

    def window(self, row: int, column: int) -> RasterWindow:
        """Return the window at (row, column)."""
        top, left = self.rows.starts[row], self.columns.starts[column]
        return RasterWindow(row, column, top, left, self.rows.ends[row] - top, self.columns.ends[column] - left)

    def windows(self, rows: Sequence[int]) -> list[RasterWindow]:
        """Return the windows of some rows."""
        return [self.window(row, column) for row in rows for column in range(len(self.columns.starts))]


def ramp(position: NDArray[Any], size: int) -> NDArray[np.float32]:
    """Return the weight of positions in a window, in pixels from its edge: least at the edges, but never zero."""
    return np.asarray(np.sin(np.pi * position / size) ** 2 + 1e-3, dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class MapStrips:
    """The strips of a map in a folder of parts: one between the starts of any two rows of windows.

    Outputs of a window are (H, W, C [+ K] + 1): the last number is whether anything was observed, and ``kinds`` are
    the (sensor, name) of the K channels whose attention is among them. A window without any is (0,).
    """

    parts: PartsFolder
    layout: WindowLayout
    task_spec: TaskSpec
    layers: Sequence[str]
    kinds: Sequence[tuple[str, str]] = ()
    dtype: type = np.float32  # of the strips on disk

    def write_map(
        self,
        predict: Callable[[Any], WindowOutputs],
        map_grid: MapGrid,
        model: Mapping[str, str],
        execution: Execution,
    ) -> dict[str, Any]:
        """Compute the map and write its files; return what is known of it as a whole.

        ``predict`` gives the outputs of one window; ``model`` names the model that makes the map.
        """
        strips = self.compute(predict, execution)
        known = products.write(self.parts, map_grid, strips, self.task_spec, self.layers, self.kinds, model)
        windows = self.layout.windows(range(len(self.layout.rows.starts)))
        positions = sum(window.height * window.width for window in windows)
        decoded = self.parts.decoded(window.name for window in windows)
        return {**known, "decoded": decoded, "positions": positions, "windows": len(windows)}

    def compute(self, predict: Callable[[Any], WindowOutputs], execution: Execution) -> list[str]:
        """Compute all strips that are not there yet; return their names from the north."""
        layout, parts = self.layout, self.parts
        names = [f"strip-{row:05d}" for row in range(len(layout.rows.starts))]
        missing = [row for row, name in enumerate(names) if name not in parts]
        reach = {row: layout.rows.covering(layout.rows.strip(row)) for row in missing}
        last_use = {above: row for row in missing for above in reach[row]}
        tasks = [window for window in layout.windows(sorted(last_use)) if window.name not in parts]
        left = Counter(window.row for window in tasks)  # of each row
        total = len(names) * len(layout.columns.starts)
        for window in itertools.chain([None], parts.compute(predict, tasks, total, execution)):
            if window is not None:
                left[window.row] -= 1
            while missing and not any(left[row] for row in reach[missing[0]]):
                row = missing.pop(0)
                self.put(row, names[row])
                for done in layout.windows([above for above in reach[row] if last_use[above] == row]):
                    parts.drop(done.name)
        return names

    def put(self, row: int, name: str) -> None:
        """Save the layers (rows, width, depth) of the strip between two rows of windows, block by block."""
        rows, columns = self.layout.rows.strip(row), self.layout.columns
        depth = sum(products.depths(self.task_spec, self.layers, len(self.kinds)).values())
        with self.parts.filling(name, (rows[1] - rows[0], columns.length, depth), self.dtype) as strip:
            for column in range(len(columns.starts)):
                block = columns.strip(column)
                strip[:, slice(*block)] = products.layered(self.blended(rows, block), self.task_spec, self.layers)

    def blended(self, rows: Pixels, columns: Pixels) -> NDArray[Any]:
        """Return the outputs (H, W, C [+ K] + 1) of a block: the weighted mean of its windows, zero without any."""
        shape, depth = (rows[1] - rows[0], columns[1] - columns[0]), self.task_spec.num_outputs + len(self.kinds) + 1
        total, weight = np.zeros((*shape, depth), np.float32), np.zeros((*shape, 1), np.float32)
        for at in itertools.product(self.layout.rows.covering(rows), self.layout.columns.covering(columns)):
            window = self.layout.window(*at)
            outputs = self.parts.load(window.name)
            if not outputs.size:
                continue
            here_y, there_y, share_y = _shared(rows, window.top, window.height)
            here_x, there_x, share_x = _shared(columns, window.left, window.width)
            share = share_y[:, None, None] * share_x[:, None]
            total[here_y, here_x] += outputs[there_y, there_x] * share
            weight[here_y, here_x] += share
        return total / np.maximum(weight, 1e-12)


def _shared(pixels: Pixels, start: int, size: int) -> tuple[slice, slice, NDArray[np.float32]]:
    """Return what pixels share with a window: the slices of both, and the weights of these pixels in the window."""
    low, high = max(pixels[0], start), min(pixels[1], start + size)
    here, there = slice(low - pixels[0], high - pixels[0]), slice(low - start, high - start)
    return here, there, ramp(np.arange(size) + 0.5, size)[there]
