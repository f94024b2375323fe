"""Maps from a user's rasters: predicted in windows, blended where windows overlap, written when complete.

Shapes: H × W pixels of a window, C classes (or 1 regression target), K channels.
"""

from __future__ import annotations

import functools
import operator
import time
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
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts_folder import PartsFolder, WindowOutputs
from atomizer_io.prediction.products import RasterProduct
from atomizer_io.prediction.raster_scene import RasterScene, paths_of
from atomizer_io.prediction.raster_windows import MapStrips, RasterWindow


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
    raster observed anything, the map has no data, unless ``fill`` (except for windows in which nothing at all was
    observed). ``layers`` are further files beside the map: probabilities, confidence (lead of the
    first class, entropy), attention (of each channel).

    ``windows``, ``decoding`` and ``execution`` say how the scene is cut, how the model is decoded and where it runs.
    Workers on other machines have to see the folder of the model and the rasters; a model in memory is saved in the
    folder of the output for them.
    """
    began, output = time.monotonic(), Path(output)
    products.check_names(output, layers)
    beside = products.files_of(output, layers).values()
    with PartsFolder(output, execution, beside=[*beside], inputs=paths_of(rasters)) as parts, limited_cache():
        how: dict[str, Any] = {"windows": windows, "decoding": decoding, "execution": execution}
        scene = RasterScene.of(model, rasters, like=like, gsd_m=gsd_m, layers=layers, fill=fill, **how)

        def work() -> dict[str, Any]:
            job = scene.stored(model, parts)
            strips = MapStrips(parts, scene.layout, scene.task_spec, layers, scene.kinds)
            return strips.write_map(
                functools.partial(predict_window, job), scene.map_grid, job.model.maker(), execution
            )

        files = products.files_of(output, layers, scene.task_spec)
        done = parts.finish(scene.plan(layers=sorted(layers)), files, scene.bytes_needed(layers), work)
    return RasterProduct.of(files, scene.task_spec, done, began, "nothing was observed inside its extent")


def observed(scene: RasterScene, window: RasterWindow) -> tuple[LocalFrame, Grid, AtomSet]:
    """Return the frame around the middle of a window, its grid there, and what all rasters observed in it."""
    frame, grid = scene.map_grid.frame(window.top, window.left, window.height, window.width)
    width, height = grid.size_m
    box = (-width / 2, -height / 2, width / 2, height / 2)
    parts = [source.atoms(frame, box) for source in scene.sources]
    return frame, grid, functools.reduce(operator.add, (atoms for atoms in parts if atoms is not None), AtomSet())


def predict_window(scene: RasterScene, window: RasterWindow) -> WindowOutputs:
    """Return the outputs (H, W, C [+ K] + 1) of one window; the last number is whether anything was observed.

    Where nothing was observed in all of it, there are none: (0,).
    """
    _, grid, atoms = observed(scene, window)
    return outputs_at(scene, atoms, grid, seed=window.top * scene.map_grid.width + window.left)


def outputs_at(
    scene: RasterScene,
    atoms: AtomSet,
    where: Grid | torch.Tensor,
    seed: int,
    footprint_m: tuple[float, float] | None = None,
) -> WindowOutputs:
    """Return the same for any positions (M, 2) in the frame of the atoms, each with this footprint."""
    if not atoms.acquisitions:
        return WindowOutputs(np.zeros(0, np.float16), 0)
    outputs = scene.model.predict(atoms, where, seed=seed, attention=scene.kinds, footprint_m=footprint_m)
    if not np.isfinite(outputs.values_MC).all():
        names = ", ".join(source.path.name for source in scene.sources)
        raise AtomizerError(
            f"the model predicts NaN or infinity: check that the values in {names} are what it was trained on"
        )
    columns = [outputs.values_MC] if outputs.attention_MK is None else [outputs.values_MC, outputs.attention_MK]
    seen_M = outputs.seen_M | scene.fill
    kind = np.float32 if scene.task_spec.regression else np.float16
    shape = where.shape if isinstance(where, Grid) else (len(where),)
    values = np.concatenate([*columns, seen_M[:, None]], axis=1).astype(kind).reshape(*shape, -1)
    return WindowOutputs(values, outputs.decoded)
