"""The mean probabilities of all points, on disk: memory depends on the window, not on the file.

OUTPUT.parts/predictions.bin   mean probabilities in the order of the stored points, written block by block
OUTPUT.parts/finished.bin      a number per block: the checksum of its probabilities once they are there, before that 0

Windows are those of training, and each is a rectangle of whole blocks of the store beside these files.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any

import numpy as np

from atomizer_io.io.point_store import PointStore
from atomizer_io.io.point_windows import WindowGrid
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.prediction.point_windows import PointJob, PointWindow, predict_window

PREDICTIONS, FINISHED = "predictions.bin", "finished.bin"
CHECK = np.dtype("<u4")


def windows_with_points(grid: WindowGrid, store: PointStore) -> list[PointWindow]:
    """Return the windows that have points, row by row from the south."""
    return [PointWindow.at(grid, row, column) for row, column in np.argwhere(grid.occupied(store.counts())).tolist()]


class PointPredictions:
    """The mean probabilities of ``outputs`` classes of the points in ``store``; those that are sound are used again."""

    def __init__(self, parts: PartsFolder, store: PointStore, grid: WindowGrid, outputs: int) -> None:
        self.parts, self.store, self.grid, self.outputs = parts, store, grid, outputs
        self.counts = store.counts()
        for name, size in (
            (PREDICTIONS, 4 * outputs * self.counts.sum()),
            (FINISHED, CHECK.itemsize * len(self.counts)),
        ):
            with (parts.folder / name).open(
                "ab"
            ) as file:  # what is there stays, the rest are zeros that take no space yet
                file.truncate(int(size))
        self.finished = np.fromfile(parts.folder / FINISHED, CHECK) != 0
        self._check_finished()
        self.finished |= self.counts == 0
        self.windows = {(window.row, window.column): window for window in windows_with_points(grid, store)}
        self.blocks = {  # those with points of each window
            at: [block for span in window.blocks for block in range(*span) if self.counts[block]]
            for at, window in self.windows.items()
        }
        self.unfinished = {at: int((~self.finished[blocks]).sum()) for at, blocks in self.blocks.items()}
        self.there = {at for at, window in self.windows.items() if window.name in parts}

    def _check_finished(self) -> None:
        """Keep only those blocks finished whose probabilities are as they were written."""
        checks = np.fromfile(self.parts.folder / FINISHED, CHECK)
        with (self.parts.folder / PREDICTIONS).open("rb") as file:
            for block in np.flatnonzero(self.finished).tolist():
                content = bytearray()
                for _, first, count, _ in self.store.runs_of(block, block + 1).tolist():
                    file.seek(4 * self.outputs * first)
                    content += file.read(4 * self.outputs * count)
                self.finished[block] = self._check_of(block, content) == checks[block]

    def _check_of(self, block: int, content: Any) -> int:
        """Return the checksum, never 0, of the probabilities of a block for the plan of these parts."""
        return zlib.crc32(content, zlib.crc32(self.parts.mark + block.to_bytes(8, "little"))) or 1

    def compute(self, job: PointJob, execution: Execution) -> list[str]:
        """Compute what is missing; return the names of all windows.

        The predictions of a window are kept until all its blocks have those of their other windows.
        """
        todo = [window for at, window in self.windows.items() if self.unfinished[at] and at not in self.there]
        # unbuffered: what is marked as finished has left this process before
        with (
            (self.parts.folder / PREDICTIONS).open("r+b", 0) as values,
            (self.parts.folder / FINISHED).open("r+b", 0) as ledger,
        ):
            for at in sorted(self.there):
                for block in self.blocks[at]:
                    self._finish(block, values, ledger)
            for window in self.parts.compute(
                functools.partial(predict_window, job), todo, len(self.windows), execution
            ):
                at = (window.row, window.column)
                self.there.add(at)
                for block in self.blocks[at]:
                    self._finish(block, values, ledger)
        return [window.name for window in self.windows.values()]

    def _finish(self, block: int, values: Any, ledger: Any) -> None:
        """Write the mean of a block once all its windows are there; delete windows that are needed no more."""
        covering = self.grid.covering(block)
        if self.finished[block] or not self.there.issuperset(covering):
            return
        total = np.zeros((self.counts[block], self.outputs), np.float32)
        for at in covering:
            inside = self.blocks[at]
            start = int(self.counts[inside[: inside.index(block)]].sum())
            total += self.parts.load(self.windows[at].name)[start : start + len(total)]
        total /= len(covering)
        done = 0
        for _, first, count, _ in self.store.runs_of(block, block + 1).tolist():
            values.seek(4 * self.outputs * first)
            values.write(total[done : done + count].data)
            done += count
        ledger.seek(CHECK.itemsize * block)
        ledger.write(CHECK.type(self._check_of(block, total.data.cast("B"))).tobytes())
        self.finished[block] = True
        for at in covering:
            self.unfinished[at] -= 1
            if not self.unfinished[at]:
                self.parts.drop(self.windows[at].name)
