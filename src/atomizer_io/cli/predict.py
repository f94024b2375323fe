"""Make a map from your own rasters, or classify your own cloud.

atomizer predict --model flood/best --raster s2.tif --sensor sentinel2 --raster s1.tif --sensor sentinel1 -o map.tif
atomizer predict --model crops/best --raster july.tif --date 2021-07-04 --raster may.tif --date 2021-05-05 -o map.tif
atomizer predict --model flood/best --raster s2.tif --sensor sentinel2 --at wells.csv -o answers.csv
atomizer predict --model lidar/best --points tile.laz -o classified.laz
atomizer predict --model lidar/best --points tiles/ more.laz -o classified/
atomizer predict --model flood/best --list scenes.csv -o maps/

--sensor, --bands, --date, --gsd and --crs belong to the --raster before them; scene.bands.yaml beside scene.tif may say
the same. Each raster keeps its own grid, resolution and coordinate system. A killed prediction goes on with --resume.
scenes.csv has the columns scene and path, and may have sensor, bands, date, gsd and crs: one map for all rows of a
scene. A regression model answers in the physical unit of its training target.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atomizer_io.prediction.clouds import CloudProduct
    from atomizer_io.prediction.many import Outcome
    from atomizer_io.prediction.places import PlacesProduct
    from atomizer_io.prediction.products import RasterProduct

# As in prediction/options.py, engines.py and products.py, which bring torch: help must not wait for it.
DECODE = ("dense", "quadtree", "zone-probe", "sketch")
ENGINES = ("local", "dask")
LAYERS = ("probabilities", "confidence", "attention")

# of a raster, by the names that errors call them (``pass gsd_m=``)
OPTIONS = {"sensor": "--sensor", "bands": "--bands", "gsd_m": "--gsd", "crs": "--crs"}


class OfRaster(argparse.Action):
    """An option that belongs to the ``--raster`` before it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Put it there."""
        if self.dest == "crs" and namespace.points is not None and not namespace.raster:
            namespace.cloud_crs = values
            return
        if not namespace.raster:
            parser.error(f"{option} belongs to the --raster before it, and there is none")
        if self.dest in namespace.raster[-1]:
            parser.error(f"{option} is given twice for {namespace.raster[-1]['path']}")
        namespace.raster[-1][self.dest] = values


class Raster(argparse.Action):
    """One more raster."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        """Begin it."""
        namespace.raster = [*(namespace.raster or []), {"path": values}]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``atomizer predict``."""
    parser.add_argument("--model", required=True, metavar="FOLDER", help="folder of a model, such as runs/NAME/best")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="FILE",
        help="GeoTIFF, CSV or LAZ; a folder, if several are written",
    )
    inputs = parser.add_argument_group("what is given")
    inputs.add_argument("--raster", action=Raster, metavar="FILE", help="a raster; may be repeated")
    inputs.add_argument("--sensor", action=OfRaster, help="its sensor, such as sentinel2 (see `atomizer info sensors`)")
    inputs.add_argument(
        "--bands", action=OfRaster, metavar="B02,B03,...", help="its bands in the order of the file, - to leave one out"
    )
    inputs.add_argument("--date", action=OfRaster, metavar="YYYY-MM-DD", help="its date")
    inputs.add_argument("--gsd", action=OfRaster, type=float, dest="gsd_m", help="its pixel size, if it has no CRS")
    inputs.add_argument(
        "--crs", action=OfRaster, metavar="EPSG:...", help="its coordinate system, if the file has its place but no CRS"
    )
    inputs.add_argument(
        "--points",
        type=Path,
        action="extend",
        nargs="+",
        metavar="FILE",
        help="LAS, LAZ or COPC files to classify, or folders of them; --crs right behind is their coordinate system, "
        "if they have none",
    )
    inputs.add_argument(
        "--list", type=Path, metavar="FILE", help="a CSV file of the rasters of many scenes, one map each"
    )
    parser.set_defaults(cloud_crs=None)
    outputs = parser.add_argument_group("what is wanted")
    outputs.add_argument("--like", type=int, help="which raster the map is like, from 0 (default: 0)")
    outputs.add_argument("--output-gsd", type=float, metavar="METRES", help="pixel size of the map (default: like)")
    outputs.add_argument(
        "--at", type=Path, metavar="FILE", help="no map but answers at these places: CSV (x,y or lon,lat) or GeoPackage"
    )
    outputs.add_argument("--layers", help=f"further files beside the map: {','.join(LAYERS)}")
    outputs.add_argument("--fill", action="store_true", help="answer where nothing was observed, too")
    outputs.add_argument(
        "--overwrite-classification",
        action="store_true",
        help="of a cloud: replace its classes; probabilities are added still",
    )
    cost = parser.add_argument_group("what it may cost")
    cost.add_argument("--decode", choices=DECODE, default="dense", help="how to read out (default: %(default)s)")
    cost.add_argument(
        "--alpha", type=float, help="share that may differ from dense decoding; needs `atomizer calibrate`"
    )
    cost.add_argument(
        "--atoms-per-latent", "--kappa", type=int, metavar="κ", help="atoms per latent, κ (default: the model's)"
    )
    cost.add_argument("--budget", type=int, help="at most so many atoms of a cell are looked at (default: all)")
    cost.add_argument("--neighbors", type=int, help="latents that a position looks at (default: the model's)")
    cost.add_argument("--window", type=float, metavar="METRES", help="side of a window (default: by the model)")
    cost.add_argument("--overlap", type=float, help="share of a window (default: 0.25)")
    work = parser.add_argument_group("who does it")
    work.add_argument("--engine", choices=ENGINES, default="local", help="(default: %(default)s)")
    work.add_argument("--workers", type=int, help="processes (default: as many as cores)")
    work.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster (default: one on this machine)")
    work.add_argument(
        "--resume", action="store_true", help="go on with what was interrupted; of several, leave what is done"
    )
    work.add_argument("--overwrite", action="store_true", help="replace the output")
    work.add_argument("--fail-fast", action="store_true", help="of several: stop at the first that fails")
    work.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Predict, and say what was written; errors speak of the options of the command line."""
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
    """Predict, and say what was written."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.models.contract import Cost
    from atomizer_io.prediction.engines import engine
    from atomizer_io.prediction.options import CloudClasses, CloudWindows, Decoding, Execution, Windows

    clouds = args.points is not None
    of_maps = ("at", "like", "output_gsd", "layers", "fill", "overlap", "list")
    for name in of_maps if clouds else ("overwrite_classification",):
        if getattr(args, name) not in (None, False):
            kind = "rasters" if clouds else "a cloud (--points)"
            raise ConfigError(f"--{name.replace('_', '-')} is for {kind} only: leave it out")
    if not clouds and not args.raster and args.list is None:
        raise ConfigError("nothing is given: name at least one --raster, a --list of scenes, or a cloud with --points")
    cost = Cost(args.atoms_per_latent, args.budget, args.neighbors)
    how: dict[str, Any] = {
        "decoding": Decoding(args.decode, args.alpha, cost),
        "execution": Execution(
            engine(args.engine, args.workers, args.scheduler), args.resume, args.overwrite, not args.quiet, tell=print
        ),
    }
    if clouds:
        how |= {"windows": CloudWindows() if args.window is None else CloudWindows(args.window)}
        how |= {"classes": CloudClasses(replace=args.overwrite_classification)}
        return run_clouds(args, {**how, "rasters": args.raster or (), "crs": args.cloud_crs})
    how |= {"windows": Windows(args.window) if args.overlap is None else Windows(args.window, args.overlap)}
    how |= {"fill": args.fill, "like": args.like or 0}
    layers = [name.strip() for name in (args.layers or "").split(",") if name.strip()]
    if args.at is not None:
        if layers or args.output_gsd or args.list is not None:
            raise ConfigError("--layers, --output-gsd and --list are of maps, not of answers --at places")
        return run_places(args, how)
    return run_rasters(args, {**how, "gsd_m": args.output_gsd, "layers": layers})


