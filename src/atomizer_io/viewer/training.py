"""A map from the labels of the page, trained properly: `atomizer map` as a process in the background."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from atomizer_io.errors import ConfigError, printable
from atomizer_io.viewer.labels import COLUMN, Labels
from atomizer_io.viewer.scenes import RasterView

LINES = 12  # that the page shows
MOST_MINUTES = 24 * 60
OPTIONS = {"sensor": "--sensor", "bands": "--bands", "date": "--date", "gsd_m": "--gsd", "crs": "--crs"}
OPTIONS |= {"nodata": "--nodata"}


class Training:
    """At most one training at a time; its output goes to a folder of its own in ``output``."""

    def __init__(self, view: RasterView, output: Path) -> None:
        self.view, self.output = view, output
        self.process: subprocess.Popen[str] | None = None
        self.folder, self.began_s, self.seconds = output, 0.0, 0.0
        self.lines: list[str] = []

    def begin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Write the labels and start `atomizer map` on them."""
        if self.process is not None and self.process.poll() is None:
            raise ConfigError("a training is under way: wait for it, or stop it")
        labels, minutes = Labels.of(request.get("labels") or {}), request.get("minutes", 5)
        if not isinstance(minutes, int | float) or not 0 < minutes <= MOST_MINUTES:
            raise ConfigError(f"the training takes between 0 and {MOST_MINUTES} minutes")
        if len(labels.used()) < 2:
            raise ConfigError("it takes labels of two classes")
        rasters = arguments_of(self.view.rasters)
        self.folder = new_folder(self.output, "training")
        labels.write(self.folder / "labels.gpkg", self.view.grid.crs)
        self.began_s, self.seconds, self.lines = time.monotonic(), 60 * minutes, []
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "atomizer_io", "map", *rasters, "--labels", str(self.folder / "labels.gpkg")),
                *(
                    "--class-column",
                    COLUMN,
                    "-o",
                    str(self.folder / "map.tif"),
                    "--max-time",
                    f"{round(self.seconds)}s",
                ),
                "--quiet",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert self.process.stdout is not None
        threading.Thread(target=self._follow, args=(self.process.stdout,), daemon=True).start()
        return self.progress()

    def _follow(self, output: IO[str]) -> None:
        for line in output:
            self.lines = [*self.lines, printable(line.rstrip())][-LINES:]

    def progress(self) -> dict[str, Any]:
        """Return how far the training is."""
        code = None if self.process is None else self.process.poll()
        return {
            "state": "none" if self.process is None else "running" if code is None else "failed" if code else "done",
            "share": min(1.0, (time.monotonic() - self.began_s) / self.seconds) if self.seconds else 0.0,
            "lines": self.lines,
            "folder": str(self.folder),
        }

    def stop(self) -> dict[str, Any]:
        """End the training, whose folder stays: `atomizer map --resume` continues it."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        return self.progress()


def arguments_of(rasters: list[Any]) -> list[str]:
    """Return the rasters as options of the command line."""
    words: list[str] = []
    for raster in rasters:
        values = dict(raster) if isinstance(raster, dict) else {"path": raster}
        words += ["--raster", str(values["path"])]
        for name, option in OPTIONS.items():
            if (value := values.get(name)) is not None:
                words += [
                    option,
                    value if isinstance(value, str) else ",".join(value) if name == "bands" else str(value),
                ]
    return [*words, "--allow-vrt"] if any(isinstance(r, dict) and r.get("allow_vrt") for r in rasters) else words


def new_folder(output: Path, name: str) -> Path:
    """Make and return the first of ``NAME-1``, ``NAME-2``, … that is not there: what was saved before stays."""
    for number in range(1, 10_000):
        folder = output / f"{name}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise ConfigError(f"{output} is full: choose another folder with --output")
