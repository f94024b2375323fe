"""The one way to open vector files: six formats, no network, no file but the one that is named and its own sidecars.

GDAL has some fifty vector drivers, several of which read descriptions of other files, of servers and of commands
(OGR VRT, WFS, GDALG), and it chooses among them by what is in a file. Here the suffix and the first bytes decide:
GeoPackage, GeoJSON, FlatGeobuf and Shapefile are read by pyogrio, GeoParquet and CSV by pyarrow.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import sqlite3
import stat
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import AtomizerError, DataError, first_line, is_utf8, listed
from atomizer_io.io.geometries import Objects, from_blobs, from_texts
from atomizer_io.io.raster_files import GRID_FILE

KINDS = "GeoPackage (.gpkg), GeoJSON, FlatGeobuf (.fgb), Shapefile (.shp), GeoParquet or CSV"
SUFFIXES = {
    ".gpkg": "GPKG",
    ".geojson": "GeoJSON",
    ".json": "GeoJSON",
    ".fgb": "FlatGeobuf",
    ".shp": "ESRI Shapefile",
    ".parquet": "Parquet",
    ".geoparquet": "Parquet",
    ".csv": "CSV",
    ".tsv": "CSV",
}
MARKS = {
    "GPKG": b"SQLite format 3\0",
    "FlatGeobuf": b"fgb\x03",
    "ESRI Shapefile": b"\0\0\x27\x0a",
    "Parquet": b"PAR1",
}
BESIDE_SHAPES = (".shx", ".dbf", ".prj", ".cpg", ".cst", ".qix", ".sbn", ".sbx", ".idm", ".ind")
PENDING = ("-wal", "-journal")  # beside a database: what a program has not yet written into it
SHUT = {
    "OGR_SQLITE_ALLOW_EXTERNAL_ACCESS": "NO",
    "OGR_SQLITE_LOAD_EXTENSIONS": "",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": "{none}",  # nothing ends so: no file of the network is opened
    "GDAL_VRT_ENABLE_PYTHON": "NO",
}
BATCH = 1 << 14  # features
SMALL_BYTES, MOST_PACKED = 256 << 20, 2000  # of a column of a GeoParquet; bytes in a byte of the file beyond that
PAIRS = (("x", "y", None), ("lon", "lat", "EPSG:4326"), ("longitude", "latitude", "EPSG:4326"))
WKT_NAMES = ("wkt", "geometry", "geom", "the_geom", "wkt_geom")
DELIMITERS = ",;\t|"
# a member "crs" whose value is an object, also where its letters are escaped, and the objects that name a CRS
CRS_OBJECT = re.compile(rb'"(?:c|\\u0063)(?:r|\\u0072)(?:s|\\u0073)"\s*:\s*\{')
CRS_TYPE, CRS_NAME = rb'"type"\s*:\s*"name"', rb'"properties"\s*:\s*\{\s*"name"\s*:\s*"([^"\\]*)"\s*\}'
NAMED_CRS = re.compile(rb"\s*(?:%b\s*,\s*%b|%b\s*,\s*%b)\s*\}" % (CRS_TYPE, CRS_NAME, CRS_NAME, CRS_TYPE))
CRS84 = "OGC:CRS84"


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Some features of a file: their numbers, shapely geometries (None: none), and columns as arrays of pyarrow."""

    ids: NDArray[np.int64]
    geometry: Objects
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A vector file that was opened: its format, layer, columns and coordinate system (None: it names none).

    ``positions`` are the columns of a CSV file that hold the geometry: x and y, or one of well-known text.
    """

    path: Path
    kind: str
    layer: str | None
    fields: tuple[str, ...]
    crs: str | None
    positions: tuple[str, ...] = ()
    delimiter: str = ","

    @classmethod
    def open(cls, path: Path, layer: str | None = None) -> VectorFile:
        """Open a file by its suffix and first bytes; ``layer`` is needed where a GeoPackage has several."""
        path = path.absolute()  # never the name of a driver or of a server
        kind = kind_of(path)
        if layer is not None and kind != "GPKG":
            raise DataError(path, f"has no layers, so layer={layer!r} is not known: leave it out")
        with failures(path):
            if kind == "CSV":
                return csv_file(path)
            if kind == "Parquet":
                return parquet_file(path)
            layer = chosen_layer(path, layer) if kind == "GPKG" else None
            return ogr_file(path, kind, layer)

    def columns(self, names: Sequence[str]) -> list[str]:
        """Return ``names`` once each; one that the file does not have is an error."""
        for name in names:
            if name not in self.fields:
                raise DataError(self.path, f"has no column {name!r}; it has {listed(self.fields) or 'none'}")
        return list(dict.fromkeys(names))

    def batches(self, names: Sequence[str]) -> Iterator[Features]:
        """Yield all features with these columns, some ten thousand at once."""
        names = self.columns(names)
        read = {"CSV": csv_batches, "Parquet": parquet_batches}.get(self.kind, ogr_batches)
        with contextlib.closing(read(self, names)) as source:
            while True:
                with failures(self.path):  # not around the caller's own work on a batch
                    batch = next(source, None)
                if batch is None:
                    return
                yield batch


def kind_of(path: Path) -> str:
    """Return the format of a file by its suffix, which its first bytes and its sidecars have to agree with."""
    if not path.is_file():
        raise DataError(path, "no such file")
    if not is_utf8(str(path)) or "!" in str(path):
        raise DataError(path, "has a name that GDAL cannot open (not UTF-8, or with an exclamation mark): rename it")
    kind = SUFFIXES.get(path.suffix.casefold())
    if kind is None:
        raise DataError(path, f"is of no format that labels are read from: {KINDS}")
    with path.open("rb") as file:
        head = file.read(1024)
    fits = head.startswith(MARKS.get(kind, b""))
    if kind == "GPKG":
        fits = fits and head[68:70] == b"GP"  # the application that the database is of
    if kind == "GeoJSON":
        fits = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if not fits:
        raise DataError(path, f"is no {kind}, as its name promises: its first bytes are {head[:12]!r}")
    if kind == "GeoJSON":
        check_crs_member(path)
    for suffix in BESIDE_SHAPES if kind == "ESRI Shapefile" else ():
        check_beside(path.with_suffix(suffix), path)
        check_beside(path.with_suffix(suffix.upper()), path)
    return kind


def check_beside(path: Path, shapes: Path) -> None:
    """Refuse a sidecar of a Shapefile that is no plain file or leads to another folder."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(state.st_mode) or path.resolve().parent not in (path.parent.resolve(), shapes.resolve().parent):
        raise DataError(
            path, f"belongs to {shapes.name}, but is no plain file of its folder: put the file itself there"
        )


