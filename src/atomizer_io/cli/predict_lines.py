"""What ``atomizer predict`` prints of its outputs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # they import torch, which --help must not wait for
    from atomizer_io.prediction.at_positions import PositionsProduct
    from atomizer_io.prediction.bulk import Outcome
    from atomizer_io.prediction.points import PointCloudProduct
    from atomizer_io.prediction.products import RasterProduct
    from atomizer_io.prediction.scene_labels import LabelsProduct

SMALL_HA = 100.0  # areas of smaller maps are printed to the square metre


def print_map(product: RasterProduct, decode: str) -> None:
    """Print what is in a map, what it took, and the files that were written."""
    digits = 1 if sum(product.hectares.values()) >= SMALL_HA else 4  # a square metre is 0.0001 ha
    for name, area in product.hectares.items():
        print(f"{product.codes.get(name, ''):5} {name:24} {area:14,.{digits}f} ha")
    if product.mean is not None:
        print(mean_text(product))
    decoded = decoded_text(product.decoded, product.positions, decode)
    print(f"{product.windows} windows in {product.seconds:.1f} s{decoded}")
    print("written: " + ", ".join(str(path) for path in product.files.values()))


def report_outcome(outcome: Outcome, decode: str) -> None:
    """Print the line of one of several predictions."""
    from atomizer_io.errors import AtomizerError, printable
    from atomizer_io.prediction.products import RasterProduct

    error, product = outcome.error, outcome.product
    note = f" ({outcome.note})" if outcome.note else ""
    if error is not None:
        if not isinstance(error, AtomizerError | OSError):  # a bug of this package: show where
            traceback.print_exception(error)
        notes = getattr(error, "__notes__", ())
        lines = [f"{outcome.name}: failed: {error}", *notes]
        print(printable("\n".join(lines)), file=sys.stderr, flush=True)
    elif isinstance(product, RasterProduct):
        mean = f", {mean_text(product)}" if product.mean is not None else ""
        decoded = decoded_text(product.decoded, product.positions, decode)
        line = f"{product.windows} windows in {product.seconds:.1f} s{decoded}{mean}: {product.path}"
        print(f"{outcome.name}: {line}{note}", flush=True)
    elif product is not None:
        print(f"{outcome.name}: {points_line(product, decode)}{note}", flush=True)
    else:
        print(f"{outcome.name}: done before: {outcome.path}{note}", flush=True)


def summarise(outcomes: Sequence[Outcome]) -> int:
    """Print the closing line of several predictions; return exit code 1 if any failed."""
    failed = [outcome.name for outcome in outcomes if outcome.error is not None]
    made = sum(outcome.product is not None for outcome in outcomes)
    line = f"{made} written, {len(outcomes) - made - len(failed)} done before, {len(failed)} failed"
    print(line + (f": {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def print_labels(labels: LabelsProduct) -> int:
    """Print how many scenes have a prediction, and why others have none; return exit code 1 if any has none."""
    from atomizer_io.errors import printable

    for name, error in labels.failed.items():
        print(printable(f"{name}: failed: {error}"), file=sys.stderr)
    done = labels.count - len(labels.failed)
    print(f"{done:,} of {labels.count:,} scenes in {labels.seconds:.1f} s: {labels.path}")
    return 1 if labels.failed else 0


def points_line(product: PointCloudProduct, decode: str) -> str:
    """Return the line of a classified point cloud."""
    files = ", ".join(str(path) for path in (product.path, product.preview) if path is not None)
    return f"{product.points:,} points in {product.seconds:.1f} s{decoded_text(product.decoded, None, decode)}: {files}"


def print_positions(product: PositionsProduct, decode: str) -> None:
    """Print at how many positions of a table there is a prediction, and of what."""
    target = " in ".join(text for text in (product.target, product.unit) if text)
    decoded = decoded_text(product.decoded, None, decode)
    counts = f"{product.predicted:,} of {product.count:,} positions{f' ({target})' if target else ''}"
    print(f"{counts} in {product.seconds:.1f} s{decoded}: {product.path}")


def decoded_text(decoded: int | None, positions: int | None, decode: str) -> str:
    """Return how many positions were decoded, and by which strategy."""
    of = "" if positions is None else f" of {positions:,}"
    return "" if decoded is None else f", {decoded:,}{of} positions decoded ({decode})"


def mean_text(product: RasterProduct) -> str:
    """Return the mean of a regression target, with its unit and name as far as they are known."""
    name = f" ({product.target})" if product.target else ""
    return f"mean {product.mean:g}{f' {product.unit}' if product.unit else ''}{name}"
