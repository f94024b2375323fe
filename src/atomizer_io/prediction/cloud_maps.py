"""Maps from a point cloud: a quantity such as canopy height, or classes, at the centres of pixels.

A cloud is cut into windows as for classifying its points. In each window the model is asked at the centres of the
pixels; windows that overlap are blended as those of rasters. Where no point is near, the map has no data.

Shapes: H × W pixels of a window, C classes (or 1 quantity).
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.grid import Grid
from atomizer_io.decoding.scene_decoder import SavedModel
from atomizer_io.io.ground import NOISE
from atomizer_io.io.point_atoms import points_per_m2
from atomizer_io.io.point_clouds import COLOURS, point_cloud_header
from atomizer_io.io.raster_sources import RasterInput
from atomizer_io.models.base import Model
from atomizer_io.models.storage import fingerprint
from atomizer_io.prediction import products
from atomizer_io.prediction.cloud_blocks import KINDS, record_type, split
from atomizer_io.prediction.cloud_layout import CloudLayout, CloudMapWindow, check_pixels, map_grid_of
from atomizer_io.prediction.cloud_notes import assumed, class_map_note
from atomizer_io.prediction.cloud_windows import (
    CloudJob,
    Inputs,
    WindowPoints,
    check_numbers,
    knows_colours,
    window_points,
)
from atomizer_io.prediction.clouds import check_points, facts_of, look_around, sources_of
from atomizer_io.prediction.las import CHUNK, Original
from atomizer_io.prediction.map_strips import MapStrips
from atomizer_io.prediction.options import CloudWindows, Decoding, Execution
from atomizer_io.prediction.parts_folder import MODEL, PartsFolder, WindowOutputs
from atomizer_io.prediction.plans import Plan
from atomizer_io.prediction.ply_input import as_las
from atomizer_io.prediction.products import MapGrid, RasterProduct
from atomizer_io.prediction.raster_scene import check_model, paths_of

LAYERS = ("probabilities", "confidence")
SPACINGS = 2.0  # mean distances of points: a pixel without a point this near has no data


@dataclass(frozen=True)
class CloudMapJob:
    """All that a worker needs to know to answer at the pixels of a window."""

    cloud: CloudJob
    map_grid: MapGrid
    reach_m: float


def predict_cloud_map(
    model: Model | str | Path,
    cloud: str | Path,
    output: str | Path,
    *,
    gsd_m: float,
    crs: str | None = None,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] = (),
    layers: Sequence[str] = (),
    windows: CloudWindows = CloudWindows(),
    decoding: Decoding = Decoding(),
    execution: Execution = Execution(),
) -> RasterProduct:
    """Write a map of what ``model`` sees in ``cloud`` (LAS, LAZ, COPC or PLY) to ``output``, a GeoTIFF (COG).

    The model answers at the centres of pixels of ``gsd_m`` metres: a quantity such as canopy height, or classes. The
    map is in the coordinate system of the cloud, and the edges of its pixels are multiples of the pixel size, so that
    maps of neighbouring tiles fit together. A pixel has no data if no point lies within twice the mean distance of
    points, nor within the pixel.

    ``crs`` and ``rasters`` are those of :func:`predict_points`; the colours that points carry are used if the model was
    trained with aerial colours and no raster is given. ``layers`` are further files beside a map of classes:
    probabilities, confidence (lead of the first class, entropy). ``windows``, ``decoding`` and ``execution`` say how
    the cloud is cut, how the model is read out and where it runs.
    """
    began, path, output = time.monotonic(), Path(cloud), Path(output)
    products.check_names(output, layers, LAYERS)
    beside = list(products.sure_files(output, layers).values())
    with (
        PartsFolder(output, execution, beside=beside, inputs=[path, *paths_of(rasters)]) as parts,
        as_las(path, output, crs) as stored,
    ):
        original, header = Original.read(stored, crs), point_cloud_header(stored, crs)
        check_pixels(gsd_m, windows, header, path)
        if (line := assumed(path, header)) is not None:
            execution.say(line)
        own, saved = SavedModel.of(model, decoding, execution.say)
        sources = sources_of(rasters, path, header, own.task_spec.channels)
        check_points(own)
        check_model(own, sources, layers)
        task_spec, mark, maker = own.task_spec, fingerprint(own), saved.maker()
        colour = not sources and knows_colours(task_spec)
        inputs = Inputs.of(task_spec, colour)
        kept = tuple(name for name in KINDS if name in original.dimensions and (colour or name not in COLOURS))
        files = products.files_of(output, task_spec, layers)
        plan = Plan(
            facts_of(path, crs, mark, sources),
            {
                "--model": None if isinstance(model, Model) else saved.folder,
                "--window": windows.side_m,
                "--output-gsd": gsd_m,
                "--layers": sorted(layers),
                **decoding.options(),
            },
            {
                "windows": {**asdict(windows), **asdict(inputs)},
                "gsd_m": gsd_m,
                "layers": sorted(layers),
                "decoding": saved.decoding.plain(),
                "chunk": CHUNK,
            },
        )
        parts.begin(plan, files, needed=bytes_needed(original, kept, map_grid_of(header.bounds, header, gsd_m)))
        done = parts.summary()
        if done is None:  # else it was killed while it moved the files into place
            saved = saved.stored(model, parts.path(f"{MODEL}{mark}").absolute())
            blocks = split(original, header, parts, windows, kept, 0, execution.progress)
            place = (saved, parts.folder.absolute(), stored, header, kept)
            job = CloudJob(*place, tuple(sources), windows, inputs, ())
            some = look_around(job, blocks, parts, task_spec, crs, execution)
            if (line := class_map_note(task_spec)) is not None:
                execution.say(line)
            west, south, east, north = parts.load("bounds").tolist()
            map_grid = map_grid_of((west, south, east, north), header, gsd_m)
            layout = CloudLayout.on(map_grid, blocks, header.unit_m)
            density = float(np.median([points_per_m2(np.stack([each.x, each.y], axis=1)) for each in some]))
            strips = MapStrips(parts, layout, task_spec, layers)
            map_job = CloudMapJob(job, map_grid, reach_of(density, gsd_m))
            strips.compute(functools.partial(answer, map_job), execution)
            known = products.write(parts, map_grid, strips.names, task_spec, layers, (), maker)
            pixels = sum(layout.heights) * sum(layout.widths)
            done = {**known, "decoded": strips.decoded(), "positions": pixels, "windows": len(layout)}
            parts.publish(done)
    product = RasterProduct(
        output,
        {name: files[name] for name in ("map.tif", *files)},
        **done,
        target=task_spec.target_name,
        unit=task_spec.target_unit,
        seconds=round(time.monotonic() - began, 2),
    )
    if product.empty:
        warnings.warn(f"{output} has no data: no point lies near the centre of any pixel", stacklevel=2)
    return product


def bytes_needed(original: Original, kept: Sequence[str], map_grid: MapGrid) -> int:
    """Return the disk space in bytes that is needed at most: the points once more, and a few numbers a pixel."""
    return record_type(kept).itemsize * original.points + 64 * map_grid.height * map_grid.width


def reach_of(per_m2: float, gsd_m: float) -> float:
    """Return how near, in metres, a point must be to the centre of a pixel that has data."""
    return max(SPACINGS / math.sqrt(per_m2), gsd_m * math.sqrt(0.5))


def answer(job: CloudMapJob, window: CloudMapWindow) -> WindowOutputs:
    """Return the answers (H, W, C + 1) of one window; the last number says whether a point is near.

    Where the window has no points at all, there are none: (0,).
    """
    points = window_points(job.cloud, window.cloud) if window.cloud.blocks else None
    if points is None or noise_of(points).all():
        return WindowOutputs(np.zeros(0, np.float16), 0)
    grid = window.grid(job.map_grid, job.cloud.header.unit_m)
    found = job.cloud.model.predict(points.atoms, grid, seed=window.cloud.seed)
    check_numbers(found, window.cloud)
    kind = np.float32 if job.cloud.model.model.task_spec.regression else np.float16
    columns = [found.values_MC, near_points(points, grid, job.reach_m)[:, None]]
    return WindowOutputs(np.concatenate(columns, axis=1).astype(kind).reshape(*grid.shape, -1), found.decoded)


def noise_of(points: WindowPoints) -> NDArray[np.bool_]:
    """Return which points (P,) the file calls noise."""
    codes = points.cloud.classification
    return np.zeros(len(points.cloud), bool) if codes is None else np.isin(codes, NOISE)


def near_points(points: WindowPoints, grid: Grid, reach_m: float) -> NDArray[np.bool_]:
    """Return which pixels (M,) of a grid have a point that is not noise near their centre."""
    from scipy.spatial import cKDTree

    tree = cKDTree(points.positions[~noise_of(points)])
    distance_M, _ = tree.query(grid.shared_positions().numpy(), distance_upper_bound=reach_m)
    return np.isfinite(distance_M)
