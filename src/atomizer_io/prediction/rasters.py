"""Maps from one's own rasters: window by window, blended where windows overlap, written when complete.

Windows are computed by an engine and kept on disk until the strip of the map that they reach into is put together; then
only the strip is kept. What is in memory is a few windows, whatever the size of the scene.

Shapes: H × W pixels of a window or a block, C classes (or 1 quantity), K channels.
"""

from __future__ import annotations

import functools
import math
import operator
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from atomizer_io.atoms import AtomSet
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.grid import Grid
from atomizer_io.model.atomizer import AtomizerIO, Latents
from atomizer_io.model.config import AtomizerConfig
from atomizer_io.model.placing import Located
from atomizer_io.model.weights import fingerprint
from atomizer_io.prediction import products
from atomizer_io.prediction.answering import ReadOut, loaded, on_disk
from atomizer_io.prediction.engines import Engine, Here
from atomizer_io.prediction.parts import Parts
from atomizer_io.prediction.products import LAYERS, NODATA, Place, RasterProduct
from atomizer_io.prediction.sources import Frame, RasterInput, Source, open_all
from atomizer_io.prediction.sources import overlap as reaches
from atomizer_io.prediction.windows import Layout, Window, ramp

OVERLAP = 0.25
OTHER_UNITS = 30.0  # times larger or smaller than usual
WINDOW_ATOMS = 1 << 20
CACHE_MB = 256
LIGHT = (0.35, 2.5)  # µm: the spectral basis of the model
Array = NDArray[Any]


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


def predict_raster(
    model: AtomizerIO | str | Path,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] | RasterInput | str | Path | dict[str, Any],
    output: str | Path,
    *,
    like: int = 0,
    gsd_m: float | None = None,
    window_m: float | None = None,
    overlap: float = OVERLAP,
    decode: str = "dense",
    alpha: float | None = None,
    atoms_per_latent: int | None = None,
    budget: int | None = None,
    neighbors: int | None = None,
    layers: Sequence[str] = (),
    fill: bool = False,
    engine: Engine | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> RasterProduct:
    """A map of what ``model`` sees in co-located ``rasters``, as a cloud-optimized GeoTIFF.

    The map is on the grid of raster number ``like``, or over its extent with pixels of ``gsd_m``. ``window_m`` is by
    default once or twice the side of the scenes that the model was made for. Where no raster observed anything, the map
    has no data, unless ``fill`` asks the model all the same (not in windows in which nothing at all was observed).
    ``layers`` are further files beside the map: probabilities, confidence (lead of the first class, entropy), attention
    (of each channel). ``decode``, ``alpha``, ``atoms_per_latent``, ``budget`` and ``neighbors`` choose the cost;
    without an ``engine``, all is done in this process. Workers on other machines have to see the folder of the model
    and the rasters; a model in memory is stored in the folder of the output for them.
    """
    began, output = time.monotonic(), Path(output)
    if output.suffix.casefold() not in (".tif", ".tiff"):
        raise ConfigError(f"{output}: a map is a GeoTIFF, name it .tif")
    unknown = [name for name in layers if name not in LAYERS]
    if unknown:
        raise ConfigError(f"layer {unknown[0]!r} is not known; use {', '.join(LAYERS)}")
    how = {"decode": decode, "alpha": alpha}
    how |= {"atoms_per_latent": atoms_per_latent, "budget": budget, "neighbors": neighbors}
    with limited_cache():
        scene = Scene.of(model, rasters, how, like=like, gsd_m=gsd_m, window_m=window_m, overlap=overlap, layers=layers)
        plan = scene.plan() | {"fill": fill, "layers": sorted(layers)}
        parts = Parts(
            output,
            plan,
            resume=resume,
            overwrite=overwrite,
            needed=scene.bytes_needed(layers),
            beside=products.beside_map(output, scene.config, layers),
            inputs=[source.path for source in scene.sources],
        )
        done = parts.summary()
        if done is not None:
            return products.finished(products.restored(output, done), time.monotonic() - began, len(scene.layout))
        job = scene.job(model, parts, attention="attention" in layers, fill=fill)
        compute(job, parts, engine or Here(), layers, progress)
        strips = [f"strip-{row:05d}" for row in range(len(scene.layout.tops))]
        kinds = scene.kinds if "attention" in layers else ()
        product = products.write(parts, scene.place, strips, scene.config, layers, kinds, scene.model)
    if product.empty:
        warnings.warn(f"{output} has no data: nothing was observed where it lies", stacklevel=2)
    return products.finished(product, time.monotonic() - began, len(scene.layout))


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
        strip = self.layout.size[0] * place.width * (self.config.num_outputs + kinds + 1) * 4
        depth = sum(products.depths(self.config, layers, kinds).values())
        return 4 * strip + 3 * place.height * place.width * depth * 4  # strips, plain file, final file

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
            warnings.warn(f"{source.path.name} seems to be in other units than the model knows: {odd[0]}", stacklevel=3)