def run_clouds(args: argparse.Namespace, how: dict[str, Any]) -> int:
    """Classes for a cloud, or for several into a folder."""
    from atomizer_io.prediction.clouds import predict_points
    from atomizer_io.prediction.many import predict_clouds

    if len(args.points) > 1 or args.points[0].is_dir() or args.output.is_dir():
        told = functools.partial(tell, decode=args.decode)
        return ending(
            predict_clouds(args.model, args.points, args.output, fail_fast=args.fail_fast, report=told, **how)
        )
    print(cloud_line(predict_points(args.model, args.points[0], args.output, **how), args.decode))
    return 0


def run_places(args: argparse.Namespace, how: dict[str, Any]) -> int:
    """Answers at places."""
    from atomizer_io.prediction.places import predict_at

    places = predict_at(args.model, args.raster, args.at, args.output, **how)
    unit = f" ({measured(places)})" if measured(places) else ""
    asked = asked_text(places.asked, None, args.decode)
    print(f"{places.answered:,} of {places.count:,} places{unit} in {places.seconds:.1f} s{asked}: {places.path}")
    return 0


def run_rasters(args: argparse.Namespace, how: dict[str, Any]) -> int:
    """A map, or one of each scene of a list."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.prediction.many import predict_scenes
    from atomizer_io.prediction.rasters import predict_raster

    if args.list is not None:
        if args.raster:
            raise ConfigError("--raster and --list exclude each other: put the raster into the list, or leave one out")
        how["execution"] = replace(how["execution"], tell=None)  # one line per scene is enough
        told = functools.partial(tell, decode=args.decode)
        return ending(predict_scenes(args.model, args.list, args.output, fail_fast=args.fail_fast, report=told, **how))
    product = predict_raster(args.model, args.raster, args.output, **how)
    for name, area in product.hectares.items():
        print(f"{name:24} {area:14,.1f} ha")
    if product.mean is not None:
        print(mean_text(product))
    asked = asked_text(product.asked, product.positions, args.decode)
    print(f"{product.windows} windows in {product.seconds:.1f} s{asked}")
    print("written: " + ", ".join(str(path) for path in product.files.values()))
    return 0


def tell(outcome: Outcome, decode: str) -> None:
    """One line of one of many."""
    from atomizer_io.errors import AtomizerError
    from atomizer_io.prediction.products import RasterProduct

    error, product = outcome.error, outcome.product
    if error is not None:
        if not isinstance(error, AtomizerError | OSError):  # a mistake of this package: where it is, is of interest
            traceback.print_exception(error)
        notes = getattr(error, "__notes__", ())
        print("\n".join([f"{outcome.name}: failed: {error}", *notes]), file=sys.stderr, flush=True)
    elif isinstance(product, RasterProduct):
        mean = f", {mean_text(product)}" if product.mean is not None else ""
        asked = asked_text(product.asked, product.positions, decode)
        line = f"{product.windows} windows in {product.seconds:.1f} s{asked}{mean}: {product.path}"
        print(f"{outcome.name}: {line}", flush=True)
    elif product is not None:
        print(f"{outcome.name}: {cloud_line(product, decode)}", flush=True)
    else:
        print(f"{outcome.name}: done before: {outcome.path}", flush=True)


def ending(outcomes: Sequence[Outcome]) -> int:
    """The closing line of many; the exit code is 1 if any failed."""
    failed = [outcome.name for outcome in outcomes if outcome.error is not None]
    made = sum(outcome.product is not None for outcome in outcomes)
    line = f"{made} written, {len(outcomes) - made - len(failed)} done before, {len(failed)} failed"
    print(line + (f": {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def cloud_line(cloud: CloudProduct, decode: str) -> str:
    """What became of a cloud."""
    return f"{cloud.points:,} points in {cloud.seconds:.1f} s{asked_text(cloud.asked, None, decode)}: {cloud.path}"


def asked_text(asked: int | None, positions: int | None, decode: str) -> str:
    """At how many positions the model was asked, and how they were chosen."""
    of = "" if positions is None else f" of {positions:,}"
    return "" if asked is None else f", {asked:,}{of} positions asked ({decode})"


def mean_text(product: RasterProduct) -> str:
    """The mean of a quantity, with its unit and name as far as they are known."""
    name = f" ({product.quantity})" if product.quantity else ""
    return f"mean {product.mean:g}{f' {product.unit}' if product.unit else ''}{name}"


def measured(product: PlacesProduct) -> str:
    """The name and unit of a quantity, as far as they are known."""
    return " in ".join(text for text in (product.quantity, product.unit) if text)
