"""Make a map from your own rasters or cloud, or classify the points of your own cloud.

atomizer predict --model flood/best --raster s2.tif --sensor sentinel2 --raster s1.tif --sensor sentinel1 -o map.tif
atomizer predict --model crops/best --raster july.tif --date 2021-07-04 --raster may.tif --date 2021-05-05 -o map.tif
atomizer predict --model flood/best --raster s2.tif --sensor sentinel2 --at wells.csv -o answers.csv
atomizer predict --model lidar/best --points tile.laz -o classified.laz
atomizer predict --model lidar/best --points tiles/ more.laz -o classified/
atomizer predict --model canopy/best --points tile.laz --output-gsd 1 -o chm.tif
atomizer predict --model flood/best --list scenes.csv -o maps/
atomizer predict --model scenes/best --raster patches/ --sensor sentinel2 -o labels.csv

--sensor, --bands, --date, --gsd, --crs and --nodata belong to the --raster before them; scene.bands.yaml beside
scene.tif may say the same. Each raster keeps its own grid, resolution and coordinate system. A killed prediction
continues with --resume.
scenes.csv has the columns scene and path, and may have sensor, bands, date, gsd, crs and nodata: one map for all rows
of a scene. A regression model answers in the physical unit of its training target.
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atomizer_io.cli.decoding import add_decoding, decoding_of
from atomizer_io.cli.predict_lines import (
    asked_text,
    cloud_line,
    measured,
    print_map,
    report_labels,
    report_outcome,
    summarise,
)
from atomizer_io.cli.seals import model_line

if TYPE_CHECKING:
    from atomizer_io.prediction.options import CloudClasses, Execution

# The same as in prediction/engines.py and products.py, which import torch: --help does not wait.
ENGINES = ("local", "dask")
LAYERS = ("probabilities", "confidence", "attention")
OF_POINTS = ("overwrite_classification", "ask_every")  # options that only concern classified points
PICTURE = "picture"  # beside classified points; a map always has one

# options of a raster by the names in errors (``pass gsd_m=``)
OPTIONS = {"sensor": "--sensor", "bands": "--bands", "gsd_m": "--gsd", "crs": "--crs", "nodata": "--nodata"}


class OfRaster(argparse.Action):
    """An option that belongs to the ``--raster`` before it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Store the value with the last raster."""
        if self.dest == "crs" and namespace.points is not None and not namespace.raster:
            namespace.cloud_crs = values
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer predict``."""
    parser.add_argument("--model", required=True, metavar="FOLDER", help="folder of a model, such as runs/NAME/best")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="FILE",
        help="the GeoTIFF, CSV or LAZ file to write; a folder for several outputs",
    )
    inputs = parser.add_argument_group("inputs")
    inputs.add_argument(
        "--raster",
        action=Raster,
        metavar="FILE",
        help="a raster (or a folder of patches, for -o labels.csv); may be repeated",
    )
    inputs.add_argument(
        "--sensor", action=OfRaster, help="sensor of the raster, such as sentinel2 (see `atomizer info sensors`)"
    )
    inputs.add_argument(
        "--bands", action=OfRaster, metavar="B02,B03,...", help="bands in the order of the file, - to skip one"
    )
    inputs.add_argument("--date", action=OfRaster, metavar="YYYY-MM-DD", help="date of the raster")
    inputs.add_argument(
        "--gsd", action=OfRaster, type=float, dest="gsd_m", help="pixel size of a raster without CRS, in metres"
    )
    inputs.add_argument(
        "--crs", action=OfRaster, metavar="EPSG:...", help="coordinate system of a raster (or cloud) without one"
    )
    inputs.add_argument(
        "--nodata",
        action=OfRaster,
        type=float,
        metavar="VALUE",
        help="value of the raster that means that nothing was observed, beside the one that the file names",
    )
    inputs.add_argument(
        "--points",
        type=Path,
        action="extend",
        nargs="+",
        metavar="FILE",
        help="LAS, LAZ, COPC or PLY files, or folders of them, to classify, or to map with --output-gsd; --crs after "
        "it is for clouds without a coordinate system",
    )
    inputs.add_argument(
        "--list",
        type=Path,
        metavar="FILE",
        help="CSV file that lists the rasters of many scenes; each scene gets a map",
    )
    inputs.add_argument(
        "--allow-vrt",
        action="store_true",
        help="also read VRT files, mosaics of other files on this machine, that are your own",
    )
    parser.set_defaults(cloud_crs=None)
    outputs = parser.add_argument_group("outputs")
    outputs.add_argument("--like", type=int, help="number of the raster whose grid the map has, from 0 (default: 0)")
    outputs.add_argument(
        "--output-gsd",
        type=float,
        metavar="METRES",
        help="pixel size of the map (default: that of the raster); with --points it asks for a map",
    )
    outputs.add_argument(
        "--at",
        type=Path,
        metavar="FILE",
        help="answer at places instead of making a map: CSV (x,y or lon,lat) or GeoPackage",
    )
    outputs.add_argument(
        "--layers", help=f"further files beside the map: {','.join(LAYERS)}; of classified points: {PICTURE}"
    )
    outputs.add_argument("--fill", action="store_true", help="also answer where nothing was observed")
    outputs.add_argument(
        "--overwrite-classification",
        action="store_true",
        help="write classes of points into `classification`, not into a new dimension",
    )
    cost = parser.add_argument_group("compute options")
    add_decoding(cost)
    cost.add_argument(
        "--ask-every",
        type=float,
        metavar="METRES",
        help="ask one point in each cube of this size; the others get the mean of the nearest (default: ask all)",
    )
    cost.add_argument("--window", type=float, metavar="METRES", help="side of a window (default: chosen by the model)")
    cost.add_argument("--overlap", type=float, help="share of a window that overlaps the next (default: 0.25)")
    work = parser.add_argument_group("execution")
    work.add_argument(
        "--engine", choices=ENGINES, default="local", help="where windows are computed (default: %(default)s)"
    )
    work.add_argument("--workers", type=int, help="number of processes (default: one per core)")
    work.add_argument(
        "--scheduler", metavar="ADDRESS", help="address of a Dask scheduler (default: a new cluster on this machine)"
    )
    work.add_argument(
        "--resume", action="store_true", help="continue an interrupted prediction; of several, keep finished outputs"
    )
    work.add_argument("--overwrite", action="store_true", help="replace an existing output")
    work.add_argument("--fail-fast", action="store_true", help="stop at the first of several predictions that fails")
    work.add_argument("--quiet", action="store_true", help="show no progress bar")


