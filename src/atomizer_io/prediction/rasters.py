"""Maps from a user's rasters: predicted in windows, blended where windows overlap, written when complete.

Windows are computed by an engine and kept on disk until the strip of the map that they reach into is put together; then
only the strip is kept. What is in memory is a few windows, whatever the size of the scene.

Shapes: H × W pixels of a window or a block, C classes (or 1 quantity), K channels.
"""

from __future__ import annotations

import functools
import operator
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.atoms import AtomSet
from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.formats.pixels import limited_cache
from atomizer_io.formats.raster_sources import LocalFrame, RasterInput
from atomizer_io.grid import Grid
from atomizer_io.models.contract import Model
from atomizer_io.prediction import products
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.prediction.products import LAYERS, RasterProduct
from atomizer_io.prediction.raster_scene import RasterJob, RasterScene, kinds_of, paths_of
from atomizer_io.prediction.raster_windows import RasterWindow, WindowLayout, ramp
from atomizer_io.prediction.read_out import WindowAnswers, loaded
from atomizer_io.progress import progress_bar

Array = NDArray[Any]


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
    if output.suffix.casefold() not in (".tif", ".tiff"):
        raise ConfigError(f"{output}: a map is a GeoTIFF, so its name must end in .tif")
    unknown = [name for name in layers if name not in LAYERS]
    if unknown:
        raise ConfigError(f"layer {unknown[0]!r} is not known; use {', '.join(LAYERS)}")
    beside = list(products.sure_files(output, layers).values())
    parts = PartsFolder(output, execution, beside=beside, inputs=paths_of(rasters))
    with parts, limited_cache():
        how: dict[str, Any] = {"windows": windows, "decoding": decoding, "execution": execution}
        scene = RasterScene.of(model, rasters, like=like, gsd_m=gsd_m, layers=layers, **how)
        files = products.files_of(output, scene.problem, layers)
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
        quantity=scene.problem.target_name,
        unit=scene.problem.target_unit,
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
    compute(job, parts, layers, execution)
    strips = [f"strip-{row:05d}" for row in range(len(scene.layout.tops))]
    kinds = scene.kinds if "attention" in layers else ()
    known = products.write(parts, scene.map_grid, strips, scene.problem, layers, kinds, scene.model)
    names = (window.name for row in range(len(scene.layout.tops)) for window in scene.layout.row(row))
    return {**known, "asked": parts.asked(names)}


def compute(job: RasterJob, parts: PartsFolder, layers: Sequence[str], execution: Execution) -> None:
    """Compute all strips of the map that are not there yet."""
    layout = job.layout
    rows = range(len(layout.tops))
    missing = [row for row in rows if f"strip-{row:05d}" not in parts]
    needed = sorted({above for row in missing for above in layout.covering(*layout.strip(row))})
    tasks = [w for row in needed for w in layout.row(row) if w.name not in parts]
    bar = progress_bar(len(layout), initial=len(layout) - len(tasks), unit=" windows", show=execution.progress)
    last_use = {above: row for row in missing for above in layout.covering(*layout.strip(row))}
    done = {row: sum(w.name in parts for w in layout.row(row)) for row in needed}

    def put_together() -> None:
        while missing:
            row = missing[0]
            above = layout.covering(*layout.strip(row))
            if any(done[r] < len(layout.lefts) for r in above):
                return
            put_strip(job, parts, row, layers)
            missing.pop(0)
            for finished in [r for r in above if last_use[r] == row]:
                for window in layout.row(finished):
                    parts.drop(window.name)

    put_together()
    for window, answers in execution.runner.run(functools.partial(answer, job), tasks):
        parts.save(window.name, answers.values, answers.asked)
        done[window.row] += 1
        bar.update()
        put_together()
    bar.close()


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


def answers_at(job: RasterJob, atoms: AtomSet, where: Grid | torch.Tensor, seed: int) -> WindowAnswers:
    """Return the same answers for any positions (M, 2) in the frame of the atoms."""
    if not atoms.acquisitions:
        return WindowAnswers(np.zeros(0, np.float16), 0)
    found = job.read_out.ask(atoms, where, seed=seed, attention=kinds_of(job.sources) if job.attention else ())
    if not np.isfinite(found.values_MC).all():
        names = ", ".join(source.path.name for source in job.sources)
        raise AtomizerError(
            f"the model answers NaN or infinity: check that the values in {names} are what it was trained on"
        )
    columns = [found.values_MC] if found.attention_MK is None else [found.values_MC, found.attention_MK]
    seen_M = found.seen_M | job.fill
    kind = np.float32 if loaded(job.read_out.folder).problem.regression else np.float16
    shape = where.shape if isinstance(where, Grid) else (len(where),)
    values = np.concatenate([*columns, seen_M[:, None]], axis=1).astype(kind).reshape(*shape, -1)
    return WindowAnswers(values, found.asked)


def put_strip(job: RasterJob, parts: PartsFolder, row: int, layers: Sequence[str]) -> None:
    """Save the layers (rows, width, depth) of the strip between two rows of windows, block by block."""
    layout, problem = job.layout, loaded(job.read_out.folder).problem
    top, bottom = layout.strip(row)
    depth = sum(products.depths(problem, layers, len(kinds_of(job.sources))).values())
    with parts.filling(f"strip-{row:05d}", (bottom - top, layout.width, depth)) as strip:
        for column in range(len(layout.lefts)):
            left, right = layout.columns(column)
            strip[:, left:right] = products.layered(blended(job, parts, (top, bottom), (left, right)), problem, layers)


def blended(job: RasterJob, parts: PartsFolder, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
    """Return the answers (H, W, C [+ K] + 1) of a block: the weighted mean of its windows, zero where there is none."""
    shape = (rows[1] - rows[0], columns[1] - columns[0])
    total, weight = np.zeros((*shape, job.depth), np.float32), np.zeros((*shape, 1), np.float32)
    for window in _windows(job.layout, rows, columns):
        answers = parts.load(window.name)
        if not answers.size:
            continue
        here_y, there_y = _shared(*rows, window.top, window.height)
        here_x, there_x = _shared(*columns, window.left, window.width)
        share = ramp(window.height)[there_y, None, None] * ramp(window.width)[there_x, None]
        total[here_y, here_x] += answers[there_y, there_x] * share
        weight[here_y, here_x] += share
    return total / np.maximum(weight, 1e-12)


def _shared(first: int, last: int, start: int, size: int) -> tuple[slice, slice]:
    """Return the pixels that a range and a window share, as slices of the range and of the window."""
    low, high = max(first, start), min(last, start + size)
    return slice(low - first, high - first), slice(low - start, high - start)


def _windows(layout: WindowLayout, rows: tuple[int, int], columns: tuple[int, int]) -> Iterator[RasterWindow]:
    for row in layout.covering(*rows):
        for column in layout.covering_columns(*columns):
            yield layout.window(row, column)