def check_crs_member(path: Path) -> None:
    """Refuse a GeoJSON whose member ``crs`` is more than a name, or one that is not known.

    A link GDAL would fetch from a server, and what it does not know it takes for WGS 84.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for member in CRS_OBJECT.finditer(text):
            named = NAMED_CRS.match(text, member.end())
            if named is None:
                raise DataError(path, "'crs' is not a name such as EPSG:2154: name it, or leave it out for WGS 84")
            checked_crs(path, (named[1] or named[2]).decode("utf-8", "replace"))


@contextlib.contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turn the errors of the libraries into one that names the file; their warnings are about details of formats."""
    import pyogrio

    keys = {key: pyogrio.get_gdal_config_option(key) for key in SHUT}
    pyogrio.set_gdal_config_options(SHUT)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pyogrio")
            yield
    except (AtomizerError, ImportError):
        raise
    except Exception as error:  # each of the libraries has its own, and more where a file is broken
        raise DataError(path, f"cannot be read: {first_line(error)}") from error
    finally:
        pyogrio.set_gdal_config_options(keys)


def chosen_layer(path: Path, layer: str | None) -> str:
    """Return the layer of a GeoPackage to read."""
    for suffix in PENDING:
        beside = path.with_name(path.name + suffix)
        if os.path.lexists(beside) and not (beside.is_file() and beside.stat().st_size == 0):
            raise DataError(
                path, f"has changes in {beside.name}: close the program that edits it, or export the layer anew"
            )
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as source:
        schema = source.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        for name, sql in schema:
            if name.casefold().startswith("gpkg_"):
                check_table(path, source, name, sql)
        layers = [str(row[0]) for row in source.execute("SELECT table_name FROM gpkg_geometry_columns LIMIT 1000")]
        layer = layers[0] if layer is None and len(layers) == 1 else layer
        if layer not in layers:
            named = f"layer {layer!r} is not among its layers" if layer is not None else "name one of its layers"
            named += " (layer=...), or export it to a file of its own"
            raise DataError(path, f"{named}: {listed(layers) or 'it has none with geometries'}")
        for name, sql in schema:
            if name.casefold() == layer.casefold():
                check_table(path, source, name, sql)
    return layer


