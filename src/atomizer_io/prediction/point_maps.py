"""Maps from a point cloud: a regression target such as canopy height, or classes, at the centres of pixels.

The file is split into windows as for classifying its points. In each window the model is decoded at the centres of the
pixels; windows that overlap are blended as those of rasters. Where no point is near, the map has no data.

Shapes: H × W pixels of a window, C classes (or 1 regression target).
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.grid import Grid
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.ground import NOISE
from atomizer_io.io.point_clouds import Bounds, PointCloudHeader
from atomizer_io.io.point_scene import PointScene
from atomizer_io.io.point_store import record_bytes
from atomizer_io.io.point_windows import Axis, WindowGrid
from atomizer_io.io.raster_sources import RasterInput
from atomizer_io.models.base import Model
from atomizer_io.prediction import products
from atomizer_io.prediction.options import Decoding, Execution, PointCloudWindows
from atomizer_io.prediction.parts_folder import PartsFolder, WindowOutputs
from atomizer_io.prediction.ply_input import as_las
from atomizer_io.prediction.point_input import PointInput, median_density
from atomizer_io.prediction.point_windows import PointJob, PointWindow, check_numbers, window_points
from atomizer_io.prediction.products import RasterProduct
from atomizer_io.prediction.raster_checks import check_model
from atomizer_io.prediction.raster_windows import MapGrid, MapStrips, RasterWindow, WindowAxis, WindowLayout
from atomizer_io.prediction.rasters import paths_of

LAYERS = ("probabilities", "confidence")
SPACINGS = 2.0  # mean distances of points: a pixel without a point this near has no data
MOST_PIXELS = 4 << 20  # of a window
CLASS_MAP = (
    "each pixel is predicted from all returns inside it, but a model that learned the classes of points has seen one "
    "return at a time: classify the points instead (-o FILE.laz)"
)
ROUNDING = 1e-6  # of a pixel: what lies this little beyond an edge is on it


@dataclass(frozen=True)
class PointMapJob:
    """All that a worker needs to know to predict at the pixels of a window.

    ``numbers`` are the rows and the columns, in ``grid``, of the windows of the map; those of ``grid`` count from the
    south. A pixel whose centre is within ``reach_m`` of a point has data.
    """

    points: PointJob
    map_grid: MapGrid
    unit_m: float
    grid: WindowGrid
    numbers: tuple[tuple[int, ...], tuple[int, ...]]
    reach_m: float

    def window(self, window: RasterWindow) -> tuple[PointWindow, Grid]:
        """Return a window of points, and the pixels in it as a grid in metres around its centre."""
        points = PointWindow.at(self.grid, self.numbers[0][window.row], self.numbers[1][window.column])
        step, _, west, _, down, north = self.map_grid.transform
        x = (west + step * (window.left + window.width / 2)) * self.unit_m - points.centre[0]
        y = (north + down * (window.top + window.height / 2)) * self.unit_m - points.centre[1]
        return points, Grid(window.height, window.width, step * self.unit_m, (x, y))


def layout_on(
    map_grid: MapGrid, grid: WindowGrid, unit_m: float
) -> tuple[WindowLayout, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the windows of points that contain the centre of any pixel, on these, and their numbers in ``grid``."""
    step, _, west, _, down, north = map_grid.transform
    rows, row_numbers = _inside(grid.rows, north * unit_m, down * unit_m, map_grid.height)
    columns, column_numbers = _inside(grid.columns, west * unit_m, step * unit_m, map_grid.width)
    return WindowLayout(rows, columns), (row_numbers, column_numbers)


def predict_point_cloud_map(
    model: Model | str | Path,
    cloud: str | Path,
    output: str | Path,
    *,
    gsd_m: float,
    crs: str | None = None,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] = (),
    layers: Sequence[str] = (),
    windows: PointCloudWindows = PointCloudWindows(),
    decoding: Decoding = Decoding(),
    execution: Execution = Execution(),
) -> RasterProduct:
    """Write a map of what ``model`` sees in ``cloud`` (LAS, LAZ, COPC or PLY) to ``output``, a GeoTIFF (COG).

    The model predicts at the centres of pixels of ``gsd_m`` metres: a regression target such as canopy height, or
    classes. The map is in the coordinate system of the points, and the edges of its pixels are multiples of the pixel
    size, so that maps of neighbouring tiles fit together. A pixel has no data if no point lies within twice the mean
    distance of points, nor within the pixel.

    ``crs`` and ``rasters`` are those of :func:`predict_points`; the colours that points carry are used if the model was
    trained with aerial colours and no raster is given. ``layers`` are further files beside a map of classes:
    probabilities, confidence (lead of the first class, entropy). ``windows``, ``decoding`` and ``execution`` set how
    the points are split into windows, how the model is decoded and where it runs.
    """
    began, path, output = time.monotonic(), Path(cloud), Path(output)
    products.check_names(output, layers, LAYERS)
    beside = [*products.files_of(output, layers).values()]
    with (
        PartsFolder(output, execution, beside=beside, inputs=[path, *paths_of(rasters)]) as parts,
        as_las(path, output, crs) as stored,
    ):
        how: dict[str, Any] = {"windows": windows, "decoding": decoding, "execution": execution}
        source = PointInput.of(model, path, stored, crs=crs, rasters=rasters, colour=None, **how)
        header, spec = source.header, source.model.task_spec
        check_pixels(gsd_m, windows, header, path)
        check_model(source.model, source.sources, layers)
        plan = source.plan(
            {"--output-gsd": gsd_m, "--layers": sorted(layers), **decoding.options()},
            {"gsd_m": gsd_m, "layers": sorted(layers)},
        )

        def work() -> dict[str, Any]:
            job, grid, samples = source.prepared(parts, execution)
            if not spec.regression:
                execution.report(CLASS_MAP)
            map_grid = map_grid_of(job.store().bounds, header, gsd_m)
            # how near a point must be to the centre of a pixel that has data
            reach_m = max(SPACINGS / math.sqrt(median_density(samples)), gsd_m * math.sqrt(0.5))
            layout, numbers = layout_on(map_grid, grid, header.unit_m)
            map_job = PointMapJob(job, map_grid, header.unit_m, grid, numbers, reach_m)
            strips = MapStrips(parts, layout, spec, layers)
            predict = functools.partial(predict_window, map_job)
            return strips.write_map(predict, map_grid, source.saved.maker(), execution)

        expected = map_grid_of(header.bounds, header, gsd_m)
        room = record_bytes(stored, crs, colours=source.inputs.colour) * source.original.points
        files = products.files_of(output, layers, spec)
        done = parts.finish(plan, files, room + 64 * expected.height * expected.width, work)
    return RasterProduct.of(files, spec, done, began, "no point lies near the centre of any pixel")


