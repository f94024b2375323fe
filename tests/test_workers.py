"""Processes that work for another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atomizer_io.workers import spawned

LONG_S = 60.0


def wait_long(folder: str) -> None:
    """Say which process this is, and wait."""
    Path(folder, "process").write_text(str(os.getpid()))
    time.sleep(LONG_S)


def hand_out(folder: str) -> None:
    """Let another process wait."""
    with spawned(1) as pool:
        pool.submit(wait_long, folder).result()


def alive(process: int) -> bool:
    """Whether a process works; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_a_killed_process_leaves_none_behind(tmp_path: Path) -> None:
    number_file = tmp_path / "process"
    parent = subprocess.Popen([sys.executable, __file__, str(tmp_path)])
    until = time.monotonic() + LONG_S
    while not (number_file.exists() and number_file.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    worker = int(number_file.read_text())
    assert alive(worker)
    parent.kill()
    assert parent.wait() == -signal.SIGKILL
    until = time.monotonic() + LONG_S / 2
    while alive(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(worker)


if __name__ == "__main__":
    hand_out(sys.argv[1])