def check_table(path: Path, source: sqlite3.Connection, name: str, sql: str) -> None:
    """Refuse what is no plain table: a view may be a query without an end, a computed column fill the memory."""
    hidden = source.execute("SELECT 1 FROM pragma_table_xinfo(?) WHERE hidden > 0", [name])
    if not re.match(r"CREATE\s+TABLE\b", sql, re.IGNORECASE) or hidden.fetchone():
        raise DataError(path, f"its {name!r} is a view or computes its values: export the layer anew")


def name_for_gdal(path: Path, kind: str) -> str:
    """Return the name by which GDAL opens a file with one driver only."""
    return f"GeoJSON:{path}" if kind == "GeoJSON" else str(path)  # the others begin with bytes that are no text


def opening_of(kind: str) -> dict[str, str]:
    """Return the options with which GDAL opens a file: it must not write what it finds beside a database into it."""
    return {"IMMUTABLE": "YES"} if kind == "GPKG" else {}


def ogr_file(path: Path, kind: str, layer: str | None) -> VectorFile:
    """Return the columns and the coordinate system of a file that GDAL reads."""
    import pyogrio

    info = pyogrio.read_info(name_for_gdal(path, kind), layer=layer, **opening_of(kind))
    if info["driver"] != kind:
        raise DataError(path, f"is no {kind}, as its name promises, but {info['driver']}")
    if info["geometry_type"] is None:
        raise DataError(path, "has no geometries")
    return VectorFile(path, kind, layer, tuple(map(str, info["fields"])), checked_crs(path, info["crs"]))


def ogr_batches(file: VectorFile, names: list[str]) -> Generator[Features]:
    """Yield the features of a file that GDAL reads."""
    from pyogrio.raw import open_arrow

    opening = {"layer": file.layer, "columns": names, "return_fids": True, "batch_size": BATCH, "use_pyarrow": True}
    with open_arrow(name_for_gdal(file.path, file.kind), **opening, **opening_of(file.kind)) as (meta, reader):
        geometry, fid = meta["geometry_name"] or "wkb_geometry", meta["fid_column"] or "OGC_FID"
        for batch in reader:
            blobs = batch.column(geometry).to_numpy(zero_copy_only=False)
            geometries = from_blobs(blobs)
            ids = batch.column(fid).to_numpy(zero_copy_only=False)
            yield Features(ids, geometries, {name: batch.column(name) for name in names})


def parquet_file(path: Path) -> VectorFile:
    """Return the columns and the coordinate system of a GeoParquet."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        check_packed(path, file.metadata)
        schema = file.schema_arrow
        metadata = json.loads((schema.metadata or {}).get(b"geo", b"{}"))
    try:
        geometry = str(metadata["primary_column"])
        column = metadata["columns"][geometry]
        encoding, crs = column["encoding"], column.get("crs", CRS84)
    except (KeyError, TypeError) as error:
        raise DataError(path, "is no GeoParquet: it does not describe a column of geometries") from error
    if encoding != "WKB" or geometry not in schema.names:
        raise DataError(path, f"has geometries encoded as {encoding!r}: write them as WKB")
    text = json.dumps(crs) if isinstance(crs, dict) else crs
    fields = tuple(name for name in schema.names if name != geometry)
    return VectorFile(path, "Parquet", None, fields, checked_crs(path, text), (geometry,))


def check_packed(path: Path, metadata: Any) -> None:
    """Refuse a GeoParquet in which a column becomes implausibly large when it is unpacked."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    for column in (group.column(number) for group in groups for number in range(group.num_columns)):
        if column.total_uncompressed_size > max(SMALL_BYTES, MOST_PACKED * column.total_compressed_size):
            raise DataError(path, f"its column {column.path_in_schema!r} is too small for what it claims to hold")


