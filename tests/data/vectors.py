"""Vector files of labels in every format that is read, written without the package."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyogrio.raw
import shapely
from pyarrow import parquet
from pyproj import CRS, Transformer

DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON", ".fgb": "FlatGeobuf", ".shp": "ESRI Shapefile"}
FORMATS = (*DRIVERS, ".parquet", ".csv")


def write_vector(
    path: Path, shapes: Sequence[Any], columns: Mapping[str, Sequence[Any]], epsg: int | None = 32632, **options: Any
) -> Path:
    """Write geometries with columns; the suffix of the path chooses the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    geometry = np.array(shapes, dtype=object)
    if path.suffix == ".parquet":
        write_parquet(path, geometry, columns, epsg)
    elif path.suffix == ".csv":
        write_csv(path, geometry, columns, epsg)
    else:
        if epsg is None:
            warnings.filterwarnings("ignore", message="'crs' was not provided")
        first = next(shape for shape in geometry if shape is not None)
        same = len({shapely.get_type_id(shape) for shape in geometry if shape is not None}) == 1
        pyogrio.raw.write(
            path,
            shapely.to_wkb(geometry),
            [
                np.array(values) if not isinstance(values[0], str) else np.array(values, object)
                for values in columns.values()
            ],
            list(columns),
            geometry_type=first.geom_type if same else "Unknown",
            crs=None if epsg is None else f"EPSG:{epsg}",
            driver=DRIVERS[path.suffix],
            **options,
        )
    return path


def write_parquet(path: Path, geometry: Any, columns: Mapping[str, Sequence[Any]], epsg: int | None) -> None:
    column: dict[str, Any] = {"encoding": "WKB", "geometry_types": []}
    column["crs"] = None if epsg is None else json.loads(CRS.from_epsg(epsg).to_json())
    metadata = {"version": "1.0.0", "primary_column": "geometry", "columns": {"geometry": column}}
    arrays = {name: pyarrow.array(list(values)) for name, values in columns.items()}
    table = pyarrow.table({**arrays, "geometry": pyarrow.array(list(shapely.to_wkb(geometry)), pyarrow.binary())})
    parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(metadata)}), path)


def write_csv(path: Path, geometry: Any, columns: Mapping[str, Sequence[Any]], epsg: int | None) -> None:
    """Write points in longitude and latitude (epsg 4326) or x and y, other shapes as well-known text."""
    points = all(shape.geom_type == "Point" for shape in geometry)
    names = (["lon", "lat"] if epsg == 4326 else ["x", "y"]) if points else ["wkt"]
    lines = [",".join([*columns, *names])]
    for number, shape in enumerate(geometry):
        where = [repr(shape.x), repr(shape.y)] if points else [f'"{shape.wkt}"']
        lines.append(",".join([*(str(values[number]) for values in columns.values()), *where]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def moved(shapes: Sequence[Any], source: int, target: int) -> list[Any]:
    """Return geometries of one coordinate system in another."""
    transformer = Transformer.from_crs(source, target, always_xy=True)
    return [shapely.transform(shape, transformer.transform, interleaved=False) for shape in shapes]
