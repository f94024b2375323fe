"""A scene of rasters, checked against a model before any work: its map grid, its windows and its plan."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import Channel
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.scene_decoder import SavedModel
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.io.raster_sources import RasterInput, RasterSource, open_rasters
from atomizer_io.io.raster_sources import overlap as reaches
from atomizer_io.models.base import Model
from atomizer_io.models.storage import fingerprint
from atomizer_io.prediction import products
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.parts_folder import MODEL, PartsFolder
from atomizer_io.prediction.plans import Plan
from atomizer_io.prediction.products import MapGrid
from atomizer_io.prediction.raster_notes import warn_unlike
from atomizer_io.prediction.raster_windows import WindowAxis, WindowLayout

WINDOW_ATOMS, MOST_ATOMS = 1 << 20, 6 << 20
USUAL_PIXELS = 256  # the side of a window of a model that does not know how large its scenes were
LONGEST = 2**31 - 1  # pixels along a side of a GeoTIFF


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


def check_model(model: Model, sources: Sequence[RasterSource], layers: Sequence[str]) -> None:
    """Refuse a model that cannot map these rasters; warn of channels and values unlike those of its training."""
    task_spec = model.task_spec
    if not task_spec.dense:
        raise ConfigError(
            f"the model is for {task_spec.task}: it makes one prediction for a whole scene, and no maps; name a table "
            "for its predictions (-o labels.csv), or use a model for segmentation or regression"
        )
    if task_spec.task == "regression" and set(layers) & {"probabilities", "confidence"}:
        raise ConfigError(
            "the model does regression, which has neither probabilities nor confidence: leave out these layers"
        )
    if "attention" in layers and not model.capabilities.attention:
        raise ConfigError(
            f"{model.preset or model.family} cannot report how much attention channels received: leave out that layer"
        )
    check_channels(model, sources)
    warn_unlike(task_spec, sources)


def check_channels(model: Model, sources: Sequence[RasterSource]) -> None:
    """Refuse rasters with channels that a model cannot read; warn of channels that it was not trained with."""
    known = model.task_spec.statistics()
    for source in sources:
        lost = model.unreadable(source.channels)
        new = [f"{c.sensor} {c.name}" for c in source.channels if (c.sensor, c.name) not in known]
        hint = sensor_hint(model.task_spec, source.channels) if lost or (new and known) else ""
        if lost:
            raise DataError(source.path, without(model, lost[0]) + hint)
        if new and known:
            warnings.warn(
                f"{source.path.name}: the model was trained without {listed(new)}; it reads them by their wavelengths"
                + hint,
                stacklevel=4,
            )


def sensor_hint(task_spec: TaskSpec, channels: Sequence[Channel]) -> str:
    """Return a question about a sensor of the training data whose channels have the names of ``channels``.

    It is empty where any channel is one of the training data, or where fewer than half of the names are known.
    """
    known, names = task_spec.statistics(), {channel.name for channel in channels}
    if any((channel.sensor, channel.name) in known for channel in channels):
        return ""
    counts = Counter(sensor for sensor, name in known if name in names)
    sensor, count = next(iter(counts.most_common(1)), ("", 0))
    return f"; did you mean {sensor}?" if count and 2 * count >= len(names) else ""


def warn_lacking(task_spec: TaskSpec, present: Iterable[Channel]) -> None:
    """Warn of channels that each training sample had and that are not among those ``present``."""
    if (text := task_spec.lacking(present)) is not None:
        warnings.warn(text, stacklevel=4)


def without(model: Model, channel: Channel) -> str:
    """Return why a model cannot read a channel, and what to do."""
    called, advice = f"{channel.sensor} {channel.name}", "leave this band out, or train a model with it"
    own = model.preset or model.family
    if not model.capabilities.new_channels:
        return f"{own} was trained without {called}, and reads no other channels than in training: {advice}"
    return (
        f"the model was trained without {called}, and cannot read it by its wavelength, which is "
        f"{channel.wavelength_um or 'unknown'}: {advice}"
    )


def _trace(source: RasterSource) -> dict[str, Any]:
    """Return the values by which a changed input is recognised."""
    state = source.path.stat()
    values = asdict(source) | {"path": str(source.path), "date": str(source.date)}
    declared = () if source.nodata is None else ("nodata",)
    return {key: values[key] for key in ("path", "date", "channels", "numbers", "crs", "gsd_m", *declared)} | {
        "size": state.st_size,
        "time of change": state.st_mtime_ns,
    }
