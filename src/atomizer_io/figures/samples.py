"""Figures of samples: what each sensor saw, the target, and the cells of the latents or what a model predicts.

Shapes: P points, M queries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.sample import Sample
from atomizer_io.data.task_spec import IGNORE
from atomizer_io.datasets.dataset import Info
from atomizer_io.errors import ConfigError
from atomizer_io.figures import point_clouds
from atomizer_io.figures.class_colours import class_colours
from atomizer_io.figures.point_clouds import (
    Ints,
    PointLayer,
    PointView,
    by_cell,
    by_class,
    by_error,
    by_value,
    new_figure,
)
from atomizer_io.io.tables import evenly
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.partition import Geometry, geometry_of
from atomizer_io.models.base import Model
from atomizer_io.models.sites import colocated_sites

Floats = NDArray[np.floating[Any]]
RED_UM, GREEN_UM, BLUE_UM = RGB_UM = (0.66, 0.56, 0.48)
FAR_UM = 0.06  # a band further away than this from a colour is not that colour
MAX_PANELS = 8  # most acquisitions that are drawn
CELL_PIXELS = 400
MAX_CELLS = 300
ROW_IN = 3.4  # inches of the height of a row of maps


def save(sample: Sample, info: Info, path: str | Path, atoms_per_latent: int = 1000) -> Path:
    """Draw ``sample`` into ``path`` (.png, .pdf, .svg); ``atoms_per_latent`` (κ) sets the size of the cells."""
    path = Path(path)
    if path.suffix.casefold() not in (".png", ".pdf", ".svg", ".jpg"):
        raise ConfigError(f"{path}: name an image file that ends in .png, .pdf, .svg or .jpg")
    points = SamplePoints.of(sample)
    geometry = geometry_of(AtomizerConfig(atoms_per_latent=atoms_per_latent, temporal=info.temporal), sample.atoms)
    panels, layers = _panels(sample, info, points), list[PointLayer]()
    if points is None:
        panels.append(functools.partial(_draw_cells, sample=sample, geometry=geometry, kappa=atoms_per_latent))
    else:
        layers = [points.height_layer(), *points.target_layers(sample, info), points.cell_layer(geometry)]
    columns = min(4, len(panels))
    rows = -(-len(panels) // max(columns, 1))
    across, of_points = point_clouds.size_in(len(layers))
    inches = [size for size in (of_points, 3.6 * rows) if size]
    figure = new_figure(max(across, 3.4 * columns), sum(inches) + 0.4)
    title = f"{info.title}: {sample.meta.id}, {sample.atoms.num_atoms:,} atoms"
    if sample.queries is None:
        label = sample.target.item()
        known = info.classes[int(label)] if info.classes and label >= 0 else f"{label:g} {info.unit or ''}"
        title = f"{title}, target: {known}"
    figure.suptitle(title, fontsize=10)
    parts = list(figure.subfigures(len(inches), 1, squeeze=False, height_ratios=inches)[:, 0])
    if points is not None:
        point_clouds.draw(parts[0], points.view, layers)
    axes = list(parts[-1].subplots(rows, columns, squeeze=False).flat) if panels else []
    for panel, axis in zip(panels, axes, strict=False):
        panel(axis)
    for unused in axes[len(panels) :]:
        unused.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def save_predictions(
    pairs: Sequence[tuple[Sample, Tensor]], info: Info, path: Path, model: Model | None = None
) -> Path:
    """Draw one row for each pair of a sample and its predictions (M, outputs) into ``path``.

    Points are coloured by class, prediction and error, and by the latent cells of ``model`` if it is an Atomizer-IO.
    """
    rows: list[tuple[SamplePoints | None, list[PointLayer]]] = []
    for sample, predictions in pairs:
        points = SamplePoints.of(sample)
        points = None if points is None or points.points_M is None else points
        layers = [] if points is None else points.target_layers(sample, info, predictions)
        if points is not None and isinstance(model, AtomizerIO):
            layers.append(points.cell_layer(geometry_of(model.config, sample.atoms)))
        rows.append((points, layers))
    widths, heights = zip(
        *(point_clouds.size_in(len(layers)) if layers else (10.0, ROW_IN) for _, layers in rows), strict=True
    )
    figure = new_figure(max(widths), sum(heights))
    parts = figure.subfigures(len(pairs), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (points, layers), (sample, predictions) in zip(parts, rows, pairs, strict=True):
        if points is not None:
            point_clouds.draw(part, points.view, layers)
            continue
        axes = part.subplots(1, 3)
        draw_acquisition(axes[0], sample.atoms.acquisitions[-1])
        draw_target(axes[1], sample, info)
        predicted = predictions.argmax(dim=-1) if info.classes else predictions[:, 0]
        draw_target(axes[2], replace(sample, target=predicted), info)
        axes[2].set_title("prediction", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path


def _panels(sample: Sample, info: Info, points: SamplePoints | None) -> list[Callable[[Any], None]]:
    """Return what draws the acquisitions, and the target, that the figure of the points does not show."""
    others = [a for number, a in enumerate(sample.atoms) if points is None or number != points.number]
    panels: list[Callable[[Any], None]] = [
        functools.partial(draw_acquisition, acquisition=acquisition) for acquisition in evenly(others, MAX_PANELS)
    ]
    if sample.queries is not None and (points is None or points.points_M is None):
        panels.append(functools.partial(draw_target, sample=sample, info=info))
    return panels


def draw_acquisition(axis: Any, acquisition: Acquisition) -> None:
    """Draw what one sensor saw once: in true colour where it can be, else its first channel; absent is pale red."""
    values = acquisition.observed().double().numpy()
    waves = np.array([channel.wavelength_um or np.inf for channel in acquisition.channels])
    shown = [int(np.abs(waves - colour).argmin()) for colour in RGB_UM]
    if len(set(shown)) < 3 or max(abs(waves[i] - um) for i, um in zip(shown, RGB_UM, strict=True)) >= FAR_UM:
        shown = [0]
    names = " ".join(acquisition.channels[i].name for i in shown)
    when = acquisition.date or ("" if acquisition.day_of_year is None else f"day {acquisition.day_of_year:g}")
    positions = acquisition.positions.numpy()
    lattice = lattice_of(positions)
    if lattice is None:
        _scatter(axis, positions, values[:, shown[0]], cmap="viridis")
    else:
        order, shape, extent = lattice
        layers = np.stack([stretched(values[order, i]).reshape(shape) for i in shown], axis=-1)
        absent = np.isnan(layers).any(axis=-1, keepdims=True)
        colours = np.where(absent, [[[1.0, 0.85, 0.9]]], np.nan_to_num(layers))
        axis.imshow(colours, extent=extent, interpolation="nearest")
    _finish(axis, f"{acquisition.sensor} {names}\n{when}")


def draw_target(axis: Any, sample: Sample, info: Info) -> None:
    """Draw the target at the queries of a sample."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    queries = sample.queries
    assert queries is not None
    values = np.where(queries.ignore.numpy(), np.nan, sample.target.double().numpy())
    looks: dict[str, Any] = {"cmap": "viridis"}
    if info.classes:
        colours = ListedColormap(class_colours(info.classes))
        looks = {"cmap": colours, "vmin": -0.5, "vmax": len(info.classes) - 0.5}
        present = [i for i in range(len(info.classes)) if (values == i).any()]
        patches = [Patch(color=colours(i), label=info.classes[i]) for i in present]
        axis.legend(handles=patches, fontsize=5, loc="upper right", framealpha=0.8)
    if queries.grid is None:
        image = _scatter(axis, queries.positions.numpy(), values, **looks)
    else:
        _, _, extent = lattice_of(queries.positions.numpy()) or (None, None, None)
        image = axis.imshow(values.reshape(queries.grid.shape), extent=extent, interpolation="nearest", **looks)
    if not info.classes:
        axis.figure.colorbar(image, ax=axis, shrink=0.7, label=info.unit)
    _finish(axis, "target (blank: ignored)")


