"""Classes for the points of one's own cloud: window by window, averaged where windows overlap, all else kept.

The paper's protocol for point clouds: windows of 50 m every 25 m, every point is asked in each window that it is in,
its probabilities are averaged, and the class is taken once at the end.

Shapes: P points of a window or a block, C classes.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import atomizer_io
from atomizer_io.atoms import AtomSet
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.formats.cloud_atoms import NOISE, cloud_atoms
from atomizer_io.formats.clouds import COLOURS, Cloud, CloudHeader, cloud_header
from atomizer_io.formats.tile_windows import check_window
from atomizer_io.inputs import check_count
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.storage import fingerprint
from atomizer_io.prediction.answering import NAMES, Answers, ReadOut, check_choice, loaded, on_disk
from atomizer_io.prediction.blocks import (
    ANSWERS,
    CHECK,
    FINISHED,
    KINDS,
    Blocks,
    Window,
    check_of,
    record_type,
    sound_blocks,
    split,
)
from atomizer_io.prediction.classified import ENTROPY, PREDICTED, check_legacy, write
from atomizer_io.prediction.cloud_notes import LOOKED_AT, assumed, date_note, warn_unlike
from atomizer_io.prediction.codes import las_codes
from atomizer_io.prediction.engines import Engine, Here
from atomizer_io.prediction.las import CHUNK, Original, check_extras, check_output
from atomizer_io.prediction.parts import MODEL, Parts
from atomizer_io.prediction.plans import Plan
from atomizer_io.prediction.scene import check_model, options_of, paths_of
from atomizer_io.prediction.sources import Box, Frame, RasterInput, Source, open_all, overlap
from atomizer_io.progress import progress_bar
from atomizer_io.sensors import AERIAL, LIDAR

DECODE = tuple(name for name in NAMES if name != "quadtree")


@dataclass(frozen=True, slots=True)
class CloudProduct:
    """A classified cloud: how many points each class has, and the LAS code it was written as.

    ``untouched`` points were left out and keep the class they had.
    """

    path: Path
    points: int
    counts: Mapping[str, int]
    untouched: int
    codes: Mapping[str, int]
    windows: int
    asked: int | None  # at how many positions the model was asked, a point once in each of its windows
    seconds: float


@dataclass(frozen=True)
class Job:
    """All that a worker has to know."""

    read_out: ReadOut
    folder: Path
    path: Path
    header: CloudHeader
    fields: tuple[str, ...]
    sources: tuple[Source, ...]
    window_m: float
    colour: bool
    leave_out: tuple[int, ...]
    max_points: int | None


def predict_points(
    model: AtomizerIO | str | Path,
    cloud: str | Path,
    output: str | Path,
    *,
    crs: str | None = None,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] = (),
    window_m: float = 50.0,
    stride_m: float = 25.0,
    max_points: int | None = None,
    colour: bool | None = None,
    leave_out: Sequence[int] = (),
    decode: str = "dense",
    alpha: float | None = None,
    atoms_per_latent: int | None = None,
    budget: int | None = None,
    neighbors: int | None = None,
    class_codes: Mapping[str, int] | None = None,
    overwrite_classification: bool = False,
    probabilities: bool = True,
    engine: Engine | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    tell: Callable[[str], None] | None = None,
) -> CloudProduct:
    """Write ``cloud`` (LAS, LAZ or COPC) with a class for every point to ``output`` (LAS or LAZ).

    Points, their order, all dimensions, records and the header stay as they are. New are the dimensions
    ``PredictedClassification`` (a LAS code), ``entropy`` (in nats) and the probability of each class by its name;
    ``probabilities=False`` leaves the last two out, and ``overwrite_classification`` puts the code where the file has
    its classes. Codes are those of :func:`~atomizer_io.prediction.codes.las_codes`, or as ``class_codes`` says by name.

    ``crs`` (EPSG:2263, or EPSG:2263+6360 with that of the heights) is the coordinate system of a cloud that has none;
    without it, coordinates are taken as metres. ``tell``, such as ``print``, is called with what was assumed and with
    the date that is used.

    ``rasters`` are images of the same place, which the model sees as well. ``colour`` shows the model the colours that
    points carry: by default if it was trained with aerial colours and no raster is given. Of a window, at most
    ``max_points`` become atoms, but all are asked. Points whose class is now in ``leave_out`` (FRACTAL: 65 and 66,
    noise) are neither; they keep their class, with probabilities of 0. ``decode`` (dense, zone-probe, sketch),
    ``alpha``, ``atoms_per_latent``, ``budget`` and ``neighbors`` choose the cost; without an ``engine``, all is done in
    this process. Workers on other machines have to see the folder of ``output``, the model and the rasters.
    """
    began, path, output = time.monotonic(), Path(cloud), Path(output)
    check_output(output)
    check_window(window_m, stride_m)
    how = {"atoms_per_latent": atoms_per_latent, "budget": budget, "neighbors": neighbors}
    for name, number in {**how, "max_points": max_points}.items():
        if number is not None:
            check_count(name, number)
    check_choice(decode, alpha, **how)
    with Parts(output, resume=resume, overwrite=overwrite, inputs=[path, *paths_of(rasters)]) as parts:
        original, header = Original.read(path, crs), cloud_header(path, crs)
        tell = tell or (lambda line: None)
        if (line := assumed(path, header)) is not None:
            tell(line)
        if not isinstance(model, AtomizerIO) and Path(model).is_dir():
            model = Path(model).absolute()  # workers may run elsewhere
        config = model.config if isinstance(model, AtomizerIO) else loaded(str(model)).config
        sources = sources_of(rasters, path, header)
        check_task(config, sources, decode)
        classes = config.class_names or tuple(f"class {number}" for number in range(config.num_outputs))
        codes = las_codes(classes, class_codes)
        if overwrite_classification:
            check_legacy(original, codes)
        extras = [] if overwrite_classification else [(PREDICTED, "u1", "LAS code of the likeliest class")]
        if probabilities:
            extras += [(ENTROPY, "f4", "nats"), *((name, "f4", "probability") for name in classes)]
        check_extras(original, [name for name, _, _ in extras])
        if colour is None:
            colour = not sources and knows_colours(config)
        kept = tuple(name for name in KINDS if name in original.dimensions and (colour or name not in COLOURS))
        if isinstance(model, AtomizerIO) and alpha is not None and decode != "dense":
            raise ConfigError(
                "alpha needs the calibration in a model's folder: save and calibrate it, and pass the folder"
            )
        read_out = None if isinstance(model, AtomizerIO) else ReadOut.of(Path(model), decode, alpha, **how)
        mark = fingerprint(model if isinstance(model, AtomizerIO) else loaded(str(model)))
        state = path.stat()
        plan = Plan(
            {
                "cloud": [str(path.absolute()), state.st_size, state.st_mtime_ns],
                "crs": crs,
                "model": mark,
                "rasters": [
                    [repr(source), source.path.stat().st_size, source.path.stat().st_mtime_ns] for source in sources
                ],
                "version": atomizer_io.__version__,
            },
            {
                "--model": None if isinstance(model, AtomizerIO) else str(model),
                "--window": window_m,
                "--overwrite-classification": overwrite_classification,
                **options_of({"decode": decode, "alpha": alpha, **how}),
            },
            {
                "windows": {"window_m": window_m, "stride_m": stride_m, "max_points": max_points, "colour": colour},
                "leave_out": list(leave_out),
                "output": {"codes": codes, "extras": extras, "overwrite_classification": overwrite_classification},
                "read out": {"decode": decode, **how, "calibration": repr(read_out and read_out.calibration)},
                "chunk": CHUNK,
            },
        )
        room = record_type(kept).itemsize + 6 * len(classes) + original.record_length + 4 * len(extras)
        parts.begin(plan, {f"output{output.suffix}": output}, needed=room * original.points)
        done = parts.summary()
        if done is not None:  # killed while it moved the file into place
            return CloudProduct(output, original.points, **done, seconds=time.monotonic() - began)
        if read_out is None:  # a folder by content: a worker keeps the model it once loaded from a folder
            read_out = ReadOut.of(on_disk(model, lambda: parts.path(f"{MODEL}{mark}").absolute()), decode, None, **how)
        blocks = split(
            original,
            header,
            parts,
            window_m=window_m,
            stride_m=stride_m,
            fields=kept,
            outputs=len(classes),
            progress=progress,
        )
        folder = parts.folder.absolute()
        job = Job(read_out, folder, path, header, kept, tuple(sources), window_m, colour, tuple(leave_out), max_points)
        some = looked_at(job, blocks)
        warn_unlike(config, path, some)
        tell(date_note(config, path, some))
        names = compute(job, blocks, parts, engine or Here(), len(classes), progress)
        counts = write(original, parts, output, kept, codes, extras, overwrite_classification, progress)
        named = dict(zip(classes, counts.tolist(), strict=True))
        untouched = original.points - int(counts.sum())
        summary: dict[str, Any] = {"counts": named, "untouched": untouched, "codes": codes}
        summary |= {"windows": len(names), "asked": parts.asked(names)}
        parts.publish(summary)
        return CloudProduct(output, original.points, **summary, seconds=time.monotonic() - began)


def sources_of(rasters: Sequence[Any], path: Path, header: CloudHeader) -> list[Source]:
    """The rasters beside a cloud, all of which must reach into it."""
    found = []
    for source in open_all(rasters) if rasters else ():
        if (source.crs is None) != (header.crs is None):
            bare, other = (source.path, path) if source.crs is None else (path, source.path)
            raise DataError(
                bare, f"has no coordinate system, but {other} has: give it (crs=EPSG:...), or write it into the file"
            )
        if source.crs is not None and header.crs is not None and source.crs != header.crs:
            from rasterio.crs import CRS

            if CRS.from_user_input(source.crs) == CRS.from_user_input(header.crs):
                source = replace(source, crs=header.crs)
        source = replace(source, path=source.path.absolute())
        west, south, east, north = (edge / header.unit_m for edge in header.bounds)
        if not overlap(source, header.crs, (west, south, east, north)):
            raise DataError(source.path, f"does not overlap {path.name}")
        found.append(source)
    return found


def check_task(config: AtomizerConfig, sources: Sequence[Source], decode: str) -> None:
    """Refuse what cannot classify points."""
    if config.task != "segmentation":
        raise ConfigError(f"the model is for {config.task}: classes of points need one for segmentation")
    if decode == "quadtree":
        raise ConfigError(f"a quadtree needs a grid, and points are none: use {', '.join(DECODE)}")
    if decode.replace("_", "-") not in DECODE:
        raise ConfigError(f"decode {decode!r} is not known; use {', '.join(DECODE)}")
    known = {(channel.sensor, channel.name) for channel in config.channels}
    if known and not known & {(channel.sensor, channel.name) for channel in LIDAR}:
        raise ConfigError("the model was trained without point clouds, and does not know what a height means")
    check_model(config, sources, ())


def knows_colours(config: AtomizerConfig) -> bool:
    """Whether a model was trained with aerial colours."""
    known = {(channel.sensor, channel.name) for channel in config.channels}
    return any((channel.sensor, channel.name) in known for channel in AERIAL.channels)


def compute(job: Job, blocks: Blocks, parts: Parts, engine: Engine, outputs: int, progress: bool) -> list[str]:
    """Mean probabilities of all blocks; returns the names of all windows.

    The answers of a window are kept until all its blocks have those of the other windows that they are part of.
    """
    finished = sound_blocks(blocks, parts, outputs) | (blocks.counts == 0)
    windows = {(window.row, window.column): window.blocks for window in blocks.windows()}
    names = {place: Window(*place, (0.0, 0.0), (), ()).name for place in windows}
    there = {place for place, name in names.items() if name in parts}
    open_blocks = {place: int((~finished[list(inside)]).sum()) for place, inside in windows.items()}
    todo = {place for place, count in open_blocks.items() if count and place not in there}

    def finish(block: int, answers: Any, ledger: Any) -> None:
        covering = blocks.covering(block)
        if finished[block] or not there.issuperset(covering):
            return
        total = np.zeros((blocks.counts[block], outputs), np.float32)
        for place in covering:
            inside = windows[place]
            start = int(blocks.counts[list(inside[: inside.index(block)])].sum())
            total += parts.load(names[place])[start : start + len(total)]
        total /= len(covering)
        done = 0
        for _, first, count in blocks.runs_of(block).tolist():
            answers.seek(4 * outputs * first)
            answers.write(total[done : done + count].data)
            done += count
        ledger.seek(CHECK.itemsize * block)
        ledger.write(CHECK.type(check_of(parts.mark, block, total.data.cast("B"))).tobytes())
        finished[block] = True
        for place in covering:
            open_blocks[place] -= 1
            if not open_blocks[place]:
                parts.drop(names[place])

    bar = progress_bar(len(windows), initial=len(windows) - len(todo), unit=" windows", show=progress)
    # unbuffered: what is marked as finished has left this process before
    with parts.path(ANSWERS).open("r+b", 0) as answers, parts.path(FINISHED).open("r+b", 0) as ledger, bar:
        for place in sorted(there):
            for block in windows[place]:
                finish(block, answers, ledger)
        tasks = (window for window in blocks.windows() if (window.row, window.column) in todo)
        for window, found in engine.run(functools.partial(answer, job), tasks):
            parts.save(window.name, found.values, found.asked)
            there.add((window.row, window.column))
            for block in window.blocks:
                finish(block, answers, ledger)
            bar.update()
    return list(names.values())


def answer(job: Job, window: Window) -> Answers:
    """Probabilities (P, C) of the points of one window, in the order of its blocks."""
    records = window.read(job.folder, record_type(job.fields))
    outputs = loaded(job.read_out.folder).config.num_outputs
    answers = np.zeros((len(records), outputs), np.float16)
    order = np.argsort(records["index"])  # as in the file, which is how training sees them
    order = order[~np.isin(records["classification"][order], job.leave_out)]
    if not len(order):
        return Answers(answers, 0)
    cloud = cloud_of(job, records[order])
    x, y = window.centre
    positions = np.stack([cloud.x - x, cloud.y - y], axis=1)
    seed = window.row << 32 | window.column
    drawn = np.arange(len(cloud))
    if job.max_points is not None and len(cloud) > job.max_points:
        drawn = np.sort(np.random.default_rng(seed).choice(len(cloud), job.max_points, replace=False))
    heights = cloud.z[~np.isin(records["classification"][order], NOISE)]
    datum = float((heights if len(heights) else cloud.z).min())
    atoms = cloud_atoms(cloud.where(drawn), positions[drawn], datum, job.colour)
    unit = job.header.unit_m
    frame = Frame(job.header.crs, (x / unit, y / unit), (unit, unit))
    for source in job.sources:
        atoms += source.atoms(frame, box_of(positions, job.window_m)) or AtomSet()
    sites = torch.full((len(cloud),), -1)
    sites[torch.from_numpy(drawn)] = torch.arange(len(drawn))
    asker = job.read_out.asker(job.read_out.encode(atoms, seed), torch.from_numpy(positions), sites={0: sites})
    read = job.read_out.read(asker)
    found = read.probabilities.numpy()
    if not np.isfinite(found).all():
        raise AtomizerError(f"the answers of the model are not numbers in the window around {x:.0f}, {y:.0f} m")
    answers[order] = found
    return Answers(answers, read.decoded)


def looked_at(job: Job, blocks: Blocks) -> list[Cloud]:
    """The points of a few windows, from all over the cloud, of which the model would see no more than it may."""
    windows = list(blocks.windows())
    chosen = np.unique(np.linspace(0, len(windows) - 1, LOOKED_AT).astype(int))
    clouds = [cloud_of(job, windows[i].read(job.folder, record_type(job.fields))) for i in chosen]
    steps = [1 if job.max_points is None else -(-len(cloud) // job.max_points) for cloud in clouds]
    return [cloud.where(np.arange(0, len(cloud), step)) for cloud, step in zip(clouds, steps, strict=True)]


def cloud_of(job: Job, records: NDArray[Any]) -> Cloud:
    """The points as datasets read them."""
    names = {field.name for field in fields(Cloud)}
    columns = {name: np.ascontiguousarray(records[name]) for name in ("x", "y", "z", *job.fields)}
    colours = {name: column for name, column in columns.items() if name in COLOURS}
    plain: dict[str, Any] = {name: column for name, column in columns.items() if name in names}
    if not job.header.standard_time:
        plain["gps_time"] = None  # another clock: no date
    return Cloud(job.path, **plain, colours=colours or None, crs=job.header.crs, unit_m=job.header.unit_m)


def box_of(positions: NDArray[np.float64], window_m: float) -> Box:
    """The window, and as far beyond it as its points reach."""
    low, high = np.minimum(positions.min(axis=0), -window_m / 2), np.maximum(positions.max(axis=0), window_m / 2)
    # the far edge of a box is outside of it, a point on it is not
    return (float(low[0]), float(low[1]), math.nextafter(high[0], math.inf), math.nextafter(high[1], math.inf))
