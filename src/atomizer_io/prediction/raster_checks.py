"""Rasters against the model that is to predict them: what is refused, and what a user is warned of."""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from atomizer_io.data.channels import Channel
from atomizer_io.data.misfits import Image, misfits, sentences
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.io.crs import Box, nearest_turn, outline, turn_of
from atomizer_io.io.raster_sources import RasterSource
from atomizer_io.models.base import Model

OTHER_PIXELS = 4.0  # times larger or smaller than in training
SAME_EXTENT = 0.5  # of the smaller raster: tiles of one date overlap less
LEAST_COVERED = 0.1  # of a point cloud: an image beside it that covers less is warned of
DECLARE = "if it means that nothing was observed, declare it by nodata= (--nodata)"
UNSCALE = (
    "the scale and offset in the file are not applied: if the model was trained on values to which they were, apply "
    "them first (gdal_translate -unscale -ot Float32)"
)


def check_model(model: Model, sources: Sequence[RasterSource], layers: Sequence[str]) -> None:
    """Refuse a model that cannot map these rasters; warn of channels and values unlike those of its training."""
    task_spec = model.task_spec
    if not task_spec.dense:
        raise ConfigError(
            f"the model is for {task_spec.task}: it makes one prediction for a whole scene, and no maps; name a table "
            "for its predictions (-o labels.csv), or use a model for segmentation or regression"
        )
    if task_spec.task == "regression" and set(layers) & {"probabilities", "confidence"}:
        raise ConfigError(
            "the model does regression, which has neither probabilities nor confidence: leave out these layers"
        )
    if "attention" in layers and not model.capabilities.attention:
        raise ConfigError(
            f"{model.preset or model.family} cannot report how much attention channels received: leave out that layer"
        )
    check_channels(model, sources)
    warn_unlike(task_spec, sources)


def check_channels(model: Model, sources: Sequence[RasterSource]) -> None:
    """Refuse rasters with channels that a model cannot read; warn of channels that it was not trained with."""
    known = model.task_spec.statistics()
    for source in sources:
        lost = model.unreadable(source.channels)
        new = [f"{c.sensor} {c.name}" for c in source.channels if (c.sensor, c.name) not in known]
        hint = sensor_hint(model.task_spec, source.channels) if lost or (new and known) else ""
        if lost:
            raise DataError(source.path, without(model, lost[0]) + hint)
        if new and known:
            warnings.warn(
                f"{source.path.name}: the model was trained without {listed(new)}; it reads them by their wavelengths"
                + hint,
                stacklevel=4,
            )


def sensor_hint(task_spec: TaskSpec, channels: Sequence[Channel]) -> str:
    """Return a question about a sensor of the training data whose channels have the names of ``channels``.

    It is empty where any channel is one of the training data, or where fewer than half of the names are known.
    """
    known, names = task_spec.statistics(), {channel.name for channel in channels}
    if any((channel.sensor, channel.name) in known for channel in channels):
        return ""
    counts = Counter(sensor for sensor, name in known if name in names)
    sensor, count = next(iter(counts.most_common(1)), ("", 0))
    return f"; did you mean {sensor}?" if count and 2 * count >= len(names) else ""


def warn_lacking(task_spec: TaskSpec, present: Iterable[Channel]) -> None:
    """Warn of channels that each training sample had and that are not among those ``present``."""
    if (text := task_spec.lacking(present)) is not None:
        warnings.warn(text, stacklevel=4)


def without(model: Model, channel: Channel) -> str:
    """Return why a model cannot read a channel, and what to do."""
    called, advice = f"{channel.sensor} {channel.name}", "leave this band out, or train a model with it"
    own = model.preset or model.family
    if not model.capabilities.new_channels:
        return f"{own} was trained without {called}, and reads no other channels than in training: {advice}"
    return (
        f"the model was trained without {called}, and cannot read it by its wavelength, which is "
        f"{channel.wavelength_um or 'unknown'}: {advice}"
    )


