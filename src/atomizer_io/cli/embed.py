"""Write the vectors that a model sees at each pixel or position, or a map of places that are like one place.

atomizer embed flood/best --raster s2.tif --sensor sentinel2 -o vectors.tif
atomizer embed flood/best --raster s2.tif --sensor sentinel2 --raster s1.tif --sensor sentinel1 -o vectors.zarr
atomizer embed flood/best --raster s2.tif --sensor sentinel2 --at wells.csv -o vectors.parquet
atomizer embed flood/best --raster s2.tif --sensor sentinel2 --like 312400,8804210 -o alike.tif

A vector is what the last layer of the model reads: places that the model sees alike have vectors of one direction.
With --like only the cosine between each vector and that of one place is written, 1 for the same. --sensor, --bands,
--date, --gsd, --crs and --nodata belong to the --raster before them; the map is on the grid of the first raster. A
killed command continues with --resume.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from atomizer_io.cli.decoding import add_cost
from atomizer_io.cli.info import model_line
from atomizer_io.cli.predict import add_execution, add_rasters, execution_of, in_options, rasters_of
from atomizer_io.cli.predict_lines import print_map

NUMBERS = ("int8", "float16")  # as in prediction/vector_stores.py, which imports numpy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer embed``."""
    parser.add_argument("model", metavar="MODEL", help="folder of a model, such as runs/NAME/best")
    add = parser.add_argument_group("inputs").add_argument
    add_rasters(add, "a raster of the area; may be repeated", "coordinate system of a raster without one")

    add = parser.add_argument_group("outputs").add_argument
    text = "vectors as a GeoTIFF (.tif), a Zarr store (.zarr) or GeoParquet points (.parquet); with --like a GeoTIFF"
    add("-o", "--output", required=True, type=Path, metavar="FILE", help=text)
    text = "vectors at given coordinates instead of pixels: CSV (x,y or lon,lat), or points of a vector file"
    add("--at", type=Path, metavar="FILE", help=text)
    text = "map how like each pixel is to the place with these coordinates; write --like=X,Y where X is negative"
    add("--like", metavar="X,Y", help=text)
    add("--like-crs", metavar="EPSG:...", help="their coordinate system (default: that of the first raster)")
    add("--output-gsd", type=float, metavar="METRES", help="pixel size of the map (default: that of the raster)")
    text = "numbers of a vector: int8 with a scale for each vector, or float16 (default: int8)"
    add("--numbers", choices=NUMBERS, help=text)

    group = parser.add_argument_group("compute options")
    add_cost(group, "the model's", "all")
    group.add_argument("--window", type=float, metavar="METRES", help="side of a window (default: chosen by the model)")
    text = "share of a window that overlaps the next (default: 0.25)"
    group.add_argument("--overlap", type=float, default=0.25, help=text)
    add_execution(parser, "continue an interrupted command")


def run(args: argparse.Namespace) -> int:
    """Write the vectors, or the map of what is alike; errors name the options of the command line."""
    with in_options():
        return embed(args)


def embed(args: argparse.Namespace) -> int:
    """Write the vectors, or the map of what is alike."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.models.base import Cost
    from atomizer_io.prediction.embeddings import embed_raster, find_alike
    from atomizer_io.prediction.options import Windows

    if not args.raster:
        raise ConfigError("there is no input: name at least one --raster")
    rasters, how = rasters_of(args), options_of(args)
    how |= {"windows": Windows(args.window, args.overlap), "execution": execution_of(args), "gsd_m": args.output_gsd}
    how["cost"] = Cost(args.atoms_per_latent, args.budget, args.neighbors)
    print(model_line(args.model))
    if args.like is not None:
        print_map(find_alike(args.model, rasters, place(args.like), args.output, **how), "dense")
        return 0
    product = embed_raster(args.model, rasters, args.output, **how)
    where = "pixels" if args.at is None else "positions"
    print(f"{product.count:,} {where} with vectors of {product.dimensions} numbers")
    print(f"{product.windows} windows in {product.seconds:.1f} s")
    print(f"written: {product.path}")
    return 0


def options_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that only one of both outputs has."""
    from atomizer_io.errors import ConfigError

    if args.like is None:
        if args.like_crs is not None:
            raise ConfigError("--like-crs is for --like only: leave it out")
        return {"at": args.at, "numbers": args.numbers or NUMBERS[0]}
    if args.at is not None or args.numbers is not None:
        raise ConfigError("--at and --numbers are for vectors, which --like does not write: leave them out")
    return {"crs": args.like_crs}


def place(text: str) -> tuple[float, float]:
    """Return the coordinates in a text."""
    from atomizer_io.errors import ConfigError

    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--like is {text!r}: write two coordinates, such as 312400,8804210") from error
    return x, y
