"""Classes for the points of a cloud: predicted in windows, averaged where windows overlap; all else is kept.

The paper's protocol for point clouds: windows of 50 m every 25 m, every point is asked in each window that it is in,
its probabilities are averaged, and the class is taken once at the end.

Shapes: P points of a window or a block, C classes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import atomizer_io
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import LIDAR, LIDAR_HEIGHT
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.scene_decoder import SavedModel
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.io.overlays import alike
from atomizer_io.io.point_clouds import COLOURS, PointCloud, PointCloudHeader, point_cloud_header
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.raster_sources import RasterInput, RasterSource, open_rasters, overlap
from atomizer_io.models.base import Model
from atomizer_io.models.storage import fingerprint
from atomizer_io.prediction import cloud_picture, raster_notes
from atomizer_io.prediction.classified_cloud import ENTROPY, PREDICTED, check_legacy, write
from atomizer_io.prediction.cloud_blocks import (
    ANSWERS,
    CHECK,
    FINISHED,
    KINDS,
    CloudBlocks,
    CloudWindow,
    check_of,
    record_type,
    sound_blocks,
    split,
)
from atomizer_io.prediction.cloud_notes import assumed, colours_of, date_note, warn_lacking_fields, warn_unlike
from atomizer_io.prediction.cloud_windows import REFERENCE, CloudJob, Inputs, answer, knows_colours, looked_at
from atomizer_io.prediction.las import CHUNK, Extra, Original, check_extras, check_output
from atomizer_io.prediction.las_codes import las_codes
from atomizer_io.prediction.las_earlier import without_earlier
from atomizer_io.prediction.options import CloudClasses, CloudWindows, Decoding, Execution
from atomizer_io.prediction.parts_folder import MODEL, PartsFolder
from atomizer_io.prediction.plans import Plan
from atomizer_io.prediction.ply_input import as_las
from atomizer_io.prediction.raster_scene import check_model, paths_of, warn_lacking
from atomizer_io.progress import progress_bar


@dataclass(frozen=True, slots=True)
class CloudProduct:
    """A classified cloud: how many points each class has, and the LAS code that stands for it.

    ``untouched`` points were left out and keep the class they had.
    """

    path: Path
    points: int
    counts: Mapping[str, int]
    untouched: int
    codes: Mapping[str, int]
    windows: int
    decoded: int | None  # how many positions were decoded, a point once in each of its windows
    seconds: float
    picture: Path | None = None


def predict_points(
    model: Model | str | Path,
    cloud: str | Path,
    output: str | Path,
    *,
    crs: str | None = None,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] = (),
    colour: bool | None = None,
    windows: CloudWindows = CloudWindows(),
    classes: CloudClasses = CloudClasses(),
    decoding: Decoding = Decoding(),
    execution: Execution = Execution(),
) -> CloudProduct:
    """Write ``cloud`` (LAS, LAZ, COPC or PLY) with a class for every point to ``output`` (LAS or LAZ).

    Points, their order, all dimensions, records and the header stay as they are. New are the dimensions
    ``PredictedClassification`` (a LAS code), ``entropy`` (in nats) and the probability of each class by its name;
    ``classes`` says which of them are written, and with which codes. A new record names the model and its seal.

    ``crs`` (EPSG:2263, or EPSG:2263+6360 with that of the heights) is the coordinate system of a cloud that has none;
    without it, coordinates are taken as metres. ``rasters`` are images of the same place, which the model sees as well.
    ``colour`` shows the model the colours that points carry: by default if it was trained with aerial colours and no
    raster is given.

    ``windows``, ``decoding`` and ``execution`` say how the cloud is cut, how the model is read out and where it runs.
    Workers on other machines have to see the folder of ``output``, the model and the rasters.
    """
    began, path, output = time.monotonic(), Path(cloud), Path(output)
    check_output(output)
    pictures = cloud_picture.files_of(output, classes.picture)
    picture = pictures.get(cloud_picture.NAME)
    with (
        PartsFolder(output, execution, beside=[*pictures.values()], inputs=[path, *paths_of(rasters)]) as parts,
        as_las(path, output, crs) as stored,
    ):
        original, header = Original.read(stored, crs), point_cloud_header(stored, crs)
        if (line := assumed(path, header)) is not None:
            execution.say(line)
        own, saved = SavedModel.of(model, decoding, execution.say)
        sources = sources_of(rasters, path, header, own.task_spec.channels)
        check_task(own, sources, saved.decoding)
        codes = las_codes(own.task_spec.names, classes.codes, own.task_spec.class_codes)
        original, extras = extras_of(original, codes, classes, execution)
        if colour is None:
            colour = not sources and knows_colours(own.task_spec)
        inputs = Inputs.of(own.task_spec, colour)
        kept = tuple(name for name in KINDS if name in original.dimensions and (colour or name not in COLOURS))
        mark, maker = fingerprint(own), saved.maker()
        plan = Plan(
            facts_of(path, crs, mark, sources),
            {
                "--model": None if isinstance(model, Model) else saved.folder,
                "--window": windows.side_m,
                "--ask-every": windows.ask_every_m,
                "--overwrite-classification": classes.replace,
                "--layers": ["picture"] if classes.picture else [],
                **decoding.options(),
            },
            {
                "windows": {**asdict(windows), **asdict(inputs)},
                "leave_out": list(classes.leave_out),
                "output": {"codes": codes, "extras": extras, "replace": classes.replace, "files": [*pictures]},
                "decoding": saved.decoding.plain(),
                "chunk": CHUNK,
            },
        )
        room = record_type(kept).itemsize + 6 * len(codes) + original.record_length + 4 * len(extras)
        parts.begin(plan, {**pictures, f"output{output.suffix}": output}, needed=room * original.points)
        done = parts.summary()
        if done is not None:  # it was killed while it moved the file into place
            return CloudProduct(output, original.points, **done, seconds=time.monotonic() - began, picture=picture)
        # named by content, because a worker keeps the model that it once loaded from a folder
        saved = saved.stored(model, parts.path(f"{MODEL}{mark}").absolute())
        blocks = split(original, header, parts, windows, kept, len(codes), execution.progress)
        job = CloudJob(
            saved,
            parts.folder.absolute(),
            stored,
            header,
            kept,
            tuple(sources),
            windows,
            inputs,
            tuple(classes.leave_out),
        )
        look_around(job, blocks, parts, own.task_spec, crs, execution)
        names = compute(job, blocks, parts, len(codes), execution)
        counts = write(original, parts, output, kept, codes, extras, maker, classes.replace, execution.progress)
        for name in pictures:
            shown = parts.path(f"output{output.suffix}"), parts.path(name), header
            cloud_picture.draw(*shown, codes, own.task_spec.label_codes, [name for name, _, _ in extras])
        summary: dict[str, Any] = {
            "counts": dict(zip(codes, counts.tolist(), strict=True)),
            "untouched": original.points - int(counts.sum()),
            "codes": codes,
            "windows": len(names),
            "decoded": parts.decoded(names),
        }
        parts.publish(summary)
        return CloudProduct(output, original.points, **summary, seconds=time.monotonic() - began, picture=picture)


def extras_of(
    original: Original, codes: Mapping[str, int], classes: CloudClasses, execution: Execution
) -> tuple[Original, list[Extra]]:
    """Return the file without what an earlier prediction added, and the dimensions that are added to it.

    Those that its file cannot hold are an error.
    """
    if classes.replace:
        check_legacy(original, codes)
    extras = [] if classes.replace else [(PREDICTED, "u1", "LAS code of the likeliest class")]
    if classes.probabilities:
        extras += [(ENTROPY, "f4", "nats"), *((name, "f4", "probability") for name in codes)]
    original, replaced = without_earlier(original, [name for name, _, _ in extras])
    if replaced:
        execution.say(f"{original.path.name} was predicted before: {listed(replaced)} are replaced in the output")
    check_extras(original, [name for name, _, _ in extras])
    return original, extras


def facts_of(path: Path, crs: str | None, mark: str, sources: Sequence[RasterSource]) -> dict[str, Any]:
    """Return what a prediction from a cloud is made of: another file or model is another prediction."""
    return {
        "cloud": trace(path),
        "crs": crs,
        "model": mark,
        "rasters": [[repr(source), *trace(source.path)] for source in sources],
        "version": atomizer_io.__version__,
    }


def look_around(
    job: CloudJob, blocks: CloudBlocks, parts: PartsFolder, task_spec: TaskSpec, crs: str | None, execution: Execution
) -> list[PointCloud]:
    """Store the reference of the whole cloud, tell what is unusual, and return the points of a few windows."""
    if REFERENCE not in parts:
        parts.save(REFERENCE, PointCloudReference.of_file(job.path, crs, progress=execution.progress).packed())
    some = looked_at(job, blocks)
    warn_unlike(task_spec, job.path, job.header, some)
    if job.sources:
        raster_notes.warn_unlike(task_spec, job.sources)
    images = (channel for source in job.sources for channel in source.channels)
    warn_lacking_fields(task_spec, job.path, some)
    warn_lacking(task_spec, (*LIDAR, *LIDAR_HEIGHT, *colours_of(some), *images))
    execution.say(date_note(task_spec, job.path, some))
    return some


def trace(path: Path) -> list[Any]:
    """Return path, size and time of change of a file, by which a changed file is recognised."""
    state = path.stat()
    return [str(path.absolute()), state.st_size, state.st_mtime_ns]


def sources_of(
    rasters: Sequence[Any], path: Path, header: PointCloudHeader, channels: Sequence[Channel] = ()
) -> list[RasterSource]:
    """Open the rasters beside a point cloud, as a model knows their ``channels``; all of them have to overlap it."""
    found = []
    for source in open_rasters(rasters, channels) if rasters else ():
        if (source.crs is None) != (header.crs is None):
            bare, other = (source.path, path) if source.crs is None else (path, source.path)
            raise DataError(
                bare,
                f"has no coordinate system, but {other} has: give it (--crs EPSG:..., in Python crs=), or write it "
                "into the file",
            )
        source = replace(alike(source, header.crs), path=source.path.absolute())
        west, south, east, north = (edge / header.unit_m for edge in header.bounds)
        if not overlap(source, header.crs, (west, south, east, north)):
            raise DataError(source.path, f"does not overlap the cloud {path.name}")
        found.append(source)
    return found


def check_task(model: Model, sources: Sequence[RasterSource], decoding: Decoding) -> None:
    """Refuse a model that cannot classify points, and a strategy that needs a grid."""
    check_points(model)
    if model.task_spec.task != "segmentation":
        raise ConfigError(
            f"the model is for {model.task_spec.task}: to classify points, use a model for segmentation; a map of a "
            "quantity is made by predict_cloud_map, or with --output-gsd on the command line"
        )
    decoding.check_no_grid("points")
    check_model(model, sources, ())


def check_points(model: Model) -> None:
    """Refuse a model that cannot read points, or was trained without any."""
    if not model.capabilities.points:
        raise ConfigError(
            f"{model.preset or model.family} reads rasters only: a cloud (--points) needs a model that reads points"
        )
    known = model.task_spec.statistics()
    if known and not any((channel.sensor, channel.name) in known for channel in (*LIDAR, *LIDAR_HEIGHT)):
        raise ConfigError(
            "the model was trained without point clouds: use a model that was trained with heights of points"
        )


def compute(job: CloudJob, blocks: CloudBlocks, parts: PartsFolder, outputs: int, execution: Execution) -> list[str]:
    """Compute the mean probabilities of all blocks; return the names of all windows.

    The answers of a window are kept until all its blocks have those of the other windows that they are part of.
    """
    finished = sound_blocks(blocks, parts, outputs) | (blocks.counts == 0)
    windows = {(window.row, window.column): window.blocks for window in blocks.windows()}
    names = {place: CloudWindow(*place, (0.0, 0.0), (), ()).name for place in windows}
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

    bar = progress_bar(len(windows), initial=len(windows) - len(todo), unit=" windows", show=execution.progress)
    # unbuffered: what is marked as finished has left this process before
    with parts.path(ANSWERS).open("r+b", 0) as answers, parts.path(FINISHED).open("r+b", 0) as ledger, bar:
        for place in sorted(there):
            for block in windows[place]:
                finish(block, answers, ledger)
        tasks = (window for window in blocks.windows() if (window.row, window.column) in todo)
        for window, found in execution.runner.run(functools.partial(answer, job), tasks):
            parts.save(window.name, found.values, found.decoded)
            there.add((window.row, window.column))
            for block in window.blocks:
                finish(block, answers, ledger)
            bar.update()
    return list(names.values())