def _scatter(axis: Any, positions: Floats, values: Floats, **looks: Any) -> Any:
    """Draw values at positions, a sample of them where there are many; unknown values are left out."""
    drawn = point_clouds.subsample(np.arange(len(values)))
    drawn = drawn[np.isfinite(values[drawn])]
    size = point_clouds.dot_size(len(drawn))
    return axis.scatter(*positions[drawn].T, c=values[drawn], s=size, linewidths=0, **looks)


def _finish(axis: Any, title: str) -> None:
    axis.set_title(title, fontsize=8)
    axis.set_aspect("equal")
    axis.tick_params(labelsize=6)


def _draw_cells(axis: Any, sample: Sample, geometry: Geometry, kappa: int) -> None:
    """Draw the borders of the Voronoi cells of the anchors, and the anchors."""
    anchors = (geometry.anchors_L2 + geometry.center_2).numpy()
    (west, south, east, north), part = sample.atoms.bounds, ""
    if len(anchors) > MAX_CELLS:  # a part in the middle, so that cells can be seen
        half_x, half_y = (side / 2 * (MAX_CELLS / len(anchors)) ** 0.5 for side in (east - west, north - south))
        middle_x, middle_y, part = (east + west) / 2, (north + south) / 2, ", a part of them"
        west, south, east, north = middle_x - half_x, middle_y - half_y, middle_x + half_x, middle_y + half_y
    step = max(east - west, north - south) / CELL_PIXELS
    x, y = np.arange(west + step / 2, east, step), np.arange(north - step / 2, south, -step)
    looks: dict[str, Any] = {"cmap": "gray", "vmin": -0.6, "vmax": 1, "interpolation": "nearest"}
    axis.imshow(~borders(anchors, x, y), extent=(west, east, south, north), **looks)
    inside = (anchors >= (west, south)).all(axis=1) & (anchors <= (east, north)).all(axis=1)
    axis.plot(*anchors[inside].T, ".", markersize=3, color="tab:red")
    _finish(axis, f"{len(anchors):,} latents, {kappa} atoms each{part}\n(metres)")


