"""What a prediction has done so far, in a folder beside its output: a killed one goes on from there.

OUTPUT.parts/lock          held by the process that writes
OUTPUT.parts/plan.json     what is computed from what; another plan cannot go on with these parts
OUTPUT.parts/NAME.npy      a finished piece of work with its checksum, complete or not there at all
OUTPUT.parts/asked.txt     at how many positions the model was asked, a line per window
OUTPUT.parts/finished.json all work is done, and files are moved to their places

Nothing in the folder is trusted: parts whose checksum is wrong are computed anew, and where files go follows from the
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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError
from atomizer_io.prediction.locks import LOCK, locked
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.plans import Plan, check_same, stored_plan

SPARE_BYTES = 64 << 20
PLAN, FINISHED, ASKED = "plan.json", "finished.json", "asked.txt"
NEW = ".new"  # in the name of a file that is not complete yet
MODEL = "model-"  # how the folder of a model that was only in memory begins
DIGEST = 16  # bytes
PIECE = 4 << 20  # bytes of a file in memory at a time


class Parts:
    """The folder of parts of one output file, which nobody else writes meanwhile.

    Made first of all, as it refuses what cannot be written; :meth:`begin` is called when it is known what will be
    computed. As a context manager it leaves nothing after an error before the first window was kept.
    """

    def __init__(
        self,
        output: Path,
        execution: Execution = Execution(),  # noqa: B008  (frozen)
        *,
        beside: Sequence[Path] = (),
        inputs: Iterable[Path] = (),
    ) -> None:
        """``beside`` are other files that will be written; none of them may be one of the ``inputs``."""
        self.output, self.folder = output, output.with_name(output.name + ".parts")
        self.resume, self.overwrite = execution.resume, execution.overwrite
        self.inputs = {path.resolve() for path in inputs}
        self._check_names([output, *beside])
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise ConfigError(f"{self.folder} is no folder, but the prediction needs one of this name: remove it")
        self._made = [folder for folder in self.folder.parents if not folder.exists()]  # the innermost first
        try:
            self._lock = locked(self.folder, output)
        except OSError as error:
            raise ConfigError(f"cannot write to {self.folder}: {error.strerror or error}") from error
        self.found = sorted(path.name for path in self.folder.iterdir() if path.name != LOCK and NEW not in path.name)
        self.kept, self._begun = bool({*self.found} - {PLAN}), False
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
            raise ConfigError(f"{own} is what the prediction reads: name another output")
        folder = next((path for path in written if path.is_dir()), None)
        if folder is not None:
            raise ConfigError(f"{folder} is a folder, but a file of this name is to be written: name another output")

    def _check_there(self, written: Iterable[Path]) -> None:
        """Refuse to replace what is there, unless that is wanted."""
        there = next((path for path in written if path.exists()), None)
        if there is not None and not self.overwrite and not (self.resume and self.found):
            raise ConfigError(f"{there} exists: --overwrite replaces it")
        if self.kept and not self.resume and not self.overwrite:
            raise ConfigError(
                f"{self.folder} has an unfinished prediction{self._described()}: --resume goes on with it, if model, "
                "inputs and options are still the same; --overwrite starts anew"
            )

    def _described(self) -> str:
        """What is known of the prediction whose parts were found."""
        stored = stored_plan(self.folder / PLAN)
        if stored is None:
            return ""
        day = datetime.datetime.fromtimestamp((self.folder / PLAN).stat().st_mtime).strftime("%Y-%m-%d %H:%M")
        model = stored["options"].get("--model")
        return f" of {day}" + (f" with the model {model}" if isinstance(model, str) else "")

    def begin(self, plan: Plan, files: Mapping[str, Path], *, needed: int) -> None:
        """Compare with what is there, or start anew.

        ``files`` are those that :meth:`publish` moves, by their names in the folder, in that order; ``needed`` is how
        many bytes will be written at most, which must be free.
        """
        self._check_names(files.values())
        self._check_there(files.values())
        self.files, self.mark = dict(files), plan.mark
        if self.found and self.resume:
            self._go_on(plan)
        else:
            for path in self.folder.iterdir():
                if path.name != LOCK:
                    _remove(path)
            self.kept = False
        self._begun = True
        self._write(PLAN, plan.text().encode())
        free = shutil.disk_usage(self.folder).free + sum(path.stat().st_size for path in self.folder.iterdir())
        if free < needed + SPARE_BYTES:
            raise ConfigError(f"{self.folder}: {size(free)} are free, about {size(needed + SPARE_BYTES)} are needed")

    def _go_on(self, plan: Plan) -> None:
        """Refuse another plan; remove what no prediction leaves, such as links to elsewhere."""
        stored = stored_plan(self.folder / PLAN)
        if stored is None and not (self.found == [FINISHED] and self._finished() is not None):
            raise ConfigError(
                f"cannot go on with {self.folder}: its {PLAN} is damaged or missing, so that nobody knows what the "
                "parts are of; --overwrite starts anew"
            )
        if stored is not None:
            check_same(stored, plan, self.folder)
        for path in self.folder.iterdir():
            folder = path.is_dir() and not path.name.startswith(MODEL)
            if NEW in path.name or path.is_symlink() or not (path.is_file() or path.is_dir()) or folder:
                if NEW not in path.name:
                    self._warn(path.name)
                _remove(path)

    def __enter__(self) -> Parts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let others in; after an error, leave nothing if nothing was kept, else say what can be done with it."""
        failed = isinstance(error, Exception | KeyboardInterrupt)
        if error is not None and failed and self.kept and self._begun:
            error.add_note(f"{self.folder} keeps what is done: --resume goes on with it, --overwrite starts anew")
        if not self.kept and (failed if self._begun else not self.found):
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # others may have written there
                for folder in self._made:
                    folder.rmdir()
        self._lock.close()

    def __contains__(self, name: str) -> bool:
        return self.sound(f"{name}.npy")

    def path(self, name: str) -> Path:
        """Where a file of the folder is."""
        return self.folder / name

    def save(self, name: str, array: NDArray[Any], asked: int | None = None) -> None:
        """Keep an array; whoever looks sees all of it or nothing. ``asked`` is counted by :meth:`asked`."""
        if asked is not None:
            line = f"{name} {asked}"
            with self.path(ASKED).open("a", encoding="utf-8") as file:
                file.write(f"{line} {zlib.crc32(line.encode(), zlib.crc32(self.mark)):08x}\n")
        temporary = self.folder / f"{name}{NEW}.npy"
        np.save(temporary, array)
        self._keep(temporary, name)

    @contextlib.contextmanager
    def filling(self, name: str, shape: tuple[int, ...]) -> Iterator[NDArray[np.float32]]:
        """An array on disk to be filled bit by bit; it is there when all of it is."""
        temporary = self.folder / f"{name}{NEW}.npy"
        array = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
        yield array
        array.flush()
        self._keep(temporary, name)

    def _keep(self, temporary: Path, name: str) -> None:
        self.seal(temporary.name, f"{name}.npy")
        os.replace(temporary, self.folder / f"{name}.npy")
        self.kept |= name.startswith("window-")

    def load(self, name: str) -> NDArray[Any]:
        """An array, read from disk as it is used."""
        found: NDArray[Any] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return found

    def drop(self, name: str) -> None:
        """Forget an array that is not needed any more."""
        (self.folder / f"{name}.npy").unlink(missing_ok=True)
        self._sound.discard(f"{name}.npy")

    def asked(self, names: Iterable[str]) -> int | None:
        """The sum of what :meth:`save` was told of these parts; None if it is not known of all."""
        found: dict[str, int] = {}
        with contextlib.suppress(OSError):
            for line in self.path(ASKED).read_text(encoding="utf-8", errors="replace").splitlines():
                said, _, check = line.rpartition(" ")
                if check == f"{zlib.crc32(said.encode(), zlib.crc32(self.mark)):08x}":
                    found[said.split(" ")[0]] = int(said.split(" ")[1])
        numbers = [found.get(name) for name in names]
        return None if None in numbers else sum(number for number in numbers if number is not None)

    def seal(self, name: str, final: str | None = None) -> None:
        """Put the checksum of a file of the folder at its end; ``final`` is the name that it will have."""
        path, final = self.folder / name, final or name
        digest = self._digest(path, final, path.stat().st_size)
        with path.open("ab") as file:
            file.write(digest)
        self._sound.add(final)

    def sound(self, name: str) -> bool:
        """Whether a file of the folder is as it was sealed; one that is not is removed."""
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
            self._warn(name)
            _remove(path)
        return good

    def _digest(self, path: Path, name: str, length: int) -> bytes:
        """Of the plan, the name and the first ``length`` bytes: another part, or one of another plan, is not sound."""
        found = hashlib.blake2b(self.mark + name.encode() + b"\0", digest_size=DIGEST)
        with path.open("rb") as file:
            while length > 0 and (piece := file.read(min(length, PIECE))):
                found.update(piece)
                length -= len(piece)
        return found.digest()

    def _warn(self, name: str) -> None:
        if not self._warned:
            warnings.warn(f"{self.folder}: {name} is damaged; what is damaged is computed anew", stacklevel=4)
        self._warned = True

    def summary(self) -> dict[str, Any] | None:
        """What :meth:`publish` was told, if the work was finished before and only not all of it in place."""
        path = self.folder / FINISHED
        if not path.exists():
            return None
        summary = self._finished()
        if summary is None:
            self._warn(FINISHED)
            path.unlink()
            return None
        self._move()
        return summary

    def _finished(self) -> dict[str, Any] | None:
        """What :meth:`publish` wrote, if that is as it was, of this plan, and all of its files are."""
        path = self.folder / FINISHED
        try:
            content, _, check = path.read_bytes().rpartition(b"\n")
            if check != self._check(content):
                raise ValueError
            found = json.loads(content)
            summary = dict(found["summary"])
            if not all(self._as_finished(name, found["files"][name]) for name in self.files):
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return summary

    def _as_finished(self, name: str, digest: str) -> bool:
        """Whether a file, here or in its place already, is the one that was finished."""
        path = self.folder / name if (self.folder / name).exists() else self.files[name]
        return path.is_file() and self._digest(path, name, path.stat().st_size).hex() == digest

    def _check(self, content: bytes) -> bytes:
        return hashlib.blake2b(self.mark + content, digest_size=DIGEST).hexdigest().encode()

    def publish(self, summary: Mapping[str, Any]) -> None:
        """Move finished files to their places, in order, and remove the folder; once begun, nothing stops it."""
        paths = {name: self.folder / name for name in self.files}
        digests = {name: self._digest(path, name, path.stat().st_size).hex() for name, path in paths.items()}
        content = json.dumps({"files": digests, "summary": dict(summary)}).encode()
        self._write(FINISHED, content + b"\n" + self._check(content))
        self._move()

    def _move(self) -> None:
        for name, place in self.files.items():
            if (self.folder / name).exists():
                os.replace(self.folder / name, place)
        for path in self.folder.iterdir():
            if path.name not in (FINISHED, LOCK):
                _remove(path)
        shutil.rmtree(self.folder)

    def _write(self, name: str, content: bytes) -> None:
        temporary = self.folder / f"{name}{NEW}"
        temporary.write_bytes(content)
        os.replace(temporary, self.folder / name)


def is_done(output: Path) -> bool:
    """Whether an output is there, and no part of it any more."""
    folder = output.with_name(output.name + ".parts")
    return output.is_file() and not (folder.is_dir() and any(path.name != LOCK for path in folder.iterdir()))


def size(count: int) -> str:
    """Bytes for people."""
    factor, unit = next((pair for pair in ((1e9, "GB"), (1e6, "MB")) if count >= pair[0]), (1e3, "kB"))
    return f"{count / factor:.1f} {unit}"


def _remove(path: Path) -> None:
    """A file, a link or a folder; what a link points to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
