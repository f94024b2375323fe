"""Maps from a user's rasters: checked against the model, predicted in windows, blended where windows overlap.

Shapes: H × W pixels of a window, M positions, C classes (or 1 regression target), K channels.
"""

from __future__ import annotations

import functools
import math
import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.scene_decoder import SavedModel
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.io.raster_pixels import limited_cache
from atomizer_io.io.raster_sources import LocalFrame, RasterInput, RasterSource, open_rasters
from atomizer_io.io.raster_sources import overlap as reaches
from atomizer_io.models.base import Model
from atomizer_io.models.storage import fingerprint
from atomizer_io.prediction import products
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts_folder import MODEL, PartsFolder, WindowOutputs
from atomizer_io.prediction.plans import Plan
from atomizer_io.prediction.products import RasterProduct
from atomizer_io.prediction.raster_checks import check_model, warn_lacking
from atomizer_io.prediction.raster_windows import MapGrid, MapStrips, RasterWindow, WindowAxis, WindowLayout

WINDOW_ATOMS, MOST_ATOMS = 1 << 20, 6 << 20
USUAL_PIXELS = 256  # the side of a window of a model that does not know how large its scenes were
LONGEST = 2**31 - 1  # pixels along a side of a GeoTIFF


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


@dataclass(frozen=True)
class RasterScene:
    """Rasters, the model that predicts from them, and the grid and windows of the map: all that a worker needs."""

    mark: str
    task_spec: TaskSpec
    model: SavedModel
    sources: tuple[RasterSource, ...]
    map_grid: MapGrid
    layout: WindowLayout
    options: Mapping[str, Any]  # as the user calls them
    kinds: tuple[tuple[str, str], ...] = ()  # the (sensor, name) of each channel whose attention is wanted
    fill: bool = False  # whether to predict where nothing was observed, too

    @classmethod
    def of(
        cls,
        model: Model | str | Path,
        rasters: Sequence[RasterInput | str | Path | dict[str, Any]] | RasterInput | str | Path | dict[str, Any],
        *,
        like: int = 0,
        gsd_m: float | None = None,
        layers: Sequence[str] = (),
        fill: bool = False,
        windows: Windows = Windows(),
        decoding: Decoding = Decoding(),
        execution: Execution = Execution(),
    ) -> RasterScene:
        """Check everything before any work."""
        listed_rasters = [rasters] if isinstance(rasters, RasterInput | str | Path | dict) else list(rasters)
        own, saved = SavedModel.of(model, decoding, execution.report)
        sources = open_rasters(listed_rasters, own.task_spec.channels)
        for source in sources:
            execution.report(str(source))
        if not 0 <= like < len(sources):
            raise ConfigError(f"like is {like}, but there are {len(sources)} rasters, numbered from 0")
        map_grid = map_grid_of(sources[like], gsd_m)
        for source in sources:
            if not reaches(source, map_grid.crs, map_grid.bounds):
                raise DataError(source.path, f"does not overlap the reference raster {sources[like].path.name}")
        check_model(own, sources, layers)
        warn_lacking(own.task_spec, (channel for source in sources for channel in source.channels))
        side = usual_window_m(own, sources) if windows.side_m is None else windows.side_m
        options = {
            "--model": saved.folder,
            "--like": like,
            "--output-gsd": gsd_m,
            "--window": side,
            "--overlap": windows.overlap,
            **decoding.options(),
        }
        layout, mark = layout_of(map_grid, side, windows.overlap), fingerprint(own)
        channels = ((c.sensor, c.name) for source in sources for c in source.channels)
        kinds = tuple(dict.fromkeys(channels)) if "attention" in layers else ()
        return cls(mark, own.task_spec, saved, tuple(sources), map_grid, layout, options, kinds, fill)

    def plan(self, *, inputs: Mapping[str, Any] | None = None, **chosen: Any) -> Plan:
        """Return what the outputs depend on; ``chosen`` are further options by the names that users know."""
        chosen = {"fill": self.fill, **chosen}
        return Plan(
            {"raster": [_trace(source) for source in self.sources], "model": self.mark, **(inputs or {})},
            {**self.options, **{f"--{name}": value for name, value in chosen.items()}},
            {
                "decoding": asdict(self.model.decoding),
                "grid": [self.map_grid.crs, self.map_grid.transform, self.map_grid.height, self.map_grid.width],
                "windows": [self.layout.rows.starts, self.layout.columns.starts, self.layout.size],
                **chosen,
            },
        )

    def bytes_needed(self, layers: Sequence[str], number_bytes: int = 4) -> int:
        """Return the disk space in bytes that is needed at most, temporary files included; strips have such numbers."""
        (height, width), rows, kinds = self.layout.size, self.layout.rows, len(self.kinds)
        open_rows = 1 + max(len(rows.covering(rows.strip(row))) for row in range(len(rows.starts)))
        row_bytes = len(self.layout.columns.starts) * height * width * (self.task_spec.num_outputs + kinds + 1) * 4
        depth = sum(products.depths(self.task_spec, layers, kinds).values())
        # windows that wait for others; strips, the plain file and the final one
        return open_rows * row_bytes + 3 * self.map_grid.height * self.map_grid.width * depth * number_bytes

    def stored(self, model: Model | str | Path, parts: PartsFolder) -> RasterScene:
        """Return the same for workers; a model in memory is saved where they find it."""
        return replace(self, model=self.model.stored(model, (parts.folder / f"{MODEL}{self.mark}").absolute()))


