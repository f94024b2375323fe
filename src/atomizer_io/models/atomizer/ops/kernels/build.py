"""Have the kernels compiled and loaded, or report why plain torch is used instead."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import functools
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from atomizer_io.models.atomizer.ops.kernels import cache
from atomizer_io.models.atomizer.ops.kernels.compiler import PRECISIONS, Compiler, CompilerError, find_compiler
from atomizer_io.models.atomizer.ops.kernels.layout import TASKS, facts

HELP = "Install a C compiler that works (such as gcc), or set ATOMIZER_KERNELS=off to silence this message."

logger = logging.getLogger(__name__)
_logged: set[str] = set()  # topics this process has logged
_avoided: list[bool] = []  # not empty while plain torch is to be used


class Disagreement(OSError):
    """A library whose structures or limits are not those of ``layout.py``."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The kernels of one source for one precision; without ``functions``, the reason why there are none."""

    reason: str
    functions: ctypes.CDLL | None = None
    folder: Path | None = None
    openmp: bool = False
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Status:
    """Which path the model takes on this CPU in float32, and why.

    ``library`` is the folder that the compiled kernels were loaded from, ``threads`` how many threads they (or torch,
    on the plain path) use now.
    """

    path: Literal["compiled", "plain"]
    reason: str
    library: Path | None
    compiler: str | None
    openmp: bool
    threads: int


def status() -> Status:
    """Which path is in use and why; compiles the kernels if that has not happened yet."""
    parts = [loaded(source, torch.float32) for source in TASKS]
    worst = next((part for part in parts if part.functions is None), parts[0])
    compiler = None if _switched_off() else find_compiler()
    threads, reason = torch.get_num_threads(), worst.reason
    if worst.functions is not None and not _worthwhile(worst):
        reason = f"they were compiled without OpenMP, for one thread, and torch has {threads}"
    return Status(
        path="plain" if worst.functions is None or not _worthwhile(worst) else "compiled",
        reason=reason,
        library=worst.folder,
        compiler=None if compiler is None else str(compiler),
        openmp=worst.openmp,
        threads=threads,
    )


def available() -> bool:
    """Whether compiled kernels are used here."""
    return status().path == "compiled"


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Use plain torch meanwhile, whatever is available; for measurements and comparisons in one thread."""
    _avoided.append(True)
    try:
        yield
    finally:
        _avoided.pop()


def wanted() -> bool:
    """Whether neither the environment nor :func:`without_kernels` switches to plain torch."""
    return not _avoided and not _switched_off()


def library(source: str, dtype: torch.dtype) -> Loaded | None:
    """The kernels of ``source``.c for one precision, or None where plain torch is to be used."""
    if _avoided:
        return None
    kernels = loaded(source, dtype)
    return kernels if kernels.functions is not None and _worthwhile(kernels) else None


@functools.cache
def loaded(source: str, dtype: torch.dtype) -> Loaded:
    """The kernels of ``source``.c, loaded once per process; a failure is logged once, too."""
    if _switched_off():
        return Loaded("ATOMIZER_KERNELS is off")
    if dtype not in PRECISIONS:
        return Loaded(f"there are no kernels for {dtype}")
    if os.name != "posix":
        return Loaded("the kernels are only compiled on Linux and macOS")
    compiler = find_compiler()
    if compiler is None:
        return _failed("no C compiler (cc, gcc or clang) was found")
    try:
        return _load(source, dtype, compiler)
    except CompilerError as error:
        logger.debug("the output of %s for %s.c:\n%s", compiler, source, error.output)
        return _failed(str(error))
    except OSError as error:
        return _failed(f"the compiled {source}.c cannot be loaded ({error})")


def _load(source: str, dtype: torch.dtype, compiler: Compiler) -> Loaded:
    """From the user's folder, or from a temporary one where that cannot be used."""
    try:
        return _load_from(cache.user_folder(), source, dtype, compiler, "compiled for this machine, and kept")
    except (CompilerError, Disagreement):
        raise  # another folder would not help
    except OSError as error:
        reason = f"compiled for this process only, because the cache folder cannot be used ({error})"
        _log_once("cache", f"The kernels are {reason}. Set XDG_CACHE_HOME to a folder of your own to keep them.")
    return _load_from(cache.temporary_folder(), source, dtype, compiler, reason)


def _load_from(folder: Path, source: str, dtype: torch.dtype, compiler: Compiler, reason: str) -> Loaded:
    """Load the library in ``folder``, compiled by one process if it is missing, and once more if it does not load."""
    target = folder / f"{source}-{compiler.key(source, dtype)}.so"
    functions = _checked(target, source, dtype)
    if functions is None:
        with cache.locked(folder):
            functions = _checked(target, source, dtype)  # another process may have been faster
            if functions is None:
                with tempfile.TemporaryDirectory(dir=folder) as temporary:
                    built = Path(temporary, target.name)
                    compiler.compile(source, dtype, built)
                    cache.keep(built, target)
        functions = functions or _checked(target, source, dtype, final=True)
    assert functions is not None
    openmp = bool(functions.openmp())
    if not openmp:
        _log_once("openmp", f"{compiler} does not know OpenMP: the kernels are used only where torch has one thread.")
    return Loaded(reason, functions, folder, openmp, functions.lanes())


def _checked(path: Path, source: str, dtype: torch.dtype, final: bool = False) -> ctypes.CDLL | None:
    """The library if it is there, loads and agrees with ``layout.py``; else None, or on the ``final`` try the error."""
    try:
        functions = cache.load(path)
        expected = facts(source, dtype)
        try:
            stated = tuple(_facts(functions)(i) for i in range(len(expected)))
        except AttributeError:
            stated = ()
        if stated != expected:
            _ctypes.dlclose(functions._handle)  # or the next library of this name would be this one
            raise Disagreement(f"{path.name} states {stated} of its structures and limits, {expected} is needed")
        return functions
    except OSError as error:
        if final:
            raise
        logger.debug("%s", error)
        return None


def _facts(functions: ctypes.CDLL) -> Callable[[int], int]:
    function = functions.fact
    function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int64
    return function


def _worthwhile(kernels: Loaded) -> bool:
    """Whether the kernels are faster than plain torch, which uses all of torch's threads."""
    return kernels.openmp or torch.get_num_threads() == 1


def _switched_off() -> bool:
    return os.environ.get("ATOMIZER_KERNELS", "on").lower() in ("off", "0", "no")


def _failed(reason: str) -> Loaded:
    _log_once("plain", f"The model runs without its compiled kernels, up to three times slower: {reason}. {HELP}")
    return Loaded(reason)


def _log_once(topic: str, message: str) -> None:
    if topic not in _logged:
        _logged.add(topic)
        logger.warning("%s", message)