def stretched(column: Floats) -> Floats:
    """Return values scaled to 0 … 1 between their 2nd and 98th percentile; NaN stays."""
    known = column[np.isfinite(column)]
    if not known.size:
        return column
    low, high = np.percentile(known, (2, 98))
    return np.clip((column - low) / max(float(high - low), 1e-12), 0, 1)


def lattice_of(sites: Floats) -> tuple[NDArray[np.int64], tuple[int, int], tuple[float, float, float, float]] | None:
    """Return row-major order, shape and extent of sites that fill a regular lattice; None for any other sites."""
    sites = sites.round(6)  # rows of transformed pixels are level only up to rounding
    x, y = np.unique(sites[:, 0]), np.unique(sites[:, 1])
    if len(x) * len(y) != len(sites):
        return None
    order = np.lexsort((sites[:, 0], -sites[:, 1]))
    half_x, half_y = (np.ptp(side) / max(len(side) - 1, 1) / 2 or 0.5 for side in (x, y))
    return order, (len(y), len(x)), (x[0] - half_x, x[-1] + half_x, y[0] - half_y, y[-1] + half_y)


def borders(anchors: Floats, x: Floats, y: Floats) -> NDArray[np.bool_]:
    """Return where, at columns ``x`` and rows ``y``, the cells of ``anchors`` (L, 2) meet: cells of the nearest one."""
    owner = cKDTree(anchors).query(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))[1].reshape(len(y), len(x))
    border = np.zeros(owner.shape, dtype=bool)
    border[:, 1:] |= owner[:, 1:] != owner[:, :-1]
    border[1:] |= owner[1:] != owner[:-1]
    return border