def compute(job: Job, parts: Parts, engine: Engine, layers: Sequence[str], progress: bool) -> None:
    """All strips of the map that are not there yet."""
    layout = job.layout
    rows = range(len(layout.tops))
    missing = [row for row in rows if f"strip-{row:05d}" not in parts]
    needed = sorted({above for row in missing for above in layout.covering(*layout.strip(row))})
    tasks = [w for row in needed for w in layout.row(row) if w.name not in parts]
    bar = tqdm(total=len(layout), initial=len(layout) - len(tasks), unit=" windows", disable=None if progress else True)
    last_use = {above: row for row in missing for above in layout.covering(*layout.strip(row))}
    done = {row: sum(w.name in parts for w in layout.row(row)) for row in needed}

    def put_together() -> None:
        while missing:
            row = missing[0]
            above = layout.covering(*layout.strip(row))
            if any(done[r] < len(layout.lefts) for r in above):
                return
            put_strip(job, parts, row, layers)
            missing.pop(0)
            for finished in [r for r in above if last_use[r] == row]:
                for window in layout.row(finished):
                    parts.drop(window.name)

    put_together()
    for window, answers in engine.run(functools.partial(answer, job), tasks):
        parts.save(window.name, answers)
        done[window.row] += 1
        bar.update()
        put_together()
    bar.close()


def observed(job: Job, window: Window) -> tuple[Frame, Grid, AtomSet]:
    """Metres around the middle of a window, its pixels there, and what all rasters observed in it."""
    frame, grid = job.place.frame(window.top, window.left, window.height, window.width)
    width, height = grid.size_m
    box = (-width / 2, -height / 2, width / 2, height / 2)
    with limited_cache():
        found = [source.atoms(frame, box) for source in job.sources]
    return frame, grid, functools.reduce(operator.add, (atoms for atoms in found if atoms is not None), AtomSet())


def answer(job: Job, window: Window) -> Array:
    """Answers (H, W, C [+ K] + 1) of one window; the last says whether anything was observed there.

    Where nothing was observed in all of it, there are none: (0,).
    """
    _, grid, atoms = observed(job, window)
    return answers_at(job, atoms, grid, seed=window.top * job.place.width + window.left)


def answers_at(job: Job, atoms: AtomSet, where: Grid | torch.Tensor, seed: int) -> Array:
    """The same for any positions (M, 2) in the frame of the atoms."""
    if not atoms.acquisitions:
        return np.zeros(0, np.float16)
    model = loaded(job.read_out.folder)
    latents = job.read_out.encode(atoms, seed=seed)
    asker = job.read_out.asker(latents, where)
    found = [job.read_out.read(asker).answers.reshape(len(asker.positions_M2), -1).numpy()]
    if not np.isfinite(found[0]).all():
        names = ", ".join(source.path.name for source in job.sources)
        raise AtomizerError(f"the answers of the model are not numbers: are the values in {names} what it expects?")
    if job.attention:
        where_M = model.locate(
            latents.atoms[0], latents.geometries[0], asker.positions_M2, neighbors=job.read_out.neighbors
        )
        found.append(attention(model, latents, where_M, kinds_of(job.sources)))
    seen_M = (asker.sites_MA >= 0).any(dim=1).numpy() | job.fill
    kind = np.float16 if model.config.task == "segmentation" else np.float32
    return np.concatenate([*found, seen_M[:, None]], axis=1).astype(kind).reshape(*asker.shape, -1)


