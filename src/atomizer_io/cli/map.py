"""Make a map from labels: train on them, predict, and state how right the map is, in one command.

atomizer map --raster s2.tif --sensor sentinel2 --raster s1.tif --sensor sentinel1 --labels fields.gpkg \\
    --class-column crop -o map.tif --max-time 10m

Labels are points, lines or polygons in GeoPackage, GeoJSON, GeoParquet, FlatGeobuf, Shapefile or CSV. Blocks of them
are held out of training; what the model predicts there is the confusion matrix, and calibrates the prediction sets: the
classes that each pixel may have. Beside map.tif come probabilities, confidence, sets, styles for QGIS, areas,
map.accuracy.json and the report map.html; the training run is in map.run. --sensor, --bands, --date, --gsd, --crs and
--nodata belong to the --raster before them; the map has the pixels of the first raster. An interrupted command goes on
with --resume. Further settings of the training follow as key=value, such as model.preset=atomizer_io_seg or
data.options.block_m=500.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from atomizer_io.cli.predict import OPTIONS, add_rasters, rasters_of
from atomizer_io.cli.predict_lines import print_map
from atomizer_io.errors import AtomizerError, ConfigError

if TYPE_CHECKING:
    from atomizer_io.mapping.label_map import LabelMap
    from atomizer_io.training.area_accuracy import Estimate

UNITS = (3600, 60, 1)  # seconds of an hour, a minute, a second


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer map``."""
    add = parser.add_argument_group("inputs").add_argument
    add_rasters(add, "a raster of the area; may be repeated", "coordinate system of a raster without one")
    add("--labels", required=True, type=Path, metavar="FILE", help="vector file of the labels")
    add("--class-column", metavar="NAME", help="its column of the class (default: the only one there is)")

    add = parser.add_argument_group("outputs").add_argument
    add("-o", "--output", required=True, type=Path, metavar="FILE", help="the GeoTIFF to write; others come beside it")
    text = "share of labels like the held-out ones whose class is in the prediction set (default: %(default)s)"
    add("--coverage", type=float, default=0.9, metavar="SHARE", help=text)
    text = "the labels are a random sample of the mapped area: accuracy and areas are adjusted (Olofsson et al., 2014)"
    add("--random-sample", action="store_true", help=text)

    add = parser.add_argument_group("training").add_argument
    text = "longest duration of all training, such as 10m or 1h30m (default: until the score rises no more)"
    add("--max-time", metavar="TIME", help=text)
    text = (
        "cross-validate: train a model for each of N folds, so that every label is held out once; they share --max-time"
    )
    add("--folds", type=int, metavar="N", help=f"{text} (default: one fold of five is held out)")
    add("options", nargs="*", metavar="key=value", help="settings of the training to change")

    add = parser.add_argument_group("execution").add_argument
    add("--resume", action="store_true", help="continue an interrupted map")
    add("--overwrite", action="store_true", help="replace an existing map")
    add("--quiet", action="store_true", help="show no progress bar")


def run(args: argparse.Namespace) -> int:
    """Make the map and print what is in it; errors name the options of the command line."""
    began_s = time.monotonic()  # before what takes seconds to import

    from atomizer_io.mapping.label_map import MapRequest
    from atomizer_io.mapping.labels_to_map import map_from_labels
    from atomizer_io.prediction.options import Execution

    max_time_s = None if args.max_time is None else seconds(args.max_time)
    request = MapRequest(
        rasters_of(args),
        args.labels,
        args.class_column,
        args.output,
        args.coverage,
        args.random_sample,
        args.folds,
        max_time_s,
        args.options,
    )
    how = Execution(resume=args.resume, overwrite=args.overwrite, progress=not args.quiet, log=print)
    try:
        made = map_from_labels(request, how, began_s=began_s)
    except AtomizerError as error:
        if (text := renamed(str(error))) == str(error):
            raise
        raise ConfigError(text) from error
    print_made(made)
    return 0


def renamed(text: str) -> str:
    """Return an error message with the options of this command in place of those of the dataset and of rasters."""
    text = text.replace("(column=...)", "(--class-column NAME)").replace("(crs=EPSG", "(data.options.labels_crs=EPSG")
    text = re.sub(r"(?<![\w.])(block_m|classes|layer|folds)=", r"data.options.\1=", text)
    return re.sub(rf"(?<![\w.])({'|'.join(OPTIONS)})=(?![\w'\"{{])", lambda match: OPTIONS[match[1]], text)


def seconds(text: str) -> float:
    """Return the seconds of a duration: ``10m``, ``1h30m``, ``45s`` or ``hh:mm:ss``."""
    plain = text.strip().casefold()
    parts = re.fullmatch(r"(\d+):(\d\d):(\d\d)", plain) or re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", plain)
    total = 0 if parts is None else sum(int(part or 0) * unit for part, unit in zip(parts.groups(), UNITS, strict=True))
    if not total:
        raise ConfigError(f"--max-time is {text!r}; write 10m, 1h30m or hh:mm:ss")
    return float(total)


def print_made(made: LabelMap) -> None:
    """Print the map, its confusion matrix, accuracies and areas, and the prediction sets."""
    names = made.names
    print_map(made.product, "dense")
    width = max(len("predicted"), *(min(24, len(name)) for name in names))
    print(f"\n{made.tested_on} (rows: the map, columns: the labels)")
    cells = [max(6, min(12, len(name))) for name in names]
    print(f"{'':{width}} " + " ".join(f"{name[:12]:>{n}}" for name, n in zip(names, cells, strict=True)))
    for name, counts in zip(names, made.confusion.tolist(), strict=True):
        print(f"{name[:24]:{width}} " + " ".join(f"{count:{n}}" for count, n in zip(counts, cells, strict=True)))
    print(f"overall accuracy {shown(made.accuracy.overall)}, 95 % confidence interval")
    for name, users, producers in zip(names, made.accuracy.users, made.accuracy.producers, strict=True):
        print(f"{name[:24]:{width}} user's {shown(users)}, producer's {shown(producers)}")
    total = made.hectares
    for name, area in zip(names, made.accuracy.areas, strict=False):
        low, high = (f"{share * total:,.1f}" for share in (area.low, area.high))
        print(f"{name[:24]:{width}} {area.value * total:,.1f} ha adjusted for errors of the map ({low} to {high})")
    if made.unadjusted is not None:
        print(made.unadjusted)
    pixels = max(1, sum(made.sizes))
    mean = sum(size * count for size, count in enumerate(made.sizes)) / pixels
    one = f"one in {made.sizes[1] / pixels:.0%} of the map"
    print(f"prediction sets of {made.sets.coverage:.4g} coverage: {mean:.2f} classes on average, {one}")
    for note in made.notes:
        print(f"note: {note}")
    print(f"report: {made.files['report.html']}")


def shown(estimate: Estimate) -> str:
    """Return a share and its interval."""
    if math.isnan(estimate.value):
        return "unknown"
    interval = "" if math.isnan(estimate.low) else f" ({estimate.low:.3f} to {estimate.high:.3f})"
    return f"{estimate.value:.3f}{interval}"