def paths_of(rasters: Any) -> list[Path]:
    """Return the paths of rasters as users give them, without opening any."""
    items: list[Any] = [rasters] if isinstance(rasters, RasterInput | str | Path | dict) else list(rasters)
    named = [raster.get("path") if isinstance(raster, dict) else getattr(raster, "path", raster) for raster in items]
    return [path if isinstance(path, Path) else Path(path) for path in named if path is not None]


def map_grid_of(source: RasterSource, gsd_m: float | None) -> MapGrid:
    """Return the grid of a raster, or a grid over its extent with pixels of ``gsd_m`` metres."""
    if gsd_m is None:
        return MapGrid(source.crs, source.transform, source.height, source.width)
    if not gsd_m > 0:
        raise ConfigError(f"gsd_m, the pixel size of the map, must be positive, got {gsd_m}")
    a, b, west, d, e, north = source.transform
    step_x, step_y = a * gsd_m / source.pixel_m[0], e * gsd_m / source.pixel_m[1]
    across, down = (n * old for n, old in zip(source.shape[::-1], source.pixel_m, strict=True))
    if gsd_m > max(across, down, *source.pixel_m):
        raise ConfigError(
            f"a pixel of {gsd_m:g} m would be larger than the whole of {source.path.name}, which is {across:.3g} × "
            f"{down:.3g} m: choose a smaller pixel size for the map"
        )
    if max(across, down) / gsd_m > LONGEST:
        raise ConfigError(f"pixels of {gsd_m:g} m would be more than {LONGEST:,} a side: choose a larger pixel size")
    # the whole extent, and a little more at the far edges
    width, height = (math.ceil(side / gsd_m - 1e-6) for side in (across, down))
    return MapGrid(source.crs, (step_x, b, west, d, step_y, north), height, width)


def layout_of(map_grid: MapGrid, window_m: float, share: float) -> WindowLayout:
    """Return windows of ``window_m`` metres that overlap by ``share``."""
    across, down = map_grid.frame(0, 0, map_grid.height, map_grid.width)[1].pixel_m
    if window_m < max(across, down):
        raise ConfigError(
            f"a window of {window_m:g} m is smaller than a pixel of {max(across, down):g} m: choose a larger one"
        )
    sides = ((map_grid.height, down), (map_grid.width, across))
    rows, columns = (WindowAxis.over(length, round(min(window_m / step, length)), share) for length, step in sides)
    return WindowLayout(rows, columns)


def usual_window_m(model: Model, sources: Sequence[RasterSource]) -> float:
    """Return twice the usual width of a scene of the model, once or less where that would be too many atoms.

    Larger windows differ less from the whole scene, and less of them is computed twice.
    """
    side = model.usual_extent_m()
    if side is None:
        side = USUAL_PIXELS * min(min(source.pixel_m) for source in sources)
    per_m2 = sum(len(source.channels) / math.prod(source.pixel_m) for source in sources)
    if (2 * side) ** 2 * per_m2 <= WINDOW_ATOMS:
        return 2 * side
    return min(side, math.sqrt(MOST_ATOMS / per_m2))  # pixels much finer than those of the training data


def _trace(source: RasterSource) -> dict[str, Any]:
    """Return the values by which a changed input is recognised."""
    state = source.path.stat()
    values = asdict(source) | {"path": str(source.path), "date": str(source.date)}
    declared = () if source.nodata is None else ("nodata",)
    return {key: values[key] for key in ("path", "date", "channels", "numbers", "crs", "gsd_m", *declared)} | {
        "size": state.st_size,
        "time of change": state.st_mtime_ns,
    }


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
