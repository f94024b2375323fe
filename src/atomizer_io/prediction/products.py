"""The files of a map: a GeoTIFF for any GIS, further layers, areas and a preview."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io import __version__
from atomizer_io.data.grid import Grid
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError
from atomizer_io.figures import map_preview
from atomizer_io.io.crs import Transform, as_gsd, metres_per_unit, shifted
from atomizer_io.io.raster_files import isolated
from atomizer_io.io.raster_sources import Box, LocalFrame
from atomizer_io.prediction.map_classes import MapClasses
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.texts import csv_text

LAYERS = ("probabilities", "confidence", "attention")
BLOCK = 512
ACROSS = 4 * BLOCK  # columns that are in memory at a time
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class MapGrid:
    """The grid of a map: a coordinate system, a north-up transform and a shape."""

    crs: str | None
    transform: Transform
    height: int
    width: int

    @property
    def bounds(self) -> Box:
        """West, south, east and north edge in units of the CRS."""
        a, _, west, _, e, north = self.transform
        return (west, north + e * self.height, west + a * self.width, north)

    def frame(self, top: int, left: int, height: int, width: int) -> tuple[LocalFrame, Grid]:
        """Return the frame around the middle of a window, and the grid of its pixels there."""
        _, _, x, _, _, y = shifted(self.transform, top + height / 2, left + width / 2)
        frame = LocalFrame.around(self.crs, x, y)
        step_x, step_y = self.transform[0] * frame.unit_m[0], -self.transform[4] * frame.unit_m[1]
        return frame, Grid(height, width, as_gsd(step_x, step_y))

    def row_hectares(self) -> NDArray[np.float64]:
        """Return the area of a pixel of each row in hectares."""
        a, e, north = self.transform[0], self.transform[4], self.transform[5]
        if self.crs is None:
            return np.full(self.height, a * -e / 1e4)
        from rasterio.crs import CRS

        crs = CRS.from_user_input(self.crs)
        middles = north + e * (np.arange(self.height) + 0.5)
        if not crs.is_geographic and crs.to_dict().get("proj") != "merc":
            middles = middles[:1]
        units = np.array([metres_per_unit(crs, float(y)) for y in middles])
        return np.broadcast_to(a * -e * units.prod(axis=1) / 1e4, (self.height,)).copy()


@dataclass(frozen=True)
class RasterProduct:
    """The map that was written: ``files`` by kind (map.tif, probabilities.tif, areas.json, preview.png, …).

    ``hectares`` and ``codes`` by class name, of what has data; of a regression ``target`` the ``mean`` over the area,
    in ``unit`` if that is known. ``decoded`` of the ``positions`` of all windows were decoded, None if that is unknown.
    """

    path: Path
    files: Mapping[str, Path]
    hectares: Mapping[str, float] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    mean: float | None = None
    target: str | None = None
    unit: str | None = None
    decoded: int | None = None
    positions: int = 0
    windows: int = 0
    seconds: float = 0.0

    @property
    def empty(self) -> bool:
        """Whether no pixel of the map has data."""
        return not any(self.hectares.values()) and (self.mean is None or math.isnan(self.mean))


def depths(task_spec: TaskSpec, layers: Sequence[str], kinds: int) -> dict[str, int]:
    """Return how many numbers per pixel each layer has, in the order in which they are stored."""
    own = {"probabilities": task_spec.num_outputs, "confidence": 2, "attention": kinds}
    return {"map": 1, **{name: own[name] for name in LAYERS if name in layers}}


def layered(outputs: Array, task_spec: TaskSpec, layers: Sequence[str]) -> Array:
    """Turn outputs (H, W, C [+ K] + 1) into the numbers that are stored, (H, W, depth) float32; NaN is no data."""
    probabilities, rest, seen = np.split(outputs, [task_spec.num_outputs, outputs.shape[-1] - 1], axis=-1)
    seen = seen[..., 0] > 0.5
    if task_spec.task == "regression":
        columns = [probabilities]
    else:
        probabilities = probabilities / np.maximum(probabilities.sum(axis=-1, keepdims=True), 1e-9)
        columns = [probabilities.argmax(axis=-1)[..., None].astype(np.float32)]
        if "probabilities" in layers:
            columns.append(probabilities)
        if "confidence" in layers:
            first = np.sort(probabilities, axis=-1)
            lead = first[..., -1] - first[..., -2] if first.shape[-1] > 1 else first[..., 0]
            entropy = -(probabilities * np.log(np.maximum(probabilities, 1e-9))).sum(axis=-1)
            columns.append(np.stack([lead, entropy], axis=-1))
    if "attention" in layers:
        columns.append(rest)
    layered_values = np.concatenate(columns, axis=-1).astype(np.float32)
    layered_values[~seen] = np.nan
    return layered_values


def write(
    parts: PartsFolder,
    map_grid: MapGrid,
    strips: Sequence[str],
    task_spec: TaskSpec,
    layers: Sequence[str],
    kinds: Sequence[tuple[str, str]],
    model: Mapping[str, str],
) -> dict[str, Any]:
    """Write the strips into the files of the map; return what is known of the map as a whole.

    ``model`` is the model that made the map: its name and its seal.
    """
    names = task_spec.names
    bands = {
        "map": [task_spec.target_name or "value" if task_spec.task == "regression" else "class"],
        "probabilities": names,
        "confidence": ["lead of the first class", "entropy"],
        "attention": [f"{sensor} {name}" for sensor, name in kinds],
    }
    classes = MapClasses.of(task_spec)
    tags = {**model, "TIFFTAG_SOFTWARE": f"atomizer-io {__version__}"}
    tags |= {} if classes is None else classes.tags()
    first = 0
    for layer, depth in depths(task_spec, layers, len(kinds)).items():
        name = f"{layer}.tif"
        unit = task_spec.target_unit if layer == "map" and classes is None else None
        part = slice(first, first + depth)
        own = classes if layer == "map" else None
        _write_tiff(parts, name, map_grid, strips, part, bands[layer], unit, tags, own)
        first += depth
    totals = _totals(parts, strips, map_grid, 0 if classes is None else len(names))
    known: dict[str, Any] = {"hectares": {}, "codes": {}, "mean": float(totals[0])}
    if classes is not None:
        hectares = [round(area, 6) for area in totals.tolist()]  # to a hundredth of a square metre
        known = {"hectares": dict(zip(names, hectares, strict=True)), "codes": classes.by_name, "mean": None}
        areas = zip(names, classes.codes, hectares, strict=True)
        shown = {"hectares": known["hectares"], "codes": known["codes"], **model}
        _text(parts, "areas.json", json.dumps(shown, indent=1) + "\n")
        _text(parts, "areas.csv", csv_text([("class", "code", "hectares"), *areas]))
        _text(parts, "map.aux.xml", classes.described())
    across_m = map_grid.frame(0, 0, map_grid.height, map_grid.width)[1].size_m[0]
    in_unit = f" ({task_spec.target_unit})" if task_spec.target_unit else ""
    legend = None if classes is None else classes.legend
    shown_as = f"{task_spec.target_name or 'value'}{in_unit}"
    map_preview.draw(parts.path("map.tif"), parts.path("preview.png"), across_m, legend, shown_as)
    return known


def check_names(output: Path, layers: Sequence[str], known: Sequence[str] = LAYERS) -> None:
    """Refuse a map that is no GeoTIFF by its name, and layers that are not among the ``known`` ones."""
    if output.suffix.casefold() not in (".tif", ".tiff"):
        raise ConfigError(f"{output}: a map is a GeoTIFF, so its name must end in .tif")
    unknown = [name for name in layers if name not in known]
    if unknown:
        raise ConfigError(f"layer {unknown[0]!r} is not known; use {', '.join(known)}")


def beside(output: Path, ending: str) -> Path:
    """Return the name of a file beside a map: ``map.tif`` → ``map.probabilities.tif``."""
    return output.with_name(f"{output.stem}.{ending}")


def sure_files(output: Path, layers: Sequence[str]) -> dict[str, Path]:
    """Return the files beside a map that every model writes, by their kind."""
    files = {f"{layer}.tif": beside(output, f"{layer}.tif") for layer in LAYERS if layer in layers}
    return {**files, "preview.png": beside(output, "png")}


def files_of(output: Path, task_spec: TaskSpec, layers: Sequence[str]) -> dict[str, Path]:
    """Return all files of a map by their kind; the map comes last, so that the others are there with it."""
    files = sure_files(output, layers)
    if task_spec.task == "segmentation":
        files |= {f"areas.{kind}": beside(output, f"areas.{kind}") for kind in ("json", "csv")}
        files["map.aux.xml"] = output.with_name(output.name + ".aux.xml")
    return {**files, "map.tif": output}


def _write_tiff(
    parts: PartsFolder,
    name: str,
    map_grid: MapGrid,
    strips: Sequence[str],
    numbers: slice,
    bands: Sequence[str],
    unit: str | None,
    tags: Mapping[str, str],
    classes: MapClasses | None,
) -> None:
    """Write the strips into a plain GeoTIFF, then copy it as a cloud-optimized one."""
    import rasterio
    import rasterio.shutil
    from rasterio.transform import Affine
    from rasterio.windows import Window

    plain = parts.path(f"{name}.plain")
    dtype, nodata = ("float32", float("nan")) if classes is None else classes.kind
    profile = {
        "driver": "GTiff",
        "count": len(bands),
        "height": map_grid.height,
        "width": map_grid.width,
        "crs": map_grid.crs,
        "transform": Affine(*map_grid.transform),
        "tiled": True,
        "blockxsize": BLOCK,
        "blockysize": BLOCK,
        "compress": "deflate",
        "bigtiff": "if_safer",
        "dtype": dtype,
        "nodata": nodata,
    }
    with rasterio.open(plain, "w", **profile) as target:
        top = 0
        for strip in strips:
            stored = parts.load(strip)[..., numbers]
            for left in range(0, map_grid.width, ACROSS):
                values = stored[:, left : left + ACROSS]
                if classes is not None:
                    values = classes.encoded(values)
                window = Window(left, top, values.shape[1], len(values))
                target.write(np.ascontiguousarray(values.transpose(2, 0, 1)), window=window)
            top += len(stored)
        for number, text in enumerate(bands, 1):
            target.set_band_description(number, text)
        if unit is not None:
            target.units = [unit] * len(bands)
        target.update_tags(**tags)
        if classes is not None and (table := classes.colour_table()) is not None:
            target.write_colormap(1, table)
    options = {"compress": "deflate", "blocksize": BLOCK, "bigtiff": "if_safer", "num_threads": "1"}
    resampling = "average" if classes is None else "nearest"
    with isolated():  # what lies in a folder to resume from is nothing to go by
        rasterio.shutil.copy(plain, parts.path(name), driver="COG", overview_resampling=resampling, **options)
    plain.unlink()


def _totals(parts: PartsFolder, strips: Sequence[str], map_grid: MapGrid, classes: int) -> NDArray[np.float64]:
    """Return the hectares of each class; for a regression target, its mean over the area."""
    area, row = map_grid.row_hectares(), 0
    total = np.zeros(max(1, classes))
    known = 0.0
    for strip in strips:
        values = parts.load(strip)[..., 0]
        for line in values:
            seen = line[~np.isnan(line)]
            if classes:
                total += np.bincount(seen.astype(np.int64), minlength=classes) * area[row]
            else:
                total += seen.sum(dtype=np.float64) * area[row]
            known += len(seen) * area[row]
            row += 1
    if classes:
        return total
    return total / known if known else np.full(1, np.nan)


def _text(parts: PartsFolder, name: str, text: str) -> None:
    parts.path(name).write_text(text, encoding="utf-8")
