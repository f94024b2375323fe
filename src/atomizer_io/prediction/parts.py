"""What a prediction has done so far, in a folder beside its output: a killed one goes on from there.

OUTPUT.parts/plan.json     what is computed from what; another plan cannot go on with these parts
OUTPUT.parts/NAME.npy      a finished piece of work, complete or not there at all
OUTPUT.parts/finished.json all work is done, and files are moved to their places
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError

SPARE_BYTES = 64 << 20
PLAN, FINISHED = "plan.json", "finished.json"


class Parts:
    """The folder of parts of one output file."""

    def __init__(
        self,
        output: Path,
        plan: Mapping[str, Any],
        *,
        resume: bool,
        overwrite: bool,
        needed: int,
        beside: Iterable[Path] = (),
        inputs: Iterable[Path] = (),
    ) -> None:
        """``plan`` is plain values; ``needed`` is how many bytes will be written at most, which must be free.

        ``beside`` are the other files that will be written; none of them may be one of the ``inputs``.
        """
        written = [output, *beside]
        sources = {path.resolve() for path in inputs}
        own = next((path for path in written if path.resolve() in sources), None)
        if own is not None:
            raise ConfigError(f"{own} is what the prediction reads: name another output")
        self.output, self.folder = output, output.with_name(output.name + ".parts")
        if self.folder.is_dir() and not any(self.folder.iterdir()):  # killed at its very end, or its very beginning
            self.folder.rmdir()
        there = next((path for path in written if path.exists()), None)
        if there is not None and not overwrite and not (resume and self.folder.exists()):
            raise ConfigError(f"{there} exists: --overwrite replaces it")
        wanted = json.loads(json.dumps(plan))
        if self.folder.exists():
            if resume:
                self._compare(wanted)
            elif overwrite:
                shutil.rmtree(self.folder)
            else:
                raise ConfigError(
                    f"{self.folder} has an unfinished prediction: --resume goes on, --overwrite starts anew"
                )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(PLAN, (json.dumps(wanted, indent=1) + "\n").encode())
        except OSError as error:
            raise ConfigError(f"cannot write to {self.folder}: {error.strerror or error}") from error
        free = shutil.disk_usage(self.folder).free + sum(path.stat().st_size for path in self.folder.iterdir())
        if free < needed + SPARE_BYTES and not resume:
            self.folder.joinpath(PLAN).unlink()
            self.folder.rmdir()
        if free < needed + SPARE_BYTES:
            raise ConfigError(f"{self.folder}: {free / 1e9:.1f} GB are free, about {needed / 1e9:.1f} are needed")

    def _compare(self, wanted: Mapping[str, Any]) -> None:
        try:
            stored = json.loads((self.folder / PLAN).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # killed before the first part
            return
        for key, before, now in _differences(stored, wanted):
            raise ConfigError(
                f"cannot go on with {self.folder}: {key} was {before}, now it is {now}; --overwrite starts anew"
            )

    def __contains__(self, name: str) -> bool:
        return (self.folder / f"{name}.npy").exists()

    def path(self, name: str) -> Path:
        """Where a file of the folder is."""
        return self.folder / name

    def save(self, name: str, array: NDArray[Any]) -> None:
        """Keep an array; whoever looks sees all of it or nothing."""
        temporary = self.folder / f"{name}.new.npy"
        np.save(temporary, array)
        os.replace(temporary, self.folder / f"{name}.npy")

    @contextlib.contextmanager
    def filling(self, name: str, shape: tuple[int, ...]) -> Iterator[NDArray[np.float32]]:
        """An array on disk to be filled bit by bit; it is there when all of it is."""
        temporary = self.folder / f"{name}.new.npy"
        array = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
        yield array
        array.flush()
        os.replace(temporary, self.folder / f"{name}.npy")

    def load(self, name: str) -> NDArray[Any]:
        """An array, read from disk as it is used."""
        found: NDArray[Any] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return found

    def drop(self, name: str) -> None:
        """Forget an array that is not needed any more."""
        (self.folder / f"{name}.npy").unlink(missing_ok=True)

    def summary(self) -> dict[str, Any] | None:
        """What :meth:`publish` was told, if the work was finished before and only not all of it in place."""
        try:
            found = json.loads((self.folder / FINISHED).read_text(encoding="utf-8"))
        except OSError:
            return None
        self._move(found["files"])
        return dict(found["summary"])

    def publish(self, files: Mapping[str, Path], summary: Mapping[str, Any] | None = None) -> None:
        """Move finished files to their places, in this order, and remove the folder; once begun, nothing stops it."""
        places = {name: str(place) for name, place in files.items()}
        self._write(FINISHED, json.dumps({"files": places, "summary": dict(summary or {})}).encode())
        self._move(places)

    def _move(self, places: Mapping[str, str]) -> None:
        for name, place in places.items():
            if (self.folder / name).exists():
                os.replace(self.folder / name, place)
        for path in self.folder.iterdir():
            if path.name != FINISHED:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.folder)

    def _write(self, name: str, content: bytes) -> None:
        temporary = self.folder / f"{name}.new"
        temporary.write_bytes(content)
        os.replace(temporary, self.folder / name)


def _differences(stored: Any, wanted: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two plans differ: the way there, and both values."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        pairs = {name: (stored.get(name), wanted.get(name)) for name in {**stored, **wanted}}
    elif isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        pairs = {str(number): pair for number, pair in enumerate(zip(stored, wanted, strict=True))}
    elif stored == wanted:
        return
    else:
        yield key, stored, wanted
        return
    for name, (before, now) in pairs.items():
        yield from _differences(before, now, f"{key} {name}".lstrip())
