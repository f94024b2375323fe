"""Windows of a map become strips of it, in which they are blended where they overlap.

Windows are computed by an engine and kept on disk until the strip of the map that they reach into is put together; then
only the strip is kept. What is in memory is a few windows, whatever the size of the scene.

Shapes: H × W pixels of a window or a block, C classes (or 1 regression target), K channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.prediction import products
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.parts_folder import PartsFolder, WindowOutputs
from atomizer_io.prediction.raster_windows import RasterWindow, WindowLayout, ramp
from atomizer_io.progress import progress_bar

Array = NDArray[Any]


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

    @property
    def names(self) -> list[str]:
        """The names of all strips from the north."""
        return [f"strip-{row:05d}" for row in range(len(self.layout.tops))]

    def compute(self, predict: Callable[[Any], WindowOutputs], execution: Execution) -> None:
        """Compute all strips that are not there yet; ``predict`` gives the outputs of one window."""
        layout, parts = self.layout, self.parts
        missing = [row for row, name in enumerate(self.names) if name not in parts]
        needed = sorted({above for row in missing for above in layout.covering(*layout.strip(row))})
        tasks = [w for row in needed for w in layout.row(row) if w.name not in parts]
        bar = progress_bar(len(layout), initial=len(layout) - len(tasks), unit=" windows", show=execution.progress)
        last_use = {above: row for row in missing for above in layout.covering(*layout.strip(row))}
        done = {row: sum(w.name in parts for w in layout.row(row)) for row in needed}

        def put_together() -> None:
            while missing:
                row = missing[0]
                above = layout.covering(*layout.strip(row))
                if any(done[r] < len(layout.lefts) for r in above):
                    return
                self.put(row)
                missing.pop(0)
                for finished in [r for r in above if last_use[r] == row]:
                    for window in layout.row(finished):
                        parts.drop(window.name)

        put_together()
        for window, outputs in execution.runner.run(predict, tasks):
            parts.save(window.name, outputs.values, outputs.decoded)
            done[window.row] += 1
            bar.update()
            put_together()
        bar.close()

    def put(self, row: int) -> None:
        """Save the layers (rows, width, depth) of the strip between two rows of windows, block by block."""
        layout, task_spec, layers = self.layout, self.task_spec, self.layers
        top, bottom = layout.strip(row)
        depth = sum(products.depths(task_spec, layers, len(self.kinds)).values())
        with self.parts.filling(self.names[row], (bottom - top, layout.width, depth)) as strip:
            for column in range(len(layout.lefts)):
                left, right = layout.columns(column)
                strip[:, left:right] = products.layered(self.blended((top, bottom), (left, right)), task_spec, layers)

    def blended(self, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        """Return the outputs (H, W, C [+ K] + 1) of a block: the weighted mean of its windows, zero without any."""
        shape, depth = (rows[1] - rows[0], columns[1] - columns[0]), self.task_spec.num_outputs + len(self.kinds) + 1
        total, weight = np.zeros((*shape, depth), np.float32), np.zeros((*shape, 1), np.float32)
        for window in self._windows(rows, columns):
            outputs = self.parts.load(window.name)
            if not outputs.size:
                continue
            here_y, there_y = _shared(*rows, window.top, window.height)
            here_x, there_x = _shared(*columns, window.left, window.width)
            share = ramp(window.height)[there_y, None, None] * ramp(window.width)[there_x, None]
            total[here_y, here_x] += outputs[there_y, there_x] * share
            weight[here_y, here_x] += share
        return total / np.maximum(weight, 1e-12)

    def _windows(self, rows: tuple[int, int], columns: tuple[int, int]) -> Iterator[RasterWindow]:
        for row in self.layout.covering(*rows):
            for column in self.layout.covering_columns(*columns):
                yield self.layout.window(row, column)

    def decoded(self) -> int | None:
        """Return how many positions of all windows were decoded, None where that is not known."""
        rows = range(len(self.layout.tops))
        return self.parts.decoded(window.name for row in rows for window in self.layout.row(row))


def _shared(first: int, last: int, start: int, size: int) -> tuple[slice, slice]:
    """Return the pixels that a range and a window share, as slices of the range and of the window."""
    low, high = max(first, start), min(last, start + size)
    return slice(low - first, high - first), slice(low - start, high - start)
