"""Make a map from your own rasters, or classify your own cloud.

atomizer predict --model flood/best --raster s2.tif --sensor sentinel2 --raster s1.tif --sensor sentinel1 -o map.tif
atomizer predict --model crops/best --raster july.tif --date 2021-07-04 --raster may.tif --date 2021-05-05 -o map.tif
atomizer predict --model flood/best --raster s2.tif --sensor sentinel2 --at wells.csv -o answers.csv
atomizer predict --model lidar/best --points tile.laz -o classified.laz

--sensor, --bands, --date, --gsd and --crs belong to the --raster before them; scene.bands.yaml beside scene.tif may say
the same. Each raster keeps its own grid, resolution and coordinate system. A killed prediction goes on with --resume.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# of a raster, by the names that errors call them (``pass gsd_m=``)
OPTIONS = {"sensor": "--sensor", "bands": "--bands", "gsd_m": "--gsd", "crs": "--crs"}


class OfRaster(argparse.Action):
    """An option that belongs to the ``--raster`` before it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Put it there."""
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
    from atomizer_io.prediction.answering import NAMES
    from atomizer_io.prediction.engines import NAMES as ENGINES
    from atomizer_io.prediction.products import LAYERS

    parser.add_argument("--model", required=True, metavar="FOLDER", help="folder of a model, such as runs/NAME/best")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="GeoTIFF, CSV or LAZ")
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
    inputs.add_argument("--points", type=Path, metavar="FILE", help="a LAS, LAZ or COPC file to classify")
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
    cost.add_argument("--decode", choices=NAMES, default="dense", help="how to read out (default: %(default)s)")
    cost.add_argument(
        "--alpha", type=float, help="share that may differ from dense decoding; needs `atomizer calibrate`"
    )
    cost.add_argument("--kappa", type=int, help="atoms per latent (default: the model's)")
    cost.add_argument("--budget", type=int, help="at most so many atoms of a cell are looked at (default: all)")
    cost.add_argument("--neighbors", type=int, help="latents that a position looks at (default: the model's)")
    cost.add_argument("--window", type=float, metavar="METRES", help="side of a window (default: by the model)")
    cost.add_argument("--overlap", type=float, help="share of a window (default: 0.25)")
    work = parser.add_argument_group("who does it")
    work.add_argument("--engine", choices=ENGINES, default="local", help="(default: %(default)s)")
    work.add_argument("--workers", type=int, help="processes (default: as many as cores)")
    work.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster (default: one on this machine)")
    work.add_argument("--resume", action="store_true", help="go on with a prediction that was interrupted")
    work.add_argument("--overwrite", action="store_true", help="replace the output")
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
    from atomizer_io.prediction.engines import engine

    of_maps = ("at", "like", "output_gsd", "layers", "fill", "overlap")
    foreign = of_maps if args.points is not None else ("overwrite_classification",)
    for name in foreign:
        if getattr(args, name) not in (None, False):
            kind = "rasters" if args.points is not None else "a cloud (--points)"
            raise ConfigError(f"--{name.replace('_', '-')} is for {kind} only: leave it out")
    if args.points is None and not args.raster:
        raise ConfigError("nothing is given: name at least one --raster, or a cloud with --points")
    how: dict[str, Any] = {
        "decode": args.decode,
        "alpha": args.alpha,
        "atoms_per_latent": args.kappa,
        "budget": args.budget,
        "neighbors": args.neighbors,
        "engine": engine(args.engine, args.workers, args.scheduler),
        "resume": args.resume,
        "overwrite": args.overwrite,
        "progress": not args.quiet,
    }
    if args.points is not None:
        from atomizer_io.prediction.clouds import predict_points

        if args.window is not None:
            how |= {"window_m": args.window, "stride_m": args.window / 2}
        how["overwrite_classification"] = args.overwrite_classification
        cloud = predict_points(args.model, args.points, args.output, rasters=args.raster or (), **how)
        print(f"{cloud.points:,} points in {cloud.seconds:.1f} s: {cloud.path}")
        return 0
    from atomizer_io.prediction.sources import open_all

    for source in open_all(args.raster):
        print(source)
    how |= {"window_m": args.window, "fill": args.fill}
    how |= {name: value for name in ("like", "overlap") if (value := getattr(args, name)) is not None}
    layers = [name.strip() for name in (args.layers or "").split(",") if name.strip()]
    if args.at is not None:
        from atomizer_io.prediction.places import predict_at

        if layers or args.output_gsd:
            raise ConfigError("--layers and --output-gsd are of maps, not of answers --at places")
        places = predict_at(args.model, args.raster, args.at, args.output, **how)
        print(f"{places.answered:,} of {places.count:,} places in {places.seconds:.1f} s: {places.path}")
        return 0
    from atomizer_io.prediction.rasters import predict_raster

    product = predict_raster(
        args.model,
        args.raster,
        args.output,
        gsd_m=args.output_gsd,
        layers=layers,
        **how,
    )
    for name, area in product.hectares.items():
        print(f"{name:24} {area:14,.1f} ha")
    if product.mean is not None:
        print(f"mean {product.mean:g}")
    print(f"{product.windows} windows in {product.seconds:.1f} s")
    print("written: " + ", ".join(str(path) for path in product.files.values()))
    return 0
