"""The files that vectors are written to: a GeoTIFF, a Zarr store or a GeoParquet table, each with their origin.

Numbers are half floats, or whole numbers of 8 bits with a scale for each vector, which is its largest number / 127.

Shapes: H × W pixels, M positions, D numbers of a vector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io import __version__
from atomizer_io.prediction import products
from atomizer_io.prediction.parts_folder import STORE, PartsFolder
from atomizer_io.prediction.raster_windows import MapGrid

INT8, FLOAT16 = "int8", "float16"
NODATA, LARGEST = -128, 127
SIDE = 256  # pixels of a chunk of a Zarr store
ARRAYS = {"embeddings": 3, "scales": 2, "y": 1, "x": 1}  # of a store, and their axes
META = "zarr.json"
CONVENTIONS = (
    ("geoemb:", "61c12cc5-0e28-4056-999a-480cf3fb7e4c"),
    ("spatial:", "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4"),
    ("proj:", "f17cb550-5864-4468-aeb7-f3180cfb622f"),
)
Array = NDArray[Any]
Rows = tuple[Mapping[str, Sequence[Any]], NDArray[np.float64], Array]  # columns, x and y (M, 2), vectors (M, D)


def quantised(vectors: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return vectors (…, D) as whole numbers and their scales (…); −128 and NaN without data."""
    scale = np.abs(vectors.astype(np.float32)).max(axis=-1) / LARGEST
    with np.errstate(divide="ignore", invalid="ignore"):
        numbers = np.rint(vectors / scale[..., None])
    numbers[scale == 0] = 0
    numbers[np.isnan(scale)] = NODATA
    return numbers.astype(np.int8), scale.astype(np.float32)


@dataclass(frozen=True)
class Int8:
    """Vectors as whole numbers, of which the scales stand in another file."""

    dtype: str = INT8
    nodata: float = NODATA

    def encoded(self, numbers: Array) -> Array:
        """Return the whole numbers (H, W, D)."""
        return quantised(numbers)[0]

    def colour_table(self) -> None:
        """Return no colours."""


@dataclass(frozen=True)
class Scales(Int8):
    """The scales of vectors."""

    dtype: str = "float32"
    nodata: float = float("nan")

    def encoded(self, numbers: Array) -> Array:
        """Return the scales (H, W, 1)."""
        return quantised(numbers)[1][..., None]


def origin(scene: Any, numbers: str, *, scales: str | None = None) -> dict[str, Any]:
    """Return where vectors come from, in the words of the convention ``geoemb``; ``scales`` is where scales stand."""
    quantisation: dict[str, Any] = {"method": "per_pixel_scale", "original_dtype": "float32", "quantized_dtype": INT8}
    if scales is not None:
        quantisation["scale"] = {"type": "array", "array_name": scales, "nodata": "NaN"}
    return {
        "geoemb:type": "pixel",
        "geoemb:dimensions": scene.task_spec.num_outputs,
        "geoemb:model": Path(scene.model.folder).absolute().as_uri(),
        "geoemb:source_data": [source.path.absolute().as_uri() for source in scene.sources],
        "geoemb:data_type": numbers,
        **({"geoemb:quantization": quantisation} if numbers == INT8 else {}),
        "geoemb:build_version": f"atomizer-io {__version__}",
        **scene.model.maker(),
    }


def write_tiffs(parts: PartsFolder, scene: Any, strips: Sequence[str], numbers: str) -> None:
    """Write the vectors as the bands of a GeoTIFF, and their scales as another."""
    count = scene.task_spec.num_outputs
    names = [f"feature {number}" for number in range(count)]
    about = origin(scene, numbers, scales="scales.tif" if numbers == INT8 else None)
    tags = {**scene.model.maker(), "geoemb": json.dumps(about)}  # the name of a tag cannot have a colon
    how: dict[str, Any] = {"map_grid": scene.map_grid, "strips": strips, "numbers": slice(0, count)}
    how |= {"unit": None, "tags": tags}
    if numbers == FLOAT16:
        products.write_tiff(parts, "vectors.tif", bands=names, encoder=None, nbits=16, **how)
        return
    products.write_tiff(parts, "vectors.tif", bands=names, encoder=Int8(), **how)
    products.write_tiff(parts, "scales.tif", bands=["scale"], encoder=Scales(), **how)


def rows_of(parts: PartsFolder, strips: Sequence[str], step: int) -> Iterator[tuple[int, Array]]:
    """Yield so many rows of pixels (step, W, D) at a time, each with the number of the first, across strips."""
    top, held = 0, list[Array]()
    for strip in strips:
        values = parts.load(strip)
        while len(values):
            room = step - sum(len(rows) for rows in held)
            held.append(values[:room])
            values = values[room:]
            if sum(len(rows) for rows in held) == step:
                yield top, np.concatenate(held)
                top, held = top + step, []
    if held:
        yield top, np.concatenate(held)


