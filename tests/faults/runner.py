"""Each case in a process of its own, forked from one that has imported everything, within limits of time and memory."""

from __future__ import annotations

import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atomizer_io.datasets.registry import DATASETS
from atomizer_io.errors import AtomizerError, DataError
from faults.cases import change, link_files, target_of
from faults.checks import Wrong, digest
from faults.targets import TARGETS, Target

CPU_S = 10  # of one case
IDLE_S = 10  # without any work: a process that waits for something that never comes
MEMORY_BYTES = 2 << 30
LONGEST = 3000  # characters of a message
WARM = (  # what readers import when they are called
    *("h5py", "jsonargparse", "laspy", "lazrs", "pyproj", "rasterio.features", "rasterio.warp", "scipy.ndimage"),
    *(f"atomizer_io.datasets.{target.partition('.')[0]}" for target in DATASETS.values()),
)
CLEAN, RESULT = "clean error", "result"


@dataclass(frozen=True)
class Outcome:
    """How a case ended: ``CLEAN``, ``RESULT``, or what is wrong."""

    number: int
    target: str
    changed: str
    end: str
    detail: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def good(self) -> bool:
        """Whether the case ended as promised."""
        return self.end in (CLEAN, RESULT)

    def __str__(self) -> str:
        return f"case {self.number} ({self.target}, {self.changed}): {self.end}\n{self.detail}".rstrip()


class Bench:
    """A folder in which cases are laid out one after the other, and the sound files they begin with."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.case = folder, folder / "case"
        self.seeds: dict[str, Path] = {}
        for module in WARM:
            importlib.import_module(module)
        self.digests: dict[str, str] = {}

    def seed(self, target: Target) -> Path:
        """Return the sound files of a reader, made in the folder in which its cases are read, and read once."""
        if target.name not in self.seeds:
            self._clear()
            (self.case / "in").mkdir(parents=True)
            made = self._forked(lambda: (target.make(self.case / "in"), "")[1])
            if made.end != RESULT:
                raise AssertionError(f"{target.name}: sound files cannot be made\n{made.detail}")
            kept = self.folder / "seeds" / target.name
            kept.parent.mkdir(exist_ok=True)
            (self.case / "in").rename(kept)
            self.seeds[target.name] = kept
            outcome = self._read(-1, target)
            if outcome.end != RESULT:
                raise AssertionError(f"{target.name}: sound files are not read\n{outcome}")
            self.digests[target.name] = outcome.detail
        return self.seeds[target.name]

    def run(self, number: int) -> Outcome:
        """Run a case."""
        target = target_of(number)
        self.seed(target)
        outcome = self._read(number, target)
        if outcome.end == RESULT and target.sealed and outcome.detail != self.digests[target.name]:
            return Outcome(number, target.name, outcome.changed, "another result than before the change")
        return outcome

    def _clear(self) -> None:
        shutil.rmtree(self.case, ignore_errors=True)

    def _read(self, number: int, target: Target) -> Outcome:
        """Lay out the sound files, change one unless ``number`` is negative, and read them in another process."""
        self._clear()
        link_files(self.seeds[target.name], self.case / "in")
        for name in ("out", "home", "outside"):
            (self.case / name).mkdir()
        touched, changed = self.case / "in" / "none", "nothing"
        if number >= 0:
            made = self._forked(lambda: "\n".join(map(os.fsdecode, change(number, self.case / "in", self._others()))))
            if made.end != RESULT:
                raise AssertionError(f"case {number} ({target.name}) cannot be made\n{made.detail}")
            path, _, changed = made.detail.rpartition("\n")
            touched = Path(path)
        before = self._state()
        own = (str(self.case / "out"), *([str(self.case / "in" / target.output)] if target.output else ()))
        outcome = self._forked(lambda: digest(target.read(self.case / "in", self.case / "out", touched)), own)
        end, detail = outcome.end, outcome.detail
        names = sorted({name for name, _ in before ^ self._state() if not name.startswith(own)})
        if names and outcome.good:
            end, detail = "wrote outside of the output folder", ", ".join(names)[:500]
        return Outcome(number, target.name, changed, end, detail, outcome.seconds, outcome.peak_bytes)

    def _others(self) -> list[Path]:
        """Return a sound file of each kind of reader, whatever cases ran before this one."""
        names = ("geotiff", "npy", "yaml config", "geojson", "las")
        return [path for name in names for path in sorted(self._plain(name).iterdir())]

    def _plain(self, name: str) -> Path:
        folder = self.folder / "others" / name
        if not folder.is_dir():
            folder.mkdir(parents=True)
            next(target for target in TARGETS if target.name == name).make(folder)
        return folder

    def _state(self) -> set[tuple[str, Any]]:
        """Return everything in the folder of a case but its output folder."""
        entries = set()
        for folder, folders, files in os.walk(self.case):
            if folder == str(self.case):
                folders.remove("out")
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                state = os.lstat(path)
                kind = (state.st_mode, state.st_size, state.st_mtime_ns) if name in files else state.st_mode
                entries.add((path, kind))
        return entries

    def _forked(self, work: Callable[[], str], own: tuple[str, ...] = ()) -> Outcome:
        """Call a function in a forked process, within limits if it has folders of its own; its text is the detail."""
        began = time.monotonic()
        reader, writer = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.close(reader)
            _child(work, writer, own)
        os.close(writer)
        message, killed = _listen(reader, child, began)
        os.close(reader)
        _, status, used = os.wait4(child, 0)
        seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
        if killed:
            return Outcome(-1, "", "", killed, seconds=seconds, peak_bytes=peak)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = f"took more than {CPU_S} s" if number == signal.SIGXCPU else f"died of {signal.Signals(number).name}"
            return Outcome(-1, "", "", name, message.decode("utf-8", "replace"), seconds, peak)
        try:
            end, detail = json.loads(message)
        except ValueError:
            end, detail = "ended without a word", f"status {status}"
        return Outcome(-1, "", "", end, detail, seconds, peak)


def _listen(reader: int, child: int, began: float) -> tuple[bytes, str]:
    """Return what a process writes to ``reader``, and why it had to be ended, if so."""
    message, page = b"", resource.getpagesize()
    least = int(Path("/proc/self/statm").read_text().split()[1]) * page
    worked, since = -1, began
    while True:
        if select.select([reader], [], [], 0.05)[0]:
            piece = os.read(reader, 1 << 16)
            if not piece:
                return message, ""
            message += piece
            continue
        try:
            resident = int(Path(f"/proc/{child}/statm").read_text().split()[1]) * page
            ticks = sum(map(int, Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except (OSError, IndexError):
            continue
        if ticks != worked:
            worked, since = ticks, time.monotonic()
        idle = time.monotonic() - since > IDLE_S
        if idle or resident > least + MEMORY_BYTES:
            os.kill(child, signal.SIGKILL)
            return (
                message,
                f"waited more than {IDLE_S} s" if idle else f"took more than {MEMORY_BYTES >> 30} GB of memory",
            )


def _child(work: Callable[[], str], writer: int, own: tuple[str, ...]) -> None:
    """Call the function, report how it ended, and end."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if own:
            _limit(Path(own[0]).parent)
        message = json.dumps(_ended(work, own)).encode()
        while message:
            message = message[os.write(writer, message) :]
        code = 0
    finally:
        os._exit(code)