def predict_window(job: PointMapJob, window: RasterWindow) -> WindowOutputs:
    """Return the predictions (H, W, C + 1) of one window; the last number is whether a point is near.

    Where the window has no points at all, there are none: (0,).
    """
    point_window, grid = job.window(window)
    points = window_points(job.points, point_window, job.points.store().records(point_window.blocks))
    if points is None or noise_of(points.scene).all():
        return WindowOutputs(np.zeros(0, np.float16), 0)
    model = job.points.model
    outputs = model.predict(points.scene.atoms, grid, seed=point_window.seed)
    check_numbers(outputs, point_window)
    kind = np.float32 if model.model.task_spec.regression else np.float16
    columns = [outputs.values_MC, near_points(points.scene, grid, job.reach_m)[:, None]]
    return WindowOutputs(np.concatenate(columns, axis=1).astype(kind).reshape(*grid.shape, -1), outputs.decoded)


def noise_of(scene: PointScene) -> NDArray[np.bool_]:
    """Return which points (P,) the file calls noise."""
    codes = scene.points.classification
    return np.zeros(len(scene.points), bool) if codes is None else np.isin(codes, NOISE)


def near_points(scene: PointScene, grid: Grid, reach_m: float) -> NDArray[np.bool_]:
    """Return which pixels (M,) of a grid have a point that is not noise near their centre."""
    from scipy.spatial import cKDTree

    tree = cKDTree(scene.positions[~noise_of(scene)])
    distance_M, _ = tree.query(grid.shared_positions().numpy(), distance_upper_bound=reach_m)
    return np.isfinite(distance_M)


def map_grid_of(bounds: Bounds, header: PointCloudHeader, gsd_m: float) -> MapGrid:
    """Return the grid of pixels of ``gsd_m`` metres that covers ``bounds`` (metres) in the CRS of a file.

    Edges of pixels are multiples of the pixel size, so that maps of neighbouring tiles fit together.
    """
    west, south = (math.floor(edge / gsd_m + ROUNDING) for edge in bounds[:2])
    east, north = (math.ceil(edge / gsd_m - ROUNDING) for edge in bounds[2:])
    step = gsd_m / header.unit_m
    shape = max(1, north - south), max(1, east - west)
    return MapGrid(header.crs, (step, 0.0, west * step, 0.0, -step, (south + shape[0]) * step), *shape)


def check_pixels(gsd_m: float, windows: PointCloudWindows, header: PointCloudHeader, path: object) -> None:
    """Refuse pixels that are larger than the step from window to window, or too many for a window."""
    if not 0 < gsd_m < math.inf:
        raise ConfigError(f"gsd_m, the pixel size of the map, must be a positive number of metres, got {gsd_m}")
    if windows.decode_every_m is not None:
        raise ConfigError("decode_every_m is for classified points; a map is predicted at its pixels: leave it out")
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


def _inside(axis: Axis, start_m: float, step_m: float, count: int) -> tuple[WindowAxis, tuple[int, ...]]:
    """Return the windows along an axis as pixels, in their order, and the number of each window.

    Pixel i has its centre at ``start_m`` + (i + ½) ``step_m``, whose step is negative from north to south. A window
    without the centre of any pixel is left out; of windows that begin at the same pixel only the longest stays.
    """
    block = axis.block(start_m + (np.arange(count, dtype=np.float64) + 0.5) * step_m)
    spans = []
    for window in range(len(axis.centres)):
        pixels = np.flatnonzero((block >= axis.first[window]) & (block < axis.last[window]))
        if len(pixels):
            spans.append((int(pixels[0]), int(pixels[0]) + len(pixels), window))
    longest = {span[0]: span for span in sorted(spans)}
    starts, ends, windows = zip(*longest.values(), strict=True)
    return WindowAxis(starts, ends, count), windows
