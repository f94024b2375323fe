"""Predictions as tests make them: quiet, in small windows, on engines that fail on purpose; and small point clouds."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atomizer_io.cli import main
from atomizer_io.prediction import arrays, at_positions, point_maps, points, rasters
from atomizer_io.prediction.options import Execution, PointCloudWindows, Windows
from chips import model_folder

EXECUTION = ("engine", "resume", "overwrite", "log")


def quietly(function: Callable[..., Any], usual: object) -> Callable[..., Any]:
    """The same function, without a progress bar and with the options of its execution as its own keywords."""

    @functools.wraps(function)
    def run(*arguments: Any, windows: object = usual, **how: Any) -> Any:
        execution = Execution(progress=False, **{name: how.pop(name) for name in EXECUTION if name in how})
        return function(*arguments, windows=windows, execution=execution, **how)

    return run


predict_raster = quietly(rasters.predict_raster, Windows(120))
predict_xarray = quietly(arrays.predict_xarray, Windows(120))
predict_at = quietly(at_positions.predict_at, Windows(120))
predict_points = quietly(points.predict_points, PointCloudWindows(20.0))
predict_point_cloud_map = quietly(
    functools.partial(point_maps.predict_point_cloud_map, gsd_m=1.0), PointCloudWindows(20.0)
)


def command(*words: object, model: Path | None = None) -> int:
    """The exit code of ``atomizer predict``."""
    return main(["predict", "--quiet", "--workers", "0", "--model", str(model or model_folder()), *map(str, words)])


class Killed(BaseException):
    """As if the process ended here."""


class Breaks:
    """An engine that computes some windows, then is killed, or fails; ``seen`` are the names of those it computed."""

    def __init__(self, after: int | None, error: BaseException | None = None) -> None:
        self.after, self.error, self.seen = after, error or Killed(), list[str]()

    def run(self, function: Callable[[Any], Any], tasks: Any) -> Any:
        for number, task in enumerate(tasks):
            if number == self.after:
                raise self.error
            self.seen.append(task.name)
            yield task, function(task)


def interrupted_at_every_step(run: Callable[[], object], output: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run as often as it takes if the process ends after so many files got their names; return how often it ended."""
    move = os.replace
    for number in range(200):
        allowed = itertools.count(1)

        def replace(source: Path, target: Path, number: int = number, allowed: Iterator[int] = allowed) -> None:
            if next(allowed) > number % 7:  # no more than six steps at a time
                raise Killed
            move(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                run()
            except Killed:
                assert not output.exists()
                continue
        return number
    raise AssertionError("it never ends")


def write_las(
    path: Path,
    xyz: np.ndarray,
    *,
    epsg: int | None = None,
    offsets: Any = (0.0, 0.0, 0.0),
    extra: Any = (),
    **more: Any,
) -> Path:
    """A point cloud (P, 3) as LAS 1.4 or LAZ: single returns unless ``more`` dimensions say otherwise."""
    import laspy
    import pyproj

    header = laspy.LasHeader(version="1.4", point_format=6)
    header.scales, header.offsets = np.full(3, 0.001), np.array(offsets)
    if epsg is not None:
        header.add_crs(pyproj.CRS.from_epsg(epsg))
    for name, kind in extra:
        header.add_extra_dim(laspy.ExtraBytesParams(name, kind))
    cloud = laspy.LasData(header)
    cloud.x, cloud.y, cloud.z = np.asarray(xyz, np.float64).T
    for name, values in {"return_number": 1, "number_of_returns": 1, **more}.items():
        cloud[name] = np.broadcast_to(values, len(xyz))
    path.parent.mkdir(exist_ok=True)
    cloud.write(path)
    return path
