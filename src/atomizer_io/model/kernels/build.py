"""Compile the C sources of this folder and load them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SOURCES = Path(__file__).parent
# Not -ffast-math: the online softmax starts from −∞.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared")
THREADS = ("-fopenmp",)  # left out where the compiler does not know it: one thread then
PRECISIONS = {torch.float32: ("-DREAL=float",), torch.float64: ("-DREAL=double", "-DIS_DOUBLE")}

logger = logging.getLogger(__name__)


@functools.cache
def library(name: str, dtype: torch.dtype) -> ctypes.CDLL | None:
    """The kernels of ``name``.c for one precision, or None where they cannot be had (the reason is logged)."""
    if os.environ.get("ATOMIZER_KERNELS", "on").lower() in ("off", "0", "no") or dtype not in PRECISIONS:
        return None
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        logger.info("no C compiler found: using torch operations instead of compiled kernels")
        return None
    try:
        return ctypes.CDLL(str(_compiled(name, compiler, PRECISIONS[dtype])))
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        logger.warning("compiling %s.c with %s failed, using torch operations instead: %s", name, compiler, reason)
        return None


def available() -> bool:
    """Whether compiled kernels can be used here."""
    return library("cells", torch.float32) is not None


def _fill(task: ctypes.Structure, values: Mapping[str, Any]) -> None:
    """Set the fields of a task; tensors as their address, None as a null pointer."""
    for name, value in values.items():
        if isinstance(value, Tensor):
            if not value.is_contiguous() or value.device.type != "cpu":
                raise ValueError(f"{name} of a kernel must be contiguous and on the CPU")
            value = value.data_ptr()
        if value is not None:
            setattr(task, name, value)


def _shares(work: NDArray[np.integer[Any]]) -> list[int]:
    """Where the items divide into ranges of about equal work, one per thread: first, …, last."""
    done = np.cumsum(work)
    threads = max(1, min(torch.get_num_threads(), len(done)))
    inner = np.searchsorted(done, done[-1] * np.arange(1, threads) / threads).tolist() if len(done) else []
    return [0, *inner, len(done)]


def run(
    function: Any,
    kind: type[ctypes.Structure],
    settings: Mapping[str, Any],
    sums: Mapping[str, Tensor],
    work: NDArray[np.integer[Any]],
) -> dict[str, Tensor]:
    """Call a kernel on all items, a thread each for shares of about equal ``work``.

    The kernel adds to tensors shaped like ``sums``; each thread has its own, and their totals are returned.
    """
    bounds = _shares(work)
    count = len(bounds) - 1
    tasks, partial = (kind * count)(), []
    for task in tasks:
        own = {name: torch.zeros_like(tensor) for name, tensor in sums.items()}
        _fill(task, {**settings, **own})
        partial.append(own)
    if function(ctypes.byref(tasks), (ctypes.c_int64 * (count + 1))(*bounds), ctypes.c_int(count)):
        raise MemoryError("no memory for the working space of a kernel")
    return {name: torch.stack([own[name] for own in partial]).sum(dim=0) for name in sums}


def _compiled(name: str, compiler: str, precision: tuple[str, ...]) -> Path:
    """The shared object, compiled if it is not in the cache; renamed into place, so that processes may race."""
    sources = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]")))
    identity = f"{name} {compiler} {FLAGS} {THREADS} {precision} {platform.machine()} {_cpu()}".encode()
    digest = hashlib.sha256(sources + identity).hexdigest()[:16]
    target = _cache() / f"{name}-{digest}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as place:
            built = Path(place, "kernel.so")
            rest = [*precision, "-o", str(built), str(SOURCES / f"{name}.c"), "-lm"]
            try:
                _call(compiler, *FLAGS, *THREADS, *rest)
            except subprocess.CalledProcessError:
                _call(compiler, *FLAGS, "-Wno-unknown-pragmas", *rest)
                logger.warning("%s does not know OpenMP: the kernels of %s.c use one thread", compiler, name)
            built.replace(target)
    return target


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)


def _cache() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atomizer_io"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / "atomizer_io"


def _cpu() -> str:
    """What decides the instruction set: a cache folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor()
