"""Maps from a user's rasters: predicted in windows, blended where windows overlap, written when complete.

Shapes: H × W pixels of a window, C classes (or 1 quantity), K channels.
"""

from __future__ import annotations

import functools
import operator
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.errors import AtomizerError
from atomizer_io.io.raster_pixels import limited_cache
from atomizer_io.io.raster_sources import LocalFrame, RasterInput
from atomizer_io.models.base import Model
from atomizer_io.prediction import products
from atomizer_io.prediction.map_strips import MapStrips
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.prediction.products import RasterProduct
from atomizer_io.prediction.raster_scene import RasterJob, RasterScene, kinds_of, paths_of
from atomizer_io.prediction.raster_windows import RasterWindow
from atomizer_io.prediction.read_out import WindowAnswers, loaded


def predict_raster(
    model: Model | str | Path,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] | RasterInput | str | Path | dict[str, Any],
    output: str | Path,
    *,
    like: int = 0,
    gsd_m: float | None = None,
    layers: Sequence[str] = (),
    fill: bool = False,
    windows: Windows = Windows(),
    decoding: Decoding = Decoding(),
    execution: Execution = Execution(),
) -> RasterProduct:
    """Write a map of what ``model`` sees in overlapping ``rasters`` to ``output``, a cloud-optimized GeoTIFF.

    The map is on the grid of raster number ``like``, or over its extent with pixels of ``gsd_m`` metres. Where no
    raster observed anything, the map has no data, unless ``fill`` asks the model all the same (not in windows in which
    nothing at all was observed). ``layers`` are further files beside the map: probabilities, confidence (lead of the
    first class, entropy), attention (of each channel).

    ``windows``, ``decoding`` and ``execution`` say how the scene is cut, how the model is read out and where it runs.
    Workers on other machines have to see the folder of the model and the rasters; a model in memory is saved in the
    folder of the output for them.
    """
    began, output = time.monotonic(), Path(output)
    products.check_names(output, layers)
    beside = list(products.sure_files(output, layers).values())
    parts = PartsFolder(output, execution, beside=beside, inputs=paths_of(rasters))
    with parts, limited_cache():
        how: dict[str, Any] = {"windows": windows, "decoding": decoding, "execution": execution}
        scene = RasterScene.of(model, rasters, like=like, gsd_m=gsd_m, layers=layers, **how)
        files = products.files_of(output, scene.task_spec, layers)
        plan = scene.plan(fill=fill, layers=sorted(layers))
        parts.begin(plan, files, needed=scene.bytes_needed(layers))
        done = parts.summary()
        if done is None:
            job = scene.job(model, parts, attention="attention" in layers, fill=fill)
            done = make_map(job, scene, parts, layers, execution)
            parts.publish(done)
    size = scene.layout.size[0] * scene.layout.size[1]
    product = RasterProduct(
        output,
        {name: files[name] for name in ("map.tif", *files)},
        **done,
        quantity=scene.task_spec.target_name,
        unit=scene.task_spec.target_unit,
        positions=len(scene.layout) * size,
        windows=len(scene.layout),
        seconds=round(time.monotonic() - began, 2),
    )
    if product.empty:
        warnings.warn(f"{output} has no data: nothing was observed inside its extent", stacklevel=2)
    return product


def make_map(
    job: RasterJob, scene: RasterScene, parts: PartsFolder, layers: Sequence[str], execution: Execution
) -> dict[str, Any]:
    """Compute the map and write its files; return what is known of it as a whole."""
    strips = MapStrips(parts, scene.layout, scene.task_spec, layers, scene.kinds if "attention" in layers else ())
    strips.compute(functools.partial(answer, job), execution)
    known = products.write(parts, scene.map_grid, strips.names, scene.task_spec, layers, strips.kinds, scene.maker)
    return {**known, "asked": strips.asked()}


def observed(job: RasterJob, window: RasterWindow) -> tuple[LocalFrame, Grid, AtomSet]:
    """Return the frame around the middle of a window, its grid there, and what all rasters observed in it."""
    frame, grid = job.map_grid.frame(window.top, window.left, window.height, window.width)
    width, height = grid.size_m
    box = (-width / 2, -height / 2, width / 2, height / 2)
    found = [source.atoms(frame, box) for source in job.sources]
    return frame, grid, functools.reduce(operator.add, (atoms for atoms in found if atoms is not None), AtomSet())


def answer(job: RasterJob, window: RasterWindow) -> WindowAnswers:
    """Return the answers (H, W, C [+ K] + 1) of one window; the last number says whether anything was observed.

    Where nothing was observed in all of it, there are none: (0,).
    """
    _, grid, atoms = observed(job, window)
    return answers_at(job, atoms, grid, seed=window.top * job.map_grid.width + window.left)


def answers_at(
    job: RasterJob,
    atoms: AtomSet,
    where: Grid | torch.Tensor,
    seed: int,
    footprint_m: tuple[float, float] | None = None,
) -> WindowAnswers:
    """Return the same answers for any positions (M, 2) in the frame of the atoms, each with this footprint."""
    if not atoms.acquisitions:
        return WindowAnswers(np.zeros(0, np.float16), 0)
    kinds = kinds_of(job.sources) if job.attention else ()
    found = job.read_out.ask(atoms, where, seed=seed, attention=kinds, footprint_m=footprint_m)
    if not np.isfinite(found.values_MC).all():
        names = ", ".join(source.path.name for source in job.sources)
        raise AtomizerError(
            f"the model answers NaN or infinity: check that the values in {names} are what it was trained on"
        )
    columns = [found.values_MC] if found.attention_MK is None else [found.values_MC, found.attention_MK]
    seen_M = found.seen_M | job.fill
    kind = np.float32 if loaded(job.read_out.folder).task_spec.regression else np.float16
    shape = where.shape if isinstance(where, Grid) else (len(where),)
    values = np.concatenate([*columns, seen_M[:, None]], axis=1).astype(kind).reshape(*shape, -1)
    return WindowAnswers(values, found.asked)
