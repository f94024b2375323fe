"""Predict from your own files: make a map from rasters or a point cloud, or classify a point cloud.

atomizer predict --model flood/best --raster s2.tif --sensor sentinel2 --raster s1.tif --sensor sentinel1 -o map.tif
atomizer predict --model crops/best --raster july.tif --date 2021-07-04 --raster may.tif --date 2021-05-05 -o map.tif
atomizer predict --model flood/best --raster s2.tif --sensor sentinel2 --at wells.csv -o predictions.csv
atomizer predict --model lidar/best --points tile.laz -o classified.laz
atomizer predict --model lidar/best --points tiles/ more.laz -o classified/
atomizer predict --model canopy/best --points tile.laz --output-gsd 1 -o chm.tif
atomizer predict --model flood/best --list scenes.csv -o maps/
atomizer predict --model scenes/best --raster patches/ --sensor sentinel2 -o labels.csv

--sensor, --bands, --date, --gsd, --crs and --nodata belong to the --raster before them; scene.bands.yaml beside
scene.tif may hold the same. Each raster keeps its own grid, resolution and coordinate system. A killed prediction
continues with --resume.
scenes.csv has the columns scene and path, and may have sensor, bands, date, gsd, crs and nodata: one map for all rows
of a scene. A regression model predicts in the physical unit of its training target.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atomizer_io.cli.decoding import add_decoding, decoding_of
from atomizer_io.cli.info import model_line
from atomizer_io.cli.predict_lines import (
    points_line,
    print_labels,
    print_map,
    print_positions,
    report_outcome,
    summarise,
)

if TYPE_CHECKING:
    from atomizer_io.prediction.options import Execution, PointCloudClasses

# The same as in prediction/engines.py and products.py, which import torch: --help does not wait.
ENGINES = ("local", "dask")
LAYERS = ("probabilities", "confidence", "attention")
OF_POINTS = ("overwrite_classification", "decode_every")  # options that only concern classified points
PREVIEW, OLD_PREVIEW = "preview", "picture"  # old name

# options of a raster by the names in errors (``pass gsd_m=``)
OPTIONS = {"sensor": "--sensor", "bands": "--bands", "gsd_m": "--gsd", "crs": "--crs", "nodata": "--nodata"}


class OfRaster(argparse.Action):
    """An option that belongs to the ``--raster`` before it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Store the value with the last raster."""
        if self.dest == "crs" and getattr(namespace, "points", None) is not None and not namespace.raster:
            namespace.points_crs = values
            return
        if not namespace.raster:
            parser.error(f"{option} belongs to the --raster before it, but there is none")
        if self.dest in namespace.raster[-1]:
            parser.error(f"{option} is given twice for {namespace.raster[-1]['path']}")
        namespace.raster[-1][self.dest] = values


class Raster(argparse.Action):
    """The option ``--raster``, which begins a further raster."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        """Add a raster to the list."""
        namespace.raster = [*(namespace.raster or []), {"path": values}]


def add_rasters(add: Callable[..., Any], text: str, of_crs: str) -> None:
    """Add ``--raster``, explained by ``text``, and the options that belong to the raster before them."""
    of_raster: dict[str, Any] = {"action": OfRaster}
    add("--raster", action=Raster, metavar="FILE", help=text)
    add("--sensor", **of_raster, help="sensor of the raster, such as sentinel2 (see `atomizer info sensors`)")
    add("--bands", **of_raster, metavar="B02,B03,...", help="bands in the order of the file, - to skip one")
    add("--date", **of_raster, metavar="YYYY-MM-DD", help="date of the raster")
    add("--gsd", **of_raster, type=float, dest="gsd_m", help="pixel size of a raster without CRS, in metres")
    add("--crs", **of_raster, metavar="EPSG:...", help=of_crs)
    text = "value of the raster that means that nothing was observed, in addition to the one that the file names"
    add("--nodata", **of_raster, type=float, metavar="VALUE", help=text)
    text = "also read VRT files (mosaics of other files on this machine): only use it for VRT files of your own"
    add("--allow-vrt", action="store_true", help=text)


def rasters_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rasters that the options name."""
    return [{**raster, "allow_vrt": args.allow_vrt} for raster in args.raster or ()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer predict``."""
    add = parser.add_argument
    add("--model", required=True, metavar="FOLDER", help="folder of a model, such as runs/NAME/best")
    text = "the GeoTIFF, CSV or LAZ file to write; a folder for several outputs"
    add("-o", "--output", required=True, type=Path, metavar="FILE", help=text)

    add = parser.add_argument_group("inputs").add_argument
    text = "a raster (or a folder of patches, for -o labels.csv); may be repeated"
    add_rasters(add, text, "coordinate system of a raster or point cloud without one")
    text = "LAS, LAZ, COPC or PLY files, or folders of them, to classify, or to map with --output-gsd; --crs after it "
    text += "is for point clouds without a coordinate system"
    add("--points", type=Path, action="extend", nargs="+", metavar="FILE", help=text)
    text = "CSV file that lists the rasters of many scenes; each scene gets a map"
    add("--list", type=Path, metavar="FILE", help=text)
    parser.set_defaults(points_crs=None)

    add = parser.add_argument_group("outputs").add_argument
    add("--like", type=int, help="number of the raster whose grid the map has, from 0 (default: 0)")
    text = "pixel size of the map (default: that of the raster); with --points it selects a map as the output"
    add("--output-gsd", type=float, metavar="METRES", help=text)
    text = "predict at given coordinates instead of making a map: CSV (x,y or lon,lat), or points of a vector file"
    add("--at", type=Path, metavar="FILE", help=text)
    text = f"further files beside the map: {','.join(LAYERS)}; beside classified points: {PREVIEW}"
    add("--layers", help=text)
    add("--fill", action="store_true", help="also predict where nothing was observed")
    text = "write classes of points into `classification`, not into a new dimension"
    add("--overwrite-classification", action="store_true", help=text)

    group = parser.add_argument_group("compute options")
    add_decoding(group)
    add = group.add_argument
    text = "decode one point in each cube of this size; the others get the mean of the nearest (default: all points)"
    add("--decode-every", type=float, metavar="METRES", help=text)
    add("--ask-every", dest="decode_every", type=float, default=argparse.SUPPRESS, help=argparse.SUPPRESS)  # old name
    add("--window", type=float, metavar="METRES", help="side of a window (default: chosen by the model)")
    add("--overlap", type=float, help="share of a window that overlaps the next (default: 0.25)")

    add = add_execution(parser, "continue an interrupted prediction; of several, keep finished outputs")
    add("--fail-fast", action="store_true", help="stop at the first of several predictions that fails")


def add_execution(parser: argparse.ArgumentParser, of_resume: str) -> Callable[..., Any]:
    """Add where windows are computed, and what happens to existing files; return what adds to the same group."""
    add = parser.add_argument_group("execution").add_argument
    add("--engine", choices=ENGINES, default="local", help="where windows are computed (default: %(default)s)")
    add("--workers", type=int, help="number of processes (default: one per core)")
    text = "address of a Dask scheduler (default: a new cluster on this machine)"
    add("--scheduler", metavar="ADDRESS", help=text)
    add("--resume", action="store_true", help=of_resume)
    add("--overwrite", action="store_true", help="replace an existing output")
    add("--quiet", action="store_true", help="show no progress bar")
    return add


def execution_of(args: argparse.Namespace) -> Execution:
    """Return where windows are computed, as the options say."""
    from atomizer_io.prediction.engines import engine
    from atomizer_io.prediction.options import Execution

    chosen = engine(args.engine, args.workers, args.scheduler)
    return Execution(chosen, args.resume, args.overwrite, not args.quiet, log=print)


def run(args: argparse.Namespace) -> int:
    """Predict and print what was written; errors name the options of the command line."""
    with in_options():
        return predict(args)


@contextlib.contextmanager
def in_options() -> Iterator[None]:
    """Name the options of the command line in errors of what is inside."""
    from atomizer_io.errors import AtomizerError, ConfigError

    try:
        yield
    except AtomizerError as error:
        names = "|".join(OPTIONS)
        text = re.sub(rf"\b({names})=(?![\w'\"{{])", lambda match: OPTIONS[match[1]], str(error))
        if text == str(error):
            raise
        raise ConfigError(text) from error


def predict(args: argparse.Namespace) -> int:
    """Predict and print what was written."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.prediction.at_positions import predict_at
    from atomizer_io.prediction.options import PointCloudWindows, Windows

    in_points = args.points is not None
    maps = not in_points or args.output_gsd is not None
    of_rasters, of_points = ("at", "like", "fill", "overlap", "list"), (*OF_POINTS, "max_points")
    for name in of_rasters if in_points else of_points:
        if getattr(args, name) not in (None, False):
            kind = "rasters" if in_points else "a point cloud (--points)"
            raise ConfigError(f"--{name.replace('_', '-')} is for {kind} only: leave it out")
    for name in OF_POINTS if in_points and maps else ():
        if getattr(args, name) not in (None, False):
            raise ConfigError(f"--{name.replace('_', '-')} is for classified points, not for a map: leave it out")
    if args.list is not None and args.raster:
        raise ConfigError("--raster and --list exclude each other: put the raster into the list, or leave one out")
    if not in_points and not args.raster and args.list is None:
        raise ConfigError(
            "there is no input: name at least one --raster, a --list of scenes, or a point cloud with --points"
        )
    how: dict[str, Any] = {
        "decoding": decoding_of(args),
        "execution": execution_of(args),
    }
    args.raster = rasters_of(args)
    layers = [name.strip() for name in (args.layers or "").split(",") if name.strip()]
    print(model_line(args.model))
    if in_points:
        side = PointCloudWindows().side_m if args.window is None else args.window
        how |= {"windows": PointCloudWindows(side, decode_every_m=args.decode_every)}
        how |= {"rasters": args.raster or (), "crs": args.points_crs}
        if maps:
            return run_points(args, {**how, "gsd_m": args.output_gsd, "layers": layers})
        return run_points(args, {**how, "classes": classes_of(args, layers)})
    how |= {"windows": Windows(args.window) if args.overlap is None else Windows(args.window, args.overlap)}
    how |= {"fill": args.fill, "like": args.like or 0}
    if args.at is None and args.output.suffix.casefold() == ".csv":
        return run_labels(args, how["execution"])
    if args.at is not None:
        if layers or args.output_gsd or args.list is not None:
            raise ConfigError("--layers, --output-gsd and --list are for maps only: leave them out with --at")
        print_positions(predict_at(args.model, args.raster, args.at, args.output, **how), how["decoding"].strategy)
        return 0
    return run_rasters(args, {**how, "gsd_m": args.output_gsd, "layers": layers})


def classes_of(args: argparse.Namespace, layers: Sequence[str]) -> PointCloudClasses:
    """Return how the classes of points are written."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.prediction.options import PointCloudClasses

    unknown = [name for name in layers if name not in (PREVIEW, OLD_PREVIEW)]
    if unknown:
        raise ConfigError(f"layer {unknown[0]!r} is for maps only; beside classified points there may be: {PREVIEW}")
    if args.output.suffix.casefold() in (".tif", ".tiff"):
        raise ConfigError(f"{args.output} is a map, whose pixel size is missing: pass --output-gsd, in metres")
    return PointCloudClasses(replace=args.overwrite_classification, preview=bool(layers))


def run_points(args: argparse.Namespace, how: dict[str, Any]) -> int:
    """Classify the points of one point cloud or make a map of it; of several, into a folder."""
    from atomizer_io.prediction.bulk import predict_point_clouds
    from atomizer_io.prediction.point_maps import predict_point_cloud_map
    from atomizer_io.prediction.points import predict_points

    if len(args.points) > 1 or args.points[0].is_dir() or args.output.is_dir():
        report = functools.partial(report_outcome, decode=how["decoding"].strategy)
        return summarise(
            predict_point_clouds(args.model, args.points, args.output, fail_fast=args.fail_fast, report=report, **how)
        )
    if "gsd_m" in how:
        print_map(predict_point_cloud_map(args.model, args.points[0], args.output, **how), how["decoding"].strategy)
    else:
        product = predict_points(args.model, args.points[0], args.output, **how)
        print(points_line(product, how["decoding"].strategy))
    return 0


def run_labels(args: argparse.Namespace, execution: Execution) -> int:
    """Predict the class, or the regression target, of whole scenes."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.prediction.bulk import read_list
    from atomizer_io.prediction.scene_labels import named_scenes, predict_labels

    for name in ("layers", "output_gsd", "like", "fill", "window", "overlap", "alpha", "decode"):
        if getattr(args, name) not in (None, False, ""):
            raise ConfigError(f"--{name.replace('_', '-')} is for maps, not for a table of scenes: leave it out")
    scenes = named_scenes(args.raster) if args.list is None else read_list(args.list, allow_vrt=args.allow_vrt)
    how: dict[str, Any] = {"cost": decoding_of(args).cost, "fail_fast": args.fail_fast, "execution": execution}
    return print_labels(predict_labels(args.model, scenes, args.output, **how))


def run_rasters(args: argparse.Namespace, how: dict[str, Any]) -> int:
    """Make a map, or one for each scene of a list."""
    from atomizer_io.prediction.bulk import predict_scenes, read_list
    from atomizer_io.prediction.rasters import predict_raster

    if args.list is not None:
        how["execution"] = replace(how["execution"], log=None)  # one line for each scene is enough
        report = functools.partial(report_outcome, decode=how["decoding"].strategy)
        scenes = read_list(args.list, allow_vrt=args.allow_vrt)
        return summarise(
            predict_scenes(args.model, scenes, args.output, fail_fast=args.fail_fast, report=report, **how)
        )
    print_map(predict_raster(args.model, args.raster, args.output, **how), how["decoding"].strategy)
    return 0
