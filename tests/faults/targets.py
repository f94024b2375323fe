"""What reads files: for each reader small sound files, and a call that reads them as a user would."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import shapely
import torch
import yaml

import atomizer_io as aio
import chips
import data as fixtures
from atomizer_io.datasets.cashew import read_polygons as polygons_of
from atomizer_io.datasets.registry import create
from atomizer_io.datasets.statistics import Statistics, measure
from atomizer_io.decoding.calibration import Calibration, Step, load_all
from atomizer_io.decoding.strategies import OperatingPoint
from atomizer_io.errors import CheckpointError
from atomizer_io.io import point_clouds
from atomizer_io.io.crs import LocalFrame
from atomizer_io.io.geometries import rasterised
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.raster_sources import open_rasters
from atomizer_io.io.tables import read_array
from atomizer_io.io.tile_cache import TileCache
from atomizer_io.io.vector_labels import LabelColumns, read_labels
from atomizer_io.prediction.at_positions import PositionTable
from atomizer_io.prediction.bulk import check_name, read_list
from atomizer_io.prediction.options import Decoding, Execution, Windows
from atomizer_io.prediction.rasters import predict_raster
from atomizer_io.training import config, state
from atomizer_io.training.results import read_curve
from data.fractal import GPS_TIME_S, write_laz
from data.vectors import write_vector
from faults.checks import Wrong, check_atoms, check_points, check_sample
from predicting import Breaks, Killed
from scenes import SMALL, forge, raster


@dataclass(frozen=True)
class Target:
    """A reader: ``make`` writes sound files into a folder, ``read`` reads them and raises or returns a result.

    ``read`` gets the folder, a folder for outputs and the file that was changed. ``sealed`` files have checksums: they
    give the same result as before, or an error. ``kinds`` are the endings of the files to change; none: all.
    """

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path, Path, Path], Any]
    kinds: tuple[str, ...] = ()
    sealed: bool = False
    share: int = 1  # how many cases it gets, relative to others
    only: tuple[str, ...] = ()  # beginnings of the names of files to change
    output: str = ""  # how names begin in the folder that belong to the output
    change: Callable[[Path, random.Random], tuple[Path, str]] | None = None  # of its own, instead of the usual ones


def model_in(folder: Path, **settings: Any) -> Path:
    """Save a small model with random weights."""
    torch.manual_seed(0)
    aio.create_model(
        "atomizer_io_tiny", **{**SMALL, "class_names": ("dry", "wet", "bare"), **settings}
    ).save_pretrained(folder)
    return folder


# rasters


def make_geotiff(folder: Path, **profile: Any) -> None:
    chips.write(folder / "scene.tif", chips.values(24, 20), nodata=0, **profile)


def make_cog(folder: Path) -> None:
    mask = np.full((64, 64), 255, np.uint8)
    mask[:5] = 0
    chips.write(
        folder / "scene.tif",
        chips.values(64, 64),
        mask=mask,
        tiled=True,
        blockxsize=16,
        blockysize=16,
        compress="deflate",
    )
    import rasterio

    with rasterio.open(folder / "scene.tif", "r+") as file:
        file.build_overviews([2, 4])


def read_scene(folder: Path, out: Path, touched: Path) -> Any:
    (source,) = open_rasters([{"path": folder / "scene.tif", "sensor": "sentinel2"}])
    west, south, east, north = source.bounds
    frame = LocalFrame.around(source.crs, (west + east) / 2, (south + north) / 2)
    atoms = source.atoms(frame, (-80.0, -80.0, 80.0, 80.0))
    if atoms is not None:
        check_atoms(atoms)
    return source.overview(), atoms


def read_map(folder: Path, out: Path, touched: Path) -> Any:
    """Predict a map, with the model that lies in the folder; its values must be classes."""
    scene = {"path": folder / "scene.tif", "sensor": "sentinel2"}
    how = {"windows": Windows(120), "decoding": Decoding("dense"), "execution": Execution(progress=False)}
    predict_raster(folder / "model", scene, out / "map.tif", **how)
    labels = chips.read(out / "map.tif")
    if not np.isin(labels, (0, 1, 2, 255)).all():
        raise Wrong("a map has a class that is none")
    return labels


def make_map(folder: Path) -> None:
    make_geotiff(folder)
    model_in(folder / "model")


def make_sidecar(folder: Path) -> None:
    chips.write(folder / "scene.tif", chips.values(12, 10), names=None)
    facts = {"sensor": "sentinel2", "bands": ["B02", "B03", "B08"], "date": "2021-07-04"}
    (folder / "scene.bands.yaml").write_text(yaml.safe_dump(facts))


def read_sidecar(folder: Path, out: Path, touched: Path) -> Any:
    (source,) = open_rasters([folder / "scene.tif"])
    return source.channels, source.date


# datasets


def make_folder(folder: Path) -> None:
    for name in ("a", "b"):
        for kind in ("image", "mask"):
            (folder / kind).mkdir(exist_ok=True)
        chips.write(folder / "image" / f"{name}_20210704.tif", chips.values(16, 16))
        labels = (chips.values(16, 16)[:1] % 3).astype(np.uint8)
        chips.write(folder / "mask" / f"{name}_20210704.tif", labels, names=None)
    (folder / "train.txt").write_text("a_20210704\nb_20210704\n")
    (folder / "dates.csv").write_text("image,date\na_20210704,2021-07-04\nb_20210704,2021-07-05\n")


def read_dataset(folder: Path, out: Path, touched: Path, *, dataset: str, **options: Any) -> Any:
    """Read the sample that uses the changed file, or the first."""
    opened = create(dataset, folder, options.pop("split", "train"), **options)
    index = next((i for i, item in enumerate(opened.items) if touched in opened.files(item)), 0)
    sample = opened[index]
    check_sample(sample, len(opened.info.classes))
    return sample.atoms, sample.target


def fixture(name: str, share: int = 1, **options: Any) -> Target:
    return Target(name, partial(fixtures.write, name), partial(read_dataset, dataset=name, **options), share=share)


# clouds


def columns(count: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": 500000 + np.round(rng.uniform(0, 60, count), 2),
        "y": 4000000 + np.round(rng.uniform(0, 40, count), 2),
        "z": np.round(rng.uniform(100, 130, count), 2),
        "intensity": rng.integers(1, 3000, count).astype(np.uint16),
        "number_of_returns": np.ones(count, np.uint8),
        "return_number": np.ones(count, np.uint8),
        "classification": rng.choice([2, 3, 5, 6], count).astype(np.uint8),
        "gps_time": GPS_TIME_S + rng.uniform(0, 9, count),
    }


def make_point_cloud(folder: Path, name: str) -> None:
    write_laz(folder / name, columns(), epsg=32610, point_format=6, standard_time=True)
    data = bytearray((folder / name).read_bytes())
    struct.pack_into("<HH", data, 90, 1, 2020)  # the day on which it was written would change the cases
    (folder / name).write_bytes(data)


def make_copc(folder: Path) -> None:
    """Write a LAZ file with uneven chunks and the records of COPC."""
    import lazrs

    make_point_cloud(folder, "plain.las")
    plain = (folder / "plain.las").read_bytes()
    (folder / "plain.las").unlink()
    start, size = struct.unpack_from("<I", plain, 96)[0], struct.unpack_from("<H", plain, 105)[0]
    points = np.frombuffer(plain[start : start + 300 * size], np.uint8).reshape(300, size)
    vlr = lazrs.LazVlr.new_for_compression(6, 0, True)
    records = [b"\0\0" + b"copc".ljust(16, b"\0") + struct.pack("<HH32x", 1, 160) + bytes(160)]
    records += [b"\0\0" + b"laszip encoded".ljust(16, b"\0") + struct.pack("<HH32x", 22204, len(vlr.record_data()))]
    header = bytearray(plain[:375])
    struct.pack_into("<H", header, 6, 1)  # no WKT, whose record is left out
    struct.pack_into("<IIB", header, 96, 375 + sum(map(len, records)) + len(vlr.record_data()), 2, 128 | 6)
    with (folder / "points.copc.laz").open("wb") as file:
        file.write(bytes(header) + b"".join(records) + vlr.record_data())
        compressor = lazrs.LasZipCompressor(file, vlr)
        for piece in (points[:70], points[70:90], points[90:]):
            compressor.compress_many(np.ascontiguousarray(piece).reshape(-1))
            if len(piece) < 200:
                compressor.finish_current_chunk()
        compressor.done()
        file.seek(0, 2)
        end = file.tell()
        file.write(b"\0\0" + b"copc".ljust(16, b"\0") + struct.pack("<HQ32x", 1000, 32) + bytes(32))
        file.seek(235)
        file.write(struct.pack("<QI", end, 1))


def make_ply(folder: Path, kind: str) -> None:
    names = {"f8": "double", "u1": "uchar", "u2": "ushort"}
    table = columns(40 if kind == "ascii" else 200)
    order = ">" if kind == "binary_big_endian" else "<"
    array = np.zeros(len(table["x"]), [(name, order + column.dtype.str[1:]) for name, column in table.items()])
    for name, column in table.items():
        array[name] = column
    lines = ["ply", f"format {kind} 1.0", f"element vertex {len(array)}"]
    lines += [f"property {names[column.dtype.str[1:]]} {name}" for name, column in table.items()] + ["end_header", ""]
    text = "".join(" ".join(map(str, row.tolist())) + "\n" for row in array).encode()
    (folder / "points.ply").write_bytes("\n".join(lines).encode() + (text if kind == "ascii" else array.tobytes()))


def read_points(folder: Path, out: Path, touched: Path, *, name: str = "points.ply") -> Any:
    """Read all points and their ground, which a prediction needs."""
    path = folder / name
    point_cloud = point_clouds.read_point_cloud(path)
    check_points(point_cloud)
    whole = PointCloudReference.of_file(path).complete(point_cloud)
    if whole.height is None or not np.isfinite(whole.height).all():
        raise Wrong("a height above ground is not finite")
    return point_cloud


def make_tiles(folder: Path) -> None:
    (folder / "train").mkdir()
    make_point_cloud(folder / "train", "a.laz")


def make_store(folder: Path) -> None:
    """Make a tile and the cache with its store."""
    make_point_cloud(folder, "a.las")
    cache = TileCache.of(folder / "cache")
    assert cache is not None
    cache.store(folder / "a.las", None)


def read_store(folder: Path, out: Path, touched: Path) -> Any:
    """Read a window from the cache; what is damaged there is written anew."""
    cache = TileCache.of(folder / "cache")
    assert cache is not None
    return cache.use(folder / "a.las", None, lambda store: store.read((500000.0, 4000000.0, 500050.0, 4000030.0)).z)


def make_array(folder: Path) -> None:
    np.save(folder / "array.npy", np.arange(24, dtype=np.float32).reshape(4, 6))


# tables and texts


def make_positions(folder: Path) -> None:
    (folder / "places.csv").write_text("name,x,y\na,500010,4649990\nb,500050,4649950\n")


def make_points(folder: Path, name: str = "places.gpkg") -> None:
    """Write three labelled points; a GeoPackage without the time at which it was written, which would change cases."""
    points = [shapely.Point(500010.0 + i, 4649990.0) for i in range(3)]
    options = {"SPATIAL_INDEX": "NO"} if name.endswith(".gpkg") else {}  # whose triggers need functions of GDAL
    write_vector(folder / name, points, {"name": ["p0", "p1", "p2"]}, 32631, **options)
    if options:
        with contextlib.closing(sqlite3.connect(folder / name)) as source:
            source.execute("UPDATE gpkg_contents SET last_change = '2021-07-04T00:00:00.000Z'")
            source.commit()


def read_labelled(folder: Path, out: Path, touched: Path, *, name: str) -> Any:
    """Read points as labels of a training."""
    labels = read_labels(folder / name, LabelColumns("name"), crs="EPSG:32631")
    if not np.isfinite(labels.xy).all() or len(labels.classes) > 3:
        raise Wrong("a position is not finite, or a class is none of the file")
    return labels.xy, labels.target


def read_positions(folder: Path, out: Path, touched: Path, *, name: str) -> Any:
    table = PositionTable.read(folder / name)
    if not np.isfinite(table.xy_M2).all() or len(table.rows) != len(table.xy_M2):
        raise Wrong("a position is not finite")
    if any(len(row) > 10_000 for row in table.rows):
        raise Wrong("a row is too long")
    return table.header, table.xy_M2


def make_list(folder: Path) -> None:
    chips.write(folder / "scene.tif", chips.values(12, 10))
    (folder / "scenes.csv").write_text(
        "scene,path,sensor,date,gsd\none,scene.tif,sentinel2,2021-07-04,10\ntwo,scene.tif,sentinel2,,\n"
    )


def read_scenes(folder: Path, out: Path, touched: Path) -> Any:
    scenes = read_list(folder / "scenes.csv")
    for name, rasters in scenes.items():
        check_name(name)
        if (out / f"{name}.tif").resolve().parent != out.resolve():
            raise Wrong(f"the map of {name!r} would be written elsewhere")
        open_rasters(rasters)
    return sorted(scenes)


def make_geojson(folder: Path) -> None:
    square = [[0.0, 0.0], [8.0, 0.0], [8.0, 8.0], [0.0, 8.0], [0.0, 0.0]]
    features = [
        {"type": "Feature", "properties": {"class": number}, "geometry": {"type": "Polygon", "coordinates": [square]}}
        for number in (1, 2)
    ]
    document = {
        "type": "FeatureCollection",
        "crs": {"type": "name", "properties": {"name": "EPSG:32631"}},
        "features": features,
    }
    import json

    (folder / "fields.geojson").write_text(json.dumps(document))


def read_polygons(folder: Path, out: Path, touched: Path) -> Any:
    geometries, numbers = polygons_of(folder / "fields.geojson", "class", "EPSG:32631", (0.0, 0.0, 10.0, 10.0))
    if not np.isfinite(numbers).all():
        return "numbers that the dataset refuses"
    numbered = [(g, int(n)) for g, n in zip(geometries, numbers, strict=True) if 0 <= n < 1000]
    return rasterised(numbered, (10, 10), (1.0, 0.0, 0.0, 0.0, -1.0, 10.0))


def make_config(folder: Path) -> None:
    run = config.Run(config.DataSettings("synthetic", options={"like": "sen1floods11"}), seed=1)
    (folder / "config.yaml").write_text(yaml.safe_dump(config.plain(run)))


def read_config(folder: Path, out: Path, touched: Path) -> Any:
    run = config.load(folder / "config.yaml")
    return config.folder_of(config.inside(run, out)), config.plain(run)


def make_checkpoint(folder: Path) -> None:
    model_in(folder)
    point = OperatingPoint(40, None, 4)
    step = Step(point, 0.0, 0.01, 1.0, 1.0)
    Calibration("mark", 0.01, None, point, None, 5, 2, 0.001, (step,)).save(folder)


def read_checkpoint(folder: Path, out: Path, touched: Path) -> Any:
    """A changed config.json is refused, and ends in a clean error or a result also where its seal is forged."""
    try:
        return outputs_of(folder)
    except CheckpointError:
        if touched.name == "config.json" and touched.is_file():
            with contextlib.suppress(UnicodeDecodeError):
                forge(Path(shutil.copytree(folder, out / "forged")))
                outputs_of(out / "forged")
        raise


def outputs_of(folder: Path) -> Any:
    model = aio.load_model(folder)
    with torch.no_grad():
        outputs = model([raster(0)], [torch.zeros(1, 2)])
    return outputs, model.task_spec


def read_calibration(folder: Path, out: Path, touched: Path) -> Any:
    calibrations = load_all(folder)
    for calibration in calibrations:
        str(calibration)
        if not 0 < calibration.alpha < 1 or math.isnan(calibration.standard_error):
            raise Wrong(f"alpha is {calibration.alpha}")
    return len(calibrations)


def make_state(folder: Path) -> None:
    state.write(
        {"epoch": 3, "loops": [1, (2.5, None)], "weights": {"a": torch.arange(6.0)}}, folder / "state.safetensors"
    )


def read_state(folder: Path, out: Path, touched: Path) -> Any:
    return state.read(state.find(folder) or folder / "state.safetensors")


def make_history(folder: Path) -> None:
    lines = [f'{{"step": {10 * i}, "val/miou": {0.1 * i}}}' for i in range(1, 6)]
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")


def read_history(folder: Path, out: Path, touched: Path) -> Any:
    return read_curve(folder / "history.jsonl", "val/miou")


def make_statistics(folder: Path) -> None:
    measure([create("synthetic", None, "train", like="sen1floods11")[0]], 2).save(folder / "statistics.json")


def read_statistics(folder: Path, out: Path, touched: Path) -> Any:
    statistics = Statistics.load(folder / "statistics.json")
    for channel in statistics.channels:
        if channel.std is not None and not channel.std > 0:
            raise Wrong("a standard deviation is not positive")
    return statistics


# folders to resume from


def predicted(folder: Path, output: Path, **how: Any) -> None:
    scene = {"path": folder / "scene.tif", "sensor": "sentinel2"}
    chosen = {"windows": Windows(120), "decoding": Decoding("dense"), "execution": Execution(progress=False, **how)}
    predict_raster(folder / "model", scene, output, **chosen)


def make_parts(folder: Path) -> None:
    make_geotiff(folder)
    model_in(folder / "model")
    try:
        predicted(folder, folder / "map.tif", engine=Breaks(2))
    except Killed:
        (folder / "map.tif.parts" / "lock").write_text("process 1")


def read_parts(folder: Path, out: Path, touched: Path) -> Any:
    predicted(folder, folder / "map.tif", resume=True)
    return chips.read(folder / "map.tif")


LAS_OPTIONS = {"classes": {2: "ground", 3: "low", 5: "high", 6: "building"}, "cache": False}
TARGETS: tuple[Target, ...] = (
    Target("geotiff", make_geotiff, read_scene, share=4),
    Target("geotiff deflate", partial(make_geotiff, compress="deflate", predictor=2), read_scene, share=3),
    Target("cog", make_cog, read_scene, share=4),
    Target("predicted map", make_map, read_map, kinds=(".tif",)),
    Target("sidecar", make_sidecar, read_sidecar, kinds=(".yaml",), share=2),
    Target(
        "geotiff-folder",
        make_folder,
        partial(read_dataset, dataset="geotiff-folder", sensor="sentinel2", classes=3),
        share=2,
    ),
    Target("las", partial(make_point_cloud, name="points.las"), partial(read_points, name="points.las"), share=3),
    Target("laz", partial(make_point_cloud, name="points.laz"), partial(read_points, name="points.laz"), share=3),
    Target("copc", make_copc, partial(read_points, name="points.copc.laz"), share=2),
    Target("las-folder", make_tiles, partial(read_dataset, dataset="las-folder", **LAS_OPTIONS)),
    Target("tile cache", make_store, read_store, only=("cache/",), sealed=True, output="cache"),
    Target("ply text", partial(make_ply, kind="ascii"), read_points, share=2),
    Target("ply", partial(make_ply, kind="binary_little_endian"), read_points, share=2),
    Target("ply big-endian", partial(make_ply, kind="binary_big_endian"), read_points),
    Target("npy", make_array, lambda folder, out, touched: read_array(folder / "array.npy", "iuf"), share=3),
    Target("places csv", make_positions, partial(read_positions, name="places.csv"), share=2),
    Target("geopackage", make_points, partial(read_positions, name="places.gpkg"), share=2),
    *(
        Target(f"labels {name}", partial(make_points, name=name), partial(read_labelled, name=name))
        for name in ("places.gpkg", "a.geojson", "a.fgb", "a.shp", "a.parquet", "a.csv")
    ),
    Target("list of scenes", make_list, read_scenes, kinds=(".csv",), share=2),
    Target("geojson", make_geojson, read_polygons, share=3),
    Target("yaml config", make_config, read_config, share=4),
    Target("checkpoint", make_checkpoint, read_checkpoint, only=("config.json", "model"), sealed=True, share=3),
    Target("calibration", make_checkpoint, read_calibration, only=("calibration",), share=3),
    Target("training state", make_state, read_state, sealed=True, share=2),
    Target("history", make_history, read_history),
    Target("statistics", make_statistics, read_statistics, share=2),
    Target("resume folder", make_parts, read_parts, only=("map.tif.parts/",), sealed=True, share=2, output="map"),
    *(fixture(name, share=2) for name in ("mnist", "xview2", "geobench", "pastis-r", "forestnet", "presto-series")),
    *(fixture(name) for name in ("m-forestnet", "burnscars", "eurosat", "sen1floods11", "fractal", "m-cashew-plant")),
    *(fixture(name) for name in ("biomassters", "cashew", "m-eurosat", "dales")),
)