def parquet_batches(file: VectorFile, names: list[str]) -> Generator[Features]:
    """Yield the features of a GeoParquet; their numbers count its rows from 0."""
    from pyarrow import parquet

    first = 0
    columns = [*names, *file.positions]
    with parquet.ParquetFile(file.path, read_dictionary=columns) as source:  # a value that is repeated is kept once
        for batch in source.iter_batches(BATCH, columns=columns):
            blobs = batch.column(file.positions[0])
            known = from_blobs(blobs.dictionary.to_pylist())
            table = np.concatenate([known, np.full(1, None, dtype=object)])
            geometries = table[blobs.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)]
            ids = np.arange(first, first + len(batch), dtype=np.int64)
            yield Features(ids, geometries, {name: batch.column(name) for name in names})
            first += len(batch)


def csv_file(path: Path) -> VectorFile:
    """Return the columns of a CSV file, which of them are the positions, and their coordinate system if named so."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        line = file.readline(1 << 16)
    delimiter = max(DELIMITERS, key=line.count)
    header = tuple(name.strip().strip('"').strip() for name in line.rstrip("\r\n").split(delimiter))
    if len(set(header)) < len(header):
        raise DataError(path, f"has two columns of one name: {listed(header)}")
    folded = {name.casefold(): name for name in header}
    for first, second, crs in PAIRS:
        if first in folded and second in folded:
            return VectorFile(path, "CSV", None, header, crs, (folded[first], folded[second]), delimiter)
    for name in WKT_NAMES:
        if name in folded:
            return VectorFile(path, "CSV", None, header, None, (folded[name],), delimiter)
    raise DataError(
        path, f"needs columns x and y, lon and lat, or wkt for its positions; it has {listed(header) or 'none'}"
    )


def csv_batches(file: VectorFile, names: list[str]) -> Generator[Features]:
    """Yield the rows of a CSV file, of which every cell is a text; their numbers are those of its lines, from 2."""
    import pyarrow
    import shapely
    from pyarrow import csv

    columns = list(dict.fromkeys([*names, *file.positions]))
    reader = csv.open_csv(
        file.path,
        csv.ReadOptions(column_names=file.fields, skip_rows=1),
        csv.ParseOptions(delimiter=file.delimiter, newlines_in_values=True),
        csv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(columns, pyarrow.string()),
            strings_can_be_null=True,
            null_values=["", "NA", "NaN", "nan", "NULL", "null"],
        ),
    )
    first = 2
    for batch in reader:
        if len(file.positions) == 1:
            geometry = from_texts(batch.column(file.positions[0]).to_pylist())
        else:
            x, y = (numbers_of(batch.column(name)) for name in file.positions)
            geometry = np.full(len(x), None, dtype=object)
            known = np.isfinite(x) & np.isfinite(y)
            geometry[known] = shapely.points(x[known], y[known])
        ids = np.arange(first, first + len(batch), dtype=np.int64)
        yield Features(ids, geometry, {name: batch.column(name) for name in names})
        first += len(batch)


def numbers_of(column: Any) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where it has none, or a text that is none."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        index = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        return np.append(numbers_of(column.dictionary), np.nan)[index]
    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        try:
            column = column.cast(pyarrow.float64())
        except pyarrow.ArrowInvalid:
            return np.array([_number(text) for text in column.to_pylist()], dtype=np.float64)
    kinds = (pyarrow.types.is_floating, pyarrow.types.is_integer, pyarrow.types.is_decimal)
    if not any(of_kind(column.type) for of_kind in kinds):
        return np.full(len(column), np.nan)
    return np.asarray(column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None else np.nan
    except ValueError:
        return np.nan


def checked_crs(path: Path, text: Any) -> str | None:
    """Return a coordinate system as a code or WKT; one that needs a further file is refused."""
    if text is None:
        return None
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        crs = CRS.from_user_input(text)
    except CRSError as error:
        raise DataError(path, f"has a coordinate system that cannot be understood: {first_line(error)}") from error
    code, wkt = crs.to_epsg(), crs.to_wkt()
    if GRID_FILE.search(wkt):
        raise DataError(path, "has a coordinate system that needs another file, a grid of shifts: reproject it")
    return f"EPSG:{code}" if code else wkt


def write_points(path: Path, xy_N2: NDArray[np.float64], column: str, values: Sequence[str], crs: str | None) -> None:
    """Write points with one column of texts as a new GeoPackage."""
    import pyogrio.raw
    import shapely

    pyogrio.raw.write(
        path,
        shapely.to_wkb(shapely.points(xy_N2)),
        [np.array(values, dtype=object)],
        [column],
        geometry_type="Point",
        crs=crs,
        driver="GPKG",
        layer=path.stem,
    )
