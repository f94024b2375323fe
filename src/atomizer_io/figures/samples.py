"""Picture of a sample: what each sensor saw, what is true, and the cells in which the latents gather it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Info
from atomizer_io.errors import ConfigError
from atomizer_io.figures import clouds
from atomizer_io.figures.class_colours import class_colours
from atomizer_io.figures.maps import BLUE_UM, GREEN_UM, RED_UM, borders, lattice_of, stretched
from atomizer_io.figures.sample_clouds import SampleCloud
from atomizer_io.io.tables import evenly
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.partition import Geometry, geometry_of

FAR_UM = 0.06  # a band further away than this from a colour is not that colour
MAX_PANELS = 8  # most acquisitions that are drawn
CELL_PIXELS = 400
MAX_CELLS = 300


def save(sample: Sample, info: Info, path: str | Path, atoms_per_latent: int = 1000) -> Path:
    """Draw ``sample`` into ``path`` (.png, .pdf, .svg); ``atoms_per_latent`` (κ) sets the size of the cells."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    if path.suffix.casefold() not in (".png", ".pdf", ".svg", ".jpg"):
        raise ConfigError(f"{path}: name a picture that ends in .png, .pdf, .svg or .jpg")
    cloud = SampleCloud.of(sample)
    geometry = geometry_of(AtomizerConfig(atoms_per_latent=atoms_per_latent, temporal=info.temporal), sample.atoms)
    panels, layers = _panels(sample, info, cloud), list[clouds.CloudLayer]()
    if cloud is None:
        panels.append(functools.partial(_draw_cells, sample=sample, geometry=geometry, kappa=atoms_per_latent))
    else:
        layers = [cloud.height_layer(), *cloud.answer_layers(sample, info), cloud.cell_layer(geometry)]
    columns = min(4, len(panels))
    rows = -(-len(panels) // max(columns, 1))
    across, of_cloud = clouds.size_in(len(layers))
    inches = [size for size in (of_cloud, 3.6 * rows) if size]
    figure = Figure(figsize=(max(across, 3.4 * columns), sum(inches) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(sample, info), fontsize=10)
    parts = list(figure.subfigures(len(inches), 1, squeeze=False, height_ratios=inches)[:, 0])
    if cloud is not None:
        clouds.draw(parts[0], cloud.view, layers)
    axes = list(parts[-1].subplots(rows, columns, squeeze=False).flat) if panels else []
    for panel, axis in zip(panels, axes, strict=False):
        panel(axis)
    for unused in axes[len(panels) :]:
        unused.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _panels(sample: Sample, info: Info, cloud: SampleCloud | None) -> list[Callable[[Any], None]]:
    """Return what draws the acquisitions, and the target, of which the picture of the cloud shows nothing."""
    others = [a for number, a in enumerate(sample.atoms) if cloud is None or number != cloud.number]
    found: list[Callable[[Any], None]] = [
        functools.partial(draw_acquisition, acquisition=acquisition) for acquisition in evenly(others, MAX_PANELS)
    ]
    if sample.queries is not None and (cloud is None or cloud.points_M is None):
        found.append(functools.partial(draw_target, sample=sample, info=info))
    return found


def _title(sample: Sample, info: Info) -> str:
    text = f"{info.title}: {sample.meta.id}, {sample.atoms.num_atoms:,} atoms"
    if sample.queries is not None:
        return text
    label = sample.target.item()
    known = info.classes[int(label)] if info.classes and label >= 0 else f"{label:g} {info.unit or ''}"
    return f"{text}, target: {known}"


def draw_acquisition(axis: Any, acquisition: Acquisition) -> None:
    """Draw what one sensor saw once: in true colour where it can be, else its first channel; absent is pale red."""
    values = acquisition.observed().double().numpy()
    chosen = _colours(acquisition)
    names = " ".join(acquisition.channels[i].name for i in chosen)
    when = acquisition.date or ("" if acquisition.day_of_year is None else f"day {acquisition.day_of_year:g}")
    axis.set_title(f"{acquisition.sensor} {names}\n{when}", fontsize=8)
    places = acquisition.positions.numpy()
    lattice = lattice_of(places)
    if lattice is None:
        drawn = clouds.some(np.arange(len(places)))
        axis.scatter(
            *places[drawn].T, c=values[drawn, chosen[0]], s=clouds.dot_size(len(drawn)), cmap="viridis", linewidths=0
        )
    else:
        order, (height, width), extent = lattice
        layers = np.stack([stretched(values[order, i]).reshape(height, width) for i in chosen], axis=-1)
        absent = np.isnan(layers).any(axis=-1, keepdims=True)
        colour = np.repeat(layers, 3, axis=-1) if layers.shape[-1] == 1 else layers
        shown = np.where(absent, [[[1.0, 0.85, 0.9]]], np.nan_to_num(colour))
        axis.imshow(shown, extent=extent, interpolation="nearest")
    axis.set_aspect("equal")
    axis.tick_params(labelsize=6)


def _colours(acquisition: Acquisition) -> list[int]:
    """Return the indices of the channels nearest to red, green and blue if there are all three, else of the first."""
    waves = np.array([c.wavelength_um or np.inf for c in acquisition.channels])
    near = [int(np.abs(waves - colour).argmin()) for colour in (RED_UM, GREEN_UM, BLUE_UM)]
    far = max(abs(waves[i] - colour) for i, colour in zip(near, (RED_UM, GREEN_UM, BLUE_UM), strict=True))
    return near if far < FAR_UM and len(set(near)) == 3 else [0]


def draw_target(axis: Any, sample: Sample, info: Info) -> None:
    """Draw what is true at the queries of a sample."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    queries = sample.queries
    assert queries is not None
    values = sample.target.double().numpy().copy()
    values[queries.ignore.numpy()] = np.nan
    looks: dict[str, Any] = {"cmap": "viridis"}
    if info.classes:
        count = len(info.classes)
        colours = ListedColormap(class_colours(info.classes))
        looks = {"cmap": colours, "vmin": -0.5, "vmax": count - 0.5}
        present = [i for i in range(count) if (values == i).any()]
        patches = [Patch(color=colours(i), label=info.classes[i]) for i in present]
        axis.legend(handles=patches, fontsize=5, loc="upper right", framealpha=0.8)
    if queries.grid is None:
        drawn = clouds.some(np.arange(len(values)))
        drawn = drawn[np.isfinite(values[drawn])]
        image = axis.scatter(
            *queries.positions.numpy()[drawn].T, c=values[drawn], s=clouds.dot_size(len(drawn)), linewidths=0, **looks
        )
    else:
        _, _, extent = lattice_of(queries.positions.numpy()) or (None, None, None)
        image = axis.imshow(values.reshape(queries.grid.shape), extent=extent, interpolation="nearest", **looks)
    if not info.classes:
        axis.figure.colorbar(image, ax=axis, shrink=0.7, label=info.unit)
    axis.set_title("target (blank: ignored)", fontsize=8)
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
    axis.imshow(
        ~borders(anchors, x, y),
        extent=(west, east, south, north),
        cmap="gray",
        vmin=-0.6,
        vmax=1,
        interpolation="nearest",
    )
    inside = (anchors >= (west, south)).all(axis=1) & (anchors <= (east, north)).all(axis=1)
    axis.plot(*anchors[inside].T, ".", markersize=3, color="tab:red")
    axis.set_title(f"{len(anchors):,} latents, {kappa} atoms each{part}\n(metres)", fontsize=8)
    axis.tick_params(labelsize=6)
