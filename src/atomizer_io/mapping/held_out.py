"""What models predict at labels that they were not trained on: the pixels of the map there, label by label."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.datasets.spatial_folds import blocks_of, usual_block_m
from atomizer_io.errors import DataError
from atomizer_io.io.raster_sources import open_rasters
from atomizer_io.io.vector_labels import mover
from atomizer_io.prediction.at_positions import predict_at
from atomizer_io.prediction.options import Execution
from atomizer_io.texts import csv_text, read_text, write_text
from atomizer_io.training import config
from atomizer_io.training.config import Run
from atomizer_io.training.folder import BEST
from atomizer_io.training.splits import open_split

DIGITS = 4  # of probabilities in a table of predictions
HELD_OUT, PREDICTED = "held-out.csv", "predicted.csv"  # in the folder of a run

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Probabilities (M, C), class and label (M,) of held-out positions; ``block`` (K,) of each label, in order."""

    probabilities: NDArray[np.float64]
    target: Ints
    label: Ints
    block: Ints

    @classmethod
    def together(cls, parts: Sequence[HeldOut]) -> HeldOut:
        """Return the held-out labels of several folds; a label is in one of them, and so is a block."""
        offsets = np.cumsum([0, *(int(part.block.max(initial=-1)) + 1 for part in parts)]).tolist()
        return cls(
            np.concatenate([part.probabilities for part in parts]),
            np.concatenate([part.target for part in parts]),
            np.concatenate([part.label for part in parts]),
            np.concatenate([part.block + offset for part, offset in zip(parts, offsets, strict=False)]),
        )

    def by_label(self) -> tuple[Ints, Ints]:
        """Return the predicted and the true class (K,) of each label: of the mean probabilities of its positions."""
        _, first, of_label = np.unique(self.label, return_index=True, return_inverse=True)
        total = np.zeros((len(first), self.probabilities.shape[1]))
        np.add.at(total, of_label.reshape(-1), self.probabilities)
        return total.argmax(axis=1), self.target[first]

    def confusion(self) -> Ints:
        """Return how many labels are predicted as (row) and are (column) each class."""
        predicted, true = self.by_label()
        count = self.probabilities.shape[1]
        return np.bincount(predicted * count + true, minlength=count**2).reshape(count, count)


def held_out(run: Run, rasters: Sequence[dict[str, Any]], execution: Execution) -> HeldOut:
    """Return what the model of a run predicts at its test labels: at the centres of the pixels that they lie in.

    Labels outside of the first raster, or where nothing was observed, are left out.
    """
    folder = config.folder_of(run)
    dataset: Any = open_split(run, "test")
    vector = dataset.vector
    own = np.sort(np.concatenate([item.labels for item in dataset.items]))
    sources = open_rasters(rasters)
    a, _, west, _, e, north = sources[0].transform
    xy = mover(vector.crs, sources[0].crs)(vector.xy[own])
    pixel = np.floor((xy - (west, north)) / (a, e))
    inside = np.isfinite(pixel).all(axis=1) & (pixel >= 0).all(axis=1)
    inside &= (pixel < (sources[0].width, sources[0].height)).all(axis=1)
    own, pixel = own[inside], pixel[inside]
    if not len(own):
        raise DataError(
            vector.path, f"has no held-out label inside of {sources[0].path.name}, on whose grid the map is"
        )
    x, y = west + a * (pixel[:, 0] + 0.5), north + e * (pixel[:, 1] + 0.5)
    table = csv_text([("x", "y"), *zip(x.tolist(), y.tolist(), strict=True)])
    write_text(folder / HELD_OUT, table)
    predict_at(folder / BEST, rasters, folder / HELD_OUT, folder / PREDICTED, execution=execution)
    values = probabilities_in(folder / PREDICTED, len(vector.classes))
    known = np.isfinite(values).all(axis=1)
    if not known.any():
        raise DataError(vector.path, "has no held-out label where anything was observed")
    own, values = own[known], values[known]
    label = vector.feature[own]
    _, first = np.unique(label, return_index=True)
    size_m = dataset.block_m or usual_block_m(vector.xy, vector.crs, dataset.folds)
    blocks = blocks_of(vector.xy[own][first], vector.crs, size_m)
    _, block = np.unique(blocks, axis=0, return_inverse=True)
    return HeldOut(values, vector.target[own].astype(np.int64), label, block.reshape(-1))


def probabilities_in(path: Path, classes: int) -> NDArray[np.float64]:
    """Return the probabilities (M, C), the last columns of a table of predictions; NaN where there is none."""
    rows = list(csv.reader(io.StringIO(read_text(path))))[1:]
    return np.array([[float(cell or "nan") for cell in row[-classes:]] for row in rows]).reshape(-1, classes)