def attention(model: AtomizerIO, latents: Latents, where: Located, kinds: Sequence[tuple[str, str]]) -> Array:
    """How much attention each kind of channel received (M, K), at the position and around it alike."""
    found = model.explain(latents, [where])[0]
    shares_MK = ((found.here + found.around) / 2).cpu().numpy()
    total = np.zeros((len(shares_MK), len(kinds)), dtype=np.float32)
    np.add.at(total.T, [kinds.index((c.sensor, c.name)) for c in found.channels], shares_MK.T)
    return total


def put_strip(job: Job, parts: Parts, row: int, layers: Sequence[str]) -> None:
    """The layers (rows, width, depth) of the map between one row of windows and the next, block by block."""
    layout, config = job.layout, loaded(job.read_out.folder).config
    top, bottom = layout.strip(row)
    depth = sum(products.depths(config, layers, len(kinds_of(job.sources))).values())
    with parts.filling(f"strip-{row:05d}", (bottom - top, layout.width, depth)) as strip:
        for column in range(len(layout.lefts)):
            left, right = layout.columns(column)
            strip[:, left:right] = products.layered(blended(job, parts, (top, bottom), (left, right)), config, layers)


def blended(job: Job, parts: Parts, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
    """Answers (H, W, C [+ K] + 1) of a block, the mean of its windows that have any; zero where none has."""
    shape = (rows[1] - rows[0], columns[1] - columns[0])
    total, weight = np.zeros((*shape, job.depth), np.float32), np.zeros((*shape, 1), np.float32)
    for window in _windows(job.layout, rows, columns):
        answers = parts.load(window.name)
        if not answers.size:
            continue
        here_y, there_y = _shared(*rows, window.top, window.height)
        here_x, there_x = _shared(*columns, window.left, window.width)
        share = ramp(window.height)[there_y, None, None] * ramp(window.width)[there_x, None]
        total[here_y, here_x] += answers[there_y, there_x] * share
        weight[here_y, here_x] += share
    return total / np.maximum(weight, 1e-12)


def _shared(first: int, last: int, start: int, size: int) -> tuple[slice, slice]:
    """What a stretch of pixels and a window have in common, as the stretch and as the window counts."""
    low, high = max(first, start), min(last, start + size)
    return slice(low - first, high - first), slice(low - start, high - start)


def _windows(layout: Layout, rows: tuple[int, int], columns: tuple[int, int]) -> Iterator[Window]:
    for row in layout.covering(*rows):
        for column in layout.covering_columns(*columns):
            yield layout.window(row, column)


def kinds_of(sources: Sequence[Source]) -> tuple[tuple[str, str], ...]:
    """(sensor, name) of all channels of all rasters, each once."""
    return tuple(dict.fromkeys((c.sensor, c.name) for source in sources for c in source.channels))


def limited_cache() -> Any:
    """GDAL would keep up to a twentieth of the memory of the machine in blocks of files."""
    import rasterio

    return rasterio.Env(GDAL_CACHEMAX=CACHE_MB)


def _trace(source: Source) -> dict[str, Any]:
    """What tells one input from another."""
    state = source.path.stat()
    found = asdict(source) | {"path": str(source.path), "date": str(source.date)}
    return {key: found[key] for key in ("path", "date", "channels", "gsd_m")} | {
        "size": state.st_size,
        "time of change": state.st_mtime_ns,
    }
