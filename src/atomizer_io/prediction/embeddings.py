"""Vectors at the pixels of a map or at positions, and maps of places that are like one place.

A vector is what the last layer of a model reads. Windows, engines and resuming are those of a prediction: only what is
computed in a window, and what is written in the end, differ.

Shapes: M positions, D numbers of a vector.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.scene_decoder import loaded
from atomizer_io.durable import make_folder
from atomizer_io.errors import ConfigError
from atomizer_io.io.raster_pixels import limited_cache
from atomizer_io.io.raster_sources import RasterInput
from atomizer_io.models.base import Cost, Model
from atomizer_io.prediction import at_positions, products
from atomizer_io.prediction.at_positions import PositionTable, PositionTask
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts_folder import PartsFolder, WindowOutputs
from atomizer_io.prediction.products import RasterProduct
from atomizer_io.prediction.raster_windows import MapStrips, RasterWindow, ramp
from atomizer_io.prediction.rasters import RasterScene, paths_of, predict_window
from atomizer_io.prediction.vector_stores import (
    FLOAT16,
    INT8,
    META,
    pixel_rows,
    store_files,
    write_store,
    write_table,
    write_tiffs,
)

Rasters = Sequence[RasterInput | str | Path | dict[str, Any]] | RasterInput | str | Path | dict[str, Any]
ENDINGS = (".tif", ".tiff", ".zarr", ".parquet")


@dataclass(frozen=True, slots=True)
class VectorProduct:
    """The vectors that were written: ``dimensions`` numbers at each of ``count`` pixels or positions with data."""

    path: Path
    dimensions: int
    count: int
    windows: int
    seconds: float


def embed_raster(
    model: Model | str | Path,
    rasters: Rasters,
    output: str | Path,
    *,
    at: str | Path | None = None,
    gsd_m: float | None = None,
    numbers: str = INT8,
    windows: Windows = Windows(),
    cost: Cost = Cost(),
    execution: Execution = Execution(),
) -> VectorProduct:
    """Write the vector of each pixel of a map, or of the positions in the table ``at``, as :func:`predict_at` reads it.

    The name of ``output`` chooses what is written: a GeoTIFF with a band for each number, a Zarr store with the array
    ``embeddings`` (y, x, feature) or a GeoParquet table with the column ``embedding``. The map is on the grid of the
    first raster, or over its extent with pixels of ``gsd_m`` metres. ``numbers`` is ``int8``, of which each vector has
    a scale (``NAME.scales.tif``, ``scales``, ``scale``) to multiply with, or ``float16``.
    """
    began, output = time.monotonic(), Path(output)
    suffix = output.suffix.casefold()
    if suffix not in ENDINGS:
        raise ConfigError(f"{output}: vectors go to a file whose name ends in .tif, .zarr or .parquet")
    if numbers not in (INT8, FLOAT16):
        raise ConfigError(f"numbers is {numbers!r}: use {INT8} or {FLOAT16}")
    if at is not None and (suffix != ".parquet" or gsd_m is not None):
        raise ConfigError(f"{output}: vectors at positions are a table without pixels, so its name ends in .parquet")
    inputs = [*paths_of(rasters), *([] if at is None else [Path(at)])]
    target = output / META if suffix == ".zarr" else output
    with PartsFolder(target, execution, inputs=inputs) as parts, limited_cache():
        scene = vector_scene(model, rasters, gsd_m=gsd_m, windows=windows, cost=cost, execution=execution)
        files = files_of(output, numbers, scene)
        chosen: dict[str, Any] = {"numbers": numbers, "vectors": True}
        if at is None:
            plan, needed = scene.plan(**chosen), scene.bytes_needed((), np.dtype(np.float16).itemsize)
            work = functools.partial(written, parts, scene, model, files, numbers, execution)
        else:
            table = PositionTable.read(Path(at))
            pixels_M2, mark = at_positions.located(table, scene)
            plan, needed = (
                scene.plan(inputs={"positions": mark}, **chosen),
                16 * pixels_M2.size * scene.task_spec.num_outputs,
            )
            work = functools.partial(tabled, parts, scene, model, (table, pixels_M2), numbers, execution)
        done = parts.finish(plan, files, needed, work)
    return VectorProduct(output, scene.task_spec.num_outputs, **done, seconds=round(time.monotonic() - began, 2))


def vector_scene(
    model: Model | str | Path, rasters: Rasters, *, cost: Cost, execution: Execution, **how: Any
) -> RasterScene:
    """Return the scene of a prediction whose outputs are vectors."""
    scene = RasterScene.of(model, rasters, decoding=Decoding(cost=cost), execution=execution, **how)
    own: Any = model if isinstance(model, Model) else loaded(scene.model.folder)
    if not own.capabilities.anywhere:
        raise ConfigError(f"{own.preset or own.family} has no vectors at positions: use a model of Atomizer-IO")
    task_spec = TaskSpec("regression", own.config.width, target_name="vector")
    return replace(scene, task_spec=task_spec, model=replace(scene.model, vectors=True))


def files_of(output: Path, numbers: str, scene: RasterScene) -> dict[str, Path]:
    """Return the files of a product by their names in the folder of parts."""
    if output.suffix.casefold() == ".zarr":
        return store_files(scene.map_grid, output, numbers)
    if output.suffix.casefold() == ".parquet":
        return {"vectors.parquet": output}
    scales = {"scales.tif": output.with_name(f"{output.stem}.scales.tif")} if numbers == INT8 else {}
    return {**scales, "vectors.tif": output}


def written(
    parts: PartsFolder,
    scene: RasterScene,
    model: Model | str | Path,
    files: Mapping[str, Path],
    numbers: str,
    execution: Execution,
) -> dict[str, Any]:
    """Compute the vectors of a map, and write its files."""
    layout = scene.layout
    strips = MapStrips(parts, layout, scene.task_spec, (), dtype=np.float16)
    names = strips.compute(functools.partial(predict_window, scene.stored(model, parts)), execution)
    windows = len(layout.rows.starts) * len(layout.columns.starts)
    count = sum(int(np.isfinite(line[:, 0]).sum()) for name in names for line in parts.load(name))
    if "vectors.tif" in files:
        write_tiffs(parts, scene, names, numbers)
    elif "vectors.parquet" in files:
        batches = pixel_rows(parts, scene.map_grid, names)
        write_table(parts.folder / "vectors.parquet", batches, scene.map_grid.crs, scene, numbers)
    else:
        write_store(parts, scene, names, numbers)
        for folder in {path.parent for path in files.values()}:
            make_folder(folder)
    return {"count": count, "windows": windows}


def tabled(
    parts: PartsFolder,
    scene: RasterScene,
    model: Model | str | Path,
    where: tuple[PositionTable, NDArray[np.float64]],
    numbers: str,
    execution: Execution,
) -> dict[str, Any]:
    """Compute the vectors at positions, and write those with data to a table with the columns that they had."""
    table, pixels_M2 = where
    windows = at_positions.inside(scene.layout, pixels_M2)
    vectors_MD = at_positions.compute(scene.stored(model, parts), parts, windows, pixels_M2, execution)
    seen = np.flatnonzero(np.isfinite(vectors_MD[:, 0]))
    cells = [table.rows[number] for number in seen]
    columns = {name: [row[i] if i < len(row) else None for row in cells] for i, name in enumerate(table.header)}
    crs = table.crs or scene.map_grid.crs
    batch = columns, table.xy_M2[seen], vectors_MD[seen]
    count = write_table(parts.folder / "vectors.parquet", [batch], crs, scene, numbers)
    return {"count": count, "windows": len(windows)}


def find_alike(
    model: Model | str | Path,
    rasters: Rasters,
    xy: tuple[float, float],
    output: str | Path,
    *,
    crs: str | None = None,
    gsd_m: float | None = None,
    windows: Windows = Windows(),
    cost: Cost = Cost(),
    execution: Execution = Execution(),
) -> RasterProduct:
    """Write a map of how like each pixel is to the place at ``xy``: the cosine between their vectors, 1 for the same.

    ``xy`` are coordinates in ``crs``, by default that of the first raster. Vectors are not kept.
    """
    began, output = time.monotonic(), Path(output)
    products.check_names(output, ())
    beside = products.files_of(output, ()).values()
    with PartsFolder(output, execution, beside=[*beside], inputs=paths_of(rasters)) as parts, limited_cache():
        scene = vector_scene(model, rasters, gsd_m=gsd_m, windows=windows, cost=cost, execution=execution)
        task_spec = TaskSpec("regression", 1, target_name="similarity")

        def work() -> dict[str, Any]:
            job = scene.stored(model, parts)
            alike = functools.partial(similarity, job, vector_at(job, xy, crs))
            return MapStrips(parts, scene.layout, task_spec, ()).write_map(
                alike,
                scene.map_grid,
                {**job.model.maker(), "like": f"{xy[0]!r},{xy[1]!r} {crs or ''}".strip()},
                execution,
            )

        files = products.files_of(output, (), task_spec)
        done = parts.finish(
            scene.plan(like=[*xy, crs]), files, replace(scene, task_spec=task_spec).bytes_needed(()), work
        )
    return RasterProduct.of(files, task_spec, done, began, "nothing was observed inside its extent")


def vector_at(scene: RasterScene, xy: tuple[float, float], crs: str | None) -> NDArray[np.float64]:
    """Return the vector (D,) of one place: the weighted mean of its windows, as in a map."""
    table = PositionTable(("x", "y"), ((),), np.array([xy], dtype=np.float64), crs)
    pixels_M2, _ = at_positions.located(table, scene)
    parts, weights = [], []
    for window in at_positions.inside(scene.layout, pixels_M2):
        values = at_positions.predict_window(scene, PositionTask(window, pixels_M2)).values
        if values.size and values[0, -1] > 0.5:
            row, column = pixels_M2[0] - (window.top, window.left)
            parts.append(values[0, :-1].astype(np.float64))
            weights.append(float(ramp(row, window.height) * ramp(column, window.width)))
    if not parts:
        raise ConfigError(
            f"nothing was observed at {xy[0]:g}, {xy[1]:g}: name another place, inside of the first raster"
        )
    return np.average(parts, axis=0, weights=weights)


def similarity(scene: RasterScene, reference_D: NDArray[np.float64], window: RasterWindow) -> WindowOutputs:
    """Return the cosines (H, W, 1 + 1) between the vectors of a window and a reference."""
    values, decoded = predict_window(scene, window)
    if not values.size:
        return WindowOutputs(values, decoded)
    vectors, seen = values[..., :-1].astype(np.float64), values[..., -1:]
    length = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(reference_D)
    cosine = vectors @ reference_D / np.maximum(length, 1e-12)
    return WindowOutputs(np.concatenate([cosine[..., None], seen], axis=-1).astype(np.float32), decoded)
