"""Pictures of predictions: input, target and answer of some samples, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from atomizer_io.datasets.dataset import Info
from atomizer_io.pictures.samples import draw_acquisition, draw_target
from atomizer_io.sample import Sample


def predictions(pairs: Sequence[tuple[Sample, Tensor]], info: Info, path: Path) -> Path:
    """Write a picture with one row for each pair of a sample and its answers (M, outputs); return ``path``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4 * len(pairs)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(pairs), 3, squeeze=False)
    for row, (sample, answers) in zip(axes, pairs, strict=True):
        answer = answers.argmax(dim=-1) if info.classes else answers[:, 0]
        draw_acquisition(row[0], sample.atoms.acquisitions[-1])
        draw_target(row[1], sample, info)
        draw_target(row[2], replace(sample, target=answer), info)
        row[2].set_title("prediction", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path