def run(args: argparse.Namespace) -> int:
    """Predict and print what was written; errors name the options of the command line."""
    from atomizer_io.errors import AtomizerError, ConfigError

    try:
        return predict(args)
    except AtomizerError as error:
        names = "|".join(OPTIONS)
        text = re.sub(rf"\b({names})=(?![\w'\"{{])", lambda found: OPTIONS[found[1]], str(error))
        if text == str(error):
            raise
        raise ConfigError(text) from error


def predict(args: argparse.Namespace) -> int:
    """Predict and print what was written."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.prediction.engines import engine
    from atomizer_io.prediction.options import CloudWindows, Execution, Windows

    clouds = args.points is not None
    maps = not clouds or args.output_gsd is not None
    of_rasters, of_clouds = ("at", "like", "fill", "overlap", "list"), (*OF_POINTS, "max_points")
    for name in of_rasters if clouds else of_clouds:
        if getattr(args, name) not in (None, False):
            kind = "rasters" if clouds else "a cloud (--points)"
            raise ConfigError(f"--{name.replace('_', '-')} is for {kind} only: leave it out")
    for name in OF_POINTS if clouds and maps else ():
        if getattr(args, name) not in (None, False):
            raise ConfigError(f"--{name.replace('_', '-')} is for classified points, not for a map: leave it out")
    if not clouds and not args.raster and args.list is None:
        raise ConfigError("there is no input: name at least one --raster, a --list of scenes, or a cloud with --points")
    how: dict[str, Any] = {
        "decoding": decoding_of(args),
        "execution": Execution(
            engine(args.engine, args.workers, args.scheduler), args.resume, args.overwrite, not args.quiet, tell=print
        ),
    }
    for raster in args.raster or ():
        raster["allow_vrt"] = args.allow_vrt
    layers = [name.strip() for name in (args.layers or "").split(",") if name.strip()]
    print(model_line(args.model))
    if clouds:
        side = CloudWindows().side_m if args.window is None else args.window
        how |= {"windows": CloudWindows(side, ask_every_m=args.ask_every)}
        how |= {"rasters": args.raster or (), "crs": args.cloud_crs}
        if maps:
            return run_clouds(args, {**how, "gsd_m": args.output_gsd, "layers": layers})
        return run_clouds(args, {**how, "classes": classes_of(args, layers)})
    how |= {"windows": Windows(args.window) if args.overlap is None else Windows(args.window, args.overlap)}
    how |= {"fill": args.fill, "like": args.like or 0}
    if args.at is None and args.output.suffix.casefold() == ".csv":
        return run_labels(args, how["execution"])
    if args.at is not None:
        if layers or args.output_gsd or args.list is not None:
            raise ConfigError("--layers, --output-gsd and --list are for maps only: leave them out with --at")
        return run_places(args, how)
    return run_rasters(args, {**how, "gsd_m": args.output_gsd, "layers": layers})


def classes_of(args: argparse.Namespace, layers: Sequence[str]) -> CloudClasses:
    """Return how the classes of points are written."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.prediction.options import CloudClasses

    unknown = [name for name in layers if name != PICTURE]
    if unknown:
        raise ConfigError(f"layer {unknown[0]!r} is for maps only; beside classified points there may be: {PICTURE}")
    if args.output.suffix.casefold() in (".tif", ".tiff"):
        raise ConfigError(f"{args.output} is a map, whose pixel size is missing: pass --output-gsd, in metres")
    return CloudClasses(replace=args.overwrite_classification, picture=PICTURE in layers)