def store_files(grid: MapGrid, output: Path, numbers: str) -> dict[str, Path]:
    """Return the files of a Zarr store by their names of parts; the one that makes it whole comes last."""
    down, across = -(-grid.height // SIDE), -(-grid.width // SIDE)
    chunks = {"y": [".0"], "x": [".0"], "scales": [f".{i}.{j}" for i in range(down) for j in range(across)]}
    chunks["embeddings"] = [f"{at}.0" for at in chunks["scales"]]
    names = [f"{name}/c{at}" for name in arrays_of(numbers) for at in chunks[name]]
    names += [f"{name}/{META}" for name in arrays_of(numbers)]
    return {f"{STORE}zarr/{name}": output / name for name in (*names, META)}


def arrays_of(numbers: str) -> list[str]:
    """Return the names of the arrays of a store."""
    return [name for name in ARRAYS if name != "scales" or numbers == INT8]


def write_store(parts: PartsFolder, scene: Any, strips: Sequence[str], numbers: str) -> None:
    """Write the vectors as the array ``embeddings`` (y, x, feature) of a Zarr store, with ``scales`` beside it."""
    import zarr

    grid: MapGrid = scene.map_grid
    (a, _, west, _, e, north), depth = grid.transform, scene.task_spec.num_outputs
    code = {"proj:code": grid.crs} if grid.crs and grid.crs.startswith("EPSG:") else {"proj:wkt2": grid.crs}
    about = {
        "zarr_conventions": [{"name": name, "uuid": number} for name, number in CONVENTIONS],
        **origin(scene, numbers, scales="scales" if numbers == INT8 else None),
        "geoemb:gsd": max(grid.frame(0, 0, grid.height, grid.width)[1].pixel_m),
        **(code if grid.crs else {}),
        "spatial:dimensions": ["y", "x"],
        "spatial:transform": [*grid.transform],
        "spatial:shape": [grid.height, grid.width],
        "spatial:bbox": [*grid.bounds],
        "spatial:registration": "pixel",
    }
    group = zarr.open_group(parts.folder / f"{STORE}zarr", mode="w", zarr_format=3, attributes=about)
    shape, axes = (grid.height, grid.width, depth), ("y", "x", "feature")
    chunks = (SIDE, SIDE, depth)
    made = {}
    for name in arrays_of(numbers):
        first, last = (1, 2) if name == "x" else (0, ARRAYS[name])
        kind = {"embeddings": numbers, "scales": "float32"}.get(name, "float64")
        size = shape[first:last]
        made[name] = group.create_array(
            name,
            shape=size,
            chunks=chunks[first:last] if len(size) > 1 else size,
            dtype=kind,
            fill_value=NODATA if kind == INT8 else np.nan,
            dimension_names=axes[first:last],
            chunk_key_encoding={"name": "default", "separator": "."},
            config={"write_empty_chunks": True},
        )
    made["y"][:] = north + e * (np.arange(grid.height) + 0.5)
    made["x"][:] = west + a * (np.arange(grid.width) + 0.5)
    for top, rows in rows_of(parts, strips, SIDE):
        for left in range(0, grid.width, SIDE):
            here, values = np.s_[top : top + SIDE, left : left + SIDE], rows[:, left : left + SIDE]
            if numbers == INT8:
                made["embeddings"][here], made["scales"][here] = quantised(values)
            else:
                made["embeddings"][here] = values


def pixel_rows(parts: PartsFolder, grid: MapGrid, strips: Sequence[str]) -> Iterator[Rows]:
    """Yield the pixels with data of a map, row by row, with the coordinates of their centres."""
    a, _, west, _, e, north = grid.transform
    for row, values in rows_of(parts, strips, 1):
        seen = np.flatnonzero(np.isfinite(values[0, :, 0]))
        xy = np.stack([west + a * (seen + 0.5), np.full(len(seen), north + e * (row + 0.5))], axis=1)
        yield {}, xy, values[0, seen]


def write_table(path: Path, batches: Iterable[Rows], crs: str | None, scene: Any, numbers: str) -> int:
    """Write a GeoParquet file of points with the columns of each batch and ``embedding``; return how many there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import shapely
    from pyproj import CRS

    depth, count, writer = scene.task_spec.num_outputs, 0, None
    system = None if crs is None else CRS.from_user_input(crs).to_json_dict()
    column = {"encoding": "WKB", "geometry_types": ["Point"], "crs": system}
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    known = {b"geo": json.dumps(geo).encode(), b"geoemb": json.dumps(origin(scene, numbers)).encode()}
    try:
        for columns, xy, vectors in batches:
            table = {name: pa.array(list(values)) for name, values in columns.items()}
            table["geometry"] = pa.array(shapely.to_wkb(shapely.points(xy)), pa.binary())
            flat: Any = vectors.astype(np.float16)
            if numbers == INT8:
                flat, table["scale"] = quantised(vectors)
            table["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), depth)
            batch = pa.table(table).replace_schema_metadata(known)
            writer = pq.ParquetWriter(path, batch.schema, compression="zstd") if writer is None else writer
            writer.write_table(batch)
            count += len(xy)
    finally:
        if writer is not None:
            writer.close()
    return count
