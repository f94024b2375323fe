"""The unfinished work of a prediction, in a folder beside its output, from which a killed prediction continues.

OUTPUT.parts/lock          held by the process that writes
OUTPUT.parts/plan.json     what is computed from what; another plan cannot use these parts
OUTPUT.parts/NAME.npy      a finished piece of work with its checksum, complete or not there at all
OUTPUT.parts/decoded.txt   how many positions were decoded, a line per window
OUTPUT.parts/finished.json all work is done, and files are moved to their final names

Nothing in the folder is trusted: parts whose checksum is wrong are computed again, and where files go follows from the
output alone.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import shutil
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from atomizer_io.durable import publish, sync_folder
from atomizer_io.errors import ConfigError, is_utf8, size_text
from atomizer_io.locks import LOCK, locked
from atomizer_io.prediction.engines import ThisProcess
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.plans import Plan, check_same, stored_plan
from atomizer_io.progress import progress_bar

SPARE_BYTES = 64 << 20
PLAN, FINISHED, DECODED = "plan.json", "finished.json", "decoded.txt"
NEW = ".new"  # in the name of a file that is not complete yet
MODEL = "model-"  # how the folder of a model that was only in memory begins
STORE = "store-"  # and that of a finished product of many files
DIGEST = 16  # bytes
PIECE = 4 << 20  # bytes of a file in memory at a time


class WindowOutputs(NamedTuple):
    """What a worker returns of a window: its numbers, and how many positions were decoded for them."""

    values: NDArray[Any]
    decoded: int


class Named(Protocol):
    """A window of a raster or a point cloud, whose ``name`` is that of the file of its outputs."""

    @property
    def name(self) -> str:
        """Return the name."""
        ...


Window = TypeVar("Window", bound=Named)


class PartsFolder:
    """The folder with the finished parts of one output file, locked against other predictions.

    It is made first, because it refuses an output that cannot be written; :meth:`begin` follows once the plan is known.
    As a context manager it leaves nothing behind after an error before the first window was finished.
    """

    def __init__(
        self,
        output: Path,
        execution: Execution = Execution(),
        *,
        beside: Sequence[Path] = (),
        inputs: Iterable[Path] = (),
    ) -> None:
        """Create and lock the folder; neither ``output`` nor the files ``beside`` it may be ``inputs``."""
        self.output, self.folder = output, output.with_name(output.name + ".parts")
        self.resume, self.overwrite = execution.resume, execution.overwrite
        self.inputs = {path.resolve() for path in inputs}
        self._check_names([output, *beside])
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise ConfigError(
                f"{self.folder} is not a folder, but the prediction needs a folder of this name: remove it"
            )
        self._made = [folder for folder in self.folder.parents if not folder.exists()]  # the innermost first
        try:
            self._lock = locked(self.folder, output)
        except OSError as error:
            raise ConfigError(f"cannot write to {self.folder}: {error.strerror or error}") from error
        self.present = sorted(path.name for path in self.folder.iterdir() if path.name != LOCK and NEW not in path.name)
        self.kept, self._begun = bool({*self.present} - {PLAN}), False
        self._sound: set[str] = set()
        self._warned = False
        try:
            self._check_there([output, *beside])
        except ConfigError as error:
            self.__exit__(type(error), error, None)
            raise

    def _check_names(self, written: Collection[Path]) -> None:
        own = next((path for path in written if path.resolve() in self.inputs), None)
        if own is not None:
            raise ConfigError(f"{own} is an input of the prediction: name another output")
        folder = next((path for path in written if path.is_dir()), None)
        if folder is not None:
            raise ConfigError(f"{folder} is a folder, but the output is a file: name another output")
        if not is_utf8(str(self.output.absolute())):
            raise ConfigError(
                f"{self.output} has a name that is not UTF-8, which GDAL cannot write: name another output"
            )

    def _check_there(self, written: Iterable[Path]) -> None:
        """Refuse to replace existing files, unless ``overwrite`` or ``resume`` allows it."""
        there = next((path for path in written if path.exists()), None)
        if there is not None and not self.overwrite and not (self.resume and self.present):
            raise ConfigError(f"{there} exists: --overwrite replaces it")
        if self.kept and not self.resume and not self.overwrite:
            raise ConfigError(
                f"{self.folder} has an unfinished prediction{self._described()}: --resume continues it if model, "
                "inputs and options are unchanged; --overwrite starts again"
            )

    def _described(self) -> str:
        """Return what is known about the prediction that left these parts."""
        stored = stored_plan(self.folder / PLAN)
        if stored is None:
            return ""
        day = datetime.datetime.fromtimestamp((self.folder / PLAN).stat().st_mtime).strftime("%Y-%m-%d %H:%M")
        model = stored["options"].get("--model")
        return f" of {day}" + (f" with the model {model}" if isinstance(model, str) else "")

    def finish(
        self, plan: Plan, files: Mapping[str, Path], needed: int, work: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Do the ``work`` of a plan, move its files to their final paths, remove the folder, and return its summary.

        Work that a killed run finished is not done again. ``files`` and ``needed`` are those of :meth:`begin`; files
        move in that order, and no kill loses anything.
        """
        self.begin(plan, files, needed=needed)
        summary = self._finished() if (self.folder / FINISHED).exists() else None
        if summary is None:
            if (self.folder / FINISHED).exists():
                self.warn_damaged(FINISHED)
                (self.folder / FINISHED).unlink()
            summary = work()
            paths = {name: self.folder / name for name in files}
            digests = {name: self._digest(path, name, path.stat().st_size).hex() for name, path in paths.items()}
            content = json.dumps({"files": digests, "summary": summary}).encode()
            self._write(FINISHED, content + b"\n" + self._check(content))
        # nothing here is removed before the files and their names are on the disk
        publish({self.folder / name: path for name, path in files.items() if (self.folder / name).exists()})
        for folder in self._made:
            sync_folder(folder.parent)
        for path in self.folder.iterdir():
            if path.name not in (FINISHED, LOCK):
                _remove(path)
        shutil.rmtree(self.folder)
        return summary

    def begin(self, plan: Plan, files: Mapping[str, Path], *, needed: int) -> None:
        """Continue with the parts that are there if they belong to ``plan``, or start again.

        ``files`` are those that :meth:`finish` moves, by their names in the folder, in that order; ``needed`` is how
        many bytes will be written at most, which must be free.
        """
        self._check_names(files.values())
        self._check_there(files.values())
        identity = json.dumps([plan.inputs, plan.resolved]).encode()
        self.files, self.mark = dict(files), hashlib.blake2b(identity, digest_size=DIGEST).digest()
        if self.present and self.resume:
            self._continue(plan)
        else:
            for path in self.folder.iterdir():
                if path.name != LOCK:
                    _remove(path)
            self.kept = False
        self._begun = True
        self._write(PLAN, f"{json.dumps(asdict(plan), indent=1)}\n".encode())
        free = shutil.disk_usage(self.folder).free + sum(path.stat().st_size for path in self.folder.iterdir())
        if free < needed + SPARE_BYTES:
            raise ConfigError(
                f"{self.folder}: {size_text(free)} are free, but about {size_text(needed + SPARE_BYTES)} are needed"
            )

    def _continue(self, plan: Plan) -> None:
        """Refuse parts of another plan; remove what no prediction leaves, such as links to elsewhere."""
        stored = stored_plan(self.folder / PLAN)
        if stored is None and not (self.present == [FINISHED] and self._finished() is not None):
            raise ConfigError(
                f"cannot continue with {self.folder}: its {PLAN} is damaged or missing, so the parts cannot be "
                "identified; --overwrite starts again"
            )
        if stored is not None:
            check_same(stored, plan, self.folder)
        for path in self.folder.iterdir():
            folder = path.is_dir() and not path.name.startswith((MODEL, STORE))
            if NEW in path.name or path.is_symlink() or not (path.is_file() or path.is_dir()) or folder:
                if NEW not in path.name:
                    self.warn_damaged(path.name)
                _remove(path)

    def __enter__(self) -> PartsFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock; after an error, remove a folder without results, or add a note on how to continue."""
        failed = isinstance(error, Exception | KeyboardInterrupt)
        if error is not None and failed and self.kept and self._begun:
            error.add_note(f"{self.folder} keeps the finished parts: --resume continues, --overwrite starts again")
        if not self.kept and (failed if self._begun else not self.present):
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # others may have written there
                for folder in self._made:
                    folder.rmdir()
        self._lock.close()

    def __contains__(self, name: str) -> bool:
        """Return whether an array is as it was saved; a damaged one is removed."""
        name = f"{name}.npy"
        path = self.folder / name
        if name in self._sound or not os.path.lexists(path):
            return name in self._sound
        try:
            length = path.stat().st_size - DIGEST
            with path.open("rb") as file:
                file.seek(max(0, length))
                good = length >= 0 and file.read() == self._digest(path, name, length)
        except OSError:
            good = False
        if good:
            self._sound.add(name)
        else:
            self.warn_damaged(name)
            _remove(path)
        return good

    def compute(
        self, function: Callable[[Window], WindowOutputs], windows: Collection[Window], total: int, execution: Execution
    ) -> Iterator[Window]:
        """Compute the outputs of ``windows``, of ``total`` in all, by an engine; yield each when they are saved."""
        initial = total - len(windows)
        with progress_bar(total, initial=initial, unit=" windows", show=execution.progress) as bar:
            for window, outputs in (execution.engine or ThisProcess()).run(function, windows):
                self.save(window.name, outputs.values, outputs.decoded)
                bar.update()
                yield window

    def save(self, name: str, array: NDArray[Any], decoded: int | None = None) -> None:
        """Save an array so that it is there completely or not at all; :meth:`decoded` adds up ``decoded``."""
        if decoded is not None:
            line = f"{name} {decoded}"
            with (self.folder / DECODED).open("a", encoding="utf-8") as file:
                file.write(f"{line} {zlib.crc32(line.encode(), zlib.crc32(self.mark)):08x}\n")
        temporary = self.folder / f"{name}{NEW}.npy"
        np.save(temporary, array)
        self._keep(temporary, name)

    @contextlib.contextmanager
    def filling(self, name: str, shape: tuple[int, ...], kind: type = np.float32) -> Iterator[NDArray[Any]]:
        """Yield an array on disk to be filled; it gets its name when it is complete."""
        temporary = self.folder / f"{name}{NEW}.npy"
        array = np.lib.format.open_memmap(temporary, "w+", kind, shape)
        yield array
        array.flush()
        self._keep(temporary, name)

    def _keep(self, temporary: Path, name: str) -> None:
        """Append the checksum of an array to its file, which then gets its name."""
        final = f"{name}.npy"
        digest = self._digest(temporary, final, temporary.stat().st_size)
        with temporary.open("ab") as file:
            file.write(digest)
        self._sound.add(final)
        os.replace(temporary, self.folder / final)
        self.kept |= name.startswith("window-")

    def load(self, name: str) -> NDArray[Any]:
        """Return a saved array, read from disk as it is used."""
        array: NDArray[Any] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return array

    def drop(self, name: str) -> None:
        """Delete an array that is not needed any more."""
        (self.folder / f"{name}.npy").unlink(missing_ok=True)
        self._sound.discard(f"{name}.npy")

    def decoded(self, names: Iterable[str]) -> int | None:
        """Return the sum of the ``decoded`` of these parts, or None if it is unknown for any of them."""
        counts: dict[str, int] = {}
        with contextlib.suppress(OSError):
            for line in (self.folder / DECODED).read_text(encoding="utf-8", errors="replace").splitlines():
                text, _, check = line.rpartition(" ")
                if check == f"{zlib.crc32(text.encode(), zlib.crc32(self.mark)):08x}":
                    counts[text.split(" ")[0]] = int(text.split(" ")[1])
        numbers = [counts.get(name) for name in names]
        return None if None in numbers else sum(number for number in numbers if number is not None)

    def _digest(self, path: Path, name: str, length: int) -> bytes:
        """Return the checksum of plan, name and the first ``length`` bytes, which no other part or plan shares."""
        digest = hashlib.blake2b(self.mark + name.encode() + b"\0", digest_size=DIGEST)
        with path.open("rb") as file:
            while length > 0 and (piece := file.read(min(length, PIECE))):
                digest.update(piece)
                length -= len(piece)
        return digest.digest()

    def warn_damaged(self, name: str) -> None:
        """Warn once that a part is damaged."""
        if not self._warned:
            warnings.warn(f"{self.folder}: {name} is damaged; damaged parts are computed again", stacklevel=4)
        self._warned = True

    def _finished(self) -> dict[str, Any] | None:
        """Return the summary that :meth:`finish` wrote, if it and all of its files are undamaged."""
        try:
            content, _, check = (self.folder / FINISHED).read_bytes().rpartition(b"\n")
            if check != self._check(content):
                raise ValueError
            record = json.loads(content)
            summary = dict(record["summary"])
            for name, final in self.files.items():  # here, or at its final path
                path = self.folder / name if (self.folder / name).exists() else final
                if not path.is_file() or self._digest(path, name, path.stat().st_size).hex() != record["files"][name]:
                    raise ValueError
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return summary

    def _check(self, content: bytes) -> bytes:
        return hashlib.blake2b(self.mark + content, digest_size=DIGEST).hexdigest().encode()

    def _write(self, name: str, content: bytes) -> None:
        temporary = self.folder / f"{name}{NEW}"
        temporary.write_bytes(content)
        os.replace(temporary, self.folder / name)


def is_done(output: Path) -> bool:
    """Return whether an output is complete: the file is there, and no part of it any more."""
    folder = output.with_name(output.name + ".parts")
    return output.is_file() and not (folder.is_dir() and any(path.name != LOCK for path in folder.iterdir()))


def _remove(path: Path) -> None:
    """Remove a file, a link or a folder; what a link points to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
