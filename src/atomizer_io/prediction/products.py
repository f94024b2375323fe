"""The files of a map: a GeoTIFF for any GIS with the codes, names and colours of its classes, further layers, areas
and a preview.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from atomizer_io import __version__
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, printable
from atomizer_io.figures import map_preview
from atomizer_io.figures.class_colours import Colour, class_colours
from atomizer_io.io.raster_files import isolated
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.texts import csv_text

if TYPE_CHECKING:
    from atomizer_io.prediction.raster_windows import MapGrid

# types of pixels and their values without data; the first that has room for all codes is used
KINDS = (("uint8", 255), ("uint16", 65535), ("int16", -(2**15)), ("int32", -(2**31)))
UNSIGNED = ("uint8", "uint16")  # those for which TIFF has tables of colours
# columns of an attribute table of GDAL: name, type (0: whole number, 2: text), usage
COLUMNS = (("Value", 0, 5), ("Class", 2, 2), ("Red", 0, 6), ("Green", 0, 7), ("Blue", 0, 8))
LAYERS = ("probabilities", "confidence", "attention")
BLOCK = 512
ACROSS = 4 * BLOCK  # columns that are in memory at a time
Array = NDArray[Any]


class Encoder(Protocol):
    """How the numbers of a map stand in its file: their type there, the value without data, and their colours."""

    @property
    def dtype(self) -> str:
        """The type of a pixel."""
        ...

    @property
    def nodata(self) -> float:
        """The value without data."""
        ...

    def encoded(self, numbers: Array) -> Array:
        """Return numbers (H, W, depth), NaN without data, as they are written: (H, W, bands)."""
        ...

    def colour_table(self) -> dict[int, tuple[int, ...]] | None:
        """Return the colours, if there are any."""
        ...


@dataclass(frozen=True, slots=True)
class MapClasses:
    """The classes of a map: by code their names and colours, the type of a pixel, and its value without data."""

    legend: dict[int, tuple[str, Colour]]
    dtype: str
    nodata: int

    @classmethod
    def of(cls, task_spec: TaskSpec) -> MapClasses:
        """Return the classes that a model maps; no data is 255, or outside of the codes where those need more room."""
        codes, names = task_spec.codes, task_spec.names
        for dtype, nodata in KINDS:
            room = np.iinfo(dtype)
            if nodata not in codes and all(room.min <= code <= room.max for code in codes):
                named = zip(names, class_colours(names), strict=True)
                return cls(dict(zip(codes, named, strict=True)), dtype, nodata)
        raise AssertionError("codes of a task specification fit into 32 bits")

    def encoded(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the codes of numbers of classes, which are NaN without data."""
        known = np.isfinite(numbers)
        codes = np.full(numbers.shape, self.nodata, self.dtype)
        codes[known] = np.array([*self.legend], self.dtype)[numbers[known].astype(np.int64)]
        return codes

    def colour_table(self) -> dict[int, tuple[int, ...]] | None:
        """Return the colours as a GeoTIFF stores them; None where it cannot: :meth:`described` has them then."""
        if self.dtype not in UNSIGNED:
            return None
        return {code: (*_bytes(colour), 255) for code, (_, colour) in self.legend.items()} | {self.nodata: (0, 0, 0, 0)}

    def described(self) -> str:
        """Return the class names in the form that GDAL and QGIS read beside a file.

        GDAL lists names from 0 on: numbers that are no class have none. An attribute table has room for negative codes.
        """
        if self.dtype in UNSIGNED:
            named = (self.legend.get(number, ("", None))[0] for number in range(max(self.legend) + 1))
            rows = "".join(f"      <Category>{escape(printable(name))}</Category>\n" for name in named)
            table = f"    <CategoryNames>\n{rows}    </CategoryNames>\n"
        else:
            rows = ""
            for i, (name, kind, usage) in enumerate(COLUMNS):
                field = f"<Name>{name}</Name><Type>{kind}</Type><Usage>{usage}</Usage>"
                rows += f'      <FieldDefn index="{i}">{field}</FieldDefn>\n'
            for i, (code, (name, colour)) in enumerate(self.legend.items()):
                cells = "".join(f"<F>{text}</F>" for text in (code, escape(printable(name)), *_bytes(colour)))
                rows += f'      <Row index="{i}">{cells}</Row>\n'
            thematic = 'tableType="thematic"'
            table = f"    <GDALRasterAttributeTable {thematic}>\n{rows}    </GDALRasterAttributeTable>\n"
        return f'<PAMDataset>\n  <PAMRasterBand band="1">\n{table}  </PAMRasterBand>\n</PAMDataset>\n'


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

    @classmethod
    def of(
        cls, files: Mapping[str, Path], task_spec: TaskSpec, done: Mapping[str, Any], began: float, nothing: str
    ) -> RasterProduct:
        """Return the product of a prediction that ``began`` then; warn if no pixel has data, since ``nothing`` was."""
        files = {name: files[name] for name in ("map.tif", *files)}
        target, unit, seconds = task_spec.target_name, task_spec.target_unit, round(time.monotonic() - began, 2)
        product = cls(files["map.tif"], files, **done, target=target, unit=unit, seconds=seconds)
        if not any(product.hectares.values()) and (product.mean is None or math.isnan(product.mean)):
            warnings.warn(f"{product.path} has no data: {nothing}", stacklevel=3)
        return product