def _ended(work: Callable[[], str], own: tuple[str, ...]) -> tuple[str, str]:
    """Return how a function ended, and its text or its error."""
    done: list[str] = []
    if own:
        sys.addaudithook(_watch(own, done))
    try:
        result = work()
    except AtomizerError as error:
        return _of_error(error, own) if not done else ("did what no reader does", "\n".join(done))
    except OSError as error:
        named = bool(own) and str(error.filename or "").startswith(os.path.dirname(own[0]))
        return (CLEAN, str(error)) if named else ("error without a name", traceback.format_exc()[-LONGEST:])
    except Wrong as error:
        return "wrong result", str(error)
    except BaseException:
        return "traceback", traceback.format_exc()[-LONGEST:]
    return (RESULT, result) if not done else ("did what no reader does", "\n".join(done))


def _of_error(error: AtomizerError, own: tuple[str, ...]) -> tuple[str, str]:
    text = str(error)
    if len(text) > LONGEST:
        return "message without end", f"{len(text)} characters: {text[:300]}"
    if isinstance(error, DataError) and own and os.path.dirname(own[0]) not in text:
        return "error without a name", text
    return CLEAN, text


def _limit(folder: Path) -> None:
    """Give a case its limits, and folders of its own for what programs write on their own."""
    soft = int(time.process_time()) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    os.chdir(folder / "out")
    os.environ["ATOMIZER_KERNELS"] = "off"  # they would be compiled anew into the empty cache of each case
    os.environ |= {
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "out" / "cache"),
        "TMPDIR": str(folder / "out"),
    }
    tempfile.tempdir = str(folder / "out")
    sys.dont_write_bytecode = True
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silent, number)
    warnings.simplefilter("ignore")
    random.seed(0)


CODE = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "pickle.find_class", "socket.connect")
CHANGES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.symlink",
    "os.link",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
)


def _watch(own: tuple[str, ...], done: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that notes programs that are started, and files that are written outside of the output folder."""

    def outside(path: Any, *, itself: bool = False) -> bool:
        """Whether a path leads outside; of a link ``itself``, where it lies counts, not where it leads."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        folder, name = os.path.split(os.fsdecode(path))
        full = os.path.join(os.path.realpath(folder), name) if itself else os.path.realpath(os.fsdecode(path))
        return not full.startswith((*own, "/dev/"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CODE or (event == "subprocess.Popen" and "laz_process" not in str(arguments[1])):
            done.append(f"{event} {arguments}"[:300])
        elif (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            if outside(arguments[0]):
                done.append(f"opened for writing: {arguments[0]}")
        elif event in CHANGES and any(outside(path, itself=True) for path in arguments[:2]):
            done.append(f"{event} {arguments}"[:300])

    return hook
