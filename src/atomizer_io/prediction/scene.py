"""What is asked of which model: rasters that were looked at, the grid of the answers and its windows, all checked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.model.atomizer import AtomizerIO
from atomizer_io.model.config import AtomizerConfig
from atomizer_io.model.weights import fingerprint
from atomizer_io.prediction import products
from atomizer_io.prediction.answering import ReadOut, loaded, on_disk
from atomizer_io.prediction.parts import Parts
from atomizer_io.prediction.products import NODATA, Place
from atomizer_io.prediction.sources import RasterInput, Source, open_all
from atomizer_io.prediction.sources import overlap as reaches
from atomizer_io.prediction.windows import Layout

OVERLAP = 0.25
OTHER_UNITS = 30.0  # times larger or smaller than usual
WINDOW_ATOMS = 1 << 20
UNSCALE = (
    "; the scale and offset in the file are not applied: if the model was trained on values to which they were, apply "
    "them first (gdal_translate -unscale -ot Float32)"
)
LIGHT = (0.35, 2.5)  # µm: the spectral basis of the model


@dataclass(frozen=True)
class Job:
    """All that a worker has to know."""

    read_out: ReadOut
    sources: tuple[Source, ...]
    place: Place
    layout: Layout
    attention: bool
    fill: bool

    @property
    def depth(self) -> int:
        """Numbers per position: outputs, attention of each kind, whether anything was observed."""
        kinds = len(kinds_of(self.sources)) if self.attention else 0
        return loaded(self.read_out.folder).config.num_outputs + kinds + 1


@dataclass(frozen=True)
class Scene:
    """What is asked of which model: rasters that were looked at, the grid of the answers and its windows."""

    model: str  # its name
    mark: str
    config: AtomizerConfig
    read_out: ReadOut
    sources: tuple[Source, ...]
    place: Place
    layout: Layout

    @classmethod
    def of(
        cls,
        model: AtomizerIO | str | Path,
        rasters: Sequence[RasterInput | str | Path | dict[str, Any]] | RasterInput | str | Path | dict[str, Any],
        how: Mapping[str, Any],
        *,
        like: int = 0,
        gsd_m: float | None = None,
        window_m: float | None = None,
        overlap: float = OVERLAP,
        layers: Sequence[str] = (),
    ) -> Scene:
        """Look at everything; whatever does not fit is said here, before any work."""
        given = [rasters] if isinstance(rasters, RasterInput | str | Path | dict) else list(rasters)
        own = model if isinstance(model, AtomizerIO) else loaded(str(model))
        folder = Path("a model in memory") if isinstance(model, AtomizerIO) else on_disk(model, Path)
        read_out = ReadOut.chosen(own, folder, **{"decode": "dense", "alpha": None, **how})
        sources = open_all(given)
        if not 0 <= like < len(sources):
            raise ConfigError(f"like is {like}, but there are {len(sources)} rasters, counted from 0")
        place = place_of(sources[like], gsd_m)
        for source in sources:
            if not reaches(source, place.crs, place.bounds):
                raise DataError(source.path, f"does not overlap {sources[like].path.name}, which the map is to be like")
        check_model(own.config, sources, layers)
        check_units(own.config, sources)
        layout = layout_of(place, usual_window_m(own.config, sources) if window_m is None else window_m, overlap)
        return cls(folder.name, fingerprint(own), own.config, read_out, tuple(sources), place, layout)

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """(sensor, name) of all channels."""
        return kinds_of(self.sources)

    def plan(self) -> dict[str, Any]:
        """What the answers depend on."""
        return {
            "raster": [_trace(source) for source in self.sources],
            "model": self.mark,
            "read out": {**asdict(self.read_out), "folder": None},
            "grid": [self.place.crs, self.place.transform, self.place.height, self.place.width],
            "windows": [self.layout.tops, self.layout.lefts, self.layout.size],
        }

    def bytes_needed(self, layers: Sequence[str]) -> int:
        """At most, with what is only there while it works."""
        place, kinds = self.place, len(self.kinds) * ("attention" in layers)
        layout, outputs = self.layout, self.config.num_outputs + kinds + 1
        open_rows = 1 + max(len(layout.covering(*layout.strip(row))) for row in range(len(layout.tops)))
        windows = open_rows * len(layout.lefts) * layout.size[0] * layout.size[1] * outputs * 4
        depth = sum(products.depths(self.config, layers, kinds).values())
        return windows + 3 * place.height * place.width * depth * 4  # windows that wait; strips, plain and final file

    def job(self, model: AtomizerIO | str | Path, parts: Parts, *, attention: bool = False, fill: bool = False) -> Job:
        """For the workers; a model that is only in memory is stored where they find it."""
        folder = on_disk(model, lambda: parts.path(f"model-{self.mark}").absolute())
        return Job(replace(self.read_out, folder=str(folder)), self.sources, self.place, self.layout, attention, fill)


def place_of(source: Source, gsd_m: float | None) -> Place:
    """The grid of a raster, or one over its extent with other pixels."""
    if gsd_m is None:
        return Place(source.crs, source.transform, source.height, source.width)
    if not gsd_m > 0:
        raise ConfigError(f"gsd_m must be positive, got {gsd_m}")
    a, b, west, d, e, north = source.transform
    step_x, step_y = a * gsd_m / source.pixel_m[0], e * gsd_m / source.pixel_m[1]
    sides_m = (n * old for n, old in zip(source.shape[::-1], source.pixel_m, strict=True))
    width, height = (math.ceil(side / gsd_m - 1e-6) for side in sides_m)  # all of it, at the edge a little more
    return Place(source.crs, (step_x, b, west, d, step_y, north), height, width)


def layout_of(place: Place, window_m: float, share: float) -> Layout:
    """Windows of ``window_m`` that overlap by ``share``."""
    if not window_m > 0:
        raise ConfigError(f"window_m must be positive, got {window_m}")
    across, down = place.frame(0, 0, place.height, place.width)[1].pixel_m
    if window_m < max(across, down):
        raise ConfigError(f"a window of {window_m:g} m has not one pixel of {max(across, down):g} m")
    return Layout.over((place.height, place.width), (round(window_m / down), round(window_m / across)), share)


def usual_window_m(config: AtomizerConfig, sources: Sequence[Source]) -> float:
    """Twice the side of the scenes that the model was made for, or once where that would be too many atoms.

    Larger windows differ less from the whole scene, and less of them is computed twice.
    """
    side = 2 * config.rope_scale_m
    per_m2 = sum(len(source.channels) / math.prod(source.pixel_m) for source in sources)
    return 2 * side if (2 * side) ** 2 * per_m2 <= WINDOW_ATOMS else side


def check_model(config: AtomizerConfig, sources: Sequence[Source], layers: Sequence[str]) -> None:
    """Refuse a model that makes no maps; say which channels it has never seen."""
    if not config.dense:
        raise ConfigError(f"the model is for {config.task}: it answers for whole scenes and makes no maps")
    if config.task == "regression" and set(layers) & {"probabilities", "confidence"}:
        raise ConfigError("the model predicts a quantity, which has neither probabilities nor confidence")
    if config.task == "segmentation" and config.num_outputs > NODATA:
        raise ConfigError(f"the model has {config.num_outputs} classes; a map has at most {NODATA}")
    known = {(channel.sensor, channel.name) for channel in config.channels}
    learned = set() if known else set(config.learned_channels)  # what training never met has learned nothing
    for source in sources:
        new = [c for c in source.channels if (c.sensor, c.name) not in known]
        named = [c for c in new if {c.name, f"{c.sensor} {c.name}"} & learned]
        lost = [c for c in new if c not in named and not LIGHT[0] < (c.wavelength_um or 0) < LIGHT[1]]
        if lost:
            raise DataError(
                source.path,
                f"the model was trained without {lost[0].sensor} {lost[0].name}, and cannot go by its wavelength, "
                f"which is {lost[0].wavelength_um or 'unknown'}: leave this band out, or train a model with it",
            )
        if new and known:
            names = ", ".join(f"{c.sensor} {c.name}" for c in new)
            warnings.warn(
                f"{source.path.name}: the model was trained without {names}; it goes by wavelengths", stacklevel=4
            )


def check_units(config: AtomizerConfig, sources: Sequence[Source]) -> None:
    """Warn of rasters most of whose values are of another size than those the model was trained on."""
    known = {(channel.sensor, channel.name): channel for channel in config.channels}
    for source in sources:
        sizes, odd = 0, []
        for channel, mean, std in zip(source.channels, *source.overview(), strict=True):
            usual = known.get((channel.sensor, channel.name), channel)
            if np.isfinite(mean) and usual.mean is not None and usual.std:
                sizes += 1
                if not 1 / OTHER_UNITS < (abs(mean) + std) / (abs(usual.mean) + usual.std) < OTHER_UNITS:
                    odd.append(f"{channel.name} is {mean:.3g} ± {std:.2g}, usually {usual.mean:.3g} ± {usual.std:.2g}")
        if len(odd) > sizes / 2:
            text = f"{source.path.name} seems to be in other units than the model knows: {odd[0]}"
            warnings.warn(text + (UNSCALE if source.scaled else ""), stacklevel=3)


def kinds_of(sources: Sequence[Source]) -> tuple[tuple[str, str], ...]:
    """(sensor, name) of all channels of all rasters, each once."""
    return tuple(dict.fromkeys((c.sensor, c.name) for source in sources for c in source.channels))


def _trace(source: Source) -> dict[str, Any]:
    """What tells one input from another."""
    state = source.path.stat()
    found = asdict(source) | {"path": str(source.path), "date": str(source.date)}
    return {key: found[key] for key in ("path", "date", "channels", "gsd_m")} | {
        "size": state.st_size,
        "time of change": state.st_mtime_ns,
    }