@dataclass(frozen=True, slots=True, eq=False)
class SamplePoints:
    """The points of a sample: acquisition ``number``, how they are seen, and the point (M,) of each query.

    ``points_M`` is None where the queries are not at points, as those of a map.
    """

    number: int
    view: PointView
    points_M: Ints | None

    @classmethod
    def of(cls, sample: Sample) -> SamplePoints | None:
        """Return the first point cloud of a sample, None if it has none."""
        numbers = (i for i, a in enumerate(sample.atoms) if a.footprint_m == (0.0, 0.0) and len(a.positions))
        number = next(numbers, None)
        if number is None:
            return None
        acquisition = sample.atoms.acquisitions[number]
        xyz = np.column_stack([acquisition.positions.numpy(), heights_of(acquisition)])
        return cls(number, PointView.of(xyz), _points_of_queries(sample, number))

    def target_layers(self, sample: Sample, info: Info, predictions: Tensor | None = None) -> list[PointLayer]:
        """Return the target of the points and, with ``predictions`` (M, outputs), those and their error."""
        if self.points_M is None or sample.queries is None:
            return []
        name, ignore = "class" if info.classes else info.target_name or "target", sample.queries.ignore.numpy()
        if info.classes:
            target = self._of_points(np.where(ignore, IGNORE, sample.target.numpy()), IGNORE)
            layers = [by_class(name, target, info.classes)]
            if predictions is not None:
                label = self._of_points(predictions.argmax(dim=-1).numpy(), IGNORE)
                layers += [by_class("prediction", label, info.classes)]
                layers += [by_error(label != target, (target >= 0) & (label >= 0))]
            return layers
        unit, target = (
            info.unit or "",
            self._of_points(np.where(ignore, np.nan, sample.target.double().numpy()), np.nan),
        )
        layers = [by_value(name, target, unit)]
        if predictions is not None:
            values = self._of_points(predictions[:, 0].double().numpy(), np.nan)
            layers += [by_value("prediction", values, unit), by_value("error", values - target, unit, centred=True)]
        return layers

    def height_layer(self) -> PointLayer:
        """Return the heights of the points."""
        return by_value("height", self.view.xyz[:, 2], "m")

    def cell_layer(self, geometry: Geometry) -> PointLayer:
        """Return the cells in which the latents of ``geometry`` gather the points."""
        anchors = (geometry.anchors_L2 + geometry.center_2).numpy()
        low, high = self.view.xyz[:, :2].min(axis=0), self.view.xyz[:, :2].max(axis=0)
        inside = ((anchors >= low) & (anchors <= high)).all(axis=1)
        first, count = sum(geometry.sites[: self.number]), len(self.view.xyz)
        cell_P = np.full(count, -1)
        for cells in geometry.cells:
            owner_N = np.repeat(np.arange(len(cells)), cells.counts_L.numpy())
            point_N = cells.site_N.numpy() - first
            own = (point_N >= 0) & (point_N < count)
            cell_P[point_N[own]] = owner_N[own]
        return by_cell(f"{len(anchors):,} latent cells", cell_P, anchors[inside])

    def _of_points(self, of_queries: NDArray[Any], nothing: float) -> NDArray[Any]:
        """Return values of queries (M,) as values of points (P,), ``nothing`` where no query is at a point."""
        assert self.points_M is not None
        values = np.full(len(self.view.xyz), nothing, dtype=of_queries.dtype)
        seen_M = self.points_M >= 0
        values[self.points_M[seen_M]] = of_queries[seen_M]
        return values


def heights_of(acquisition: Acquisition) -> Floats:
    """Return the heights (P,) of points: their elevation if it is known, else the height above ground, else zero."""
    named = [channel.name for channel in acquisition.channels]
    if "elevation" in named:
        heights = acquisition.observed()[:, named.index("elevation")].double().numpy()
    elif acquisition.heights_m is not None:
        heights = acquisition.heights_m.numpy()
    else:
        heights = np.zeros(len(acquisition.positions))
    return np.nan_to_num(heights)


def _points_of_queries(sample: Sample, number: int) -> Ints | None:
    """Return the point (M,) that each query is at, −1 for none; None if hardly any does."""
    queries = sample.queries
    if queries is None or queries.grid is not None:
        return None
    if number in queries.sites:
        points_M = queries.sites[number].numpy()
    else:
        acquisition = sample.atoms.acquisitions[number]
        where, occupied = acquisition.positions.numpy(), acquisition.occupied().cpu().numpy()
        points_M = colocated_sites(queries.positions.numpy(), where, occupied, (0.0, 0.0))
    return points_M if (points_M >= 0).mean() > 0.1 else None
