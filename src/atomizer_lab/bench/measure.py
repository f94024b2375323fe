"""Time, peak memory, and what this machine can do at best."""

from __future__ import annotations

import ctypes
import gc
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the shortest wall time of ``repeats`` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_extra_bytes(call: Callable[[], object]) -> int:
    """Return how far resident memory rose above its level before ``call``, at its highest."""
    gc.collect()
    if platform.system() == "Linux":
        ctypes.CDLL(None).malloc_trim(0)  # give freed memory back, so that it is not counted as already there
    before = _resident("VmRSS")
    try:
        CLEAR.write_text("5")  # the kernel forgets the old peak
    except OSError:
        return _sampled_peak(call) - before
    call()
    return max(0, _resident("VmHWM") - before)


def resident_bytes(process: int | None) -> int:
    """Return the resident memory of a process; 0 where it is unknown."""
    try:
        return _resident("VmRSS", Path(f"/proc/{process}/status"))
    except (OSError, StopIteration):
        return 0


def _resident(field: str, status: Path = STATUS) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _sampled_peak(call: Callable[[], object]) -> int:
    peak, done = _resident("VmRSS"), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, _resident("VmRSS"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        call()
    finally:
        done.set()
        thread.join()
    return max(peak, _resident("VmRSS"))


def matrix_product_speed(size: int = 2048, repeats: int = 8) -> float:
    """Return the FLOPs per second of a large float32 matrix product."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / seconds(lambda: a @ b, repeats)