def depths(task_spec: TaskSpec, layers: Sequence[str], kinds: int) -> dict[str, int]:
    """Return how many numbers per pixel each layer has, in the order in which they are stored."""
    own = {"probabilities": task_spec.num_outputs, "confidence": 2, "attention": kinds}
    return {
        "map": task_spec.num_outputs if task_spec.regression else 1,
        **{name: own[name] for name in LAYERS if name in layers},
    }


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
    names, value = task_spec.names, task_spec.target_name or "value"
    bands = {
        "map": [value if task_spec.regression else "class"],
        "probabilities": names,
        "confidence": ["lead of the first class", "entropy"],
        "attention": [f"{sensor} {name}" for sensor, name in kinds],
    }
    classes = None if task_spec.regression else MapClasses.of(task_spec)
    codes = {} if classes is None else dict(zip(names, classes.legend, strict=True))
    tags = {**model, "TIFFTAG_SOFTWARE": f"atomizer-io {__version__}"}
    if codes:
        tags |= {"classes": json.dumps([*codes]), "codes": json.dumps([*codes.values()])}
    first = 0
    for layer, depth in depths(task_spec, layers, len(kinds)).items():
        own = classes if layer == "map" else None
        unit = task_spec.target_unit if layer == "map" and classes is None else None
        part = slice(first, first + depth)
        write_tiff(parts, f"{layer}.tif", map_grid, strips, part, bands[layer], unit, tags, own)
        first += depth
    totals = _totals(parts, strips, map_grid, len(codes)).tolist()
    known: dict[str, Any] = {"hectares": {}, "codes": codes, "mean": None if codes else totals[0]}
    if classes is not None:
        # to a hundredth of a square metre
        known["hectares"] = {name: round(area, 6) for name, area in zip(names, totals, strict=True)}
        areas = [(name, code, known["hectares"][name]) for name, code in codes.items()]
        shown = {"hectares": known["hectares"], "codes": codes, **model}
        for name, text in (
            ("areas.json", json.dumps(shown, indent=1) + "\n"),
            ("areas.csv", csv_text([("class", "code", "hectares"), *areas])),
            ("map.aux.xml", classes.described()),
        ):
            (parts.folder / name).write_text(text, encoding="utf-8")
    across_m = map_grid.frame(0, 0, map_grid.height, map_grid.width)[1].size_m[0]
    shown_as = f"{value} ({task_spec.target_unit})" if task_spec.target_unit else value
    written, preview = parts.folder / "map.tif", parts.folder / "preview.png"
    map_preview.draw(written, preview, across_m, None if classes is None else classes.legend, shown_as)
    return known


def check_names(output: Path, layers: Sequence[str], known: Sequence[str] = LAYERS) -> None:
    """Refuse a map that is no GeoTIFF by its name, and layers that are not among the ``known`` ones."""
    if output.suffix.casefold() not in (".tif", ".tiff"):
        raise ConfigError(f"{output}: a map is a GeoTIFF, so its name must end in .tif")
    unknown = [name for name in layers if name not in known]
    if unknown:
        raise ConfigError(f"layer {unknown[0]!r} is not known; use {', '.join(known)}")


def files_of(output: Path, layers: Sequence[str], task_spec: TaskSpec | None = None) -> dict[str, Path]:
    """Return the files of a map by their kind, such as ``map.probabilities.tif`` beside ``map.tif``.

    The map comes last, so that the others are there with it. Without ``task_spec``, these are only the files beside the
    map that every model writes.
    """
    named = {f"{layer}.tif": f"{output.stem}.{layer}.tif" for layer in LAYERS if layer in layers}
    named["preview.png"] = f"{output.stem}.png"
    if task_spec is not None and task_spec.task == "segmentation":
        named |= {kind: f"{output.stem}.{kind}" for kind in ("areas.json", "areas.csv")}
        named["map.aux.xml"] = f"{output.name}.aux.xml"
    beside = {kind: output.with_name(name) for kind, name in named.items()}
    return beside if task_spec is None else {**beside, "map.tif": output}


def write_tiff(
    parts: PartsFolder,
    name: str,
    map_grid: MapGrid,
    strips: Sequence[str],
    numbers: slice,
    bands: Sequence[str],
    unit: str | None,
    tags: Mapping[str, str],
    encoder: Encoder | None,
    **options: Any,
) -> None:
    """Write the strips into a plain GeoTIFF, then copy it as a cloud-optimized one.

    Without an ``encoder`` they are written as they are. ``options`` are further ones of GDAL.
    """
    import rasterio
    import rasterio.shutil
    from rasterio.transform import Affine
    from rasterio.windows import Window

    plain = parts.folder / f"{name}.plain"
    dtype, nodata = ("float32", float("nan")) if encoder is None else (encoder.dtype, encoder.nodata)
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
        **options,
    }
    with rasterio.open(plain, "w", **profile) as target:
        top = 0
        for strip in strips:
            stored = parts.load(strip)[..., numbers]
            for left in range(0, map_grid.width, ACROSS):
                values = stored[:, left : left + ACROSS]
                if encoder is not None:
                    values = encoder.encoded(values)
                window = Window(left, top, values.shape[1], len(values))
                target.write(np.ascontiguousarray(values.transpose(2, 0, 1)), window=window)
            top += len(stored)
        for number, text in enumerate(bands, 1):
            target.set_band_description(number, text)
        if unit is not None:
            target.units = [unit] * len(bands)
        target.update_tags(**tags)
        if encoder is not None and (table := encoder.colour_table()) is not None:
            target.write_colormap(1, table)
    options |= {"compress": "deflate", "blocksize": BLOCK, "bigtiff": "if_safer", "num_threads": "1"}
    resampling = "average" if encoder is None else "nearest"
    with isolated():  # what lies in a folder to resume from is nothing to go by
        rasterio.shutil.copy(plain, parts.folder / name, driver="COG", overview_resampling=resampling, **options)
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


def _bytes(colour: Colour) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in colour)
