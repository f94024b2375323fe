"""Values that do not fit a model: fill values without a tag, wrapped integers, other units, shifted distributions.

Shapes: C channels of one image, P pixels of a sample of it; NaN where nothing was observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Sample
from atomizer_io.errors import listed

Floats = NDArray[np.float64]
Known = Mapping[tuple[str, str], Channel]  # channels with the statistics of the training data, by (sensor, name)

OTHER_UNITS = 30.0  # values this many times larger or smaller than usual are in other units
SHIFT_STDS = 4.0  # a median that far from the mean of the training data is unusual
PLAIN_FILLS = (0.0, 255.0)  # that may as well be measured
FILLS = (-99.0, -999.0, -9999.0, -32767.0, -32768.0, 32767.0, 65535.0, -(2.0**31), 2.0**31 - 1, 2.0**32 - 1)
FLOAT_FILLS = tuple(float(np.float32(v)) for v in (1e20, -1e20, 9.969209968386869e36, -3.4028234663852886e38))
FAR, MANY, FEW = 10.0, 0.01, 0.001  # standard deviations from the others; shares of pixels that are conspicuous
LEAST = 20  # pixels: fewer are no spike
ENOUGH = 1000  # pixels for a percentile
LOWEST = 1000.0  # below zero: reflectance × 10 000 is never lower
NEARLY_ALL = 0.9  # of the bands: over water, many are dark in any unit
CLOUDS = 0.4  # standard deviations that clouds in the training data may hide
PIXELS = 1 << 16  # of an image that are looked at
OFFSET, DARK = 1000.0, (985.0, 1600.0)  # Sentinel-2 from processing baseline 04.00 on; where its dark pixels then lie
RED_UM = 0.6  # below it, the air is brighter than 1000 at the top of the atmosphere, with an offset or without


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """Values (C, P) of a sample of an image, called ``name``; one sensor and ``date`` may have several images."""

    name: str
    values_CP: Floats
    channels: Sequence[Channel]
    date: object = None


@dataclass(frozen=True, slots=True)
class Fill:
    """A value that is probably no measurement, its share of the pixels, and the channels (by number) that have it."""

    value: float
    share: float
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The observed values (P,) of one channel of the image ``name``, and mean and standard deviation in training."""

    name: str
    channel: Channel
    values: Floats
    mean: float
    std: float


