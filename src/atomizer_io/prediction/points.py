"""Classes for the points of a point cloud: predicted in windows, averaged where windows overlap; all else is kept.

The paper's protocol for point clouds: windows of 50 m every 25 m, every point is decoded in each window that it is in,
its probabilities are averaged, and the class is taken once at the end.

Shapes: P points of a window or a block, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atomizer_io.errors import ConfigError
from atomizer_io.io.point_store import record_bytes
from atomizer_io.io.raster_sources import RasterInput
from atomizer_io.models.base import Model
from atomizer_io.prediction import point_preview
from atomizer_io.prediction.las import check_output
from atomizer_io.prediction.las_classes import dimensions_of, las_codes, write
from atomizer_io.prediction.options import Decoding, Execution, PointCloudClasses, PointCloudWindows
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.prediction.ply_input import as_las
from atomizer_io.prediction.point_input import PointInput
from atomizer_io.prediction.point_windows import PointPredictions
from atomizer_io.prediction.raster_checks import check_model
from atomizer_io.prediction.rasters import paths_of


@dataclass(frozen=True, slots=True)
class PointCloudProduct:
    """A classified point cloud: how many points each class has, and the LAS code that stands for it.

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
    preview: Path | None = None


def predict_points(
    model: Model | str | Path,
    cloud: str | Path,
    output: str | Path,
    *,
    crs: str | None = None,
    rasters: Sequence[RasterInput | str | Path | dict[str, Any]] = (),
    colour: bool | None = None,
    windows: PointCloudWindows = PointCloudWindows(),
    classes: PointCloudClasses = PointCloudClasses(),
    decoding: Decoding = Decoding(),
    execution: Execution = Execution(),
) -> PointCloudProduct:
    """Write ``cloud`` (LAS, LAZ, COPC or PLY) with a class for every point to ``output`` (LAS or LAZ).

    Points, their order, all dimensions, records and the header stay as they are. New are the dimensions
    ``PredictedClassification`` (a LAS code), ``entropy`` (in nats) and the probability of each class by its name;
    ``classes`` sets which of them are written, and with which codes. A new record names the model and its seal.

    ``crs`` (EPSG:2263, or EPSG:2263+6360 with that of the heights) is the coordinate system of a file that has none;
    without it, coordinates are taken as metres. ``rasters`` are images of the same area, which the model sees as well.
    ``colour`` shows the model the colours that points carry: by default if it was trained with aerial colours and no
    raster is given.

    ``windows``, ``decoding`` and ``execution`` set how the points are split into windows, how the model is decoded and
    where it runs. Workers on other machines have to see the folder of ``output``, the model and the rasters.
    """
    began, path, output = time.monotonic(), Path(cloud), Path(output)
    check_output(output)
    previews, written = point_preview.files_of(output, classes.preview), f"output{output.suffix}"
    with (
        PartsFolder(output, execution, beside=[*previews.values()], inputs=[path, *paths_of(rasters)]) as parts,
        as_las(path, output, crs) as stored,
    ):
        how: dict[str, Any] = {"windows": windows, "decoding": decoding, "execution": execution}
        source = PointInput.of(model, path, stored, crs=crs, rasters=rasters, colour=colour, **how)
        check_task(source)
        spec = source.model.task_spec
        codes = las_codes(spec.names, classes.codes, spec.class_codes)
        original, extras = dimensions_of(source.original, codes, classes, execution)
        plan = source.plan(
            {
                "--decode-every": windows.decode_every_m,
                "--overwrite-classification": classes.replace,
                "--layers": ["preview"] if classes.preview else [],
                **decoding.options(),
            },
            {
                "leave_out": list(classes.leave_out),
                "output": {"codes": codes, "extras": extras, "replace": classes.replace, "files": [*previews]},
            },
        )
        room = record_bytes(stored, crs, colours=source.inputs.colour) + 6 * len(codes) + 4 * len(extras)
        room += original.record_length

        def work() -> dict[str, Any]:
            job, grid, _ = source.prepared(parts, execution, tuple(classes.leave_out))
            store, target = job.store(), parts.folder / written
            names = PointPredictions(parts, store, grid, len(codes)).compute(job, execution)
            product = target, codes, extras, source.saved.maker(), classes.replace
            counts = write(original, parts, store, *product, execution.progress)
            for name in previews:
                added = [dimension for dimension, _, _ in extras]
                point_preview.draw(target, parts.folder / name, source.header, codes, spec.label_codes, added)
            return {
                "counts": dict(zip(codes, counts.tolist(), strict=True)),
                "untouched": original.points - int(counts.sum()),
                "codes": codes,
                "windows": len(names),
                "decoded": parts.decoded(names),
            }

        done = parts.finish(plan, {**previews, written: output}, room * original.points, work)
        seconds, preview = time.monotonic() - began, previews.get(point_preview.NAME)
        return PointCloudProduct(output, original.points, **done, seconds=seconds, preview=preview)


def check_task(source: PointInput) -> None:
    """Refuse a model that does not classify, and a strategy that needs a grid."""
    task = source.model.task_spec.task
    if task != "segmentation":
        raise ConfigError(
            f"the model is for {task}: to classify points, use a model for segmentation; a map of a regression target "
            "is made by predict_point_cloud_map, or with --output-gsd on the command line"
        )
    source.saved.decoding.check_no_grid("points")
    check_model(source.model, source.sources, ())
