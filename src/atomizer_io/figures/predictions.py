"""Pictures of predictions: input, target and answer of some samples, side by side; clouds from above and cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Info
from atomizer_io.figures import clouds
from atomizer_io.figures.sample_clouds import SampleCloud
from atomizer_io.figures.samples import draw_acquisition, draw_target
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.geometry.partition import geometry_of
from atomizer_io.models.base import Model

Pair = tuple[Sample, Tensor]
ROW_IN = 3.4  # inches of the height of a row of maps


def predictions(pairs: Sequence[Pair], info: Info, path: Path, model: Model | None = None) -> Path:
    """Write a picture with one row for each pair of a sample and its answers (M, outputs); return ``path``.

    The points of a cloud are coloured by class, prediction and error, and by the latent cells of ``model`` if it is an
    Atomizer-IO.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = [SampleCloud.of(sample) for sample, _ in pairs]
    drawn = [None if cloud is None or cloud.points_M is None else cloud for cloud in found]
    layers = [
        [] if cloud is None else _layers(cloud, pair, info, model) for cloud, pair in zip(drawn, pairs, strict=True)
    ]
    sizes = [clouds.size_in(len(own)) if own else (10.0, ROW_IN) for own in layers]
    heights = [height for _, height in sizes]
    figure = Figure(figsize=(max(width for width, _ in sizes), sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subfigures(len(pairs), 1, squeeze=False, height_ratios=heights)[:, 0]
    for row, cloud, own, pair in zip(rows, drawn, layers, pairs, strict=True):
        if cloud is None:
            _draw_maps(row, pair, info)
        else:
            clouds.draw(row, cloud.view, own)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path


def _layers(cloud: SampleCloud, pair: Pair, info: Info, model: Model | None) -> list[clouds.CloudLayer]:
    """Return the layers in which a cloud is drawn."""
    sample, answers = pair
    layers = cloud.answer_layers(sample, info, answers)
    if isinstance(model, AtomizerIO):
        layers.append(cloud.cell_layer(geometry_of(model.config, sample.atoms)))
    return layers


def _draw_maps(figure: Any, pair: Pair, info: Info) -> None:
    """Draw the last acquisition, the target and the answer."""
    sample, answers = pair
    answer = answers.argmax(dim=-1) if info.classes else answers[:, 0]
    axes = figure.subplots(1, 3)
    draw_acquisition(axes[0], sample.atoms.acquisitions[-1])
    draw_target(axes[1], sample, info)
    draw_target(axes[2], replace(sample, target=answer), info)
    axes[2].set_title("prediction", fontsize=8)