def misfits(images: Sequence[Image], known: Known) -> dict[str, dict[str, str]]:
    """Return what does not fit, by kind (``fill``, ``wrapped``, ``units``, ``offset``, ``shift``) and name of image.

    A channel without statistics in ``known`` is compared with its own. Each text goes on where the name of the image
    ends. Statistics are compared over all images of a sensor and date, as a single band may be anything.
    """
    texts: dict[str, dict[str, str]] = {}
    bands: dict[tuple[str, object], list[Band]] = {}
    for image in images:
        usual = [known.get((c.sensor, c.name), c) for c in image.channels]
        values_CP = image.values_CP[:, :: max(1, -(-image.values_CP.shape[1] // PIXELS))].copy()
        for fill in fills(values_CP, usual):
            text = _fill_text(fill, image.channels)
            before = texts.setdefault("fill", {}).get(image.name)
            texts["fill"][image.name] = text if before is None else f"{before} and {text}"
            rows = list(fill.channels)
            values_CP[rows] = np.where(values_CP[rows] == fill.value, np.nan, values_CP[rows])
        if (negative := wrapped(values_CP, usual)) is not None:
            texts.setdefault("wrapped", {})[image.name] = negative
            continue
        for band in _bands(image.name, values_CP, usual):
            bands.setdefault((band.channel.sensor, image.date), []).append(band)
    for group in bands.values():
        for kind, check in (("units", other_units), ("offset", offset), ("shift", shift)):
            if (odd := check(group)) is not None:
                texts.setdefault(kind, {})[odd[0].name] = odd[1]
                break
    return texts


def images_of(sample: Sample) -> Iterator[Image]:
    """Yield the images of a sample, without dates; points are none."""
    for acquisition in sample.atoms:
        if max(acquisition.footprint_m or (0.0, 0.0)) > 0 and len(acquisition.positions):
            step = max(1, -(-len(acquisition.positions) // PIXELS))
            values_PC = acquisition.values[::step].double().numpy().copy()
            if acquisition.valid is not None:
                values_PC[~acquisition.valid[::step].numpy()] = np.nan
            yield Image(sample.meta.id, values_PC.T, acquisition.channels)


def repeated(sample: Sample) -> str | None:
    """Return which two images of a sample have the same channels, positions and date, None if there are none."""
    seen: dict[tuple[Any, ...], Acquisition] = {}
    for acquisition in sample.atoms:
        if acquisition.date is None or not len(acquisition.positions):
            continue
        corners = (tuple(acquisition.positions[0].tolist()), tuple(acquisition.positions[-1].tolist()))
        before = seen.setdefault(
            (acquisition.channels, acquisition.date, len(acquisition.positions), corners), acquisition
        )
        if before is not acquisition:
            same = torch.equal(before.observed().nan_to_num(), acquisition.observed().nan_to_num())
            what = "the same values" if same else "the same date"
            return f"has two images of {acquisition.sensor} with {what} ({acquisition.date})"
    return None


def sentences(texts_by_kind: Mapping[str, Mapping[str, str]], advice: Mapping[str, str]) -> list[str]:
    """Return one sentence for each kind of misfit: the first image, and the names of the others."""
    lines = []
    for kind, texts in texts_by_kind.items():
        first, *rest = texts
        likewise = f" (likewise {listed(rest)})" if rest else ""
        lines.append(f"{first} {texts[first]}{likewise}" + (f"; {advice[kind]}" if kind in advice else ""))
    return lines


def fills(values_CP: Floats, usual: Sequence[Channel]) -> list[Fill]:
    """Return the conventional fill values that stand apart from all other values.

    0 and 255 may be measured: they count where all channels have them at once, or where they are all that a channel of
    several has.
    """
    fill_values = []
    known_C = np.maximum(np.isfinite(values_CP).sum(axis=1), 1)
    for value in (*PLAIN_FILLS, *FILLS, *FLOAT_FILLS):
        same_CP = values_CP == value
        share_C = same_CP.sum(axis=1) / known_C
        if share_C.max(initial=0) < FEW or same_CP.sum(axis=1).max() < LEAST:
            continue
        if value in PLAIN_FILLS:
            rows = _plain(values_CP, same_CP, share_C, value, usual)
        else:
            rows = [i for i in np.flatnonzero(share_C >= FEW).tolist() if _far(values_CP[i], value, usual[i])]
        if rows:
            fill_values.append(Fill(value, float(share_C[rows].max()), tuple(rows)))
    return fill_values


def _plain(
    values_CP: Floats, same_CP: NDArray[np.bool_], share_C: Floats, value: float, usual: Sequence[Channel]
) -> list[int]:
    """Return the channels (numbers) in which 0 or 255 is a fill value."""
    optical = [channel.wavelength_um is not None for channel in usual]
    beyond = [c.mean is not None and c.std is not None and abs(value - c.mean) > 2 * c.std for c in usual]
    together = same_CP.all(axis=0)
    share = together.sum() / max(1, np.isfinite(values_CP).any(axis=0).sum())
    if share >= MANY and (all(optical) or (len(usual) > 1 and all(np.logical_or(optical, beyond)))):
        kinds = len(np.unique(values_CP[0][~together])) if len(usual) == 1 else 16
        if kinds >= 16 and any(_apart(row[~together], value, int(together.sum())) for row in values_CP):
            return list(range(len(usual)))
    empty = np.flatnonzero(share_C > 1 - FEW).tolist()  # a band that was not measured, filled up
    return [i for i in empty if optical[i]] if len(empty) < len(usual) else []


def _apart(rest: Floats, value: float, count: int) -> bool:
    """Return whether at most a tenth of ``count`` of the other values (P,) are near ``value``."""
    rest = rest[np.isfinite(rest) & (rest != value)]
    return not len(rest) or bool((np.abs(rest - value) <= _robust_std(rest) / 4).sum() <= count / 10)


def _far(row: Floats, value: float, usual: Channel) -> bool:
    """Return whether a value is many standard deviations from the others (P,), or from the training data."""
    rest = row[np.isfinite(row) & (row != value)]
    if not _apart(rest, value, int((row == value).sum())):
        return False
    trained = usual.mean is not None and usual.std is not None and abs(value - usual.mean) > FAR * usual.std
    if not len(rest) or trained:
        return True
    return bool(abs(value - np.median(rest)) > FAR * max(_robust_std(rest), 1e-12))


def _robust_std(values: Floats) -> float:
    """Return half the range of the middle 68 %: the standard deviation, not moved by a few outliers."""
    low, high = np.percentile(values, (16, 84))
    return float(high - low) / 2


def _fill_text(fill: Fill, channels: Sequence[Channel]) -> str:
    names = "all bands" if len(fill.channels) == len(channels) > 1 else listed(channels[i].name for i in fill.channels)
    value = f"{fill.value:.0f}" if abs(fill.value) < 2**33 else str(np.float32(fill.value))
    if fill.share > 1 - FEW:
        return f"is {value} everywhere in {names}"
    return f"is {value} in {100 * fill.share:.3g} % of {names}, apart from all other values"


def wrapped(values_CP: Floats, usual: Sequence[Channel]) -> str | None:
    """Return that reflectances are far below zero, as unsigned 16-bit integers are that were read as signed ones."""
    deep = {}
    for row, channel in zip(values_CP, usual, strict=True):
        below = row[row < _lowest(row, channel)] if channel.wavelength_um is not None else row[:0]
        if len(below) >= max(LEAST, FEW * np.isfinite(row).sum()) and (below == np.round(below)).all():
            deep[channel.name] = (100 * len(below) / np.isfinite(row).sum(), float(below.min()))
    if not deep:
        return None
    share, low = next(iter(deep.values()))
    return (
        f"is far below zero in {share:.3g} % of {next(iter(deep))}, down to {low:g}, which no reflectance is"
        + (f" (likewise {listed(list(deep)[1:])})" if len(deep) > 1 else "")
        + ": unsigned 16-bit integers become negative where they are stored as signed ones; write the file as uint16"
    )


def _lowest(row: Floats, channel: Channel) -> float:
    """Return the value below which a reflectance is too far below zero for noise or atmospheric correction."""
    above = row[row > 0]
    bound = max(float(np.median(above)) if len(above) else 0.0, LOWEST)
    if channel.mean is not None and channel.std is not None:
        bound = max(bound, 4 * channel.std - channel.mean)
    return -bound


def _bands(name: str, values_CP: Floats, usual: Sequence[Channel]) -> Iterator[Band]:
    """Yield the channels that have statistics, and values in more than a few pixels."""
    for row, channel in zip(values_CP, usual, strict=True):
        values = row[np.isfinite(row)]
        if len(values) > max(LEAST, MANY * len(row)) and channel.mean is not None and channel.std:
            yield Band(name, channel, values, channel.mean, channel.std)


def other_units(bands: Sequence[Band]) -> tuple[Band, str] | None:
    """Return the first band, and why, where nearly all are of another magnitude than in training.

    What is no reflectance may be near zero in any unit, as elevations are.
    """
    odd = []
    for band in bands:
        mean, std = float(band.values.mean()), float(band.values.std())
        ratio = (abs(mean) + std) / (abs(band.mean) + band.std)
        if ratio >= OTHER_UNITS or (ratio <= 1 / OTHER_UNITS and band.channel.wavelength_um is not None):
            usual = f"usually {band.mean:.3g} ± {band.std:.2g}"
            odd.append((band, f"{band.channel.name} is {mean:.3g} ± {std:.2g}, {usual}"))
    if not odd or len(odd) < NEARLY_ALL * len(bands):
        return None
    band, text = odd[0]
    return band, f"seems to be in other units than the training data: {text}"


def offset(bands: Sequence[Band]) -> tuple[Band, str] | None:
    """Return the darkest band, and why, where Sentinel-2 has the offset of baseline 04.00 and the training data not.

    With it nothing lies below 1000 (but for one pixel in a thousand), the dark pixels of half of the bands from red on
    are just above, and without it the medians fit the training data better, or no worse than clouds in these explain.
    Three bands, one of them from red on, and some pixels are needed.
    """
    if len(bands) < 3 or not all(b.channel.sensor.startswith("sentinel2") and b.mean > 50 for b in bands):
        return None
    if min(len(band.values) for band in bands) < ENOUGH:
        return None
    lowest, dark = np.stack([np.percentile(band.values, (0.1, 1)) for band in bands], axis=1)
    red = np.array([(band.channel.wavelength_um or 0.0) > RED_UM for band in bands])
    shifts = np.array([(float(np.median(band.values)) - band.mean) / band.std for band in bands])
    without = shifts - [OFFSET / band.std for band in bands]
    worse = np.abs(without).mean() - np.abs(shifts).mean()
    if not red.any() or lowest.min() < DARK[0] or (dark[red] <= DARK[1]).mean() < 0.5 or worse > CLOUDS:
        return None
    band = bands[int(np.argmin(dark))]
    return band, (
        f"has hardly a value below {min(dark):.0f} (1 % of {band.channel.name}), like Sentinel-2 from processing "
        f"baseline 04.00 on, which adds {OFFSET:.0f}, and unlike the training data: unless it is a bright desert, "
        f"subtract {OFFSET:.0f} from all bands where there are data"
    )


def shift(bands: Sequence[Band]) -> tuple[Band, str] | None:
    """Return the first band, and why, where most lie many standard deviations from the training data."""
    away = {band: (float(np.median(band.values)) - band.mean) / band.std for band in bands}
    odd = [band for band in bands if abs(away[band]) > SHIFT_STDS]
    if len(odd) <= len(bands) / 2:
        return None
    band = odd[0]
    return band, (
        f"is unlike the training data in {len(odd)} of {len(bands)} channels of {band.channel.sensor}: "
        f"{band.channel.name} has a median of {np.median(band.values):.4g}, {abs(away[band]):.1f} standard deviations "
        f"from {band.mean:.4g}; is it the same product, in the same unit, and not all cloud?"
    )