def warn_unlike(task_spec: TaskSpec, sources: Sequence[RasterSource]) -> None:
    """Warn of rasters whose values or pixels are unlike the training data, each kind of fault once, and of doubles."""
    images = [Image(source.path.name, source.overview(), source.channels, source.date) for source in sources]
    faults = misfits(images, task_spec.statistics())
    sizes = {source.path.name: text for source in sources if (text := other_pixels(task_spec, source)) is not None}
    advice = {"fill": DECLARE} | ({"units": UNSCALE} if any(source.scaled for source in sources) else {})
    for text in (*sentences(faults | ({"pixels": sizes} if sizes else {}), advice), *doubles(sources, images)):
        warnings.warn(text, stacklevel=5)


def other_pixels(task_spec: TaskSpec, source: RasterSource) -> str | None:
    """Return that the pixels of a raster are much larger or smaller than in training."""
    usual_m = [channel.gsd_m for channel in task_spec.channels if channel.gsd_m is not None]
    here_m = max(source.pixel_m)
    if not usual_m or min(usual_m) / OTHER_PIXELS <= here_m <= max(usual_m) * OTHER_PIXELS:
        return None
    to = f" to {max(usual_m):g} m" * (min(usual_m) < max(usual_m))
    return f"has pixels of {here_m:g} m; the model was trained on {min(usual_m):g} m{to}"


def doubles(sources: Sequence[RasterSource], images: Sequence[Image]) -> Iterator[str]:
    """Yield a sentence for each two rasters that show the same channels twice; ``images`` are samples of them."""
    marks = [hashlib.blake2b(image.values_CP.tobytes(), digest_size=12).digest() for image in images]
    for (first, mark), (second, second_mark) in itertools.combinations(zip(sources, marks, strict=True), 2):
        if not {(c.sensor, c.name) for c in first.channels} & {(c.sensor, c.name) for c in second.channels}:
            continue
        same = (mark, first.shape, first.transform) == (second_mark, second.shape, second.transform)
        if same or first.path.samefile(second.path):
            what = "is given twice" if first.path == second.path else f"and {second.path.name} hold the same values"
            yield f"{first.path.name} {what}: what it shows counts twice; leave one out"
        elif first.date is not None and first.date == second.date:
            areas = common_areas(first.bounds, first.crs, second)
            if areas is not None and areas[0] > SAME_EXTENT * min(areas[1:]):
                yield (
                    f"{first.path.name} and {second.path.name} are of the same sensor, area and date ({first.date}): "
                    "leave one out, or correct its date (--date)"
                )


def common_areas(box: Box, crs: str | None, source: RasterSource) -> tuple[float, float, float] | None:
    """Return the area that ``box`` of ``crs`` and a raster have in common, and those of both, in units of the raster.

    None where the coordinate system of the raster cannot hold the box.
    """
    x, y = outline(box, crs, source.crs)
    if not np.isfinite([x, y]).all():
        return None
    west, south, east, north = source.bounds
    x = nearest_turn(x, (west + east) / 2, turn_of(source.crs))
    sides = [(x.min(), x.max(), west, east), (y.min(), y.max(), south, north)]
    common = [max(0.0, min(high, last) - max(low, first)) for low, high, first, last in sides]
    return float(np.prod(common)), float(np.ptp(x) * np.ptp(y)), (east - west) * (north - south)


def warn_uncovered(name: str, box: Box, crs: str | None, source: RasterSource) -> None:
    """Warn of a raster that covers little of the extent ``box`` of the point cloud ``name``."""
    areas = common_areas(box, crs, source)
    if areas is not None and areas[0] < LEAST_COVERED * areas[1]:
        warnings.warn(
            f"{source.path.name} covers {100 * areas[0] / areas[1]:.2g} % of the point cloud {name}: the model sees no "
            "image at the other points; is it the right image?",
            stacklevel=4,
        )