def run_clouds(args: argparse.Namespace, how: dict[str, Any]) -> int:
    """Classify the points of one cloud or make a map of it, or of several into a folder."""
    from atomizer_io.prediction.bulk import predict_clouds
    from atomizer_io.prediction.cloud_maps import predict_cloud_map
    from atomizer_io.prediction.clouds import predict_points

    if len(args.points) > 1 or args.points[0].is_dir() or args.output.is_dir():
        report = functools.partial(report_outcome, decode=how["decoding"].strategy)
        return summarise(
            predict_clouds(args.model, args.points, args.output, fail_fast=args.fail_fast, report=report, **how)
        )
    if "gsd_m" in how:
        print_map(predict_cloud_map(args.model, args.points[0], args.output, **how), how["decoding"].strategy)
    else:
        print(cloud_line(predict_points(args.model, args.points[0], args.output, **how), how["decoding"].strategy))
    return 0


def run_places(args: argparse.Namespace, how: dict[str, Any]) -> int:
    """Answer at the places of a table."""
    from atomizer_io.prediction.at_positions import predict_at

    places = predict_at(args.model, args.raster, args.at, args.output, **how)
    unit = f" ({measured(places)})" if measured(places) else ""
    asked = asked_text(places.decoded, None, how["decoding"].strategy)
    print(f"{places.predicted:,} of {places.count:,} places{unit} in {places.seconds:.1f} s{asked}: {places.path}")
    return 0


def run_labels(args: argparse.Namespace, execution: Execution) -> int:
    """Predict the class, or the regression target, of whole scenes."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.prediction.bulk import read_list
    from atomizer_io.prediction.scene_labels import named_scenes, predict_labels

    for name in ("layers", "output_gsd", "like", "fill", "window", "overlap", "alpha", "decode"):
        if getattr(args, name) not in (None, False, ""):
            raise ConfigError(f"--{name.replace('_', '-')} is for maps, not for a table of scenes: leave it out")
    if args.list is not None and args.raster:
        raise ConfigError("--raster and --list exclude each other: put the raster into the list, or leave one out")
    scenes = named_scenes(args.raster) if args.list is None else read_list(args.list, allow_vrt=args.allow_vrt)
    how: dict[str, Any] = {"cost": decoding_of(args).cost, "fail_fast": args.fail_fast, "execution": execution}
    return report_labels(predict_labels(args.model, scenes, args.output, **how))


def run_rasters(args: argparse.Namespace, how: dict[str, Any]) -> int:
    """Make a map, or one for each scene of a list."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.prediction.bulk import predict_scenes, read_list
    from atomizer_io.prediction.rasters import predict_raster

    if args.list is not None:
        if args.raster:
            raise ConfigError("--raster and --list exclude each other: put the raster into the list, or leave one out")
        how["execution"] = replace(how["execution"], tell=None)  # one line per scene is enough
        report = functools.partial(report_outcome, decode=how["decoding"].strategy)
        scenes = read_list(args.list, allow_vrt=args.allow_vrt)
        return summarise(
            predict_scenes(args.model, scenes, args.output, fail_fast=args.fail_fast, report=report, **how)
        )
    print_map(predict_raster(args.model, args.raster, args.output, **how), how["decoding"].strategy)
    return 0
