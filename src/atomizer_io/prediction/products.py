"""The files of a map: a GeoTIFF for any GIS, further layers, areas and a picture."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from atomizer_io import __version__
from atomizer_io.errors import ConfigError, printable
from atomizer_io.formats.raster_sources import Box, LocalFrame
from atomizer_io.georeference import Transform, as_gsd, metres_per_unit, shifted
from atomizer_io.grid import Grid
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.problem import Problem
from atomizer_io.raster_files import isolated, open_raster
from atomizer_io.texts import csv_text

NODATA = 255
LAYERS = ("probabilities", "confidence", "attention")
BLOCK = 512
ACROSS = 4 * BLOCK  # columns that are in memory at a time
PICTURE = 1024  # the longer side of the quick-look
# Classes in the order of their numbers; the last colours come again
COLOURS = (
    *((222, 203, 164), (32, 96, 192), (46, 139, 87), (214, 96, 77), (244, 190, 66), (120, 82, 160), (90, 180, 172)),
    *((160, 82, 45), (231, 138, 195), (166, 216, 84), (102, 102, 102), (255, 127, 14), (23, 190, 207), (140, 86, 75)),
    *((188, 189, 34), (127, 127, 255), (0, 100, 0), (255, 99, 132), (64, 64, 128)),
)
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
    """The map that was written: ``files`` by kind (map.tif, probabilities.tif, areas.json, picture.png, …).

    ``hectares`` by class name, of what has data; of a quantity ``mean``, over the area, in ``unit`` if that is known.
    ``asked`` is at how many of the ``positions`` of all windows the model was asked, None where that is not known.
    """

    path: Path
    files: Mapping[str, Path]
    hectares: Mapping[str, float] = field(default_factory=dict)
    mean: float | None = None
    quantity: str | None = None
    unit: str | None = None
    asked: int | None = None
    positions: int = 0
    windows: int = 0
    seconds: float = 0.0

    @property
    def empty(self) -> bool:
        """Whether no pixel of the map has data."""
        return not any(self.hectares.values()) and (self.mean is None or math.isnan(self.mean))


def depths(problem: Problem, layers: Sequence[str], kinds: int) -> dict[str, int]:
    """Return how many numbers per pixel each layer has, in the order in which they are stored."""
    own = {"probabilities": problem.num_outputs, "confidence": 2, "attention": kinds}
    return {"map": 1, **{name: own[name] for name in LAYERS if name in layers}}


def layered(answers: Array, problem: Problem, layers: Sequence[str]) -> Array:
    """Turn answers (H, W, C [+ K] + 1) into the numbers that are stored, (H, W, depth) float32; NaN is no data."""
    probabilities, rest, seen = np.split(answers, [problem.num_outputs, answers.shape[-1] - 1], axis=-1)
    seen = seen[..., 0] > 0.5
    if problem.task == "regression":
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
    found = np.concatenate(columns, axis=-1).astype(np.float32)
    found[~seen] = np.nan
    return found


def write(
    parts: PartsFolder,
    map_grid: MapGrid,
    strips: Sequence[str],
    problem: Problem,
    layers: Sequence[str],
    kinds: Sequence[tuple[str, str]],
    model: str,
) -> dict[str, Any]:
    """Write the strips into the files of the map; return what is known of the map as a whole."""
    names = problem.names
    bands = {
        "map": [problem.target_name or "value" if problem.task == "regression" else "class"],
        "probabilities": names,
        "confidence": ["lead of the first class", "entropy"],
        "attention": [f"{sensor} {name}" for sensor, name in kinds],
    }
    classes = problem.task == "segmentation"
    tags = {"model": model, "TIFFTAG_SOFTWARE": f"atomizer-io {__version__}"}
    tags |= {"classes": json.dumps(names)} if classes else {}
    first = 0
    for layer, depth in depths(problem, layers, len(kinds)).items():
        name = f"{layer}.tif"
        colours = COLOURS if layer == "map" and classes else None
        unit = problem.target_unit if layer == "map" and not classes else None
        part = slice(first, first + depth)
        _write_tiff(parts, name, map_grid, strips, part, bands[layer], unit, tags, colours, len(names))
        first += depth
    totals = _totals(parts, strips, map_grid, len(names) if classes else 0)
    hectares = dict(zip(names, totals.tolist(), strict=True)) if classes else {}
    mean = None if classes else float(totals[0])
    if classes:
        _text(parts, "areas.json", json.dumps({"hectares": hectares}, indent=1) + "\n")
        _text(parts, "areas.csv", csv_text([("class", "hectares"), *hectares.items()]))
        _text(parts, "map.aux.xml", _categories(names))
    _picture(parts, classes)
    return {"hectares": hectares, "mean": mean}


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
    found = {f"{layer}.tif": beside(output, f"{layer}.tif") for layer in LAYERS if layer in layers}
    return {**found, "picture.png": beside(output, "png")}


def files_of(output: Path, problem: Problem, layers: Sequence[str]) -> dict[str, Path]:
    """Return all files of a map by their kind; the map comes last, so that the others are there with it."""
    found = sure_files(output, layers)
    if problem.task == "segmentation":
        found |= {f"areas.{kind}": beside(output, f"areas.{kind}") for kind in ("json", "csv")}
        found["map.aux.xml"] = output.with_name(output.name + ".aux.xml")
    return {**found, "map.tif": output}


def _write_tiff(
    parts: PartsFolder,
    name: str,
    map_grid: MapGrid,
    strips: Sequence[str],
    numbers: slice,
    bands: Sequence[str],
    unit: str | None,
    tags: Mapping[str, str],
    colours: Sequence[tuple[int, int, int]] | None,
    classes: int,
) -> None:
    """Write the strips into a plain GeoTIFF, then copy it as a cloud-optimized one."""
    import rasterio
    import rasterio.shutil
    from rasterio.transform import Affine
    from rasterio.windows import Window

    plain = parts.path(f"{name}.plain")
    kind = {"dtype": "uint8", "nodata": NODATA} if colours else {"dtype": "float32", "nodata": float("nan")}
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
        **kind,
    }
    with rasterio.open(plain, "w", **profile) as target:
        top = 0
        for strip in strips:
            stored = parts.load(strip)[..., numbers]
            for left in range(0, map_grid.width, ACROSS):
                values = stored[:, left : left + ACROSS]
                if colours:
                    values = np.where(np.isnan(values), NODATA, values).astype(np.uint8)
                window = Window(left, top, values.shape[1], len(values))
                target.write(np.ascontiguousarray(values.transpose(2, 0, 1)), window=window)
            top += len(stored)
        for number, text in enumerate(bands, 1):
            target.set_band_description(number, text)
        if unit is not None:
            target.units = [unit] * len(bands)
        target.update_tags(**tags)
        if colours:
            table = {i: (*colours[i % len(colours)], 255) for i in range(classes)}
            target.write_colormap(1, {**table, NODATA: (0, 0, 0, 0)})
    options = {"compress": "deflate", "blocksize": BLOCK, "bigtiff": "if_safer", "num_threads": "1"}
    resampling = "nearest" if colours else "average"
    with isolated():  # what lies in a folder to resume from is nothing to go by
        rasterio.shutil.copy(plain, parts.path(name), driver="COG", overview_resampling=resampling, **options)
    plain.unlink()


def _totals(parts: PartsFolder, strips: Sequence[str], map_grid: MapGrid, classes: int) -> NDArray[np.float64]:
    """Return the hectares of each class; for a quantity, its mean over the area."""
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


def _categories(names: Sequence[str]) -> str:
    """Return the class names in the form that GDAL and QGIS read beside a file."""
    rows = "".join(f"      <Category>{escape(printable(name))}</Category>\n" for name in names)
    return (
        '<PAMDataset>\n  <PAMRasterBand band="1">\n    <CategoryNames>\n'
        f"{rows}    </CategoryNames>\n  </PAMRasterBand>\n</PAMDataset>\n"
    )


def _picture(parts: PartsFolder, classes: bool) -> None:
    """Write a small picture of the map: classes in their colours, a quantity in grey, transparent without data."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    with open_raster(parts.path("map.tif")) as source:
        share = min(1.0, PICTURE / max(source.shape))
        shape = tuple(max(1, round(side * share)) for side in source.shape)
        values = source.read(1, out_shape=shape)
        colours = source.colormap(1) if classes else {}
    image = np.zeros((4, *shape), dtype=np.uint8)
    if classes:
        table = np.zeros((256, 4), dtype=np.uint8)
        for number, colour in colours.items():
            table[number] = colour
        image = table[values].transpose(2, 0, 1)
    elif np.isfinite(values).any():
        low, high = np.nanpercentile(values, (2, 98))
        grey = np.clip((values - low) / max(high - low, 1e-12), 0, 1) * 255
        image[:3], image[3] = np.nan_to_num(grey).astype(np.uint8), np.isfinite(values) * 255
    profile = {"driver": "PNG", "count": 4, "height": shape[0], "width": shape[1], "dtype": "uint8"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # a picture is nowhere
        with rasterio.open(parts.path("picture.png"), "w", **profile) as target:
            target.write(image)


def _text(parts: PartsFolder, name: str, text: str) -> None:
    parts.path(name).write_text(text, encoding="utf-8")
